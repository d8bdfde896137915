"""Drafts of voices: ordered, made by whichever process has them, adopted or ended. Spec 2 and 3 (Voice design).

draft.py      what is kept of a draft, and what a designer made of it
adoption.py   a draft as a voice
changes.py    every change of a draft is one of these transactions, money and voice included
store.py      the store: orders, workers, adoption, what is left over
"""

from state.drafts.draft import Adoption, DesignedVoice, Draft
from state.drafts.store import DraftClaim, Drafts

__all__ = ["Adoption", "DesignedVoice", "Draft", "DraftClaim", "Drafts"]
