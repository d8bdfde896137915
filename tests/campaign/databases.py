"""Databases: PostgreSQL, Redis, the object store and clocks fail under a service that bills, stores and keeps answers.

Of what the service acknowledged nothing may be missing: bills at their price, keys, recordings with their bytes, and
answers under an `Idempotency-Key`. The books add up to the micro-EUR when everything has ended.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import psutil

from contract.access import Caller
from contract.errors import ApiError
from deployments.ingress.flows.uploads import store
from deployments.ingress.front.concurrency import ConcurrencyLimits
from state import keys
from state.accounts.authentication import PEPPER
from state.billing.ledger import Ledger
from state.billing.postings import LEASE_S
from state.database.open import connect, migrate
from state.idempotency import Attempt, StoredReply
from state.keys import SECRET_VARIABLE
from state.open import State, open_state
from tests.campaign.record import Outcome, Sizes
from tests.relay import Relay
from tests.state.books import make_caller, money, pass_time, reserve
from tests.state.bucket import Bucket, run_bucket
from tests.state.crashing import bytes_of, in_pieces, make_key
from tests.state.doubles import VirtualTime
from tests.state.remains import costs
from tests.state.servers import Postgres, Redis, run_server
from tests.waiting import until

WORKERS = 6
ROUNDS = 20
"""Rounds of work before a fault, and after it."""
OPEN_UPLOADS = 20
COST = 7
HOUR_S = 3600
ON_DISK = ("fsync=on",)
TEMPLATE = "migrated"
DATABASE = "campaign"
ROUTE = "/campaign"
RELOAD = "SELECT pg_reload_conf()"

BOOKS = "Nothing that was acknowledged is lost, and the books are exact."
BY_DATABASE = "Time is the database's: no clock of a machine ends a lease, a key or a signed address."


@dataclass
class Place:
    """The servers of one campaign, and the relays before two of them."""

    home: Path
    chance: random.Random
    postgres: Postgres
    redis: Redis
    bucket: Bucket
    to_postgres: Relay
    to_redis: Relay
    after: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def url(self) -> str:
        """Address of the database behind its relay."""
        return f"postgresql://parlance@127.0.0.1:{self.to_postgres.port}/{DATABASE}"

    async def open(self) -> State:
        redis_url = f"redis://127.0.0.1:{self.to_redis.port}"
        return await open_state(self.home, self.url, redis_url, "s3://store/campaign", replicas=2)


@dataclass
class Work:
    """Workers at a service: what was acknowledged, and what came instead.

    Attributes:
        rounds: that are over.
        good_since_s: when the last round began in which all succeeded.
        bills: micro-EUR by reservation; None where the bill was to be recorded later.
        replies: bodies by key; None where only the fact was to be kept, later.
        lost: what was seen to be wrong while the work went on.
    """

    place: Place
    state: State
    caller: Caller
    rounds: int = 0
    good_since_s: float = 0.0
    lost: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    bills: dict[str, int | None] = field(default_factory=dict)
    keys: list[keys.Key] = field(default_factory=list)
    uploads: list[str] = field(default_factory=list)
    replies: dict[str, bytes | None] = field(default_factory=dict)

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Works as long as the block runs."""
        is_over = asyncio.Event()

        async def worker() -> None:
            while not is_over.is_set():
                await self._round()

        workers = [asyncio.create_task(worker()) for _ in range(WORKERS)]
        try:
            yield
        finally:
            is_over.set()
            await asyncio.gather(*workers)

    async def more(self, rounds: int = ROUNDS) -> None:
        """Waits for so many rounds more."""
        end = self.rounds + rounds
        await until(lambda: self.rounds >= end)

    async def is_as_before(self, healed_s: float) -> None:
        """Waits for the end of a round that began after `healed_s` and in which all succeeded."""
        await until(lambda: self.good_since_s >= healed_s)

    async def refused(self) -> None:
        """Waits until every worker, on average, was refused something."""
        end = self.seen["STATE_UNAVAILABLE"] + WORKERS
        await until(lambda: self.seen["STATE_UNAVAILABLE"] >= end)

    async def check(self, work: Awaitable[Any], is_right: Callable[[Any], bool] = lambda _: True) -> None:
        """Counts as lost what `work` ends with, unless it is right."""
        try:
            result: Any = await work
        except (ApiError, AssertionError) as error:
            result = error
        if isinstance(result, Exception) or not is_right(result):
            self.lost += 1
            print(f"lost: {result!r:.300}", file=sys.stderr)

    async def audit(self) -> None:
        """Looks for everything that was acknowledged, in another process, as it were; then for the last micro-EUR."""
        await until(lambda: not self.state.ledger.backlog and not self.state.idempotency._running)
        await self.state.close()
        other = await self.place.open()
        lines = await other.database.run(costs)
        self.lost += sum(name not in lines or cost not in (None, lines[name]) for name, cost in self.bills.items())
        for key in self.keys:
            await self.check(other.accounts.authenticate(f"Bearer {key.text}"))
        for name in self.uploads:
            await self.check(self._stored(other, name), bool)
        for name, body in self.replies.items():  # one that was to be left out may be there after all
            await self.check(self._again(other, name), (name.encode(), body or b"").__contains__)
        await pass_time(other.database, LEASE_S + 1)
        await other.ledger.reap()
        await self.check(money(other.database, self.caller), lambda books: books == (sum(lines.values()), 0))
        await other.close()

    async def _round(self) -> None:
        """One of everything."""
        good_since_s = time.monotonic()
        for act in (self._bill, self._key, self._upload, self._use, self._reply, self._hit):
            try:
                await act()
            except ApiError as error:
                self.seen[error.fault.name] += 1
                good_since_s = 0.0
        self.rounds += 1
        self.good_since_s = max(good_since_s, self.good_since_s)

    async def _bill(self) -> None:
        hold = await reserve(self.state.ledger, self.caller, COST)
        charged = await hold.settle(COST, 1, "tokens")
        self.bills[hold.entry.id] = None if hold.entry.id in self.state.ledger._unposted else charged

    async def _key(self) -> None:
        pepper = self.state.secrets.derive(PEPPER)
        self.keys.append(await make_key(self.state.database, pepper, self.caller.org_id))

    async def _upload(self) -> None:
        service: Any = SimpleNamespace(state=self.state, concurrency=ConcurrencyLimits())
        ticket = await self.state.tickets.issue(self.caller, "audio/webm", len(bytes_of("x" * 30)))
        await store(service, ticket, in_pieces(ticket.id))
        self.uploads.append(ticket.id)

    async def _use(self) -> None:
        if len(self.uploads) > OPEN_UPLOADS:
            ticket = await self.state.tickets.consume(self.caller.org_id, self.uploads.pop(0))
            self.lost += await self.state.blobs.find(ticket.blob) != bytes_of(ticket.id)
            await self.state.tickets.discard(ticket)

    async def _reply(self) -> None:
        key = secrets.token_hex(32)
        attempt = await self.state.idempotency.begin(self.caller, ROUTE, key, body_sha256=key)
        assert isinstance(attempt, Attempt)
        await attempt.finish(200, {}, key.encode())
        self.replies[key] = None if attempt in self.state.idempotency._running else key.encode()

    async def _hit(self) -> None:
        self.seen["within the rate" if (await self.state.rates.hit(self.caller)).allowed else "beyond the rate"] += 1

    async def _stored(self, state: State, ticket_id: str) -> bool:
        ticket = await state.tickets.find(ticket_id)
        return bool(ticket and ticket.blob and await state.blobs.find(ticket.blob) == bytes_of(ticket.id))

    async def _again(self, state: State, key: str) -> bytes | Attempt:
        """The answer that is kept; empty where only the fact is; an attempt where the work would be done twice."""
        try:
            found = await state.idempotency.begin(self.caller, ROUTE, key, body_sha256=key)
        except ApiError as error:
            return b"" if error.fault.name == "IDEMPOTENCY_FINISHED" else error.fault.name.encode()
        return found.body if isinstance(found, StoredReply) else found


