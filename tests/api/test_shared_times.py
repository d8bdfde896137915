"""How long engines take is remembered over restarts, and by all ingress processes together."""

from __future__ import annotations

import pytest

from autoscaling.gate import Gate
from contract.errors import STATE_UNAVAILABLE
from deployments.ingress.report import share_times
from state import State
from tests.api.walks import gates
from tests.catalogs import behaving, chat
from tests.state.doubles import WatchedDatabase


def process() -> dict[str, Gate]:
    """The gates of an ingress that has just started."""
    return gates(behaving(obedient=chat("obedient")))


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


async def test_a_database_that_is_away_costs_a_line_in_the_log(state: State, caplog: pytest.LogCaptureFixture) -> None:
    one = process()
    one["chat-obedient"].times["service"].add(1.0)
    await share_times(one, WatchedDatabase(state.database, lambda _: STATE_UNAVAILABLE()))
    assert "could not store" in caplog.text
    assert one["chat-obedient"].times["service"].unsaved == 1
