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


def test_one_step_that_is_dear_each_time_is_slow() -> None:
    assert reason(lambda walk, step: 21.0 if step == 7 else 0.1) == "slow"
    assert ScriptedMatcher.walks == TRIES


def test_four_steps_just_over_the_bound_are_slow_and_three_are_not() -> None:
    assert reason(lambda walk, step: STEP_MS + 0.1 if step < 4 else 0.1) == "slow"
    assert reason(lambda walk, step: STEP_MS + 0.1 if step < 3 else 0.1) == ""


def test_each_walk_disturbed_at_another_step_is_not_slow() -> None:
    assert reason(lambda walk, step: 400.0 if step == walk % STEPS else 0.1) == ""


def test_whole_walks_disturbed_before_a_quiet_one_are_not_slow() -> None:
    assert reason(lambda walk, step: 16.0 if walk < TRIES - 1 else 0.1) == ""
