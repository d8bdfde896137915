"""Walks through a compiled grammar, before the engine does: what its tokens cost, and whether one may always follow.

    ground = Ground(vocabulary, GrammarMatcher)       once for each vocabulary
    ground.fault(compiled, beginnings, step_ms)       what would harm the engine, or None

The engine finds the tokens that may come next inside its step, for which everybody waits. What that costs depends on
how many readings the text so far has, so a walk goes where readings multiply: down into what opens, along inside a
text, and back out. Equal choices are made differently each time, so that several walks see several branches. Runs
inside `grammar_child.py`: it takes only the standard library and numpy, which xgrammar imports.
"""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

STEPS = 64
"""Tokens of a walk. It goes deeper for half of them, and then comes back."""
WALKS = 4
"""From the beginning of an answer, and from the tools together; from each tool one at least."""
DEAR_STEPS = 4
"""Steps beyond the bound that end a walk; one of so many times the bound does too. Fewer may be the machine's."""
TRIES = 3
"""A walk that was slow is walked again: what others do on a machine counts as processor time, too."""
SHOWN_BYTES = 60
"""Of a text that nothing can follow: its end."""

OPENERS = (b'[{":,]}1tn', b'{"[:,}]1tn')
"""What a walk prefers outside of texts, in this order; walks take turns at them, and at staying inside of texts."""
CLOSERS = b']},":[{1tn'
WORD_BITS = 32
CHOICES = 64
"""Tokens between which a walk chooses, where it prefers none."""


class Fault(NamedTuple):
    """Why the engine must not follow a grammar.

    Attributes:
        reason: `empty`, where no token may come next and the answer is not complete, or `slow`.
        detail: the text that nothing can follow, or the milliseconds of the dearest token.
    """

    reason: str
    detail: str


def starts(spec: str) -> list[str]:
    """Texts from which to walk: nothing, and what stands before the arguments of each tool.

    `spec` is a structural tag, or the JSON schema that vLLM makes where a call of one of several tools is forced.
    """
    found, left = [], [json.loads(spec)]
    while left:
        part = left.pop()
        match part:
            case {"begin": str(begin)}:
                found.append(begin)
            case {"properties": {"name": {"enum": [str(name)]}, "parameters": _}}:
                found.append(f'[{{"name":{json.dumps(name)},"parameters":')
        left.extend(part.values() if isinstance(part, dict) else part if isinstance(part, list) else ())
    return ["", *dict.fromkeys(filter(None, found))]


class Ground:
    """A vocabulary to walk with.

    Args:
        vocabulary: xgrammar's `TokenizerInfo`.
        matcher: its `GrammarMatcher`.
    """

    def __init__(self, vocabulary: Any, matcher: Callable[[Any], Any]) -> None:
        self._matcher = matcher
        self._tokens: list[bytes] = vocabulary.decoded_vocab
        self._words = -(-vocabulary.vocab_size // WORD_BITS)
        self._stops = [token for token in vocabulary.stop_token_ids if token < len(self._tokens)]
        self._ids: dict[int, int] = {}
        for token, text in enumerate(self._tokens):
            if len(text) == 1:
                self._ids.setdefault(text[0], token)
        self._quoting = np.array([b'"' in text for text in self._tokens], dtype=bool)

    def fault(self, compiled: Any, beginnings: list[str], step_ms: float) -> Fault | None:
        """The first fault found in a grammar, walking from each of `beginnings` that it allows."""
        self._taken = np.zeros(len(self._tokens), dtype=np.uint16)
        each = max(1, WALKS // max(1, len(beginnings) - 1))
        walks = [begun for begun in beginnings for _ in range(each if begun else WALKS)]
        for place, begun in enumerate(walks):
            if found := self._surely(compiled, begun, place, step_ms):
                return found
        return None

    def _surely(self, compiled: Any, begun: str, place: int, step_ms: float) -> Fault | None:
        """The fault that a walk finds; a slow one only where it is slow every time, on the same way."""
        taken, found = self._taken.copy(), None
        for _ in range(TRIES):
            self._taken[:] = taken
            matcher = self._matcher(compiled)
            if begun and not matcher.accept_string(begun):
                return None
            found = self._walk(matcher, begun, place, step_ms)
            if found is None or found.reason != "slow":
                return found
        return found

    def _walk(self, matcher: Any, begun: str, place: int, step_ms: float) -> Fault | None:
        mask = np.zeros((1, self._words), dtype=np.int32)
        openers, stays = OPENERS[place % len(OPENERS)], place // len(OPENERS) % 2 == 1
        text, dear, longest_ms = begun.encode(), 0.0, 0.0
        token: int | None = None
        for step in range(STEPS):
            since = time.process_time()
            if token is not None and not matcher.accept_token(token):
                return None
            if not matcher.fill_next_token_bitmask(mask):
                mask[:] = -1
            cost_ms = (time.process_time() - since) * 1000
            dear, longest_ms = dear + cost_ms // step_ms, max(longest_ms, cost_ms)
            if dear >= DEAR_STEPS:
                return Fault("slow", f"{longest_ms:.0f}")
            token = self._next(mask[0], openers if step < STEPS // 2 else CLOSERS, text.count(b'"') % 2 == 1, stays)
            if token is None:
                is_stuck = not mask.any() and not matcher.is_completed()
                return Fault("empty", text[-SHOWN_BYTES:].decode(errors="replace")) if is_stuck else None
            text += self._tokens[token]
        return None

    def _next(self, words: Any, preferred: bytes, is_inside: bool, stays: bool) -> int | None:
        """A token of those that the bits of `words` allow, not one that stops; None where there is no such."""
        for character in self._wanted(preferred, is_inside, stays):
            token = self._ids.get(character, -1)
            if token >= 0 and words[token // WORD_BITS] >> token % WORD_BITS & 1:
                return token
        allowed = np.unpackbits(words.view(np.uint8), bitorder="little")[: len(self._tokens)].view(bool)
        allowed[self._stops] = False
        if is_inside and stays and (longer := allowed & ~self._quoting).any():
            allowed = longer
        # Of equal choices the last: a later token is a longer text.
        tokens = allowed.nonzero()[0][: -CHOICES - 1 : -1]
        if not len(tokens):
            return None
        token = int(tokens[self._taken[tokens].argmin()])
        self._taken[token] += 1
        return token

    def _wanted(self, preferred: bytes, is_inside: bool, stays: bool) -> Iterator[int]:
        if not is_inside:
            yield from preferred
        elif not stays:
            yield ord('"')
