"""The feed of the console: snapshots of the graph for all who watch it.

While a client watches, one task looks every CONSOLE_LOOK_S; otherwise the report of the process does, for the bands. A
snapshot is encoded once for all that may see the same. It is sent to a watcher if it differs from the last one that
this watcher was sent, so a slow reader skips snapshots and delays no other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from autoscaling.engine import owner_name
from concurrency.background import supervised
from contract.access import Caller, Scope
from contract.limits import CONSOLE_LOOK_S, KEY_CACHE_S
from contract.wires import named_event
from deployments.ingress.console.picture import EVERYBODY, Fields, Picture, Run, StateHistory

COUNTS = frozenset({"used", "waiting", "organisations", "requests_per_minute", "errors_per_minute"})
"""Fields of an engine that count calls of all organisations, for operators alone."""


@dataclass(frozen=True, slots=True)
class Audience:
    """Watchers that may see the same: the traffic of an owner and, for an operator, that of all."""

    owner: str
    is_operator: bool

    @classmethod
    def of(cls, caller: Caller) -> Audience:
        """The audience that `caller` is part of."""
        return cls(owner_name(caller.org_id), Scope.CONSOLE_OPERATE in caller.scopes)

    def visible(self, fields: Fields) -> Fields:
        """The fields of an engine that it may see."""
        return fields if self.is_operator else {name: value for name, value in fields.items() if name not in COUNTS}


class Feed:
    """The feed of one process.

    Args:
        look: returns the graph as it is.
        about: fields of each engine that never change, by name.
        sleep, now_ms: clocks.
    """

    def __init__(
        self,
        look: Callable[[], Picture],
        about: Mapping[str, Fields],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._look, self._about, self._sleep, self._now_ms = look, about, sleep, now_ms
        self._picture = Picture()
        self._bands = {name: StateHistory() for name in about}
        self._events: dict[Audience, bytes] = {}
        self._watchers = 0
        self._news = asyncio.Event()
        self._is_closed = False
        self._looking: asyncio.Task[None] | None = None

    def tick(self) -> None:
        """Continues the counts and bands while no client watches. Called once a second."""
        if self._looking is None:
            self._see()

    def _see(self) -> None:
        """Looks at the graph, and wakes the watchers if it has changed."""
        picture, now_ms, has_band = self._look(), self._now_ms(), False
        for name, fields in picture.engines.items():
            has_band |= self._bands[name].note(now_ms, fields["state"])
        engines = {
            name: fields | {"state": self._bands[name].steady(fields["state"])}
            for name, fields in picture.engines.items()
        }
        picture = replace(picture, engines=engines)
        if has_band or picture != self._picture:
            self._picture = picture
            self._events.clear()
            self._news.set()
            self._news = asyncio.Event()

    async def watch(
        self, caller: Caller, current: Callable[[Caller], Awaitable[Caller]]
    ) -> AsyncGenerator[bytes, None]:
        """Snapshots for `caller`: one at once, then one whenever it differs from the last.

        It ends when the process is to end. Raises what `current` does, which has the current record of the key.
        """
        audience, sent = Audience.of(caller), b""
        self.tick()
        with self._watching():
            while not self._is_closed:
                news = self._news
                if (event := self._event(audience)) != sent:
                    sent = event
                    yield event + b"%d}\n\n" % self._now_ms()
                if news is self._news:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(KEY_CACHE_S):
                            await news.wait()
                await current(caller)

    def past(self) -> dict[str, list[Run]]:
        """In which states each engine was."""
        return {name: list(bands.runs) for name, bands in self._bands.items()}

    def adopt(self, past: Mapping[str, Sequence[Run]]) -> None:
        """Continues from what another process, or an earlier one, has noted of engines."""
        for name, runs in past.items():
            if name in self._bands:
                self._bands[name].adopt(runs)

    def close(self) -> None:
        """Ends all streams: the process is to end."""
        self._is_closed = True
        self._news.set()

    @contextmanager
    def _watching(self) -> Iterator[None]:
        self._watchers += 1
        if self._looking is None:
            self._looking = supervised("look for the console", self._look_forever)
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._looking.cancel()
                self._looking = None

    async def _look_forever(self) -> None:
        while True:
            await self._sleep(CONSOLE_LOOK_S)
            self._see()

    def _event(self, audience: Audience) -> bytes:
        """A snapshot up to its time, which is that of the sending."""
        if (event := self._events.get(audience)) is None:
            picture = self._picture
            content = {
                "engines": [
                    {
                        "name": name,
                        **self._about[name],
                        **audience.visible(fields),
                        "bands": list(self._bands[name].runs),
                    }
                    for name, fields in picture.engines.items()
                ],
                "organisation": picture.traffic_of(audience.owner),
                "everybody": picture.traffic_of(EVERYBODY) if audience.is_operator else None,
                "processes": picture.processes,
                "time_ms": 0,
            }
            event = self._events[audience] = named_event("snapshot", content).removesuffix(b"0}\n\n")
        return event
