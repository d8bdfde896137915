"""An engine that calls another one is cold where that one is; on its way there it finds the rows of every gate."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from ray.exceptions import ActorDiedError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from autoscaling import views
from autoscaling.gate import Gate
from autoscaling.watch import Start
from contract.catalog import DecisionModel, Serving
from contract.chat.reads import ReadJob
from deployments.decisions import reader
from tests.autoscaling.test_gate import APP, Handle, Response, View, Watch, ask, fault_of
from tests.catalogs import chat

pytestmark = pytest.mark.anyio

JOB = ReadJob()


@pytest.fixture
def scorer() -> Iterator[View]:
    views.VIEWS[(APP, "scorer")] = view = View()
    yield view
    del views.VIEWS[(APP, "scorer")]


@pytest.fixture
def behind() -> Iterator[View]:
    views.VIEWS[(APP, "chat-behind")] = view = View(slots_each=16)
    yield view
    del views.VIEWS[(APP, "chat-behind")]


def gates(scorer: View, behind: View, **serving: Any) -> tuple[Gate, Gate, Handle, Handle]:
    """The gate of a scorer and that of the model behind it, with their handles."""
    handles = Handle(scorer), Handle(behind)
    last = Gate("chat-behind", APP, Serving(adapter="tests.engines:X", runtime="x"), handles[1], Watch())  # type: ignore[arg-type]
    manners = Serving(adapter="tests.engines:X", runtime="x", **serving)
    first = Gate("scorer", APP, manners, handles[0], Watch(), last)  # type: ignore[arg-type]
    return first, last, *handles


@pytest.mark.parametrize(("replicas", "running"), [((0, 0), 0), ((1, 0), 0), ((0, 1), 0), ((1, 1), 1), ((2, 1), 1)])
async def test_it_runs_where_both_run(scorer: View, behind: View, replicas: tuple[int, int], running: int) -> None:
    gate, *_ = gates(scorer, behind)
    scorer.replicas, behind.replicas = replicas
    assert gate.running() == running


async def test_it_answers_where_both_run(scorer: View, behind: View) -> None:
    gate, _, _, handle = gates(scorer, behind)
    scorer.replicas = behind.replicas = 1
    assert await ask(gate) == "done"
    assert handle.warm_calls == 0


async def test_a_scorer_that_refuses_wakes_a_cold_model_behind_it(scorer: View, behind: View) -> None:
    gate, last, own, theirs = gates(scorer, behind, when_cold="refuse")
    scorer.replicas = 1
    assert await fault_of(ask(gate)) == "WARMING_UP"
    await asyncio.sleep(0)
    assert (own.warm_calls, theirs.warm_calls, own.jobs) == (0, 1, [])
    last._watch.noticed = Start.FAILED  # type: ignore[attr-defined]
    assert gate.is_failing()
    assert await fault_of(ask(gate)) == "ENGINE_FAILED"
    behind.replicas = 1
    assert await ask(gate) == "done"


async def test_a_scorer_that_waits_waits_for_a_cold_model_behind_it_before_its_deadline_runs(
    scorer: View, behind: View
) -> None:
    gate, _, _, theirs = gates(scorer, behind, deadline_s=0.01)
    scorer.replicas = 1
    calling = asyncio.create_task(ask(gate))
    await asyncio.sleep(0.02)
    assert not calling.done()
    theirs.started.set()
    assert await calling == "done"


async def test_a_model_behind_it_that_does_not_come_in_time_or_fails(scorer: View, behind: View) -> None:
    scorer.replicas = 1
    gate, *_ = gates(scorer, behind, wait_s=0.01)
    assert await fault_of(ask(gate)) == "WARMING_UP"
    gate, last, *_ = gates(scorer, behind)
    last._watch.failed.set()  # type: ignore[attr-defined]
    assert await fault_of(ask(gate)) == "ENGINE_FAILED"


# --- the way from a scorer's replica to the chat model ---------------------------------------------------------------


def way(handle: Handle, **serving: Any) -> Any:
    manners = Serving(adapter="tests.engines:X", runtime="x", reads_through="behind", **serving)
    model = DecisionModel(id="d", owned_by="tests", via="t", context_window=100, serving=manners)
    return reader(model, chat("behind", deadline_s=77, max_queued=7), APP, handle, Watch())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("outcome", "row"),
    [
        (views.EngineBusy(), "BUSY"),
        (BackPressureError(1, 1), "BUSY"),
        (ActorDiedError(), "UPSTREAM_ERROR"),
        (ValueError("a secret detail"), "UPSTREAM_ERROR"),
        (DeploymentUnavailableError(None), "ENGINE_FAILED"),
        (asyncio.Event(), "UPSTREAM_TIMEOUT"),
    ],
)
async def test_busy_dead_and_late_are_the_rows_of_every_gate(behind: View, outcome: Any, row: str) -> None:
    behind.replicas, handle = 1, Handle(behind)
    handle.response = Response(outcome)
    assert await fault_of(way(handle, deadline_s=0.05)(JOB)) == row


async def test_a_job_is_one_call_of_read(behind: View) -> None:
    behind.replicas, handle = 1, Handle(behind)
    assert await way(handle)(JOB) == "done"
    assert handle.jobs == [("read", JOB)]


async def test_reads_of_one_organisation_do_not_hold_up_those_of_another(behind: View) -> None:
    """Of 16 slots a scorer hands out 8 while several organisations read, and keeps two of them for who holds fewer."""
    behind.replicas, handle = 1, Handle(behind)
    read = way(handle)
    await read(ReadJob(owner="org-2"))
    handle.response = Response(asyncio.Event())
    flood = [asyncio.create_task(read(ReadJob(owner="org-1"))) for _ in range(23)]
    await asyncio.sleep(0)
    assert len(handle.jobs) == 1 + 6
    other = asyncio.create_task(read(ReadJob(owner="org-2")))
    await asyncio.sleep(0)
    assert handle.jobs[-1] == ("read", ReadJob(owner="org-2"))
    handle.response.outcome.set()
    await asyncio.gather(*flood, other)


async def test_cold_is_as_the_stanza_of_the_decision_model_says(behind: View) -> None:
    handle = Handle(behind)
    assert await fault_of(way(handle, when_cold="refuse")(JOB)) == "WARMING_UP"
    assert await fault_of(way(handle, wait_s=0.01)(JOB)) == "WARMING_UP"
    waiting = asyncio.create_task(way(handle)(JOB))
    await asyncio.sleep(0.01)
    handle.started.set()
    assert await waiting == "done"


@pytest.mark.parametrize(("crowd", "refused"), [(18, 0), (19, 1)])
async def test_reads_beyond_the_slots_wait_and_those_beyond_the_queue_are_refused(
    behind: View, crowd: int, refused: int
) -> None:
    behind.replicas, handle = 1, Handle(behind)
    handle.response = Response(asyncio.Event())
    asking = way(handle, max_queued=2)
    calls = [asyncio.create_task(asking(JOB)) for _ in range(crowd)]
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(handle.jobs) == behind.slots()
    handle.response.outcome.set()
    rows = [error for error in await asyncio.gather(*calls, return_exceptions=True) if error != "late"]
    assert [error.fault.name for error in rows] == ["BUSY"] * refused
