"""Steps that are bounded in time: their results, their errors, and what happens to them when the time is over."""

from __future__ import annotations

import asyncio

import pytest

from deployments.ingress.front.bodies import ReplyPace, StepTimeout, with_timeout
from tests.waiting import ManualClock


async def at_once() -> str:
    return "there"


async def later(event: asyncio.Event) -> str:
    await event.wait()
    await asyncio.sleep(0)
    return "come"


async def test_what_is_there_at_once_needs_no_time() -> None:
    assert await with_timeout(-1, at_once()) == "there"


async def test_what_comes_later_is_waited_for() -> None:
    event = asyncio.Event()
    asyncio.get_running_loop().call_soon(event.set)
    assert await with_timeout(60, later(event)) == "come"


async def test_what_does_not_come_is_ended() -> None:
    ended = asyncio.Event()

    async def never() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(StepTimeout):
        await with_timeout(0, never())
    assert ended.is_set()


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("error", [ValueError, TimeoutError, StopAsyncIteration])
async def test_errors_of_a_step_are_its_own(error: type[Exception], waits: bool) -> None:
    async def fails() -> None:
        if waits:
            await asyncio.sleep(0)
        raise error

    with pytest.raises(error):
        await with_timeout(60, fails())


async def test_a_step_may_survive_what_it_catches() -> None:
    async def holds_on() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            return "to the end"
        return "never"

    assert await with_timeout(0, holds_on()) == "to the end"


async def test_cancelling_from_outside_is_no_lack_of_time() -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def never() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(with_timeout(60, never()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_a_generator_gives_its_next_item() -> None:
    async def items():
        yield 1
        await asyncio.sleep(0)
        yield 2

    source = items()
    assert [await with_timeout(60, source.__anext__()), await with_timeout(60, source.__anext__())] == [1, 2]
    with pytest.raises(StopAsyncIteration):
        await with_timeout(60, source.__anext__())


@pytest.mark.parametrize(("waited_s", "is_dropped"), [(70.0, False), (70.1, True)])
async def test_all_waits_together_are_bounded_by_what_was_sent(waited_s: float, is_dropped: bool) -> None:
    clock, event = ManualClock(), asyncio.Event()

    async def take(seconds: float) -> None:
        await asyncio.sleep(0)
        clock.now_s += seconds

    asyncio.get_running_loop().call_soon(event.set)
    pace = ReplyPace(60, 10, clock)
    await pace.step(100, take(20))
    await take(1000)  # nothing was there to be sent
    await pace.step(0, take(waited_s - 20 - 1e-6))
    if is_dropped:
        with pytest.raises(StepTimeout):
            await pace.step(0, asyncio.Event().wait())
    else:
        await pace.step(100, later(event))


async def test_nothing_may_be_waited_for_longer_than_the_idle_time_however_much_was_sent() -> None:
    pace = ReplyPace(0, 1)
    await pace.step(10**9, at_once())
    with pytest.raises(StepTimeout):
        await pace.step(0, asyncio.Event().wait())
