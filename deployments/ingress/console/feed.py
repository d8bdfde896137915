"""The feed of the console: one look at the graph for all who watch it, a snapshot first and then what has changed.

While somebody watches, one task looks every CONSOLE_LOOK_S; else the report of the process does, once a second, for the
bands. What has changed is a row of a ring with a number. An event tells what changed since the number that a watcher
has: it is made once for all that have the same number and may see the same. So a watcher that reads slowly, or comes
back with `Last-Event-ID`, costs nothing meanwhile, and gets all changes in one event; where the ring is too short for
it, a snapshot.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count

from autoscaling.engine import owner_name
from contract.access import Caller, Scope
from contract.console import CHANGE, SNAPSHOT
from contract.limits import CONSOLE_LOOK_S, KEY_CACHE_S
from contract.wires import named_event
from deployments.ingress.console.picture import EVERYBODY, Bands, Fields, Picture, Run

RING = 300
"""Changes that are remembered: those of a minute at least."""

LOOKS_A_SECOND = round(1 / CONSOLE_LOOK_S)


@dataclass(frozen=True, slots=True)
class Audience:
    """Watchers that may see the same: the traffic of an owner, and of everybody where an operator looks."""

    owner: str
    is_operator: bool

    @classmethod
    def of(cls, caller: Caller) -> Audience:
        """The audience that `caller` is part of."""
        return cls(owner_name(caller.org_id), Scope.CONSOLE_OPERATE in caller.scopes)

    @property
    def owners(self) -> frozenset[str]:
        """Whose traffic it sees."""
        return frozenset({self.owner, EVERYBODY} if self.is_operator else {self.owner})


@dataclass(frozen=True, slots=True)
class Difference:
    """What one look saw that was new: fields of engines, and the watched owners whose traffic is another.

    `owners` is None where all watchers have to know.
    """

    number: int
    engines: Mapping[str, Fields]
    owners: frozenset[str] | None

    def concerns(self, audience: Audience) -> bool:
        """Whether it changes what `audience` sees."""
        return bool(self.engines) or self.owners is None or bool(self.owners & audience.owners)


class Feed:
    """The feed of one process.

    Args:
        look: what is so now.
        about: fields of each engine that never change, by name.
        count: brings up to date what `look` sees of requests that have ended.
        sleep, now_ms: clocks.
    """

    def __init__(
        self,
        look: Callable[[], Picture],
        about: Mapping[str, Fields],
        count: Callable[[], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._look, self._about, self._count, self._sleep, self._now_ms = look, about, count, sleep, now_ms
        self._epoch, self._number = secrets.token_hex(4), 0
        self._picture = Picture()
        self._bands = {name: Bands() for name in about}
        self._ring: deque[Difference] = deque(maxlen=RING)
        self._events: dict[tuple[int | None, Audience], bytes] = {}
        self._watched: Counter[str] = Counter()
        self._news = asyncio.Event()
        self._is_closed = False
        self._looking: asyncio.Task[None] | None = None

    def tick(self) -> None:
        """Has the counts and bands go on while nobody watches. Called once a second."""
        if self._looking is None:
            self._see(is_second=True)

    def _see(self, *, is_second: bool) -> None:
        """Looks at the graph, and has those who watch know what is new. Once a second, bands go on and counts too."""
        if is_second:
            self._count()
        before, picture, now_ms = self._picture, self._look(), self._now_ms()
        engines = {name: _differences(before.engines.get(name, {}), fields) for name, fields in picture.engines.items()}
        for name, fields in picture.engines.items() if is_second else ():
            if run := self._bands[name].note(now_ms, fields["state"]):
                engines[name]["bands"] = [run]
        engines = {name: fields for name, fields in engines.items() if fields}
        is_for_all = picture.processes != before.processes
        if not (engines or is_for_all) and picture.traffic == before.traffic:
            return
        owners = frozenset(who for who in self._watched if picture.traffic.get(who) != before.traffic.get(who))
        self._picture = picture
        self._number += 1
        self._ring.append(Difference(self._number, engines, None if is_for_all else owners))
        self._events.clear()
        self._news.set()
        self._news = asyncio.Event()

    async def watch(
        self, caller: Caller, last_id: str | None, current: Callable[[Caller], Awaitable[Caller]]
    ) -> AsyncGenerator[bytes, None]:
        """Events for `caller`: first of all what it has missed since the event `last_id`, then what changes.

        It ends when the process is to end. Raises what `current` does, which says what holds for the key by now.
        """
        audience = Audience.of(caller)
        if self._number == 0:
            self.tick()
        with self._watching(audience):
            known = self._number_of(last_id)
            event: bytes | None = self._event(known, audience)
            while not self._is_closed:
                known, news = self._number, self._news
                if event:
                    yield event
                if known == self._number:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(KEY_CACHE_S):
                            await news.wait()
                await current(caller)
                event = self._event(known, audience) if self._concerns(known, audience) else None

    def past(self) -> dict[str, list[Run]]:
        """In which states each engine was."""
        return {name: list(bands.runs) for name, bands in self._bands.items()}

    def adopt(self, past: Mapping[str, Sequence[Run]]) -> None:
        """Goes on from what another process, or an earlier one, has noted of engines."""
        for name, runs in past.items():
            if name in self._bands:
                self._bands[name].adopt(runs)

    def close(self) -> None:
        """Ends all streams: the process is to end."""
        self._is_closed = True
        self._news.set()

    @contextmanager
    def _watching(self, audience: Audience) -> Iterator[None]:
        self._watched.update(audience.owners)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_forever(), name="console")
        try:
            yield
        finally:
            self._watched.subtract(audience.owners)
            self._watched = +self._watched
            if not self._watched:
                self._looking.cancel()
                self._looking = None

    async def _look_forever(self) -> None:
        for number in count(1):
            await self._sleep(CONSOLE_LOOK_S)
            self._see(is_second=number % LOOKS_A_SECOND == 0)

    def _missed(self, known: int) -> list[Difference] | None:
        """The changes since the number `known`; None where the ring has forgotten some."""
        if self._ring and self._ring[0].number > known + 1:
            return None
        missed = []
        for change in reversed(self._ring):
            if change.number <= known:
                break
            missed.append(change)
        return missed[::-1]

    def _concerns(self, known: int, audience: Audience) -> bool:
        missed = self._missed(known)
        return missed is None or any(change.concerns(audience) for change in missed)

    def _event(self, known: int | None, audience: Audience) -> bytes:
        """What brings those of `audience` up to date who know the graph as it was at that number, or not at all."""
        if (event := self._events.get((known, audience))) is None:
            missed = None if known is None else self._missed(known)
            name, engines = (SNAPSHOT, self._whole()) if missed is None else (CHANGE, _joined(missed))
            event = self._events[known, audience] = self._encoded(name, engines, audience)
        # The time is that of the sending, also of an event that was made for somebody before.
        return event + b"%d}\n\n" % self._now_ms()

    def _encoded(self, name: str, engines: list[Fields], audience: Audience) -> bytes:
        """An event up to its time."""
        picture = self._picture
        content = {
            "engines": engines,
            "organisation": picture.traffic_of(audience.owner),
            "everybody": picture.traffic_of(EVERYBODY) if audience.is_operator else None,
            "processes": picture.processes,
            "time_ms": 0,
        }
        return f"id: {self._epoch}-{self._number}\n".encode() + named_event(name, content).removesuffix(b"0}\n\n")

    def _whole(self) -> list[Fields]:
        return [
            {"name": name, **self._about[name], **fields, "bands": list(self._bands[name].runs)}
            for name, fields in self._picture.engines.items()
        ]

    def _number_of(self, last_id: str | None) -> int | None:
        """The number of the change that an event told of, if it was an event of this feed."""
        epoch, _, number = (last_id or "").partition("-")
        is_ours = epoch == self._epoch and number.isascii() and number.isdecimal() and len(number) < 16
        return int(number) if is_ours and int(number) <= self._number else None


def _differences(before: Fields, now: Fields) -> Fields:
    return {name: value for name, value in now.items() if name not in before or before[name] != value}


def _joined(changes: list[Difference]) -> list[Fields]:
    """The engines of several changes: the last value of each field, and all runs of their bands."""
    engines: dict[str, Fields] = {}
    for change in changes:
        for name, fields in change.engines.items():
            joined = engines.setdefault(name, {"name": name})
            runs = [*joined.get("bands", ()), *fields.get("bands", ())]
            joined |= fields
            if runs:
                joined["bands"] = runs
    return list(engines.values())
