import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar
from unittest import mock

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from sqlalchemy import Connection

from contract.access import Caller, Scope
from contract.errors import STATE_UNAVAILABLE, ApiError
from state import keys
from state.accounts import api_keys, organisations
from state.accounts import authentication as accounts
from state.accounts.authentication import PEPPER, Accounts
from state.database.base import Database
from state.database.open import migrate
from state.keys import Keyring, Secrets
from tests.state.books import fault_of, histories, refusal
from tests.state.doubles import VirtualTime, WatchedDatabase, statements
from tests.state.test_keys import malformed_headers
from tests.waiting import ManualClock

NEW, OLD = b"n" * 32, b"o" * 32

T = TypeVar("T")

AGES = st.integers(0, 1)


def pepper(*roots: bytes) -> Keyring:
    return Secrets(roots or (NEW,)).derive(PEPPER)


async def make_key(
    database: Database,
    *,
    scopes: tuple[str, ...] = ("chat",),
    user: str | None = None,
    ring: Keyring | None = None,
    expires_at: int | None = None,
) -> keys.Key:
    key = keys.mint()

    def transaction(connection: Connection) -> None:
        if not organisations.is_taken(connection, "acme"):
            organisations.create(connection, "acme", "starter", ("voices",), 0)
        org_id = organisations.find(connection, "acme").id
        user_id = organisations.ensure_user(connection, org_id, user, 0) if user else None
        api_keys.store(
            connection, key, ring or pepper(), org_id=org_id, user_id=user_id,
            scopes=api_keys.parse_scopes(scopes), label=None, now_s=0, expires_at=expires_at,
        )  # fmt: skip

    await database.run(transaction)
    return key


def bearer(key: keys.Key) -> str:
    return f"Bearer {key.text}"


def forged_from(key: keys.Key) -> str:
    with mock.patch("secrets.choice", side_effect=key.public_id):
        return keys.mint().text


async def revoke(database: Database, key: keys.Key) -> None:
    await database.run(lambda connection: api_keys.revoke(connection, key.public_id, 1))


@dataclass
class Known:
    """A key as the oracle knows it."""

    key: keys.Key
    expires_at: int | None
    is_revoked: bool = False


@dataclass
class Replica:
    """An ingress process: when its caches took what they know of a key, and if its organisation had a limit then."""

    database: WatchedDatabase
    accounts: Accounts
    headers: dict[int, tuple[float, bool]] = field(default_factory=dict)
    current: dict[int, tuple[float, bool]] = field(default_factory=dict)
    refused: dict[int, float] = field(default_factory=dict)
    began: dict[int, Caller] = field(default_factory=dict)


