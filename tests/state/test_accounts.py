import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, event
from sqlalchemy.engine import Engine

from contract.access import Scope
from contract.errors import STATE_UNAVAILABLE, ApiError
from state import keys
from state.accounts import api_keys, organisations
from state.accounts import authentication as accounts
from state.accounts.authentication import PEPPER, Accounts
from state.database.base import Database
from state.keys import Keyring, Secrets
from tests.state.books import fault_of, refusal, set_limit
from tests.state.doubles import WatchedDatabase
from tests.state.test_keys import malformed_headers
from tests.waiting import ManualClock

NEW, OLD = b"n" * 32, b"o" * 32


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
    forged = "_".join(("prl", key.public_id, keys.mint().text.split("_")[2][:43]))
    return forged + keys._checksum(forged)


async def revoke(database: Database, key: keys.Key) -> None:
    await database.run(lambda connection: api_keys.revoke(connection, key.public_id, 1))


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
    forged = forged_from(key)
    assert keys.read(forged) is not None
    assert await fault_of(authenticating.authenticate(f"Bearer {forged}")) == "INVALID_API_KEY"
    assert (await authenticating.authenticate(bearer(key))).key_id == key.public_id
    assert await fault_of(authenticating.authenticate(f"Bearer {forged}")) == "INVALID_API_KEY"


async def test_a_key_ends_at_its_second_for_new_requests_and_those_under_way(
    database: Database, watched: WatchedDatabase, clock: ManualClock
) -> None:
    key, wall = await make_key(database, expires_at=1_800_000_010), ManualClock(1_800_000_000)
    fresh = Accounts(watched, pepper(), clock, wall)
    caller = await fresh.authenticate(bearer(key))
    wall.now_s += 9.99
    assert await fresh.current(await fresh.authenticate(bearer(key))) == caller
    wall.now_s += 0.01
    # What is known of it is still in the cache.
    for work in (fresh.current(caller), fresh.authenticate(bearer(key))):
        error = await refusal(work)
        assert (error.fault.name, error.fault.status) == ("EXPIRED_API_KEY", 401)
        assert error.message == "the API key expired at 2027-01-15T08:00:10Z; create another"
    # A flood of requests with it asks the database as seldom as with a valid key.
    watched.ran = 0
    clock.now_s += 5
    for _ in range(50):
        assert await fault_of(fresh.authenticate(bearer(key))) == "EXPIRED_API_KEY"
    assert watched.ran == 1


async def test_an_expired_key_ends_what_has_begun_without_the_database(
    database: Database, watched: WatchedDatabase, clock: ManualClock
) -> None:
    key, wall = await make_key(database, expires_at=1_800_000_010), ManualClock(1_800_000_000)
    fresh = Accounts(watched, pepper(), clock, wall)
    caller = await fresh.authenticate(bearer(key))
    watched.fault = lambda _: STATE_UNAVAILABLE()
    clock.now_s += 5
    wall.now_s += 10
    assert await fault_of(fresh.current(caller)) == "EXPIRED_API_KEY"


async def test_who_does_not_know_the_whole_key_is_not_told_that_it_has_expired(database: Database) -> None:
    key = await make_key(database, expires_at=1)
    forged = f"Bearer {forged_from(key)}"
    assert await fault_of(Accounts(database, pepper()).authenticate(forged)) == "INVALID_API_KEY"
    await revoke(database, key)
    assert await fault_of(Accounts(database, pepper()).authenticate(bearer(key))) == "INVALID_API_KEY"


async def test_expired_keys_hold_up_no_rotation(database: Database) -> None:
    await make_key(database, expires_at=1)
    valid = await make_key(database, expires_at=4_000_000_000)
    assert await database.run(api_keys.generations) == {pepper().kid: 1}
    assert (await Accounts(database, pepper()).authenticate(bearer(valid))).expires_at == 4_000_000_000


@pytest.mark.parametrize(("passed_s", "fault"), [(0.0, None), (4.99, None), (5.0, "INVALID_API_KEY")])
async def test_a_revoked_key_dies_within_five_seconds_for_new_requests_and_for_those_under_way(
    authenticating: Accounts, database: Database, key: keys.Key, clock: ManualClock, passed_s: float, fault: str
) -> None:
    caller = await authenticating.authenticate(bearer(key))
    await revoke(database, key)
    clock.now_s += passed_s
    assert await fault_of(authenticating.current(caller)) == fault
    assert await fault_of(authenticating.authenticate(bearer(key))) == fault
    if fault is None:
        assert await authenticating.current(caller) == caller


async def test_a_database_that_does_not_answer_ends_nothing(
    authenticating: Accounts, database: Database, watched: WatchedDatabase, key: keys.Key, clock: ManualClock
) -> None:
    caller = await authenticating.authenticate(bearer(key))
    watched.fault = lambda _: STATE_UNAVAILABLE()
    clock.now_s += 5
    assert await authenticating.current(caller) is caller
    watched.fault = lambda _: None
    await revoke(database, key)
    clock.now_s += 5
    assert await fault_of(authenticating.current(caller)) == "INVALID_API_KEY"


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


async def test_a_limit_is_known_to_what_was_begun_without_one(
    authenticating: Accounts, database: Database, key: keys.Key, clock: ManualClock
) -> None:
    caller = await authenticating.authenticate(bearer(key))
    await set_limit(database, caller, 10)
    assert not (await authenticating.current(caller)).org_limited
    clock.now_s += 5
    assert (await authenticating.current(caller)).org_limited


async def test_the_cache_is_bounded(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "MAX_CALLERS", 3)
    monkeypatch.setattr(accounts, "MAX_REFUSALS", 2)
    authenticating = Accounts(database, pepper())
    for _ in range(5):
        await authenticating.authenticate(bearer(await make_key(database)))
        await refusal(authenticating.authenticate(bearer(keys.mint())))
    assert (len(authenticating._callers), len(authenticating._refused)) == (3, 2)


async def test_malformed_headers_never_reach_the_database(authenticating: Accounts) -> None:
    with statements() as seen:
        for header in malformed_headers():
            assert await fault_of(authenticating.authenticate(header)) == "INVALID_API_KEY"
        assert seen == []


async def test_well_formed_wrong_keys_cause_one_fixed_statement(authenticating: Accounts) -> None:
    with statements() as seen:
        for _ in range(50):
            assert await fault_of(authenticating.authenticate(bearer(keys.mint()))) == "INVALID_API_KEY"
    assert len({text for text in seen if text.startswith("SELECT")}) == 1
    assert {text.split()[0] for text in seen} <= {"SELECT", "BEGIN"}


async def test_the_hot_path_asks_the_database_once(authenticating: Accounts, key: keys.Key) -> None:
    with statements() as seen:
        for _ in range(100):
            await authenticating.authenticate(bearer(key))
    assert len([text for text in seen if text.startswith("SELECT")]) == 1


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
    assert shown["user"] == "eve"
    assert shown["spend"] == {"organisation": nothing, "user": nothing}
    assert shown["limits"] == {"requests_per_minute": 100, "concurrent_streams": 20}


@contextmanager
def statements() -> Iterator[list[str]]:
    seen: list[str] = []

    def note(_c: object, _cursor: object, text: str, *_rest: object) -> None:
        seen.append(text)

    event.listen(Engine, "before_cursor_execute", note)
    yield seen
    event.remove(Engine, "before_cursor_execute", note)
