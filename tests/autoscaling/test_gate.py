"""Every row of the cold and busy table, in virtual time."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import ExitStack, aclosing, closing, suppress
from contextvars import copy_context
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, RayTaskError
from ray.serve.context import _RequestContext, _serve_request_context
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from autoscaling import views
from autoscaling.engine import NOBODY, CallContext, Deadline, EngineView, Timings
from contract.errors import INVALID_REQUEST, ApiError
from contract.telemetry import EngineState
from tests.autoscaling.replicas import Job, Some
from tests.autoscaling.world import World, world

SECOND, FOREVER = Job(), Job((10_000.0,))
Make = Callable[..., World]


pytestmark = pytest.mark.virtual


@pytest.fixture
def cold() -> Iterator[Make]:
    """Makes engines of which no replica runs."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(world(**options))


@pytest.fixture
def warm(cold: Make) -> Make:
    def make(**options: Any) -> World:
        at = cold(**options)
        at.run_replica()
        at.ingresses[0].learn(at.version, [*at.running])
        return at

    return make


def ask(at: World, job: Job = SECOND, timings: Timings | None = None, owner: str = NOBODY) -> Coroutine[Any, Any, str]:
    return at.gate.call(Some.answer, job, context=CallContext(owner, timings or Timings()))


def items_of(at: World, job: Job, timings: Timings | None = None) -> AsyncGenerator[str, None]:
    return at.gate.stream(Some.items, job, context=CallContext(timings=timings or Timings()))


def either(at: World, job: Job, streams: bool) -> Any:
    return anext(items_of(at, job)) if streams else ask(at, job)


async def fault_of(call: Any) -> str:
    with pytest.raises(ApiError) as caught:
        await call
    return caught.value.fault.name


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def test_what_works_and_waits_is_known_and_with_whose_calls_it_is(cold: Make, warm: Make) -> None:
    assert cold().gate.free() == 0
    at = warm(slots=2)
    assert at.gate.free() == 2
    calls = [asyncio.create_task(ask(at, owner=owner)) for owner in ("a", "a", "a", "b", "b")]
    await asyncio.sleep(0)
    loads = at.gate.waker.loads
    assert at.gate.view() == EngineView(
        EngineState.BUSY, waiting=3, used=2, slots=2, loads=loads, lines={"a": 1, "b": 2}
    )
    assert at.gate.free() == 0
    await asyncio.gather(*calls)
    assert at.gate.view() == EngineView(EngineState.READY, waiting=0, used=0, slots=2, loads=loads)
    assert at.gate.free() == 2


async def test_a_start_says_how_long_it_took(cold: Make, warm: Make, caplog: pytest.LogCaptureFixture) -> None:
    at = warm()
    at.loaded_s = 100.0
    answers = iter([at._status()])
    at.gate.waker._watch._ask = lambda: next(answers)
    await at.gate.waker.warm()
    await asyncio.sleep(10)
    assert "could not read from Serve" not in caplog.text, "it is asked at most once about an engine that runs"
    assert at.gate.view().last_load_s is None, "the model took longer than we have waited: it was about to run"
    at = cold(load_s=lambda: 7.0)
    await at.gate.ready(10, timings=Timings())
    assert at.gate.view().last_load_s == pytest.approx(7.0, abs=0.2)


async def test_cold_engine_that_refuses_leaves_exactly_one_warm_call(cold: Make) -> None:
    at = cold(when_cold="refuse", load_s=lambda: 7.0)
    for _ in range(2):
        assert await fault_of(ask(at)) == "WARMING_UP"
        await asyncio.sleep(1)
    assert at.ingresses[0].asked == ["warm"]
    await asyncio.sleep(10)
    assert await ask(at) == "item 0"


@pytest.mark.parametrize(
    ("expected_s", "least_s", "most_s"), [(0.2, 1, 1), (7, 7, 9), (48, 48, 60), (59.1, 48, 60), (600, 48, 60)]
)
async def test_retry_after_is_what_clients_honour_and_does_not_bring_them_back_together(
    cold: Make, expected_s: float, least_s: int, most_s: int
) -> None:
    at, told = cold(when_cold="refuse"), set()
    at.gate.waker.loads.add(expected_s)
    for _ in range(100):
        with pytest.raises(ApiError) as caught:
            await ask(at)
        told.add(caught.value.retry_after_s or 0)
    assert least_s <= min(told) <= max(told) <= most_s
    assert len(told) > 1 or least_s == most_s


