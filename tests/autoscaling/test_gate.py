"""Every row of the cold and busy table, with a scripted handle and view."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, RayTaskError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from autoscaling import views
from autoscaling.engine import NOBODY, CallContext, Deadline, EngineView, Timings
from autoscaling.gate import Gate
from autoscaling.watch import Start
from contract.catalog import Serving
from contract.errors import INVALID_REQUEST, ApiError
from contract.telemetry import EngineState
from tests.autoscaling.doubles import APP, Handle, Response, View
from tests.autoscaling.world import Some


@pytest.fixture
def view() -> Iterator[View]:
    views.VIEWS[(APP, "engine")] = view = View()
    yield view
    del views.VIEWS[(APP, "engine")]


@pytest.fixture
def handle(view: View) -> Handle:
    return Handle(view)


@pytest.fixture
def running(view: View, handle: Handle) -> Handle:
    view.replicas = 1
    return handle


def gate(handle: Handle, **serving: Any) -> Gate:
    return Gate("engine", APP, Serving(adapter="tests.engines:X", runtime="x", **serving), handle, handle.watch)  # type: ignore[arg-type]


def ask(engine: Gate, timings: Timings | None = None, owner: str = NOBODY) -> Coroutine[Any, Any, str]:
    return engine.call(Some.answer, "a job", context=CallContext(owner, timings or Timings()))


def items_of(engine: Gate, timings: Timings | None = None) -> AsyncGenerator[str, None]:
    return engine.stream(Some.items, "a job", context=CallContext(timings=timings or Timings()))


async def fault_of(call: Any) -> str:
    with pytest.raises(ApiError) as caught:
        await call
    return caught.value.fault.name


async def test_running_engine_answers(running: Handle) -> None:
    assert await ask(gate(running)) == "done"
    assert running.jobs == [("answer", "a job")], "the name of the protocol's method, and the job unopened"


async def test_free_slots_are_those_that_this_process_leaves(view: View, handle: Handle) -> None:
    engine = gate(handle)
    assert engine.free() == 0
    view.replicas, view.slots_each = 2, 1
    assert engine.free() == 2
    handle.response.outcome = asyncio.Event()
    calls = [asyncio.create_task(ask(engine)) for _ in range(3)]
    await asyncio.sleep(0)
    assert engine.free() == 0
    handle.response.outcome.set()
    await asyncio.gather(*calls)
    assert engine.free() == 2


async def test_a_start_says_how_long_it_took(handle: Handle) -> None:
    engine = gate(handle)
    assert engine.view().last_load_s is None
    waiting = asyncio.create_task(engine.ready(10, timings=Timings()))
    await asyncio.sleep(0.01)
    handle.started.set()
    await waiting
    assert engine.view().last_load_s is None, "the model took longer than we have waited: it was about to run"
    handle.model_s, handle.view.replicas = 0.001, 0
    await asyncio.sleep(0)
    await engine.ready(10, timings=Timings())
    assert 0.001 <= (engine.view().last_load_s or 0) < 10


async def test_what_waits_is_told_with_whose_calls_it_is(view: View, handle: Handle) -> None:
    engine = gate(handle)
    handle.response.outcome = asyncio.Event()
    view.replicas, view.slots_each = 1, 1
    calls = [asyncio.create_task(ask(engine, owner=owner)) for owner in ("a", "a", "a", "b")]
    await asyncio.sleep(0)
    loads = engine.waker.loads
    assert engine.view() == EngineView(
        EngineState.BUSY, waiting=3, used=1, slots=1, loads=loads, lines={"a": 2, "b": 1}
    )
    handle.response.outcome.set()
    await asyncio.gather(*calls)
    assert engine.view() == EngineView(EngineState.READY, waiting=0, used=0, slots=1, loads=loads)


async def test_an_engine_is_failing_once_its_start_is_known_to_have_failed(view: View, handle: Handle) -> None:
    engine = gate(handle)
    assert not engine.is_failing()
    handle.watch.noticed = Start.FAILED
    assert engine.is_failing()
    view.replicas = 1
    assert not engine.is_failing()


async def test_cold_engine_that_refuses_leaves_exactly_one_warm_call(handle: Handle) -> None:
    cold = gate(handle, when_cold="refuse", load_s=7)
    assert await fault_of(ask(cold)) == "WARMING_UP"
    await asyncio.sleep(0)
    assert await fault_of(ask(cold)) == "WARMING_UP"
    await asyncio.sleep(0)
    assert handle.warm_calls == 1


@pytest.mark.parametrize(
    ("load_s", "least_s", "most_s"), [(0.2, 1, 1), (7, 7, 9), (48, 48, 60), (59.1, 48, 60), (600, 48, 60)]
)
async def test_retry_after_is_what_clients_honour_and_does_not_bring_them_back_together(
    handle: Handle, load_s: float, least_s: int, most_s: int
) -> None:
    refusing = gate(handle, when_cold="refuse", load_s=load_s)
    told = set()
    for _ in range(100):
        with pytest.raises(ApiError) as caught:
            await ask(refusing)
        told.add(caught.value.retry_after_s)
    assert least_s <= min(told) <= max(told) <= most_s
    assert len(told) > 1 or least_s == most_s


async def test_cold_engine_that_waits_answers_once_a_replica_runs_or_is_503(handle: Handle) -> None:
    timings = Timings()
    assert await fault_of(ask(gate(handle, when_cold="wait", wait_s=0.01))) == "WARMING_UP"
    call = asyncio.create_task(ask(gate(handle, when_cold="wait"), timings))
    await asyncio.sleep(0)
    assert not call.done()
    handle.started.set()
    assert await call == "done"
    assert timings.load > 0


async def test_a_start_that_fails_ends_waits_and_is_told_until_the_engine_runs(handle: Handle) -> None:
    refusing = gate(handle, when_cold="refuse")
    waiting = asyncio.create_task(ask(gate(handle, when_cold="wait")))
    assert await fault_of(ask(refusing)) == "WARMING_UP"
    handle.watch.failed.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert await fault_of(ask(refusing)) == await fault_of(waiting) == "ENGINE_FAILED"
    handle.watch.failed.clear()
    handle.started.set()
    assert refusing.waker.warming is not None
    await refusing.waker.warming
    assert await ask(refusing) == "done"
    assert not refusing.waker.has_failed


async def test_client_that_leaves_does_not_take_the_warm_call_with_it(handle: Handle) -> None:
    cold = gate(handle, when_cold="wait")
    first, second = (asyncio.create_task(ask(cold)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait({first})
    handle.started.set()
    assert await second == "done"
    assert handle.warm_calls == 1


@pytest.mark.parametrize(
    ("outcome", "fault"),
    [
        (views.EngineBusy("engine"), "BUSY"),
        (BackPressureError(0, 1), "BUSY"),
        (DeploymentUnavailableError("engine"), "ENGINE_FAILED"),
        (ActorDiedError(), "UPSTREAM_ERROR"),
        (ValueError("a detail of the inside"), "UPSTREAM_ERROR"),
        (TimeoutError("the engine's own"), "UPSTREAM_ERROR"),
        (INVALID_REQUEST("the engine refuses"), "INVALID_REQUEST"),
        (RayTaskError("f", "trace", INVALID_REQUEST("the engine refuses")), "INVALID_REQUEST"),
        (RayTaskError("f", "trace", ValueError("a detail")), "UPSTREAM_ERROR"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
@pytest.mark.parametrize("streams", [False, True], ids=["call", "stream"])
async def test_exceptions_become_errors_of_the_contract(
    running: Handle, outcome: BaseException, fault: str, streams: bool
) -> None:
    running.response = Response(outcome)
    engine = gate(running)
    call = anext(items_of(engine)) if streams else ask(engine)
    with pytest.raises(ApiError) as caught:
        await call
    assert caught.value.fault.name == fault
    assert "detail" not in caught.value.message


@dataclass
class Dying(Response):
    view: View = field(default_factory=View)

    async def _result(self) -> Any:
        self.view.replicas -= 1
        raise ActorDiedError

    __anext__ = _result


@pytest.mark.parametrize(
    ("replicas", "state", "warm_calls"), [(1, EngineState.STARTING, 1), (2, EngineState.READY, 0)], ids=["last", "one"]
)
@pytest.mark.parametrize("streams", [False, True], ids=["call", "stream"])
async def test_an_engine_whose_last_replica_died_under_a_call_starts_again_and_shows_it(
    running: Handle, view: View, replicas: int, state: EngineState, warm_calls: int, streams: bool
) -> None:
    view.replicas = replicas
    running.response = Dying(None, view=view)
    engine = gate(running)
    call = anext(items_of(engine)) if streams else ask(engine)
    assert await fault_of(call) == "UPSTREAM_ERROR"
    await asyncio.sleep(0)
    assert engine.view().state is state
    assert running.warm_calls == warm_calls
    running.started.set()
    running.response = Response("done")
    assert await ask(engine) == "done"
    assert engine.view().state is EngineState.READY


async def test_deadline_holds_for_each_item_of_a_stream(running: Handle) -> None:
    running.response = Response(asyncio.Event(), items=["first"])
    items = items_of(gate(running, deadline_s=0.01))
    assert await anext(items) == "first"
    assert await fault_of(anext(items)) == "UPSTREAM_TIMEOUT"
    assert running.response.cancelled


async def test_time_that_a_client_takes_between_items_is_none_of_the_engines(running: Handle) -> None:
    running.response = Response("end", items=["first", "second"])
    items = items_of(gate(running, deadline_s=0.01))
    assert await anext(items) == "first"
    await asyncio.sleep(0.03)
    assert await anext(items) == "second"
    await items.aclose()


async def test_every_item_has_the_whole_deadline(running: Handle) -> None:
    class Steady(Response):
        async def __anext__(self) -> Any:
            await asyncio.sleep(0.1)
            return await super().__anext__()

    running.response = Steady(asyncio.Event(), items=list("abcde"))
    items = items_of(gate(running, deadline_s=0.3))
    assert [await anext(items) for _ in "abcde"] == list("abcde"), "together they took longer"
    assert await fault_of(anext(items)) == "UPSTREAM_TIMEOUT"


@pytest.mark.parametrize("streams", [False, True], ids=["call", "stream"])
async def test_who_is_cancelled_when_the_deadline_passes_is_cancelled(running: Handle, streams: bool) -> None:
    running.response = Response(asyncio.Event())
    engine = gate(running, deadline_s=0.01)
    call = asyncio.ensure_future(anext(items_of(engine)) if streams else ask(engine))
    asyncio.get_running_loop().call_later(0.01, call.cancel)
    await asyncio.sleep(0)
    time.sleep(0.03)  # noqa: ASYNC251  # both timers are due in the same turn
    with pytest.raises((asyncio.CancelledError, ApiError)) as caught:
        await call
    assert isinstance(caught.value, asyncio.CancelledError)


async def test_a_cancellation_after_a_step_that_swallowed_the_deadline_is_a_cancellation() -> None:
    begun, steps = asyncio.Event(), 0

    async def swallowing() -> None:
        nonlocal steps
        with closing(Deadline(0.01)) as deadline:
            with deadline, suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            steps += 1
            deadline.seconds = 60
            with deadline:
                begun.set()
                await asyncio.Event().wait()

    task = asyncio.create_task(swallowing())
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])
    assert (task.cancelled(), steps) == (True, 1)


async def test_a_deadline_is_504_and_leaves_its_task_as_it_was(running: Handle) -> None:
    running.response = Response(asyncio.Event())
    assert await fault_of(ask(gate(running, deadline_s=0.01))) == "UPSTREAM_TIMEOUT"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    async with asyncio.timeout(60):
        await asyncio.sleep(0)


async def test_leaving_a_stream_cancels_the_engines_work_and_gives_its_place_back(running: Handle) -> None:
    running.response, timings = Response("end", items=["first", "second"]), Timings()
    engine = gate(running)
    items = items_of(engine, timings)
    await anext(items)
    assert timings.engine > 0, "known at the first item"
    await items.aclose()
    assert running.response.cancelled
    assert not engine.queue.at_work


async def crowd(engine: Gate, count: int, owner: str = "org-1") -> list[asyncio.Task[str]]:
    calls = [asyncio.create_task(ask(engine, owner=owner)) for _ in range(count)]
    await asyncio.sleep(0)
    return calls


@pytest.mark.parametrize(("waiting", "refused"), [(2, False), (3, False), (4, True)])
async def test_queue_is_bounded_beyond_the_slots_which_alone_go_out_to_the_engine(
    view: View, handle: Handle, waiting: int, refused: bool
) -> None:
    view.replicas, view.slots_each = 1, 2
    handle.response = Response(asyncio.Event())
    engine, timings = gate(handle, max_queued=2), Timings()
    calls = await crowd(engine, waiting)
    one = asyncio.create_task(ask(engine, timings, owner="org-1"))
    await asyncio.sleep(0)
    assert len(handle.jobs) == 2
    if refused:
        assert await fault_of(one) == "BUSY"
    else:
        assert timings.waited_behind == waiting - 2
    handle.response.outcome.set()
    assert await asyncio.gather(*calls) == ["late"] * waiting
    assert refused or await one == "late"
    assert await ask(engine) == "late"


async def test_wait_for_a_turn_counts_for_the_deadline_and_as_queue(running: Handle) -> None:
    running.response = Response(asyncio.Event())
    engine, timings = gate(running, deadline_s=0.05), Timings()
    (first,) = await crowd(engine, 1)
    assert await fault_of(ask(engine, timings)) == "UPSTREAM_TIMEOUT"
    assert timings.queue > 0
    assert await fault_of(first) == "UPSTREAM_TIMEOUT"
    running.response = Response("done")
    assert await ask(engine) == "done"


async def test_client_that_leaves_the_queue_leaves_no_gap(running: Handle) -> None:
    running.response = Response(asyncio.Event())
    engine = gate(running, max_queued=1)
    first, second = await crowd(engine, 2)
    second.cancel()
    await asyncio.wait({second})
    (third,) = await crowd(engine, 1)
    running.response.outcome.set()
    assert await asyncio.gather(first, third) == ["late", "late"]
    assert not engine.queue.at_work
