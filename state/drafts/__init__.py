"""Drafts of voices: ordered, made by whichever process has claimed them, adopted or ended.

draft.py      the row of a draft, its result, and how it becomes a voice
changes.py    transactions of several statements, money and voice included
store.py      the store: orders, workers, adoption, what is left over
"""

from state.drafts.draft import Adoption, DesignedVoice, Draft, DraftClaim
from state.drafts.store import Drafts

__all__ = ["Adoption", "DesignedVoice", "Draft", "DraftClaim", "Drafts"]
