"""Tags inside a text to speak: those of an engine are kept for it, and all others are removed.

prepared(text, model, engines)      the text in the form for one engine; raises if nothing can be spoken
pieces("Well <sigh> no.", model)    ["Well ", SpeechTag("<sigh>"), " no."]: for engines that act on tags themselves
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from contract.catalog import SpeechModel
from contract.errors import INVALID_REQUEST


@dataclass(frozen=True, slots=True)
class SpeechTag:
    """A tag in a text, e.g. `<breath>`, `<strong>` or `</strong>`."""

    text: str

    @property
    def name(self) -> str:
        """Name without brackets and slash, e.g. `strong`."""
        return self.text.strip("<>[]/")

    @property
    def closes(self) -> bool:
        return self.text.startswith("</")


def prepared(text: str, model: SpeechModel, engines: Iterable[SpeechModel]) -> str:
    """Returns `text` without control characters and without the tags of other engines.

    Raises INVALID_REQUEST if a span of this engine is not closed, or if nothing speakable is left.
    """
    own = tags_of(model)
    foreign = {tag for engine in engines for tag in tags_of(engine)} - own
    # Control characters first: one inside a tag must not hide it.
    text = "".join(char for char in text if char in "\t\n\r" or unicodedata.category(char) != "Cc")
    spoken_text = "".join(_spoken_piece(piece, own) for piece in _split(text, own | foreign))
    _check_spans(pieces(spoken_text, model), model.spans)
    plain = "".join(piece for piece in pieces(spoken_text, model) if isinstance(piece, str))
    if not any(unicodedata.category(char)[0] in "LN" for char in plain):
        raise INVALID_REQUEST(
            "`input` has no letter and no digit beside marks and emoji, so there is nothing to speak", param="input"
        )
    return spoken_text


def pieces(text: str, model: SpeechModel) -> Iterator[str | SpeechTag]:
    """Yields plain text and the engine's own tags, in order."""
    return _split(text, tags_of(model))


def _spoken_piece(piece: str | SpeechTag, own: set[str]) -> str:
    if isinstance(piece, str):
        return piece
    return piece.text if piece.text in own else " "


def tags_of(model: SpeechModel) -> set[str]:
    """Returns every tag of the engine, with its brackets."""
    return {*model.tags, *(f"<{name}>" for name in model.spans), *(f"</{name}>" for name in model.spans)}


def _split(text: str, tags: set[str]) -> Iterator[str | SpeechTag]:
    if not tags:
        yield text
        return
    # Longest first, so that a tag that begins like another one is matched whole.
    pattern = "|".join(re.escape(tag) for tag in sorted(tags, key=len, reverse=True))
    for index, piece in enumerate(re.split(f"({pattern})", text)):
        if piece:
            yield SpeechTag(piece) if index % 2 else piece


def _check_spans(parts: Iterable[str | SpeechTag], spans: Iterable[str]) -> None:
    """Raises INVALID_REQUEST for spans that are not closed, or closed in the wrong order."""
    open_names: list[str] = []
    for tag in parts:
        if isinstance(tag, str) or tag.text.startswith("[") or tag.name not in spans:
            continue
        if not tag.closes:
            open_names.append(tag.name)
        elif not open_names or open_names.pop() != tag.name:
            raise INVALID_REQUEST(f"`{tag.text}` in `input` closes a tag that is not open", param="input")
    if open_names:
        raise INVALID_REQUEST(f"`<{open_names[-1]}>` in `input` is never closed", param="input")
