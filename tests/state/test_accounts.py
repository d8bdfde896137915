import asyncio
from typing import Any

import pytest
from sqlalchemy import Connection, event
from sqlalchemy.engine import Engine

from contract.access import Caller, Scope
from contract.errors import STATE_UNAVAILABLE, ApiError
from state.accounts import api_keys, keys, organisations
from state.accounts import authentication as accounts
from state.accounts.authentication import PEPPER, Accounts
from state.database.base import Database
from state.keyring import Keyring, Secrets
from tests.state.test_keys import malformed_headers

pytestmark = pytest.mark.anyio

NEW, OLD = b"n" * 32, b"o" * 32


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def pepper(*roots: bytes) -> Keyring:
    return Secrets(roots or (NEW,)).derive(PEPPER)


async def make_key(
    database: Database, *, scopes: tuple[str, ...] = ("chat",), user: str | None = None, ring: Keyring | None = None
) -> keys.Key:
    key = keys.mint()

    def transaction(connection: Connection) -> None:
        if not organisations.is_taken(connection, "acme"):
            organisations.create(connection, "acme", "starter", ("voices",), 0)
        org_id = organisations.find(connection, "acme").id
        user_id = organisations.ensure_user(connection, org_id, user, 0) if user else None
        api_keys.store(
            connection, key, ring or pepper(), org_id=org_id, user_id=user_id,
            scopes=api_keys.parse_scopes(scopes), label=None, now_s=0,
        )  # fmt: skip

    await database.run(transaction)
    return key


async def refused(authenticating: Accounts, header: str | None) -> str:
    with pytest.raises(ApiError) as caught:
        await authenticating.authenticate(header)
    return caught.value.fault.name


async def test_a_key_becomes_its_caller(database: Database) -> None:
    key = await make_key(database, scopes=("chat", "mcp"), user="eve")
    caller = await Accounts(database, pepper()).authenticate(f"Bearer {key.text}")
    assert (caller.org, caller.user, caller.key_id, caller.tariff.name) == ("acme", "eve", key.public_id, "starter")
    assert caller.scopes == {Scope.CHAT, Scope.MCP}
    assert caller.entitlements == {"voices"}
    assert caller.models is None
    assert not caller.org_limited


async def test_an_organisation_can_have_its_own_limits_and_models(database: Database) -> None:
    key = await make_key(database)
    columns = {"requests_per_minute": 7, "models": frozenset({"a", "b"}), "decision_model": "decision-v2"}

    def transaction(connection: Connection) -> None:
        organisations.change(connection, "acme", columns)
        organisations.set_limit(connection, organisations.find(connection, "acme").id, None, 5)

    await database.run(transaction)
    caller = await Accounts(database, pepper()).authenticate(f"Bearer {key.text}")
    assert caller.tariff.requests_per_minute == 7
    assert caller.tariff.concurrent_streams == 20
    assert caller.may_use("a")
    assert not caller.may_use("c")
    assert caller.decision_model == "decision-v2"
    assert caller.org_limited


async def test_an_unknown_key_is_refused(database: Database) -> None:
    await make_key(database)
    assert await refused(Accounts(database, pepper()), f"Bearer {keys.mint().text}") == "INVALID_API_KEY"


async def test_a_key_with_the_id_of_another_is_refused(database: Database) -> None:
    key = await make_key(database)
    forged = "_".join(("prl", key.public_id, keys.mint().text.split("_")[2][:43]))
    forged += keys._checksum(forged)
    assert keys.read(forged) is not None
    authenticating = Accounts(database, pepper())
    assert await refused(authenticating, f"Bearer {forged}") == "INVALID_API_KEY"
    assert (await authenticating.authenticate(f"Bearer {key.text}")).key_id == key.public_id
    assert await refused(authenticating, f"Bearer {forged}") == "INVALID_API_KEY"


@pytest.mark.parametrize(("passed_s", "still"), [(0.0, True), (4.99, True), (5.0, False)])
async def test_a_revoked_key_dies_within_five_seconds(database: Database, passed_s: float, still: bool) -> None:
    key, clock = await make_key(database), Clock()
    authenticating = Accounts(database, pepper(), clock)
    await authenticating.authenticate(f"Bearer {key.text}")
    await database.run(lambda connection: api_keys.revoke(connection, key.public_id, 1))
    clock.now_s += passed_s
    if still:
        assert isinstance(await authenticating.authenticate(f"Bearer {key.text}"), Caller)
    else:
        assert await refused(authenticating, f"Bearer {key.text}") == "INVALID_API_KEY"


@pytest.mark.parametrize("passed_s", [0.0, 4.99, 5.0])
async def test_a_key_that_is_revoked_is_noticed_by_what_it_has_begun(database: Database, passed_s: float) -> None:
    key, clock = await make_key(database), Clock()
    authenticating = Accounts(database, pepper(), clock)
    caller = await authenticating.authenticate(f"Bearer {key.text}")
    await database.run(lambda connection: api_keys.revoke(connection, key.public_id, 1))
    clock.now_s += passed_s
    if passed_s < 5:
        assert await authenticating.current(caller) == caller
    else:
        with pytest.raises(ApiError) as caught:
            await authenticating.current(caller)
        assert caught.value.fault.name == "INVALID_API_KEY"


async def test_a_database_that_does_not_answer_ends_nothing_that_has_begun(database: Database) -> None:
    key, clock = await make_key(database), Clock()
    authenticating = Accounts(database, pepper(), clock)
    caller = await authenticating.authenticate(f"Bearer {key.text}")

    class Silent:
        async def run(self, *_: object, **__: object) -> None:
            raise STATE_UNAVAILABLE()

    authenticating._database = Silent()  # type: ignore[assignment]
    clock.now_s += 5
    assert await authenticating.current(caller) is caller
    authenticating._database = database
    await database.run(lambda connection: api_keys.revoke(connection, key.public_id, 1))
    clock.now_s += 5
    with pytest.raises(ApiError, match="key"):
        await authenticating.current(caller)


