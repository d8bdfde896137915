"""How long engines take is remembered over restarts, and by all ingress processes together."""

from __future__ import annotations

from typing import Any

import pytest

from contract.errors import STATE_UNAVAILABLE, ApiError
from deployments.ingress.report import share_times
from state import State
from state.facts import revise
from tests.api.engines import local_engines
from tests.catalogs import behaving, chat
from tests.state.doubles import WatchedDatabase


def process() -> dict[str, Any]:
    """The gates of an ingress that has just started."""
    return local_engines(behaving(obedient=chat("obedient")))


async def test_what_two_processes_saw_is_known_to_both_and_to_the_next(state: State) -> None:
    one, other = process(), process()
    for _ in range(50):
        one["chat-obedient"].times["service"].add(1.0)
        other["chat-obedient"].times["service"].add(9.0)
    for gates_of in (one, other, one):
        await share_times(gates_of, state.database)
    after = process()
    await share_times(after, state.database)
    for gates_of in (one, other, after):
        service = gates_of["chat-obedient"].times["service"]
        assert (service.quantile(0.2), service.quantile(0.8)) == pytest.approx((1.0, 9.0), rel=0.1)
    assert after["chat-obedient"].times["load"].quantile(0.5) == 2.0, "of the stanza, until one was measured"
    await share_times(one, state.database)
    assert one["chat-obedient"].times["service"].quantile(0.2) == pytest.approx(1.0, rel=0.1), "and counted once"


async def test_nothing_is_lost_while_a_database_is_away(state: State) -> None:
    one = process()
    one["chat-obedient"].times["service"].add(1.0)
    with pytest.raises(ApiError):
        await share_times(one, WatchedDatabase(state.database, lambda _: STATE_UNAVAILABLE()))
    assert one["chat-obedient"].times["service"].unsaved == 1


@pytest.mark.parametrize("text", ["{", '{"12": 1.0}', "[null]", '["1"]', "[-1]", "[1e10]", "[NaN]", "[[1.0]]"])
async def test_times_that_cannot_be_read_are_learned_again(
    state: State, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    await revise(state.database, {"service of chat-obedient": lambda _: text})
    one = process()
    one["chat-obedient"].times["service"].add(1.0)
    await share_times(one, state.database)
    assert "cannot be read" in caplog.text
    after = process()
    await share_times(after, state.database)
    assert after["chat-obedient"].times["service"].quantile(0.2) == pytest.approx(1.0, rel=0.1)
