import asyncio

import pytest

from contract.access import TARIFFS, Caller, Scope
from contract.errors import ApiError
from state.database.base import Database
from state.idempotency import MAX_BODY_BYTES, PURPOSE, Attempt, Idempotency, StoredReply
from state.keyring import Secrets
from state.replies import KEEP_S, LEASE_S
from tests.state.books import pass_time

pytestmark = pytest.mark.anyio

SLACK_S = 30
"""The database's clock goes on while a test runs: limits are tried from so far away."""

KEYRING = Secrets((b"s" * 32,)).derive(PURPOSE)
ROUTE = "POST /audio/voices/designs"


def caller(key_id: str = "k3Jd92Xa") -> Caller:
    return Caller(1, "acme", key_id, TARIFFS["pro"], frozenset(Scope))


async def begin(store: Idempotency, key: str = "k1", body: str = "sha", **where: str) -> Attempt | StoredReply:
    return await store.begin(caller(**where), ROUTE, key, body)


async def started(store: Idempotency, key: str = "k1", body: str = "sha", **where: str) -> Attempt:
    attempt = await begin(store, key, body, **where)
    assert isinstance(attempt, Attempt)
    return attempt


async def refusal(store: Idempotency, key: str = "k1", body: str = "sha") -> str:
    with pytest.raises(ApiError) as caught:
        await begin(store, key, body)
    return caught.value.fault.name


async def test_the_second_time_gets_the_first_answer(database: Database) -> None:
    store = Idempotency(database, KEYRING)
    await (await started(store)).finish(202, {"content-type": "application/json"}, b'{"id": "vd_1"}')
    for _ in range(2):
        assert await begin(store) == StoredReply(202, {"content-type": "application/json"}, b'{"id": "vd_1"}')


async def test_fifty_at_once_run_once(database: Database) -> None:
    store = Idempotency(database, KEYRING)
    results = await asyncio.gather(*(begin(store) for _ in range(50)), return_exceptions=True)
    assert sum(isinstance(result, Attempt) for result in results) == 1
    assert {r.fault.name for r in results if isinstance(r, ApiError)} == {"IDEMPOTENCY_IN_PROGRESS"}


async def test_another_body_is_a_mismatch_running_or_done(database: Database) -> None:
    store = Idempotency(database, KEYRING)
    attempt = await started(store)
    assert await refusal(store, body="other") == "IDEMPOTENCY_MISMATCH"
    await attempt.finish(200, {}, b"")
    assert await refusal(store, body="other") == "IDEMPOTENCY_MISMATCH"


async def test_keys_of_other_callers_and_routes_are_others(database: Database) -> None:
    store = Idempotency(database, KEYRING)
    await started(store)
    await started(store, key_id="other")
    assert isinstance(await store.begin(caller(), "POST /decisions", "k1", "sha"), Attempt)


async def test_an_abandoned_key_is_free(database: Database) -> None:
    store = Idempotency(database, KEYRING)
    await (await started(store)).abandon()
    await started(store, body="other")


@pytest.mark.parametrize(("passed_s", "free"), [(LEASE_S - SLACK_S, False), (LEASE_S, True)])
async def test_a_crashed_run_frees_its_key_after_the_lease(database: Database, passed_s: int, free: bool) -> None:
    store = Idempotency(database, KEYRING)
    late = await started(store)
    await pass_time(database, passed_s)
    if not free:
        assert await refusal(store) == "IDEMPOTENCY_IN_PROGRESS"
        return
    second = await started(store)
    await late.finish(500, {}, b"too late")
    await second.finish(200, {}, b"second")
    assert (await begin(store)).body == b"second"  # type: ignore[union-attr]


@pytest.mark.parametrize(("passed_s", "fresh"), [(KEEP_S - SLACK_S, False), (KEEP_S, True)])
async def test_answers_are_kept_for_a_day(database: Database, passed_s: int, fresh: bool) -> None:
    store = Idempotency(database, KEYRING)
    await (await started(store)).finish(200, {}, b"x")
    await pass_time(database, passed_s)
    assert isinstance(await begin(store), Attempt if fresh else StoredReply)
    await store.forget_old()


@pytest.mark.parametrize("body", [None, b"x" * (MAX_BODY_BYTES + 1)])
async def test_an_answer_that_is_not_kept_is_still_not_done_twice(database: Database, body: bytes | None) -> None:
    store = Idempotency(database, KEYRING)
    await (await started(store)).finish(200, {}, body)
    assert await refusal(store) == "IDEMPOTENCY_FINISHED"


async def test_a_body_of_the_largest_size_is_kept(database: Database) -> None:
    store = Idempotency(database, KEYRING)
    await (await started(store)).finish(200, {}, b"x" * MAX_BODY_BYTES)
    assert isinstance(await begin(store), StoredReply)


@pytest.mark.parametrize("key", ["", "a" * 256, "a b", "a\n", "é", "\x00"])
async def test_malformed_keys_are_refused(database: Database, key: str) -> None:
    assert await refusal(Idempotency(database, KEYRING), key) == "INVALID_REQUEST"


async def test_the_longest_key_is_taken(database: Database) -> None:
    await started(Idempotency(database, KEYRING), "~" * 255)
