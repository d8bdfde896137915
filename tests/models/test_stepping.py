"""A blocking generator, advanced in threads: its order, its errors, its end, and its end before its time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from contextlib import aclosing

import pytest

from models.stepping import GRACE_S, Stepper


@pytest.fixture
def stepper() -> Generator[Stepper]:
    stepper = Stepper(threads=2, deadline_s=5, name="toy")
    yield stepper
    stepper.close()


async def test_parts_come_in_order_from_other_threads(stepper: Stepper) -> None:
    threads = set()

    def parts() -> Generator[int | None]:
        for number in (0, None, 2):
            threads.add(threading.get_ident())
            yield number

    assert [part async for part in stepper.run(parts())] == [0, None, 2]
    assert threading.get_ident() not in threads


async def test_an_error_reaches_the_caller(stepper: Stepper) -> None:
    def parts() -> Generator[int]:
        yield 1
        raise ValueError("two")

    running = stepper.run(parts())
    assert await anext(running) == 1
    with pytest.raises(ValueError, match="two"):
        await anext(running)


async def test_who_leaves_stops_the_work_after_its_step(stepper: Stepper) -> None:
    closed, steps = threading.Event(), []

    def parts() -> Generator[int]:
        try:
            for number in range(100):
                steps.append(number)
                yield number
        finally:
            closed.set()

    async with aclosing(stepper.run(parts())) as running:
        async for _ in running:
            break
    assert await asyncio.to_thread(closed.wait, 10)
    assert steps == [0]


async def test_who_is_cancelled_within_a_step_stops_the_work_after_it(stepper: Stepper) -> None:
    begun, go, closed = threading.Event(), threading.Event(), threading.Event()

    def parts() -> Generator[int]:
        try:
            begun.set()
            go.wait(10)
            yield 1
            raise AssertionError("a step too many")
        finally:
            closed.set()

    async def consume() -> None:
        async for _ in stepper.run(parts()):
            raise AssertionError("it was cancelled")

    task = asyncio.create_task(consume())
    await asyncio.to_thread(begun.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not closed.is_set()
    go.set()
    assert await asyncio.to_thread(closed.wait, 10)


async def test_a_step_beyond_the_deadline_is_no_progress() -> None:
    stepper = Stepper(threads=1, deadline_s=-GRACE_S, name="toy")
    stepper.check()
    begun, go = threading.Event(), threading.Event()

    def parts() -> Generator[int]:
        begun.set()
        go.wait(10)
        yield 1

    running = stepper.run(parts())
    step = asyncio.ensure_future(anext(running))
    await asyncio.to_thread(begun.wait, 10)
    with pytest.raises(RuntimeError, match="toy makes no progress"):
        stepper.check()
    go.set()
    await step
    stepper.check()
    await running.aclose()
    stepper.close()
