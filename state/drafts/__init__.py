"""Drafts of voices: ordered, made by whichever process has claimed them, adopted or ended.

draft.py      the row of a draft, its result, and how it becomes a voice
changes.py    every change of a draft is one of these transactions, money and voice included
store.py      the store: orders, workers, adoption, what is left over
"""

from state.drafts.draft import Adoption, DesignedVoice, Draft
from state.drafts.store import DraftClaim, Drafts

__all__ = ["Adoption", "DesignedVoice", "Draft", "DraftClaim", "Drafts"]
