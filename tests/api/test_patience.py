"""Steps that are bounded in time: their results, their errors, and what happens to them when the time is over."""

from __future__ import annotations

import asyncio

import pytest

from deployments.ingress.patience import Overdue, within

pytestmark = pytest.mark.anyio


async def at_once() -> str:
    return "there"


async def later(event: asyncio.Event) -> str:
    await event.wait()
    await asyncio.sleep(0)
    return "come"


async def test_what_is_there_at_once_needs_no_time() -> None:
    assert await within(-1, at_once()) == "there"


async def test_what_comes_later_is_waited_for() -> None:
    event = asyncio.Event()
    asyncio.get_running_loop().call_soon(event.set)
    assert await within(60, later(event)) == "come"


async def test_what_does_not_come_is_ended() -> None:
    ended = asyncio.Event()

    async def never() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(Overdue):
        await within(0, never())
    assert ended.is_set()


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("error", [ValueError, TimeoutError, StopAsyncIteration])
async def test_errors_of_a_step_are_its_own(error: type[Exception], waits: bool) -> None:
    async def fails() -> None:
        if waits:
            await asyncio.sleep(0)
        raise error

    with pytest.raises(error):
        await within(60, fails())


async def test_a_step_may_survive_what_it_catches() -> None:
    async def holds_on() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            return "to the end"
        return "never"

    assert await within(0, holds_on()) == "to the end"


async def test_cancelling_from_outside_is_no_lack_of_time() -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def never() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(within(60, never()))
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
    assert [await within(60, source.__anext__()), await within(60, source.__anext__())] == [1, 2]
    with pytest.raises(StopAsyncIteration):
        await within(60, source.__anext__())