async def test_cold_engine_that_waits_answers_once_a_replica_runs_or_is_503(cold: Make) -> None:
    at, timings = cold(when_cold="wait", wait_s=5, load_s=lambda: 7.0), Timings()
    assert await fault_of(ask(at)) == "WARMING_UP"
    assert now_s() == 5
    assert await ask(at, timings=timings) == "item 0"
    assert timings.load == pytest.approx(2.0, abs=0.2)


async def test_fifty_arrivals_at_a_cold_engine_start_it_once(cold: Make) -> None:
    at = cold(when_cold="wait", slots=100, most=4, load_s=[7.0].pop)
    assert await asyncio.gather(*(ask(at) for _ in range(50))) == 50 * ["item 0"]
    assert (now_s() < 10, at.target, at.control.done()) == (True, 1, False), "a second start"


async def test_who_waited_for_a_start_longer_than_the_deadline_has_a_turn(cold: Make) -> None:
    at = cold(when_cold="wait", wait_s=60, deadline_s=5, load_s=lambda: 10.0)
    assert await asyncio.gather(ask(at), ask(at)) == ["item 0"] * 2
    assert now_s() == pytest.approx(12.0, abs=0.3)


async def test_a_start_that_fails_ends_waits_and_is_told_until_the_engine_runs(cold: Make) -> None:
    at = cold(when_cold="wait", load_s=lambda: 2.0)
    at.fails = True
    waiting = asyncio.create_task(ask(at))
    await asyncio.sleep(1)
    assert not at.gate.is_failing()
    assert await fault_of(waiting) == "ENGINE_FAILED"
    assert at.gate.is_failing()
    assert at.gate.view().state is EngineState.FAILED
    at.fails = False
    await asyncio.sleep(10)
    assert not at.gate.is_failing()
    assert await ask(at) == "item 0"
    assert not at.gate.waker.has_failed


async def test_client_that_leaves_does_not_take_the_warm_call_with_it(cold: Make) -> None:
    at, request = cold(when_cold="wait"), copy_context()
    request.run(_serve_request_context.set, _RequestContext(_internal_request_id="first"))
    first, second = (asyncio.create_task(ask(at), context=context) for context in (request, None))
    await asyncio.sleep(0.01)
    first.cancel()
    assert await second == "item 0"
    assert at.ingresses[0].asked.count("warm") == 1


FAULTS = (
    (views.EngineBusy("engine"), "BUSY"),
    (BackPressureError(0, 1), "BUSY"),
    (DeploymentUnavailableError("engine"), "ENGINE_FAILED"),
    (ActorDiedError(), "UPSTREAM_ERROR"),
    (ValueError("a detail of the inside"), "UPSTREAM_ERROR"),
    (TimeoutError("the engine's own"), "UPSTREAM_ERROR"),
    (INVALID_REQUEST("the engine refuses"), "INVALID_REQUEST"),
    (RayTaskError("f", "trace", INVALID_REQUEST("the engine refuses")), "INVALID_REQUEST"),
    (RayTaskError("f", "trace", ValueError("a detail")), "UPSTREAM_ERROR"),
)


@pytest.mark.parametrize("streams", [False, True], ids=["call", "stream"])
async def test_exceptions_become_errors_of_the_contract(warm: Make, streams: bool) -> None:
    for outcome, fault in FAULTS:
        with pytest.raises(ApiError) as caught:
            await either(warm(), Job((), outcome), streams)
        assert caught.value.fault.name == fault, outcome
        assert "detail" not in caught.value.message


@pytest.mark.parametrize(
    ("replicas", "state", "warm_calls"), [(1, EngineState.STARTING, 1), (2, EngineState.READY, 0)], ids=["last", "one"]
)
@pytest.mark.parametrize("streams", [False, True], ids=["call", "stream"])
async def test_an_engine_whose_last_replica_died_under_a_call_starts_again_and_shows_it(
    cold: Make, replicas: int, state: EngineState, warm_calls: int, streams: bool
) -> None:
    at = cold(most=2)
    at.is_away = True
    for _ in range(replicas):
        at.run_replica()
    await asyncio.sleep(0.1)
    call = asyncio.create_task(fault_of(either(at, FOREVER, streams)))
    await asyncio.sleep(1)
    next(replica for replica in at.running if replica.calls).die()
    assert await call == "UPSTREAM_ERROR"
    await asyncio.sleep(0)
    assert at.gate.view().state is state
    assert at.ingresses[0].asked.count("warm") == warm_calls
    at.is_away = False
    assert await ask(at) == "item 0"
    assert at.gate.view().state is EngineState.READY


