"""Logprobs of a stream, as the JSON that its events repeat: each token is written once, and nothing else of it is kept.

As objects they take six times as much memory, and a stream of thousands of tokens would write all of them five times.
So they are left out of what an event is made of, and their text is put in once the event is written.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import Any

from contract.events import json_bytes
from contract.responses.output import ItemBuilder, logprob, spelling

MARK = secrets.token_hex(16)
"""Stands for logprobs, followed by a number. No client knows it, and none ever sees it."""
PLACE = re.compile(rb'"logprobs":"%s(\d+)"' % MARK.encode())
"""Quotes inside of a text are escaped, so this can only be a member."""
NEW = 0
"""The number that stands for the tokens of the latest delta; those of an item are its place and one."""


class Logprobs:
    """Those of one stream."""

    def __init__(self) -> None:
        self._tokens: list[tuple[str, bytes]] = []
        self._new: list[bytes] = []
        self._texts: dict[int, bytes] = {}

    def add(self, tokens: Sequence[dict[str, Any]]) -> int:
        """Takes tokens of a chat. Gives the bytes that they are kept in."""
        kept = [(token["token"], json_bytes(logprob(token))) for token in tokens]
        self._tokens += kept
        self._new += (text for _, text in kept)
        return sum(len(text) for _, text in kept)

    def of_delta(self) -> str:
        """What stands for the tokens that have come since the last delta."""
        self._texts[NEW] = b",".join(self._new)
        self._new = []
        return f"{MARK}{NEW}"

    def pass_over(self) -> None:
        """The tokens that have come spell no text of the answer."""
        self._new = []

    def of(self, made: ItemBuilder) -> str:
        """What stands for the tokens that spell all of `made`. Those of its thoughts before are let go."""
        self._texts[made.index + 1] = b",".join(spelling(made.text, self._tokens))
        self._tokens = []
        return f"{MARK}{made.index + 1}"

    def put_into(self, event: bytes) -> bytes:
        """`event` with logprobs where something stands for them."""
        return PLACE.sub(lambda found: b'"logprobs":[%s]' % self._texts[int(found[1])], event)
