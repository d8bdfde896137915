"""Coroutines that wait for a slot of an engine, in the order that `autoscaling.slots` decides."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext

from autoscaling.slots import Slot, SlotScheduler
from concurrency.fairness import QueueFull

LOOK_AGAIN_S = 0.1
"""Seconds between two looks at the number of slots while calls wait: replicas come and go without a word."""


class QueueTimeout(Exception):
    """The turn of a call did not come in time."""


class _WaitingCall:
    """One call that waits. `watch` gets reports of its wait, if there is one."""

    def __init__(self, watch: object) -> None:
        self.watch = watch
        self.slot: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        self.eviction, self.deadline = asyncio.timeout(None), asyncio.timeout(None)

    @property
    def has_slot(self) -> bool:
        return self.slot.done() and not self.slot.cancelled()

    def evict(self) -> None:
        """Ends the wait with `QueueFull`."""
        self.eviction.reschedule(asyncio.get_running_loop().time())


class SlotQueue(SlotScheduler[_WaitingCall]):
    """A scheduler in which coroutines wait. Used in one event loop."""

    _timer: asyncio.TimerHandle | None = None

    async def enter(
        self,
        owner: str,
        ready: Callable[[], Awaitable[None]],
        within_s: float,
        waiting: Callable[[], AbstractContextManager[object]] = nullcontext,
        watch: object = None,
    ) -> Slot:
        """Returns with a slot, which `leave` gives back.

        `ready` is awaited while the call counts as waiting: until an engine has started, say. From then on the turn
        must come in `within_s`; `waiting` is entered if it has to come. `watch` identifies the call in `line`.
        Raises QueueFull, QueueTimeout, and what `ready` raises.
        """
        entry = _WaitingCall(watch)
        if evicted := self.join(owner, entry):
            evicted.evict()
        try:
            async with entry.eviction:
                await ready()
                self.line_up(owner, entry)
                self._hand_out()
                if not entry.has_slot:
                    # A timeout runs from when it is made: not before the engine does.
                    async with asyncio.timeout(within_s) as entry.deadline:
                        with waiting():
                            await entry.slot
        except BaseException as error:
            if entry.has_slot:
                # It was cancelled in the very moment in which its turn came.
                self.leave(entry.slot.result())
            else:
                self.forget(owner, entry)
            # Not of a cancellation from outside at the same moment: that is obeyed.
            if isinstance(error, TimeoutError) and entry.eviction.expired():
                raise QueueFull from None
            if isinstance(error, TimeoutError) and entry.deadline.expired():
                raise QueueTimeout from None
            raise
        return entry.slot.result()

    def _hand_out(self) -> None:
        """Hands every free slot out, and looks again later if calls still wait."""
        while turn := self.next_turn():
            owner, entry = turn
            if not entry.slot.done():  # else its caller has gone
                entry.slot.set_result(self.seat(owner, entry))
        if self._ready and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self._hand_out()