async def postgres_dies(place: Place, work: Work) -> None:
    await asyncio.to_thread(place.postgres.stop, crash=True)
    await work.refused()
    await asyncio.to_thread(place.postgres.restart)


async def postgres_pauses(place: Place, work: Work) -> None:
    server = psutil.Process(place.postgres.pid)
    stopped = [server, *server.children(recursive=True)]
    for process in stopped:
        process.suspend()
    try:
        await work.refused()
    finally:
        for process in stopped:
            process.resume()


async def postgres_fails_over(place: Place, work: Work) -> None:
    """To a replica without which no commit was acknowledged."""
    server = run_server(Postgres, *ON_DISK, in_memory=False, primary=place.postgres)
    replica = await asyncio.to_thread(place.after.enter_context, server)
    place.after.push_async_callback(_fail_back, place)
    await asyncio.to_thread(place.postgres.run, "ALTER SYSTEM SET synchronous_standby_names = '*'", RELOAD)
    await work.more()
    await asyncio.to_thread(place.postgres.stop, crash=True)
    await work.refused()
    await asyncio.to_thread(replica.run, "SELECT pg_promote()")
    place.to_postgres.target = replica.port
    place.to_postgres.cut()


async def _fail_back(place: Place) -> None:
    await asyncio.to_thread(place.postgres.restart)
    place.to_postgres.target = place.postgres.port
    await asyncio.to_thread(place.postgres.run, "ALTER SYSTEM RESET synchronous_standby_names", RELOAD)


