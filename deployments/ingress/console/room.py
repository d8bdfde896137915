"""The console of one process, and what it shares with the other ingress processes where there is a Redis.

What is shared goes out once a second: a part of the picture, and the records of requests that have ended. A process
that dies takes the records of its last second with it; without Redis, all of its own.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict

from redis.exceptions import RedisError

from autoscaling.engine import Engine, owner_name
from contract.access import Caller
from contract.catalog import Catalog
from contract.console import RecordQuery, RequestPage
from contract.limits import CONSOLE_RECORDS
from contract.telemetry import Outcome
from deployments.ingress.console.bundle import read_bundle
from deployments.ingress.console.feed import Feed
from deployments.ingress.console.picture import EVERYBODY, Minute, Observer, Part, Picture, merged
from deployments.ingress.console.records import Ended, Record, Records
from state.shared_console import SharedConsole

log = logging.getLogger(f"parlance.{__name__}")

SHARE_S = 1.0
"""Between two exchanges with the other processes."""


class Console:
    """What the console shows beside what the database knows. Used in one event loop.

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
        self.ended: deque[Ended] = deque(maxlen=CONSOLE_RECORDS)
        self._records, self._minute = Records(), Minute()
        self._requests, self._errors = Counter[str](), Counter[str]()
        self._observer = Observer(engines, self._minute)
        self._about = {
            model.deployment: {"capability": model.noun, "models": [model.id]} for model in catalog.deployed()
        }
        self._shared, self._name = shared, secrets.token_hex(8)
        self._others: list[Part] = []
        self._unshared: deque[tuple[int, Record]] = deque(maxlen=CONSOLE_RECORDS)
        self.feed = Feed(self._look, self._about, self._count)

    def tick(self) -> None:
        """Takes in what has ended, and notes in which states the engines are. Called once a second."""
        self.feed.tick()

    async def page(self, caller: Caller, query: RecordQuery) -> RequestPage:
        """Requests that `caller` may see, the one that ended last first."""
        rows: list[Record] = []
        has_begun, has_more = query.before is None, False
        async for record in self._newest_first(caller.org_id):
            if not has_begun:
                has_begun = record.request_id == query.before
            elif record.may_see(caller) and record.fits(query):
                if has_more := len(rows) == query.limit:
                    break
                rows.append(record)
        return {
            "data": [record.shown() for record in rows],
            "has_more": has_more,
            "next_cursor": rows[-1].request_id if has_more else None,
        }

    async def find(self, caller: Caller, request_id: str) -> Record | None:
        """The record of a request, if there is one and `caller` may see it."""
        self._take()
        own = (record for record in self._records.newest_first(caller.org_id) if record.request_id == request_id)
        record = next(own, None)
        if record is None and self._shared:
            try:
                text = await self._shared.find(caller.org_id, request_id)
                record = _read(text) if text else None
            except RedisError as error:
                _warn(error)
        return record if record and record.may_see(caller) else None

    async def share_forever(self) -> None:
        """Exchanges with the other processes every SHARE_S, if there is anything to exchange with. Until cancelled."""
        while self._shared:
            await asyncio.sleep(SHARE_S)
            try:
                await self.share(self._shared)
            except RedisError as error:
                self._others = []
                _warn(error)

    async def share(self, shared: SharedConsole) -> None:
        """Hands on what this process sees and remembers, and takes what the others see. Raises RedisError."""
        part = json.dumps(asdict(self._part()), separators=(",", ":"))
        texts = await shared.exchange(self._name, part)
        self._others = [Part(**json.loads(text)) for text in texts]
        await self._share_records(shared)

    async def close(self) -> None:
        """Ends all streams, and takes this process out of the picture."""
        self.feed.close()
        if self._shared:
            try:
                await self._share_records(self._shared)
                await self._shared.leave(self._name)
            except RedisError as error:
                _warn(error)

    def _part(self) -> Part:
        return self._observer.part(self._about, time.time_ns() // 1_000_000)

    def _look(self) -> Picture:
        return merged([self._part(), *self._others])

    def _count(self) -> None:
        self._take()
        self._minute.add(time.monotonic(), self._requests, self._errors)
        self._requests, self._errors = Counter(), Counter()

    def _take(self) -> None:
        """Makes records of what has ended."""
        while self.ended:
            ended = self.ended.popleft()
            record, org_id = Record.of(ended), ended.caller.org_id
            self._records.add(org_id, (record,))
            names = [EVERYBODY, owner_name(org_id), *([record.engine] if record.engine else [])]
            self._requests.update(names)
            if ended.outcome is Outcome.FAILED:
                self._errors.update(names)
            if self._shared:
                self._unshared.append((org_id, record))

    async def _share_records(self, shared: SharedConsole) -> None:
        self._take()
        while self._unshared:
            batch = [self._unshared.popleft() for _ in range(min(len(self._unshared), SharedConsole.BATCH))]
            rows: dict[int, list[tuple[str, str]]] = {}
            for org_id, record in batch:
                rows.setdefault(org_id, []).append((record.request_id, json.dumps(record, separators=(",", ":"))))
            try:
                await shared.remember(rows)
            except BaseException:
                self._unshared.extendleft(reversed(batch))
                raise

    async def _newest_first(self, org_id: int) -> AsyncIterator[Record]:
        """Those of all processes, where they are shared and Redis answers; else those of this process."""
        self._take()
        if self._shared:
            try:
                await self._share_records(self._shared)
                async for text in self._shared.newest_first(org_id):
                    yield _read(text)
                return
            except RedisError as error:
                _warn(error)
        for record in self._records.newest_first(org_id):
            yield record


def _read(text: bytes) -> Record:
    return Record(*json.loads(text))


def _warn(error: RedisError) -> None:
    log.warning("the console shows this process only, because Redis does not answer: %s", type(error).__name__)
