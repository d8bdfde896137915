"""Waiting for what nothing announces (a counter, another thread, another process), and clocks of tests.

ManualClock     stands until a test sets it
run             a coroutine in virtual time: nothing waits, and the clocks of the module `time` show the loop's
"""

import asyncio
import inspect
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from unittest import mock

R = TypeVar("R")

WITHIN_S = 120
"""How long it may take on a machine that is busy with other things."""

MOST_ROUNDS = 100_000
"""Turns of a virtual loop in one moment; what takes more never ends."""


class ManualClock:
    """A clock that stands until a test moves `now_s`. It also takes the place of the module `time`."""

    def __init__(self, now_s: float = 1_800_000_000) -> None:
        self.now_s = float(now_s)

    def __call__(self) -> float:
        return self.now_s

    time = monotonic = __call__


async def until(condition: Callable[[], Any], within_s: float = WITHIN_S) -> None:
    """Waits until `condition`, or what it returns to be awaited, is true. TimeoutError if it is not `within_s`."""
    async with asyncio.timeout(within_s):
        while not (await result if inspect.isawaitable(result := condition()) else result):  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def cancelled(*tasks: asyncio.Future[Any]) -> bool:
    """Cancels `tasks` and waits for their ends. Returns True if each ended by it."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return all(task.cancelled() for task in tasks)


async def settled() -> None:
    """Lets every task of the loop continue that can."""
    for _ in range(10):
        await asyncio.sleep(0)


def eventually(
    condition: Callable[[], Any], within_s: float = WITHIN_S, why: str | Callable[[], str] = "it never came"
) -> Any:
    """Waits where no event loop runs until `condition` is true, and returns its value. Fails with `why` otherwise."""
    end_s = time.monotonic() + within_s
    while not (result := condition()):
        assert time.monotonic() < end_s, why if isinstance(why, str) else why()
        time.sleep(0.01)
    return result


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs whatever needs no network. Its time passes when everything waits, at once; threads are none."""

    def __init__(self) -> None:
        super().__init__(_Impatient(self))
        self.now_s = 0.0
        self.unseen: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.unseen.append(context))

    def time(self) -> float:
        return self.now_s

    def run_forever(self) -> None:
        with mock.patch.multiple(time, monotonic=self.time, perf_counter=self.time, time=self.time):
            super().run_forever()

    def run_in_executor(self, _: Any, work: Callable[..., R], *arguments: Any) -> asyncio.Future[R]:  # type: ignore[override]
        done = self.create_future()
        try:
            done.set_result(work(*arguments))
        except Exception as error:
            done.set_exception(error)
        return done


class _Impatient(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop, self._rounds = loop, 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._rounds = 0 if timeout else self._rounds + 1
        assert self._rounds < MOST_ROUNDS, "it spins: no time passes"
        self._loop.now_s += timeout or 0.0
        return super().select(0)


def run(work: Coroutine[Any, Any, R]) -> R:
    loop = VirtualLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        result = runner.run(work)
    assert not loop.unseen, f"a task has failed, and nothing noticed: {loop.unseen}"
    return result


def is_busy(engine: Any) -> bool:
    """Says if the core of an engine of vLLM has requests or commands that it has not finished."""
    return not engine.engine_core._commands.empty() or engine.engine_core.engine_core.scheduler.has_requests()
