"""Batches for encoders: many callers, a few worker threads, a budget of tokens.

    submit() ----> owners, in turn ----> a slice of about `slice_tokens` ----> calls of similar lengths ----> futures

A worker waits for nothing: when its slice is done it takes the next from what is there. Owners take turns, and the jobs
of an owner text by text, so one with 2,048 texts holds up one with a single text for one slice at most, and nobody
starves. There is one worker more than any owner has at a time, and while others come an owner has one less: who sends
much never has them all, and a text of another begins at once. Within a slice texts are sorted by length and cut into
calls where padding would cost more than a further call.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

STALL_S = 300.0
"""One call of the model that takes longer than this is no progress."""


PRESENT_S = 2.0
"""So long after its last call an owner counts as somebody who comes."""


class Sized(Protocol):
    """Something with a length in tokens."""

    def __len__(self) -> int: ...


Item = TypeVar("Item", bound=Sized)
Result = TypeVar("Result")


class _Job(Generic[Item, Result]):
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
        workers: that work for one owner at a time. Two calls of one core each beat one call of two cores: nothing waits
            for the slower core, which matters where a core is also wanted by others.
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
        self._lines: dict[Hashable, deque[_Job[Item, Result]]] = {}
        """Jobs with items that wait, by owner; an owner who was served stands last."""
        self._each = workers
        self._came_s: dict[Hashable, float] = {}
        """When each owner last came, the latest at the end."""
        self._served: Counter[Hashable] = Counter()
        """Workers that have something of an owner, by owner."""
        self._changed = threading.Condition()
        self.is_closed = False
        self._waiting_tokens = 0
        self._busy_since: dict[int, float] = {}
        self._workers = [
            threading.Thread(target=self._work, name=f"{name}-{i}", daemon=True) for i in range(workers + 1)
        ]
        for worker in self._workers:
            worker.start()

    async def submit(self, items: Sequence[Item], owner: str = "") -> list[Result]:
        """One result per item, in order. Cancelled, its remaining items never reach the model.

        Without an owner all are of the same.
        """
        if not items:
            return []
        job: _Job[Item, Result] = _Job(items, owner, asyncio.get_running_loop())
        with self._changed:
            if self.is_closed:
                raise RuntimeError("the model is closed")
            self._note(owner)
            self._lines.setdefault(owner, deque()).append(job)
            self._waiting_tokens += sum(map(len, items))
            self._changed.notify_all()
        return await job.future

    def check(self) -> None:
        """Raises RuntimeError if a worker is dead or one call of the model does not end."""
        alive = [worker.is_alive() for worker in self._workers]
        if not (any(alive) if self.is_closed else all(alive)):  # closed, each ends when its slice is done
            raise RuntimeError("a worker thread of the model has died")
        since = min(self._busy_since.copy().values(), default=None)
        if since is not None and time.monotonic() - since > STALL_S:
            raise RuntimeError(f"a call of the model has taken longer than {STALL_S:.0f} s")

    def close(self) -> None:
        """Ends the workers after their present slice; waiting callers get a RuntimeError."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()
        for worker in self._workers:
            worker.join()
        for line in self._lines.values():
            for job in line:
                _fail(job, RuntimeError("the model was closed"))

    def _work(self) -> None:
        while taken := self._take():
            taken.sort(key=lambda turn: turn.tokens)
            start = 0
            for size in calls_of([turn.tokens for turn in taken], self._call_tokens):
                self._call(taken[start : start + size])
                start += size
            self._leave({turn.job.owner for turn in taken})

    def _take(self) -> list[_Turn[Item, Result]]:
        """The next slice, for which it waits; empty once closed."""
        with self._changed:
            taken: list[_Turn[Item, Result]] = []
            while not taken and not self.is_closed:
                self._changed.wait_for(lambda: self.is_closed or self._owners())
                taken = self._slice()
            self._served.update({turn.job.owner for turn in taken})
            return [] if self.is_closed else taken

    def _leave(self, owners: set[Hashable]) -> None:
        """A slice with something of `owners` is done."""
        with self._changed:
            self._served.subtract(owners)
            self._served += Counter()  # forgets who has none
            self._changed.notify_all()

    def _owners(self) -> list[Hashable]:
        """Those who have something that may begin, in the order of their turns."""
        return [owner for owner in self._lines if self._served[owner] < self._most(owner)]

    def _most(self, owner: Hashable) -> int:
        """Workers that `owner` may have at a time."""
        since_s = time.monotonic() - PRESENT_S
        other = next((came_s for one, came_s in reversed(self._came_s.items()) if one != owner), -math.inf)
        return max(1, self._each - 1) if other > since_s else self._each

    def _note(self, owner: Hashable) -> None:
        """Keeps that `owner` is here, and forgets those who are not."""
        now_s = time.monotonic()
        self._came_s.pop(owner, None)
        self._came_s[owner] = now_s
        while (oldest := next(iter(self._came_s))) != owner and self._came_s[oldest] < now_s - PRESENT_S:
            del self._came_s[oldest]

    def _slice(self) -> list[_Turn[Item, Result]]:
        """One item of each owner in turn, until the tokens are spent. Each may have an equal share of them."""
        taken: list[_Turn[Item, Result]] = []
        tokens: Counter[Hashable] = Counter()
        # A share of what waits, so that the other workers find some too; but not so small that the call costs more.
        share = max(self._call_tokens, -(-self._waiting_tokens // self._each))
        limit = min(self._slice_tokens, share)
        turns = deque(self._owners())
        each = max(self._call_tokens, limit // max(1, len(turns)))
        while turns and (tokens.total() < limit or not taken):
            owner = turns.popleft()
            turn = self._first(owner)
            if turn is None or (taken and tokens.total() + turn.tokens > self._slice_tokens):
                continue  # what is too long for this slice stands first in the next
            self._begin(turn)
            taken.append(turn)
            tokens[owner] += turn.tokens
            if tokens[owner] < each:
                turns.append(owner)
        return taken

    def _first(self, owner: Hashable) -> _Turn[Item, Result] | None:
        """The item of `owner` that is next; None if none is left. Jobs whose caller has gone are dropped."""
        line = self._lines.get(owner, deque())
        while line and line[0].is_over:
            gone = line.popleft()
            self._waiting_tokens -= sum(len(gone.items[index]) for index in gone.waiting)
        if line:
            return _Turn(line[0], line[0].waiting[0])
        self._lines.pop(owner, None)
        return None

    def _begin(self, turn: _Turn[Item, Result]) -> None:
        """Takes `turn` out of those that wait; its job and its owner stand last from now on."""
        line = self._lines.pop(turn.job.owner)
        line.popleft()
        turn.job.waiting.popleft()
        self._waiting_tokens -= turn.tokens
        if turn.job.waiting:
            line.append(turn.job)
        if line:
            self._lines[turn.job.owner] = line

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
