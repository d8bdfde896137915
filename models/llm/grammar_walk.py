"""Walks through a compiled grammar, before the engine does: what its tokens cost, and whether one may always follow.

    ground = GrammarProbe(vocabulary, GrammarMatcher)       once for each vocabulary
    ground.fault(compiled, beginnings, step_ms)       what would harm the engine, or None

The engine finds the tokens that may come next inside its step, for which all requests wait. The cost depends on
how many readings the text so far has, so a walk goes where readings multiply: down into what opens, along inside a
text, and back out. Equal choices are made differently each time, so that several walks see several branches. Runs
inside `grammar_child.py`: it takes only the standard library and numpy, which xgrammar imports.
"""

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

STEPS = 64
"""Tokens of a walk. It goes deeper for half of them, and then comes back."""
WALKS = 4
"""Walks from the beginning of an answer, and from the tools together; at least one from each tool."""
SLOW_STEPS = 4
"""Steps beyond the bound that end a walk; one step of that many times the bound does, too. Fewer may be noise."""
VOCABULARY = 50_000
"""Tokens that a small model knows."""
TRIES = 3
"""Walks that end at the same slow step before a grammar is refused. The work of other machines and processes counts as
processor time, too; it meets other steps each time."""
PAUSE_S = 0.2
"""Between these walks, so that one disturbance does not outlast them all."""
SHOWN_BYTES = 60
"""Bytes that are shown of the end of a text that nothing can follow."""

OPENERS = (b'[{":,]}1tn', b'{"[:,}]1tn')
"""Characters that a walk prefers outside of texts, in this order. Walks alternate between both, and between leaving
a text and staying in it."""
CLOSERS = b']},":[{1tn'
WORD_BITS = 32
CHOICES = 64
"""Tokens between which a walk chooses, where it prefers none."""


class GrammarFault(NamedTuple):
    """Reasons why the engine must not follow a grammar.

    Attributes:
        reason: `empty`, where no token may come next and the answer is not complete, or `slow`.
        detail: the text that nothing can follow, or the milliseconds of the slowest token and those that are allowed.
    """

    reason: str
    detail: str


def starts(spec: str) -> list[str]:
    """Texts from which to walk: nothing, and what stands before the arguments of each tool.

    `spec` is a structural tag, or the JSON schema that vLLM makes where a call of one of several tools is forced.
    """
    beginnings, parts = [], [json.loads(spec)]
    while parts:
        part = parts.pop()
        match part:
            case {"begin": str(begin)}:
                beginnings.append(begin)
            case {"properties": {"name": {"enum": [str(name)]}, "parameters": _}}:
                beginnings.append(f'[{{"name":{json.dumps(name)},"parameters":')
        parts.extend(part.values() if isinstance(part, dict) else part if isinstance(part, list) else ())
    return ["", *dict.fromkeys(filter(None, beginnings))]


class GrammarProbe:
    """A vocabulary to walk with, which is xgrammar's `TokenizerInfo`, and its `GrammarMatcher`."""

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

    def fault(self, compiled: Any, beginnings: list[str], step_ms: float) -> GrammarFault | None:
        """The first fault of a grammar on walks from each of `beginnings` that it allows.

        `step_ms` is for a vocabulary of `VOCABULARY`. A larger one has more in proportion: its model has longer steps.
        """
        step_ms *= max(1.0, len(self._tokens) / VOCABULARY)
        self._uses = np.zeros(len(self._tokens), dtype=np.uint16)
        each = max(1, WALKS // max(1, len(beginnings) - 1))
        walks = [beginning for beginning in beginnings for _ in range(each if beginning else WALKS)]
        for number, beginning in enumerate(walks):
            if fault := self._repeatable(compiled, beginning, number, step_ms):
                return fault
        return None

    def _repeatable(self, compiled: Any, beginning: str, number: int, step_ms: float) -> GrammarFault | None:
        """The fault of walk `number`. Each step counts with its least cost of several walks along the same tokens."""
        uses, ends = self._uses.copy(), Counter[int]()
        costs_ms = [math.inf] * STEPS
        while True:
            self._uses[:] = uses
            matcher = self._matcher(compiled)
            if beginning and not matcher.accept_string(beginning):
                return None
            fault = self._walk(matcher, beginning, number, step_ms, costs_ms)
            if fault is None or fault.reason != "slow":
                return fault
            end = sum(map(math.isfinite, costs_ms))
            ends[end] += 1
            if ends[end] == TRIES:
                return fault
            time.sleep(PAUSE_S)

    def _walk(
        self, matcher: Any, beginning: str, number: int, step_ms: float, costs_ms: list[float]
    ) -> GrammarFault | None:
        """The fault of one walk; writes the least cost of each step so far to `costs_ms`."""
        mask = np.zeros((1, self._words), dtype=np.int32)
        openers, stays = OPENERS[number % len(OPENERS)], number // len(OPENERS) % 2 == 1
        text, excess, longest_ms = beginning.encode(), 0.0, 0.0
        token: int | None = None
        for step in range(STEPS):
            since = time.process_time()
            if token is not None and not matcher.accept_token(token):
                return None
            if not matcher.fill_next_token_bitmask(mask):
                mask[:] = -1
            costs_ms[step] = cost_ms = min(costs_ms[step], (time.process_time() - since) * 1000)
            excess, longest_ms = excess + cost_ms // step_ms, max(longest_ms, cost_ms)
            if excess >= SLOW_STEPS:
                return GrammarFault("slow", f"{longest_ms:.0f} ms for a token; at most {step_ms:.0f} ms are allowed")
            token = self._next(mask[0], openers if step < STEPS // 2 else CLOSERS, text.count(b'"') % 2 == 1, stays)
            if token is None:
                is_stuck = not mask.any() and not matcher.is_completed()
                return GrammarFault("empty", text[-SHOWN_BYTES:].decode(errors="replace")) if is_stuck else None
            text += self._tokens[token]
        return None

    def _next(self, words: Any, preferred: bytes, is_inside: bool, stays: bool) -> int | None:
        """A token that the bits of `words` allow and that does not stop; None where there is none."""
        for character in self._preferred(preferred, is_inside, stays):
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
        token = int(tokens[self._uses[tokens].argmin()])
        self._uses[token] += 1
        return token

    def _preferred(self, preferred: bytes, is_inside: bool, stays: bool) -> Iterator[int]:
        if not is_inside:
            yield from preferred
        elif not stays:
            yield ord('"')