async def test_streams_of_one_key_share_a_look_up(database: Database) -> None:
    key, clock = await make_key(database), Clock()
    authenticating = Accounts(database, pepper(), clock)
    caller = await authenticating.authenticate(f"Bearer {key.text}")
    transactions = 0

    class Counting:
        async def run(self, transaction: Any, **options: Any) -> Any:
            nonlocal transactions
            transactions += 1
            return await database.run(transaction, **options)

    authenticating._database = Counting()  # type: ignore[assignment]
    clock.now_s += 5
    first, *others = [asyncio.create_task(authenticating.current(caller)) for _ in range(50)]
    await asyncio.sleep(0)
    first.cancel()
    assert await asyncio.gather(*others) == [caller] * 49
    assert transactions == 1
    await database.run(lambda connection: api_keys.revoke(connection, key.public_id, 1))
    clock.now_s += 5
    answers = await asyncio.gather(*(authenticating.current(caller) for _ in range(50)), return_exceptions=True)
    assert all(isinstance(answer, ApiError) for answer in answers)
    assert transactions == 2


async def test_a_limit_is_known_to_what_was_begun_without_one(database: Database) -> None:
    key, clock = await make_key(database), Clock()
    authenticating = Accounts(database, pepper(), clock)
    caller = await authenticating.authenticate(f"Bearer {key.text}")
    await database.run(lambda connection: organisations.set_limit(connection, caller.org_id, None, 10))
    assert not (await authenticating.current(caller)).org_limited
    clock.now_s += 5
    assert (await authenticating.current(caller)).org_limited


async def test_a_new_process_refuses_a_revoked_key_at_once(database: Database) -> None:
    key = await make_key(database)
    await database.run(lambda connection: api_keys.revoke(connection, key.public_id, 1))
    assert await refused(Accounts(database, pepper()), f"Bearer {key.text}") == "INVALID_API_KEY"


async def test_the_cache_is_bounded(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "MAX_CALLERS", 3)
    monkeypatch.setattr(accounts, "MAX_REFUSALS", 2)
    authenticating = Accounts(database, pepper())
    for _ in range(5):
        key = await make_key(database)
        await authenticating.authenticate(f"Bearer {key.text}")
        await refused(authenticating, f"Bearer {keys.mint().text}")
    assert len(authenticating._callers) == 3
    assert len(authenticating._refused) == 2


async def test_malformed_headers_never_reach_the_database(database: Database) -> None:
    authenticating = Accounts(database, pepper())
    with statements() as seen:
        for header in malformed_headers():
            assert await refused(authenticating, header) == "INVALID_API_KEY"
        assert seen == []


async def test_well_formed_wrong_keys_cause_one_fixed_statement(database: Database) -> None:
    authenticating = Accounts(database, pepper())
    with statements() as seen:
        for _ in range(50):
            assert await refused(authenticating, f"Bearer {keys.mint().text}") == "INVALID_API_KEY"
    assert len({text for text in seen if text.startswith("SELECT")}) == 1
    assert {text.split()[0] for text in seen} <= {"SELECT", "BEGIN"}


async def test_the_hot_path_asks_the_database_once(database: Database) -> None:
    key = await make_key(database)
    authenticating = Accounts(database, pepper())
    with statements() as seen:
        for _ in range(100):
            await authenticating.authenticate(f"Bearer {key.text}")
    assert len([text for text in seen if text.startswith("SELECT")]) == 1


async def test_keys_survive_one_rotation_and_move_when_used(database: Database) -> None:
    key = await make_key(database, ring=pepper(OLD))
    both, new = pepper(NEW, OLD), pepper(NEW)
    assert await refused(Accounts(database, new), f"Bearer {key.text}") == "INVALID_API_KEY"
    assert (await Accounts(database, both).authenticate(f"Bearer {key.text}")).org == "acme"
    assert (await Accounts(database, new).authenticate(f"Bearer {key.text}")).org == "acme"
    assert await database.run(api_keys.generations) == {new.kid: 1}


async def test_the_hour_of_last_use_is_noted(database: Database) -> None:
    key = await make_key(database)
    await Accounts(database, pepper(), wall=lambda: 7300.5).authenticate(f"Bearer {key.text}")
    row = await database.run(lambda connection: api_keys.find(connection, key.public_id))
    assert row is not None
    assert row.last_used_at == 7200


async def test_me_shows_plan_limits_and_spend(database: Database) -> None:
    key = await make_key(database, user="eve")
    await make_key(database, user="bob")
    authenticating = Accounts(database, pepper())
    shown = await authenticating.describe(await authenticating.authenticate(f"Bearer {key.text}"))
    nothing = {"limit_micro_eur": None, "spent_micro_eur": 0, "held_micro_eur": 0}
    assert shown["organisation"]["plan"] == "starter"
    assert shown["user"] == "eve"
    assert shown["spend"] == {"organisation": nothing, "user": nothing}
    assert shown["limits"] == {"requests_per_minute": 100, "concurrent_streams": 20}


class statements:
    """Collects the SQL of the block."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __enter__(self) -> list[str]:
        event.listen(Engine, "before_cursor_execute", self._note)
        return self.seen

    def __exit__(self, *_: object) -> None:
        event.remove(Engine, "before_cursor_execute", self._note)

    def _note(self, _c: object, _cursor: object, text: str, *_rest: object) -> None:
        self.seen.append(text)
