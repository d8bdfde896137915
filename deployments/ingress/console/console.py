"""The console of one process: what it shares with the other ingress processes, and its feed of snapshots.

What is shared goes out once a second, where there is a Redis: what this process sees of the graph, and the records of
requests that have ended. A process that dies takes the records of its last second with it; without Redis, all of its
own.

While a client watches, one task looks every CONSOLE_LOOK_S; otherwise the report of the process does, for the bands. A
snapshot is encoded once for all that may see the same. It is sent to a watcher if it differs from the last one that
this watcher was sent, so a slow reader skips snapshots and delays no other.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace

from redis.exceptions import RedisError

from autoscaling.engine import Engine, owner_name
from concurrency.background import supervised
from concurrency.semaphore import FairSemaphore
from contract.access import Caller, Scope
from contract.catalog import Catalog
from contract.console import RecordQuery, RequestPage
from contract.limits import CONSOLE_LOOK_S, CONSOLE_RECORDS, KEY_CACHE_S
from contract.telemetry import Outcome
from contract.wires import named_event
from deployments.ingress.console.bundle import read_bundle
from deployments.ingress.console.picture import (
    EVERYBODY,
    Fields,
    Observer,
    Picture,
    ProcessView,
    RollingMinute,
    Run,
    StateHistory,
    merged,
)
from deployments.ingress.console.records import FinishedRequest, Record, RecordPage, Records
from state.shared_console import SharedConsole

log = logging.getLogger(f"parlance.{__name__}")

SHARE_S = 1.0
"""Between two exchanges with the other processes."""

PAGE_BATCHES = 4
"""Batches of shared records that are read for one page: reading one takes some milliseconds of the event loop."""
PAGES_AT_ONCE = 2
"""Pages that are read, one for an organisation."""


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


class Console:
    """Content of the console beyond the database. Used in one event loop.

    Args:
        catalog, engines: of the service.
        shared: store of what ingress processes share; None: this one is alone.

    Attributes:
        bundle: the files of the page, by path.
        ended: requests that are over and no records yet, the oldest first.
        feed: the stream of events.
    """

    def __init__(self, catalog: Catalog, engines: Mapping[str, Engine], shared: SharedConsole | None = None) -> None:
        self.bundle = read_bundle()
        self.ended: deque[FinishedRequest] = deque(maxlen=CONSOLE_RECORDS)
        self._records, self._minute = Records(), RollingMinute()
        self._uncounted = Counter[tuple[str | None, int, bool]]()
        self._observer = Observer(engines, self._minute)
        self._about = {
            model.deployment: {"capability": model.noun, "models": [model.id]} for model in catalog.deployed()
        }
        self._shared, self._name = shared, secrets.token_hex(8)
        self._turns = FairSemaphore(PAGES_AT_ONCE)
        self._others: list[ProcessView] = []
        self._is_alone = self._has_past = False
        self._unshared: deque[tuple[int, Record]] = deque(maxlen=CONSOLE_RECORDS)
        self.feed = Feed(self._look, self._about)

    async def page(self, caller: Caller, query: RecordQuery) -> RequestPage:
        """Requests that `caller` may see, the one that ended last first."""
        self._take()
        async with self._turns.of(owner_name(caller.org_id)):
            page = await self._shared_page(caller, query)
        if page is None:
            page = RecordPage(query, caller)
            page.take(self._records.newest_first(caller.org_id))
        return {
            "data": [record.shown() for record in page.records],
            "has_more": page.next_cursor is not None,
            "next_cursor": page.next_cursor,
        }

    async def find(self, caller: Caller, request_id: str) -> Record | None:
        """The record of a request, if there is one and `caller` may see it."""
        self._take()
        row = self._records.find(caller.org_id, request_id)
        if row is None and self._shared:
            with self._alone_without_redis():
                text = await self._shared.find(caller.org_id, request_id)
                row = json.loads(text) if text else None
        page = RecordPage(RecordQuery(), caller)
        page.take([row] if row else [])
        return page.records[0] if page.records else None

    async def share(self) -> None:
        """Turns finished requests into small records. With Redis, processes exchange these and what they see."""
        self._take()
        if self._shared is None:
            return
        with self._alone_without_redis():
            if not self._has_past:
                self.feed.adopt(json.loads(await self._shared.past() or "{}"))
                self._has_past = True
            view = _json(asdict(self._view()))
            texts = await self._shared.exchange(self._name, view, _json(self.feed.past()))
            self._others = [ProcessView(**json.loads(text)) for text in texts]
            await self._share_records(self._shared)
            self._is_alone = False
            return
        self._others = []

    async def close(self) -> None:
        """Ends all streams, and takes this process out of the picture."""
        self.feed.close()
        await self.share()
        if self._shared and not self._is_alone:
            with self._alone_without_redis():
                await self._shared.leave(self._name)

    def _view(self) -> ProcessView:
        return self._observer.view(self._about, time.time_ns() // 1_000_000)

    def _look(self) -> Picture:
        """The graph as it is, with the requests that have ended until now."""
        self._take()
        requests, errors = Counter[str](), Counter[str]()
        for (engine, org_id, has_failed), count in self._uncounted.items():
            for name in filter(None, (EVERYBODY, owner_name(org_id), engine)):
                requests[name] += count
                errors[name] += count if has_failed else 0
        self._minute.add(time.monotonic(), requests, +errors)
        self._uncounted.clear()
        return merged([self._view(), *self._others])

    def _take(self) -> None:
        """Makes records of what has ended."""
        records: dict[int, list[Record]] = {}
        while self.ended:
            ended = self.ended.popleft()
            record, org_id = Record.of(ended), ended.caller.org_id
            records.setdefault(org_id, []).append(record)
            self._uncounted[record.engine, org_id, ended.outcome is Outcome.FAILED] += 1
            if self._shared:
                self._unshared.append((org_id, record))
        self._records.add(records)

    async def _share_records(self, shared: SharedConsole) -> None:
        while self._unshared:
            batch = [self._unshared.popleft() for _ in range(min(len(self._unshared), SharedConsole.BATCH))]
            rows: dict[int, list[tuple[str, str]]] = {}
            for org_id, record in batch:
                rows.setdefault(org_id, []).append((record.request_id, _json(record)))
            try:
                await shared.remember(rows)
            except BaseException:
                self._unshared.extendleft(reversed(batch))
                raise

    async def _shared_page(self, caller: Caller, query: RecordQuery) -> RecordPage | None:
        """A page of what all processes remember; None where they share nothing, or Redis does not answer."""
        if self._shared is None:
            return None
        page, batches = RecordPage(replace(query, before=None), caller), 0
        with self._alone_without_redis():
            await self._share_records(self._shared)
            async for last_id, texts in self._shared.newest_first(caller.org_id, query.before):
                if page.take(map(json.loads, texts)):
                    break
                if (batches := batches + 1) == PAGE_BATCHES:
                    page.next_cursor = last_id
                    break
            return page
        return None

    @contextmanager
    def _alone_without_redis(self) -> Iterator[None]:
        """Ends the block where Redis does not answer; of several times in a row, the first is logged."""
        try:
            yield
        except RedisError as error:
            if not self._is_alone:
                log.warning("the console shows this process only: Redis does not answer: %s", type(error).__name__)
            self._is_alone = True


def _json(content: object) -> str:
    return json.dumps(content, separators=(",", ":"))