async def answers_to_commits_are_lost(place: Place, work: Work) -> None:
    place.to_postgres.loses = lambda request: b"COMMIT" in request and place.chance.random() < 0.2
    await work.refused()
    await work.more(2 * ROUNDS)
    place.to_postgres.loses = lambda _: False


async def is_slow(place: Place, work: Work, relay: str, delay_s: float) -> None:
    getattr(place, relay).delay_s = delay_s
    await work.more(WORKERS)
    getattr(place, relay).delay_s = 0.0


async def redis_is_away(place: Place, work: Work) -> None:
    await asyncio.to_thread(place.redis.stop)
    await work.more()
    await asyncio.to_thread(place.redis.restart)


async def redis_is_emptied(place: Place, work: Work) -> None:
    assert work.state.rates.connection is not None
    await work.state.rates.connection.flushall()


async def store_fails(place: Place, work: Work, fault: str) -> None:
    place.bucket.fault = fault
    await (work.more(WORKERS) if fault == "slow" else work.refused())
    place.bucket.fault = ""


async def clock_jumps(place: Place, work: Work, by_s: int) -> None:
    """The clock of the service's machine; that of the database goes on."""
    state, now_s, real = work.state, work.state.clock(), time.time
    name, expires_at = "campaign/1", int(now_s) + HOUR_S // 2
    query = state.signatures.sign(name, expires_at, "GET")
    hold = await reserve(state.ledger, work.caller, COST)
    with mock.patch("time.time", side_effect=lambda: real() + by_s):
        await work.more()
        other = await place.open()
        work.lost += any(abs(clock() - now_s) > HOUR_S / 4 for clock in (state.clock, other.clock))
        work.lost += await other.ledger.reap()
        for one in (state, other):
            await work.check(asyncio.to_thread(one.signatures.verify, name, query, "GET"))
        await other.close()
        work.bills[hold.entry.id] = await hold.settle(COST, 1, "tokens")


async def database_clock_jumps(place: Place, work: Work, by_s: int) -> None:
    """Leases end or last longer while their requests go on: another process bills them, and none twice."""
    holds = [await reserve(work.state.ledger, work.caller, COST) for _ in range(WORKERS)]
    clock = VirtualTime(work.state.database, 0)
    await clock.set(int(time.time()) + by_s)
    # Tickets live for an hour.
    work.uploads.clear()
    other = Ledger(connect(place.url))
    await other.reap()
    for hold in holds:
        work.bills[hold.entry.id] = await hold.settle(COST, 1, "tokens")
    await work.more()
    work.uploads.clear()
    await clock.set(int(time.time()))
    work.uploads.clear()
    await other.close()