@pytest.mark.parametrize(
    ("steps_s", "items"), [((1.0, 10_000.0), 1), ((4.0,) * 5 + (10_000.0,), 5)], ids=["one", "longer than it together"]
)
async def test_deadline_holds_for_each_item_of_a_stream(warm: Make, steps_s: tuple[float, ...], items: int) -> None:
    at = warm(deadline_s=5)
    stream = items_of(at, Job(steps_s))
    assert [await anext(stream) for _ in range(items)] == [f"item {number}" for number in range(items)]
    began_s = now_s()
    assert await fault_of(anext(stream)) == "UPSTREAM_TIMEOUT"
    assert now_s() - began_s == pytest.approx(5.0)
    assert at.census() == {}, "and its work is cancelled"


async def test_time_that_a_client_takes_between_items_is_none_of_the_engines(warm: Make) -> None:
    items = items_of(warm(deadline_s=5), Job((0.0, 0.0)))
    assert await anext(items) == "item 0"
    await asyncio.sleep(60)
    assert await anext(items) == "item 1"
    await items.aclose()


@pytest.mark.parametrize("streams", [False, True], ids=["call", "stream"])
@pytest.mark.parametrize("comes_first", [False, True])
async def test_who_is_cancelled_when_the_deadline_passes_is_cancelled(
    warm: Make, streams: bool, comes_first: bool
) -> None:
    at, loop = warm(deadline_s=5), asyncio.get_running_loop()
    begins = asyncio.Event()

    async def asked() -> None:
        await begins.wait()
        await either(at, FOREVER, streams)

    call = asyncio.create_task(asked())
    if comes_first:
        loop.call_later(5, call.cancel)
    begins.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if not comes_first:
        loop.call_later(5, call.cancel)
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


async def test_a_deadline_is_504_and_leaves_its_task_as_it_was(warm: Make) -> None:
    assert await fault_of(ask(warm(deadline_s=5), FOREVER)) == "UPSTREAM_TIMEOUT"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    async with asyncio.timeout(60):
        await asyncio.sleep(0)


async def test_leaving_a_stream_cancels_the_engines_work_and_gives_its_place_back(warm: Make) -> None:
    at, timings = warm(), Timings()
    items = items_of(at, Job((1.0, 10_000.0)), timings)
    await anext(items)
    assert timings.engine == pytest.approx(1.0, abs=0.01), "known at the first item"
    await items.aclose()
    assert at.census() == {}


async def crowd(at: World, count: int, job: Job = SECOND) -> list[asyncio.Task[str]]:
    calls = [asyncio.create_task(ask(at, job, owner="org-1")) for _ in range(count)]
    await asyncio.sleep(0.1)
    return calls


@pytest.mark.parametrize(("waiting", "refused"), [(2, False), (3, False), (4, True)])
async def test_queue_is_bounded_beyond_the_slots_which_alone_go_out_to_the_engine(
    warm: Make, waiting: int, refused: bool
) -> None:
    at, timings = warm(slots=2, max_queued=2), Timings()
    calls = await crowd(at, waiting)
    one = asyncio.create_task(ask(at, timings=timings, owner="org-1"))
    await asyncio.sleep(0.1)
    assert at.ingresses[0].asked == ["answer"] * 2
    if refused:
        assert await fault_of(one) == "BUSY"
    else:
        assert timings.waited_behind == waiting - 2
    assert await asyncio.gather(*calls) == ["item 0"] * waiting
    assert refused or await one == "item 0"
    assert await ask(at) == "item 0"


async def test_wait_for_a_turn_counts_for_the_deadline_and_as_queue(warm: Make) -> None:
    at, timings = warm(deadline_s=5), Timings()
    (first,) = await crowd(at, 1, Job((4.0,)))
    second, third = asyncio.create_task(ask(at, FOREVER, timings)), asyncio.create_task(ask(at))
    assert await fault_of(second) == "UPSTREAM_TIMEOUT"
    assert now_s() == pytest.approx(5.1)
    assert timings.queue == pytest.approx(3.9, abs=0.01)
    assert await fault_of(third) == "UPSTREAM_TIMEOUT"
    assert await first == "item 0"
    assert await ask(at) == "item 0"


@pytest.mark.parametrize("items", [1, 3])
async def test_warm_call_beside_or_after_a_call_is_no_wait_of_that_call(warm: Make, items: int) -> None:
    at, timings = warm(slots=2), Timings()
    async with aclosing(items_of(at, Job((1.0, 2.0)), timings)) as stream:
        given = [await anext(stream, None) for _ in range(items)]
        assert given == ["item 0", "item 1", None][:items]
        await at.gate.waker.warm()
    assert timings.queue == pytest.approx(0.0, abs=0.01)
