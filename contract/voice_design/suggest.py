"""Traits from a free description of a voice, in German or English, by tables of words: no engine runs."""

from __future__ import annotations

from contract.voice_design.replies import SuggestReply
from contract.voice_design.traits import Traits


def suggest(text: str, traits: Traits) -> SuggestReply:
    """Traits for an order of the voice that `text` describes. Nothing of `text` itself is in the reply."""
    raise NotImplementedError