class Keys(RuleBasedStateMachine):
    """Keys of one organisation in two replicas, whose caches remember them for five seconds and not a moment longer."""

    def __init__(self, runner: asyncio.Runner, database: Database) -> None:
        super().__init__()
        self.runner, self.database, self.clock = runner, database, ManualClock()
        self.known: list[Known] = []
        watched = [WatchedDatabase(database) for _ in range(2)]
        self.replicas = [Replica(one, Accounts(one, pepper(), self.clock, self.clock)) for one in watched]
        self.limit(False)

    @precondition(lambda self: len(self.known) < 3)
    @rule(lasts_s=st.sampled_from((None, 10)))
    def create(self, lasts_s: int | None) -> None:
        expires_at = None if lasts_s is None else int(self.clock.now_s) + lasts_s
        key = self.runner.run(make_key(self.database, expires_at=expires_at))
        self.known.append(Known(key, expires_at))

    @precondition(lambda self: self.known)
    @rule(age=AGES, change=st.sampled_from(("revoke", "limit", "no limit")))
    def change(self, age: int, change: str) -> None:
        """The operator's commands."""
        if change == "revoke":
            known = self.known[-1 - age % len(self.known)]
            known.is_revoked = True
            self.runner.run(revoke(self.database, known.key))
        else:
            self.limit(change == "limit")

    def limit(self, is_limited: bool) -> None:
        self.is_limited = is_limited
        set_limit = partial(organisations.set_limit, org_id=1, user_id=None, limit_micro_eur=10 if is_limited else None)
        self.runner.run(self.database.run(set_limit))

    @precondition(lambda self: self.known)
    @rule(
        which=st.integers(0, 2),
        before_s=st.sampled_from((None, 0.0, 0.01)),
        age=AGES,
        numbers=st.sampled_from(((0,), (1,), (0, 1))),
        hows=st.sampled_from((("begin",), ("go on",), ("go on", "begin"))),
        is_down=st.sampled_from((False, False, True)),
    )
    def ask(
        self, which: int, before_s: float | None, age: int, numbers: Sequence[int], hows: Sequence[str], is_down: bool
    ) -> None:
        """Requests with a key, begun or under way, at once or when something changes by itself, or right before."""
        if before_s is not None:
            self.pass_time(which, before_s)
        place = len(self.known) - 1 - age % len(self.known)
        for replica in (self.replicas[number] for number in numbers):
            for how in hows:
                if how == "begin":
                    self.begin(place, replica, is_down)
                elif place in replica.began:
                    self.go_on(place, replica, is_down)

    def pass_time(self, which: int, before_s: float) -> None:
        times = [known.expires_at for known in self.known if known.expires_at]
        times += [at + 5 for one in self.replicas for at, _ in (*one.headers.values(), *one.current.values())]
        times += [at + 5 for one in self.replicas for at in one.refused.values()]
        later = sorted(at for at in {*times} if at - before_s > self.clock.now_s)
        self.clock.now_s = later[which % len(later)] - before_s if later else self.clock.now_s + 1

    def begin(self, place: int, replica: Replica, is_down: bool) -> None:
        known, now_s, expected, asks = self.known[place], self.clock.now_s, None, False
        if not is_fresh(replica.headers.get(place, (0, False))[0], now_s):
            if is_fresh(replica.refused.get(place, 0), now_s):
                expected = "INVALID_API_KEY"
            else:
                asks = True
                expected = "STATE_UNAVAILABLE" if is_down else None
        if asks and not is_down:
            if known.is_revoked:
                expected, replica.refused[place] = "INVALID_API_KEY", now_s
            else:
                replica.headers[place] = replica.current[place] = now_s, self.is_limited
        caller = self.answer(replica, replica.accounts.authenticate(bearer(known.key)), known, expected, asks, is_down)
        if caller:
            assert (caller.key_id, caller.org_limited) == (known.key.public_id, replica.headers[place][1])
            replica.began[place] = caller

    def go_on(self, place: int, replica: Replica, is_down: bool) -> None:
        known, began, expected = self.known[place], replica.began[place], None
        asks = not is_fresh(replica.current.get(place, (0, False))[0], self.clock.now_s)
        if asks and (is_down or not known.is_revoked):
            replica.current[place] = self.clock.now_s, began.org_limited if is_down else self.is_limited
        elif asks:
            expected = "INVALID_API_KEY"
        caller = self.answer(replica, replica.accounts.current(began), known, expected, asks, is_down)
        assert caller is None or caller.org_limited == replica.current[place][1]

    def answer(
        self, replica: Replica, work: Awaitable[Caller], known: Known, fault: str | None, asks: bool, is_down: bool
    ) -> Caller | None:
        """Checks the answer of a replica, and how often it asks its database."""
        if fault is None and known.expires_at and self.clock.now_s >= known.expires_at:
            fault = "EXPIRED_API_KEY"
        replica.database.fault = lambda _: STATE_UNAVAILABLE() if is_down else None
        replica.database.ran = 0
        if fault is None:
            caller = self.runner.run(finished(work))
        else:
            caller = None
            assert self.runner.run(fault_of(work)) == fault
        assert replica.database.ran == asks
        return caller


def is_fresh(at_s: float, now_s: float) -> bool:
    return now_s < at_s + 5


async def finished(work: Awaitable[T]) -> T:
    return await work


def test_every_replica_knows_what_became_of_a_key_within_five_seconds(database_url: str) -> None:
    with asyncio.Runner() as runner:
        runner.run(migrate(database_url))
        database = runner.run(VirtualTime.over(database_url, 0)).database
        runner.run(make_key(database))
        run_state_machine_as_test(lambda: Keys(runner, database), settings=histories(50, steps=40))
        runner.run(database.close())


@pytest.fixture
async def key(database: Database) -> keys.Key:
    return await make_key(database)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def watched(database: Database) -> WatchedDatabase:
    return WatchedDatabase(database)


@pytest.fixture
def authenticating(watched: WatchedDatabase, clock: ManualClock) -> Accounts:
    return Accounts(watched, pepper(), clock)


async def test_a_key_becomes_its_caller(database: Database) -> None:
    key = await make_key(database, scopes=("chat", "mcp"), user="eve")
    caller = await Accounts(database, pepper()).authenticate(bearer(key))
    assert (caller.org, caller.user, caller.key_id, caller.tariff.name) == ("acme", "eve", key.public_id, "starter")
    assert caller.scopes == {Scope.CHAT, Scope.MCP}
    assert caller.entitlements == {"voices"}
    assert caller.models is None
    assert not caller.org_limited


async def test_an_organisation_has_limits_and_models(
    authenticating: Accounts, database: Database, key: keys.Key
) -> None:
    columns = {"requests_per_minute": 7, "models": frozenset({"a", "b"}), "decision_model": "decision-v2"}

    def transaction(connection: Connection) -> None:
        organisations.change(connection, "acme", columns)
        organisations.set_limit(connection, organisations.find(connection, "acme").id, None, 5)

    await database.run(transaction)
    caller = await authenticating.authenticate(bearer(key))
    assert (caller.tariff.requests_per_minute, caller.tariff.concurrent_streams) == (7, 20)
    assert caller.may_use("a")
    assert not caller.may_use("c")
    assert caller.decision_model == "decision-v2"
    assert caller.org_limited