Fault = Callable[[Place, Work], Awaitable[None]]
KILLED = "test_postgresql_survives_its_death"
WITHOUT_REDIS = "test_without_redis_each_replica_allows_its_share_and_comes_back"
WITHOUT_STORE = "test_a_store_that_does_not_work_is_a_503_without_its_reasons"
CLOCKS = "test_a_node_whose_clock_is_an_hour_off_frees_and_loses_nothing"
FAULTS: dict[str, tuple[str, Fault, str]] = {
    "PostgreSQL killed": (BOOKS, postgres_dies, KILLED),
    "PostgreSQL stopped (SIGSTOP)": (BOOKS, postgres_pauses, KILLED),
    "PostgreSQL fails over to a synchronous replica": (BOOKS, postgres_fails_over, KILLED),
    "answers to commits lost": (BOOKS, answers_to_commits_are_lost, KILLED),
    "PostgreSQL slow": (BOOKS, partial(is_slow, relay="to_postgres", delay_s=0.1), ""),
    "Redis away": (BOOKS, redis_is_away, WITHOUT_REDIS),
    "Redis slow": (BOOKS, partial(is_slow, relay="to_redis", delay_s=3.0), WITHOUT_REDIS),
    "Redis emptied (FLUSHALL)": (BOOKS, redis_is_emptied, ""),
    "object store: refuses": (BOOKS, partial(store_fails, fault="refuses"), WITHOUT_STORE),
    "object store: 503 after the bytes": (BOOKS, partial(store_fails, fault="stores"), WITHOUT_STORE),
    "object store: reads cut off": (BOOKS, partial(store_fails, fault="cuts"), ""),
    "object store: slow reads": (BOOKS, partial(store_fails, fault="slow"), ""),
    "clock of a server an hour ahead": (BY_DATABASE, partial(clock_jumps, by_s=HOUR_S), CLOCKS),
    "clock of a server an hour behind": (BY_DATABASE, partial(clock_jumps, by_s=-HOUR_S), CLOCKS),
    "clock of the database an hour ahead": (BOOKS, partial(database_clock_jumps, by_s=HOUR_S), ""),
    "clock of the database an hour behind": (BOOKS, partial(database_clock_jumps, by_s=-HOUR_S), ""),
}
"""By name: the promise, the fault, and the test that holds it between campaigns."""


async def outcomes(seed: int, sizes: Sizes, place: Path) -> AsyncIterator[Outcome]:
    """Each fault once, or several times."""
    async with AsyncExitStack() as stack:
        postgres = stack.enter_context(run_server(Postgres, *ON_DISK, in_memory=False))
        redis = stack.enter_context(run_server(Redis))
        bucket = stack.enter_context(run_bucket())
        to_postgres, to_redis = [await stack.enter_async_context(Relay(each.port)) for each in (postgres, redis)]
        servers = Place(place, random.Random(seed), postgres, redis, bucket, to_postgres, to_redis)
        stack.enter_context(mock.patch.dict(os.environ, bucket.environment | {SECRET_VARIABLE: secrets.token_hex(32)}))
        await migrate(await asyncio.to_thread(postgres.fresh, TEMPLATE))
        for name in FAULTS:
            yield await _tried(servers, name, sizes.databases)


async def _tried(place: Place, name: str, times: int) -> Outcome:
    promise, fault, held_by = FAULTS[name]
    lost, normal_s, seen = 0, 0.0, Counter[str]()
    for _ in range(times):
        async with AsyncExitStack() as place.after:
            work = await _started(place, has_own_clock="clock of the database" in name)
            try:
                async with work.going_on():
                    await work.more()
                    await fault(place, work)
                    healed_s = time.monotonic()
                    await work.is_as_before(healed_s)
                    normal_s = max(normal_s, time.monotonic() - healed_s)
                    await work.more()
                await work.audit()
            except TimeoutError:
                work.lost += 1
                print(f"lost: {name} never became as before\n{place.postgres.log}", file=sys.stderr)
        lost, seen = lost + work.lost, seen + work.seen
    return Outcome("databases", name, promise, times, lost, round(normal_s, 2), seen, held_by)


async def _started(place: Place, *, has_own_clock: bool) -> Work:
    """A service over a new database, for an organisation whose limit is far away."""
    await asyncio.to_thread(place.postgres.fresh, DATABASE, TEMPLATE)
    if has_own_clock:
        await (await VirtualTime.over(place.url, int(time.time()))).database.close()
    state = await place.open()
    return Work(place, state, await make_caller(state.database, 10**9))
