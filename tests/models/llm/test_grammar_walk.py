"""The cost of a token, where other work disturbs the measurement: a scripted matcher and clock."""

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from models.llm import grammar_walk
from models.llm.grammar_walk import STEPS, TRIES, GrammarProbe

STEP_MS = 5.0
VOCABULARY = SimpleNamespace(decoded_vocab=[bytes([byte]) for byte in range(128)], vocab_size=128, stop_token_ids=[0])


class ScriptedMatcher:
    """Allows every token; `cost_ms(walk, step)` is what finding the tokens of a step takes."""

    walks = 0
    now_s = 0.0

    def __init__(self, cost_ms: Callable[[int, int], float]) -> None:
        self._cost_ms, self._step = cost_ms, 0
        self._walk = ScriptedMatcher.walks
        ScriptedMatcher.walks += 1

    def accept_token(self, token: int) -> bool:
        return True

    def fill_next_token_bitmask(self, mask: np.ndarray) -> bool:
        ScriptedMatcher.now_s += self._cost_ms(self._walk, self._step) / 1000
        self._step += 1
        return False


@pytest.fixture(autouse=True)
def scripted_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    ScriptedMatcher.walks, ScriptedMatcher.now_s = 0, 0.0
    monkeypatch.setattr(
        grammar_walk, "time", SimpleNamespace(process_time=lambda: ScriptedMatcher.now_s, sleep=lambda s: None)
    )


def reason(cost_ms: Callable[[int, int], float]) -> str:
    fault = GrammarProbe(VOCABULARY, ScriptedMatcher).fault(cost_ms, [""], STEP_MS)
    return fault.reason if fault else ""


DEAR: dict[str, tuple[Callable[[int, int], bool], float, str]] = {
    "one step each time": (lambda walk, step: step == 7, 21.0, "slow"),
    "four steps, just over the bound": (lambda walk, step: step < 4, STEP_MS + 0.1, "slow"),
    "three steps, just over the bound": (lambda walk, step: step < 3, STEP_MS + 0.1, ""),
    "another step of each walk": (lambda walk, step: step == walk % STEPS, 400.0, ""),
    "whole walks before a quiet one": (lambda walk, step: walk < TRIES - 1, 16.0, ""),
}


@pytest.mark.parametrize(("is_dear", "dear_ms", "expected"), DEAR.values(), ids=DEAR)
def test_only_what_is_dear_in_every_walk_is_slow(
    is_dear: Callable[[int, int], bool], dear_ms: float, expected: str
) -> None:
    assert reason(lambda walk, step: dear_ms if is_dear(walk, step) else 0.1) == expected
    assert ScriptedMatcher.walks == TRIES or not expected
