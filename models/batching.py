"""Batches for encoders: many callers, a few worker threads, a budget of tokens.

    submit() ----> owners, in turn ----> a slice of about `slice_tokens` ----> calls of similar lengths ----> futures

A worker waits for nothing: when its slice is done it takes the next from what is there. Owners take turns, and the jobs
of an owner text by text, so one with 2,048 texts holds up one with a single text for one slice at most, and no owner
starves. There is one worker more than any owner has at a time, and while others come an owner has one less: who sends
much never has them all, and a text of another begins at once. Within a slice texts are sorted by length and cut into
calls where padding would cost more than a further call.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence, Sized
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar

from concurrency.fairness import FairQueue, OwnerCounter
from concurrency.stalls import StallDetector

STALL_S = (90.0, 300.0, 300.0)
"""Seconds that a call of the model may take however few its tokens are, and at most, with others and alone."""

PRESENT_S = 2.0
"""Seconds after its last call during which an owner counts as present."""


Item = TypeVar("Item", bound=Sized)  # its length is its number of tokens
Result = TypeVar("Result")


class _BatchJob(Generic[Item, Result]):
    """The items of one caller; shortest first, because they share calls better and come back sooner."""

    def __init__(self, items: Sequence[Item], owner: Hashable, loop: asyncio.AbstractEventLoop) -> None:
        self.items = items
        self.owner = owner
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
            if not self.unfinished:
                self.settle(lambda: self.future.set_result(self.results))

    def fail(self, error: Exception) -> None:
        self.settle(lambda: self.future.set_exception(error))

    def settle(self, finish: Callable[[], None]) -> None:
        """Runs `finish` in the caller's event loop unless the caller has gone by then."""
        try:
            self.loop.call_soon_threadsafe(lambda: None if self.is_over else finish())
        except RuntimeError:  # the loop is closed: nobody listens
            return


@dataclass(frozen=True, slots=True)
class _BatchItem(Generic[Item, Result]):
    """One item on its way through the model. Its length is that of the item."""

    job: _BatchJob[Item, Result]
    index: int

    @property
    def item(self) -> Item:
        return self.job.items[self.index]

    def __len__(self) -> int:
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
        call_tokens: fixed cost of one call of the model, in tokens.
        workers: threads that work for one owner at a time. Two calls of one core each beat one call of two cores,
            which waits for the slower core where others want one, too.
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
        self._queue: FairQueue[_BatchJob[Item, Result]] = FairQueue()
        """Jobs with items that wait."""
        self._most_workers = workers
        self._served = OwnerCounter()
        """Workers that have something of an owner, by owner."""
        self._changed = threading.Condition()
        self.is_closed = False
        self._waiting_tokens = 0
        self.stalls = StallDetector(*STALL_S)
        names = [f"{name}-{number}" for number in range(workers + 1)]
        self._workers = [threading.Thread(target=self._work, name=each, daemon=True) for each in names]
        for worker in self._workers:
            worker.start()

    async def submit(self, items: Sequence[Item], owner: str = "") -> list[Result]:
        """One result per item, in order. Cancelled, its remaining items never reach the model."""
        if not items:
            return []
        job: _BatchJob[Item, Result] = _BatchJob(items, owner, asyncio.get_running_loop())
        with self._changed:
            if self.is_closed:
                raise RuntimeError("the model is closed")
            self._queue.note(owner)
            self._queue.add(owner, job)
            self._waiting_tokens += sum(map(len, items))
            self._changed.notify_all()
        return await job.future

    def check(self) -> None:
        """Raises RuntimeError if a worker is dead, or a call takes much longer for its tokens than others did."""
        alive = [worker.is_alive() for worker in self._workers]
        if not (any(alive) if self.is_closed else all(alive)):  # closed, each ends when its slice is done
            raise RuntimeError("a worker thread of the model has died")
        self.stalls.check(f"a call of the model has taken longer than {self.stalls.limit_s:.0f} s")

    def close(self) -> None:
        """Ends the workers after their present slice; waiting callers get a RuntimeError."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()
        for worker in self._workers:
            worker.join()
        for job in self._queue:
            job.fail(RuntimeError("the model was closed"))

    def _work(self) -> None:
        while entries := self._next_slice():
            entries.sort(key=len)
            rest = iter(entries)
            for size in calls_of([len(entry) for entry in entries], self._call_tokens):
                self._call(list(islice(rest, size)))
            with self._changed:
                for owner in {entry.job.owner for entry in entries}:
                    self._served.give_back(owner)
                self._changed.notify_all()

    def _next_slice(self) -> list[_BatchItem[Item, Result]]:
        """The next slice, for which it waits; empty once closed."""
        with self._changed:
            while not self.is_closed:
                if entries := self._slice():
                    for owner in {entry.job.owner for entry in entries}:
                        self._served.take(owner)
                    return entries
                self._changed.wait()
            return []  # what waits stays in the queue, where `close` finds it

    def _owners(self) -> list[Hashable]:
        """The owners of something that may begin, in the order of their turns."""
        return [owner for owner in self._queue.owners() if self._served[owner] < self._most(owner)]

    def _most(self, owner: Hashable) -> int:
        """Workers that `owner` may have at a time."""
        has_company = next(self._queue.others(owner, PRESENT_S), None) is not None
        return max(1, self._most_workers - 1) if has_company else self._most_workers

    def _slice(self) -> list[_BatchItem[Item, Result]]:
        """One item of each owner in turn, until the tokens are spent. Each may have an equal share of them."""
        entries: list[_BatchItem[Item, Result]] = []
        tokens: Counter[Hashable] = Counter()
        # A share of what waits, so that the other workers find some too; but not so small that the call costs more.
        limit = min(self._slice_tokens, max(self._call_tokens, -(-self._waiting_tokens // self._most_workers)))
        owners = deque(self._owners())
        each = max(self._call_tokens, limit // max(1, len(owners)))
        while owners and (tokens.total() < limit or not entries):
            owner = owners.popleft()
            entry = self._first(owner)
            if entry is None or (entries and tokens.total() + len(entry) > self._slice_tokens):
                continue  # what is too long for this slice stands first in the next
            self._begin(entry)
            entries.append(entry)
            tokens[owner] += len(entry)
            if tokens[owner] < each:
                owners.append(owner)
        return entries

    def _first(self, owner: Hashable) -> _BatchItem[Item, Result] | None:
        """The item of `owner` that is next; None if none is left. Jobs of callers that have gone are dropped."""
        while (job := self._queue.first(owner)) and job.is_over:
            self._queue.remove(owner, job)
            self._waiting_tokens -= sum(len(job.items[index]) for index in job.waiting)
        return _BatchItem(job, job.waiting[0]) if job else None

    def _begin(self, entry: _BatchItem[Item, Result]) -> None:
        """Takes `entry` out of those that wait; its job and its owner stand last from now on."""
        job = self._queue.pop(entry.job.owner)
        job.waiting.popleft()
        self._waiting_tokens -= len(entry)
        if job.waiting:
            self._queue.add(job.owner, job)

    def _call(self, entries: list[_BatchItem[Item, Result]]) -> None:
        """One call of the model. Where it fails each item is tried alone, so that one fails no other."""
        entries = [entry for entry in entries if not entry.job.is_over]
        if not entries:
            return
        try:
            with self.stalls.watching(size=sum(map(len, entries))):
                results = self._run([entry.item for entry in entries])
        except Exception as error:
            if len(entries) == 1:
                entries[0].job.fail(error)
            else:
                for entry in entries:
                    self._call([entry])
            return
        for entry, result in zip(entries, results, strict=True):
            entry.job.put(entry.index, result)
