"""Batches for encoders: many callers, a few worker threads, a budget of tokens.

    submit() ----> jobs, in rotation ----> a slice of about `slice_tokens` ----> calls of similar lengths ----> futures

A worker waits for nothing: when its slice is done it takes the next from what is there. Jobs take turns text by text,
so one with 2,048 texts holds up one with a single text for one slice at most, and nobody starves. Within a slice texts
are sorted by length and cut into calls where padding would cost more than a further call.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

STALL_S = 300.0
"""One call of the model that takes longer than this is no progress."""


class Sized(Protocol):
    """Something with a length in tokens."""

    def __len__(self) -> int: ...


Item = TypeVar("Item", bound=Sized)
Result = TypeVar("Result")


class _Job(Generic[Item, Result]):
    """The items of one caller; shortest first, because they share calls better and come back sooner."""

    def __init__(self, items: Sequence[Item], loop: asyncio.AbstractEventLoop) -> None:
        self.items = items
        self.results: list[Any] = [None] * len(items)
        self.unfinished = len(items)
        self.lock = threading.Lock()
        self.waiting = deque(sorted(range(len(items)), key=lambda index: len(items[index])))
        self.loop = loop
        self.future: asyncio.Future[list[Result]] = loop.create_future()

    @property
    def is_over(self) -> bool:
        """Answered, failed, or its caller has gone."""
        return self.future.done()

    def put(self, index: int, result: Result) -> None:
        self.results[index] = result
        with self.lock:  # two workers may bring the last two results
            self.unfinished -= 1
            is_last = not self.unfinished
        if is_last:
            self.settle(lambda: self.future.set_result(self.results))

    def settle(self, finish: Callable[[], None]) -> None:
        """Runs `finish` in the caller's event loop unless the caller has gone by then."""
        try:
            self.loop.call_soon_threadsafe(lambda: None if self.is_over else finish())
        except RuntimeError:  # the loop is closed: nobody listens
            return


@dataclass(frozen=True, slots=True)
class _Turn(Generic[Item, Result]):
    """One item on its way through the model."""

    job: _Job[Item, Result]
    index: int

    @property
    def item(self) -> Item:
        return self.job.items[self.index]

    @property
    def tokens(self) -> int:
        return len(self.item)


def calls_of(lengths: Sequence[int], call_tokens: int) -> list[int]:
    """Sizes of consecutive calls for ascending `lengths`, so that no call is padded by more than `call_tokens`."""
    sizes: list[int] = []
    count = total = 0
    for length in lengths:
        if count and length * count - total > call_tokens:
            sizes.append(count)
            count = total = 0
        count, total = count + 1, total + length
    return [*sizes, count] if count else sizes


class TokenBatcher(Generic[Item, Result]):
    """Runs items of many callers through one model.

    Args:
        run: gives one result per item; called in worker threads, in each one call at a time.
        slice_tokens: most tokens that a worker takes at one time; bounds how long a new caller waits.
        call_tokens: what one call of the model costs besides its tokens, in tokens.
        workers: threads that share the work. Two calls of one core each beat one call of two cores: nothing waits for
            the slower core, which matters where a core is also wanted by others.
    """

    def __init__(
        self,
        run: Callable[[list[Item]], Sequence[Result]],
        *,
        slice_tokens: int,
        call_tokens: int,
        workers: int = 1,
        name: str,
    ) -> None:
        self._run = run
        self._slice_tokens = slice_tokens
        self._call_tokens = call_tokens
        self._jobs: deque[_Job[Item, Result]] = deque()
        self._changed = threading.Condition()
        self.is_closed = False
        self._waiting_tokens = 0
        self._busy_since: dict[int, float] = {}
        self._workers = [threading.Thread(target=self._work, name=f"{name}-{i}", daemon=True) for i in range(workers)]
        for worker in self._workers:
            worker.start()

    async def submit(self, items: Sequence[Item]) -> list[Result]:
        """One result per item, in order. Cancelled, its remaining items never reach the model."""
        if not items:
            return []
        job: _Job[Item, Result] = _Job(items, asyncio.get_running_loop())
        with self._changed:
            if self.is_closed:
                raise RuntimeError("the model is closed")
            self._jobs.append(job)
            self._waiting_tokens += sum(map(len, items))
            self._changed.notify_all()
        return await job.future

    def check(self) -> None:
        """Raises RuntimeError if a worker is dead or one call of the model does not end."""
        if not all(worker.is_alive() for worker in self._workers):
            raise RuntimeError("a worker thread of the model is not alive")
        since = min(self._busy_since.copy().values(), default=None)
        if since is not None and time.monotonic() - since > STALL_S:
            raise RuntimeError(f"one call of the model has taken longer than {STALL_S:.0f} s")

    def close(self) -> None:
        """Ends the workers after their present slice; waiting callers get a RuntimeError."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()
        for worker in self._workers:
            worker.join()
        for job in self._jobs:
            _fail(job, RuntimeError("the model was closed"))

    def _work(self) -> None:
        while taken := self._take():
            taken.sort(key=lambda turn: turn.tokens)
            start = 0
            for size in calls_of([turn.tokens for turn in taken], self._call_tokens):
                self._call(taken[start : start + size])
                start += size

    def _take(self) -> list[_Turn[Item, Result]]:
        """The next slice, for which it waits; empty once closed."""
        with self._changed:
            taken: list[_Turn[Item, Result]] = []
            while not taken and not self.is_closed:
                self._changed.wait_for(lambda: self._jobs or self.is_closed)
                taken = self._slice()
            return [] if self.is_closed else taken

    def _slice(self) -> list[_Turn[Item, Result]]:
        """One item of each job in rotation, until the tokens are spent. Jobs whose caller has gone are dropped."""
        taken: list[_Turn[Item, Result]] = []
        tokens = 0
        # A share of what waits, so that the other workers find some too; but not so small that the call costs more.
        share = max(self._call_tokens, -(-self._waiting_tokens // len(self._workers)))
        limit = min(self._slice_tokens, share)
        while self._jobs and (tokens < limit or not taken):
            job = self._jobs.popleft()
            if job.is_over:
                self._waiting_tokens -= sum(len(job.items[index]) for index in job.waiting)
                continue
            turn = _Turn(job, job.waiting[0])
            if taken and tokens + turn.tokens > self._slice_tokens:
                self._jobs.appendleft(job)  # first in the next slice
                break
            tokens += turn.tokens
            self._waiting_tokens -= turn.tokens
            taken.append(turn)
            job.waiting.popleft()
            if job.waiting:
                self._jobs.append(job)
        return taken

    def _call(self, turns: list[_Turn[Item, Result]]) -> None:
        """One call of the model. Where it fails each item is tried alone, so that one fails nobody else."""
        turns = [turn for turn in turns if not turn.job.is_over]
        if not turns:
            return
        worker = threading.get_ident()
        self._busy_since[worker] = time.monotonic()
        try:
            results = self._run([turn.item for turn in turns])
        except Exception as error:
            if len(turns) == 1:
                _fail(turns[0].job, error)
            else:
                for turn in turns:
                    self._call([turn])
            return
        finally:
            self._busy_since.pop(worker, None)
        for turn, result in zip(turns, results, strict=True):
            turn.job.put(turn.index, result)


def _fail(job: _Job[Any, Any], error: Exception) -> None:
    job.settle(lambda: job.future.set_exception(error))
