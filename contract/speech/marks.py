"""Marks inside a text to be spoken: which belong to an engine, and what is left for one that has none. Spec 4.

prepared(text, model, engines)      the text as this engine takes it; raises where nothing can be spoken
pieces("Well <sigh> no.", model)    ["Well ", Mark("<sigh>"), " no."]: for engines that act on marks themselves
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from contract.catalog import SpeechModel
from contract.errors import INVALID_REQUEST


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark in a text, e.g. `<breath>`, `<strong>` or `</strong>`."""

    text: str

    @property
    def name(self) -> str:
        """Without brackets and slash, e.g. `strong`."""
        return self.text.strip("<>[]/")

    @property
    def closes(self) -> bool:
        """Whether it is the end of a span."""
        return self.text.startswith("</")


def prepared(text: str, model: SpeechModel, engines: Iterable[SpeechModel]) -> str:
    """`text` without control characters and without the marks that only other engines know.

    Raises INVALID_REQUEST if a span of this engine is not closed, or if nothing that can be spoken is left.
    """
    own = marks_of(model)
    foreign = {mark for engine in engines for mark in marks_of(engine)} - own
    # Control characters first: one inside a mark must not hide it.
    text = "".join(char for char in text if char in "\t\n\r" or unicodedata.category(char) != "Cc")
    kept = "".join(_kept(piece, own) for piece in _split(text, own | foreign))
    _check_spans(pieces(kept, model), model.spans)
    if not any(_is_spoken(piece) for piece in pieces(kept, model) if isinstance(piece, str)):
        raise INVALID_REQUEST("`input` has no letter and no digit, so there is nothing to speak", param="input")
    return kept


def pieces(text: str, model: SpeechModel) -> Iterator[str | Mark]:
    """Plain text and the engine's own marks, in order."""
    return _split(text, marks_of(model))


def _kept(piece: str | Mark, own: set[str]) -> str:
    if isinstance(piece, str):
        return piece
    return piece.text if piece.text in own else " "


def marks_of(model: SpeechModel) -> set[str]:
    """Every mark of the engine, as it is written."""
    return {*model.tags, *(f"<{name}>" for name in model.spans), *(f"</{name}>" for name in model.spans)}


def _split(text: str, marks: set[str]) -> Iterator[str | Mark]:
    if not marks:
        yield text
        return
    # Longest first, so that a mark that begins like another one is found whole.
    pattern = "|".join(re.escape(mark) for mark in sorted(marks, key=len, reverse=True))
    for index, piece in enumerate(re.split(f"({pattern})", text)):
        if piece:
            yield Mark(piece) if index % 2 else piece


def _check_spans(parts: Iterable[str | Mark], spans: Iterable[str]) -> None:
    """Spans may enclose one another, but each end belongs to the beginning before it."""
    open_names: list[str] = []
    for mark in parts:
        if isinstance(mark, str) or mark.text.startswith("[") or mark.name not in spans:
            continue
        if not mark.closes:
            open_names.append(mark.name)
        elif not open_names or open_names.pop() != mark.name:
            raise INVALID_REQUEST(f"`{mark.text}` in `input` closes a tag that is not open", param="input")
    if open_names:
        raise INVALID_REQUEST(f"`<{open_names[-1]}>` in `input` is never closed", param="input")


def _is_spoken(text: str) -> bool:
    return any(unicodedata.category(char)[0] in "LN" for char in text)