async def test_a_key_with_the_id_of_another_is_refused(authenticating: Accounts, key: keys.Key) -> None:
    for _ in range(2):
        assert await fault_of(authenticating.authenticate(f"Bearer {forged_from(key)}")) == "INVALID_API_KEY"
        assert (await authenticating.authenticate(bearer(key))).key_id == key.public_id


async def test_expired_keys_hold_up_no_rotation(database: Database) -> None:
    await make_key(database, expires_at=1)
    valid = await make_key(database, expires_at=4_000_000_000)
    assert await database.run(api_keys.generations) == {pepper().kid: 1}
    assert (await Accounts(database, pepper()).authenticate(bearer(valid))).expires_at == 4_000_000_000


async def test_streams_of_one_key_share_a_look_up(
    authenticating: Accounts, database: Database, watched: WatchedDatabase, key: keys.Key, clock: ManualClock
) -> None:
    caller = await authenticating.authenticate(bearer(key))
    watched.ran = 0
    clock.now_s += 5
    first, *others = [asyncio.create_task(authenticating.current(caller)) for _ in range(50)]
    await asyncio.sleep(0)
    first.cancel()
    assert await asyncio.gather(*others) == [caller] * 49
    assert watched.ran == 1
    await revoke(database, key)
    clock.now_s += 5
    answers = await asyncio.gather(*(authenticating.current(caller) for _ in range(50)), return_exceptions=True)
    assert all(isinstance(answer, ApiError) for answer in answers)
    assert watched.ran == 2


async def test_the_cache_is_bounded(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "MAX_CALLERS", 3)
    monkeypatch.setattr(accounts, "MAX_REFUSALS", 2)
    watched = WatchedDatabase(database)
    authenticating = Accounts(watched, pepper())
    known, unknown = [await make_key(database) for _ in range(5)], [keys.mint() for _ in range(5)]
    for one, other in zip(known, unknown, strict=True):
        await authenticating.authenticate(bearer(one))
        await refusal(authenticating.authenticate(bearer(other)))
    for kept, gone in ((known[2:], known[1]), (unknown[3:], unknown[2])):
        for queries, asked in ((0, kept), (1, [gone])):
            before = watched.ran
            for key in asked:
                await asyncio.gather(authenticating.authenticate(bearer(key)), return_exceptions=True)
            assert watched.ran - before == queries


async def test_malformed_headers_never_reach_the_database(authenticating: Accounts) -> None:
    with statements() as seen:
        for header in malformed_headers():
            assert await fault_of(authenticating.authenticate(header)) == "INVALID_API_KEY"
        assert seen == []


async def test_well_formed_wrong_keys_cause_one_fixed_statement(authenticating: Accounts) -> None:
    with statements() as seen:
        for _ in range(50):
            assert await fault_of(authenticating.authenticate(bearer(keys.mint()))) == "INVALID_API_KEY"
    assert len({text for text, _ in seen if text.startswith("SELECT")}) == 1
    assert {text.split()[0] for text, _ in seen} <= {"SELECT", "BEGIN"}


async def test_keys_survive_one_rotation_and_move_when_used(database: Database) -> None:
    key = await make_key(database, ring=pepper(OLD))
    both, new = pepper(NEW, OLD), pepper(NEW)
    assert await fault_of(Accounts(database, new).authenticate(bearer(key))) == "INVALID_API_KEY"
    assert (await Accounts(database, both).authenticate(bearer(key))).org == "acme"
    assert (await Accounts(database, new).authenticate(bearer(key))).org == "acme"
    assert await database.run(api_keys.generations) == {new.kid: 1}


async def test_the_hour_of_last_use_is_noted(database: Database, key: keys.Key) -> None:
    await Accounts(database, pepper(), wall=lambda: 7300.5).authenticate(bearer(key))
    row = await database.run(lambda connection: api_keys.find(connection, key.public_id))
    assert row is not None
    assert row.last_used_at == 7200


async def test_me_shows_plan_limits_and_spend(authenticating: Accounts, database: Database) -> None:
    key = await make_key(database, user="eve")
    await make_key(database, user="bob")
    shown = await authenticating.describe(await authenticating.authenticate(bearer(key)))
    nothing = {"limit_micro_eur": None, "spent_micro_eur": 0, "held_micro_eur": 0, "in_advance_micro_eur": 0}
    nothing |= {"left_micro_eur": None, "renewal": None}
    assert shown["organisation"]["plan"] == "starter"
    assert (shown["user"], shown["key_id"]) == ("eve", key.public_id)
    assert shown["spend"] == {"organisation": nothing, "user": nothing}
    assert shown["limits"] == {"requests_per_minute": 100, "concurrent_streams": 20}
