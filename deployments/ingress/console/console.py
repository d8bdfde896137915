"""The console of one process, and what it shares with the other ingress processes where there is a Redis.

What is shared goes out once a second: what this process sees of the graph, and the records of requests that have ended.
A process that dies takes the records of its last second with it; without Redis, all of its own.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace

from redis.exceptions import RedisError

from autoscaling.engine import Engine, owner_name
from concurrency.semaphore import FairSemaphore
from contract.access import Caller
from contract.catalog import Catalog
from contract.console import RecordQuery, RequestPage
from contract.limits import CONSOLE_RECORDS
from contract.telemetry import Outcome
from deployments.ingress.console.bundle import read_bundle
from deployments.ingress.console.feed import Feed
from deployments.ingress.console.picture import EVERYBODY, Observer, Picture, ProcessView, RollingMinute, merged
from deployments.ingress.console.records import FinishedRequest, Record, RecordPage, Records
from state.shared_console import SharedConsole

log = logging.getLogger(f"parlance.{__name__}")

SHARE_S = 1.0
"""Between two exchanges with the other processes."""

PAGE_BATCHES = 4
"""Batches of shared records that are read for one page: reading one takes some milliseconds of the event loop."""
PAGES_AT_ONCE = 2
"""Pages that are read, one for an organisation."""


class Console:
    """Content of the console beyond the database. Used in one event loop.

    Args:
        catalog, engines: of the service.
        shared: what all ingress processes have together; None: this one is alone.

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
        """Hands on what this process sees and remembers, and takes what the others see, if there is a Redis."""
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
        if self._shared:
            with self._alone_without_redis():
                await self._share_records(self._shared)
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
        self._take()
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
