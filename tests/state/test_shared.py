"""The console's records and verdicts on speech, shared by ingress processes over a real Redis."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

import pytest
from redis.asyncio import Redis as Client

from autoscaling.durations import Durations
from autoscaling.engine import Engine, EngineView, Timings
from contract.access import TARIFFS, Caller, Scope
from contract.console import RecordQuery
from contract.speech.verdict import VERDICT_KEPT_S
from contract.telemetry import EngineState, Outcome
from deployments.ingress.console import Console
from deployments.ingress.console.console import PAGE_BATCHES, SHARE_S
from deployments.ingress.console.records import FinishedRequest
from state import rates as rates_module
from state import shared_console
from state import verdicts as module
from state.rates import Rates
from state.shared_console import KEPT_S, SharedConsole
from state.verdicts import Verdicts
from tests.catalogs import behaving, chat
from tests.state.books import refusal
from tests.state.servers import Redis
from tests.waiting import until

CATALOG = behaving(obedient=chat("obedient"))
CHAT = "chat-obedient"
CALLER = Caller(1, "acme", "key", TARIFFS["pro"], frozenset(Scope))


class Seen:
    def __init__(self, used: int = 0, waiting: int = 0) -> None:
        self.used, self.waiting = used, waiting

    def view(self) -> EngineView:
        lines = {"org-1": self.waiting} if self.waiting else {}
        return EngineView(EngineState.READY, self.waiting, self.used, 4, Durations(1, 2.0), lines)


def console(shared: SharedConsole | None, **seen: int) -> Console:
    engine = cast(Engine, Seen(**seen))
    return Console(CATALOG, {model.deployment: engine for model in CATALOG.deployed()}, shared)


def serve(
    console: Console, number: int, org_id: int = 1, outcome: Outcome = Outcome.OK, model: str = "obedient"
) -> str:
    caller = Caller(org_id, "acme", "key", TARIFFS["pro"], frozenset(Scope))
    request_id = f"req_{number:032x}"
    console.ended.append(
        FinishedRequest(request_id, caller, "POST", "/v1/x", model, 200, outcome, None, Timings(), (), 1.0, 1e9)
    )
    return request_id


async def picture(console: Console) -> dict[str, Any]:
    async def current(caller: Caller) -> Caller:
        return caller

    async with aclosing(console.feed.watch(CALLER, current)) as events:
        data: dict[str, Any] = json.loads((await anext(events)).partition(b"data: ")[2])
    return data


async def ids(console: Console, caller: Caller = CALLER, **query: Any) -> list[str]:
    return [record["request_id"] for record in (await console.page(caller, RecordQuery(**query)))["data"]]


@pytest.fixture
async def shared(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SharedConsole]:
    monkeypatch.setattr(rates_module, "REDIS_TIMEOUT_S", 10.0)
    rates = Rates(redis.url, replicas=2)
    await rates.connection.flushall()
    yield SharedConsole(rates.connection, most=600)
    await rates.close()


async def test_every_process_shows_what_all_of_them_see(shared: SharedConsole) -> None:
    first, second = console(shared, used=1, waiting=2), console(shared, used=3, waiting=1)
    serve(first, 1)
    serve(second, 2, outcome=Outcome.FAILED)
    for one in (first, second, first):
        one.feed.tick()
        await one.share()
    for one in (first, second):
        one.feed.tick()
        data = await picture(one)
        engine = next(engine for engine in data["engines"] if engine["name"] == CHAT)
        assert (data["processes"], engine["used"], engine["slots"], engine["waiting"]) == (2, 4, 4, 3)
        assert (engine["state"], engine["organisations"]) == ("busy", 1)
        assert data["organisation"]["requests_per_minute"] == 2
        assert data["organisation"]["errors_per_minute"] == 1
        assert data["everybody"]["waiting"] == 3 * len(data["engines"])


async def test_a_process_that_leaves_or_dies_is_forgotten(
    shared: SharedConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, dead = console(shared), console(shared), console(shared)
    await second.share()
    monkeypatch.setattr(shared_console, "LEASE_S", 1)
    await dead.share()
    monkeypatch.undo()

    async def processes(count: int) -> bool:
        await first.share()
        return (await picture(first))["processes"] == count

    assert await processes(3)
    await second.close()
    assert await processes(2)
    await until(lambda: processes(1))


async def test_a_request_is_shown_by_whichever_process_is_asked(shared: SharedConsole) -> None:
    first, second = console(shared), console(shared)
    mine, theirs = serve(first, 1), serve(second, 2, org_id=2)
    await first.share()
    await second.share()
    assert await ids(second) == await ids(first) == [mine]
    record = await second.find(CALLER, mine)
    assert record
    assert record.shown() == (await second.page(CALLER, RecordQuery()))["data"][0]
    assert await first.find(CALLER, theirs) is None
    assert await second.find(CALLER, f"req_{3:032x}") is None
    serve(first, 4)
    assert await ids(second) == [mine], "were it dead now, its records of the last second would be lost"
    assert (SHARE_S, KEPT_S) == (1, 24 * 3600)


async def test_a_request_shared_again_is_listed_once(shared: SharedConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that leaves while its page is read cancels what Redis may have done already."""
    share, first = SharedConsole.remember, console(shared)

    async def cancelled(*arguments: Any) -> None:
        await share(*arguments)
        raise asyncio.CancelledError

    mine = serve(first, 1)
    monkeypatch.setattr(SharedConsole, "remember", cancelled)
    with pytest.raises(asyncio.CancelledError):
        await first.page(CALLER, RecordQuery())
    monkeypatch.setattr(SharedConsole, "remember", share)
    assert await ids(first) == [mine]


async def test_pages_go_on_over_all_that_is_shared_and_the_oldest_are_lost(shared: SharedConsole) -> None:
    first, second = console(shared), console(shared)
    for number in range(700):
        serve((first, second)[number % 2], number)
        if number % 50 == 49:
            await first.share()
            await second.share()
    seen, before = [], None
    while True:
        page = await first.page(CALLER, RecordQuery(limit=200, before=before))
        seen += [record["request_id"] for record in page["data"]]
        if not (before := page["next_cursor"]):
            break
    assert (len(seen), len(set(seen))) == (600, 600)
    assert set(seen) == {f"req_{number:032x}" for number in range(100, 700)}
    assert await second.find(CALLER, seen[-1])
    oldest = await console(shared).find(CALLER, f"req_{0:032x}")
    assert oldest is None


@pytest.mark.parametrize("beyond", [-1, 0, 1])
async def test_a_page_reads_a_few_batches_and_the_next_one_continues_there(
    beyond: int, shared: SharedConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SharedConsole, "BATCH", 10)
    looks = 10 * PAGE_BATCHES
    first = console(shared)
    request_ids = [serve(first, number, model="rare" if number == 0 else CHAT) for number in range(looks + beyond)]
    page = await first.page(CALLER, RecordQuery(model="rare"))
    assert len(page["data"]) == (beyond <= 0)
    assert page["next_cursor"] == request_ids[max(0, beyond)]
    serve(first, 1000)  # what ends meanwhile moves nothing
    page = await first.page(CALLER, RecordQuery(model="rare", before=page["next_cursor"]))
    assert [record["request_id"] for record in page["data"]] == request_ids[: max(0, beyond)]
    assert not page["has_more"]


async def test_an_organisation_reads_one_page_at_a_time(shared: SharedConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, may_end = Counter[int](), asyncio.Event()

    async def read(self: SharedConsole, org_id: int, before: str | None) -> AsyncIterator[tuple[str, list[bytes]]]:
        reading[org_id] += 1
        await may_end.wait()
        yield "", []

    monkeypatch.setattr(SharedConsole, "newest_first", read)
    first = console(shared)
    pages = [asyncio.create_task(first.page(CALLER, RecordQuery())) for _ in range(5)]
    pages.append(asyncio.create_task(first.page(replace(CALLER, org_id=2), RecordQuery())))
    await until(lambda: reading == {1: 1, 2: 1})
    may_end.set()
    await asyncio.gather(*pages)
    assert reading == {1: 5, 2: 1}


async def test_a_process_that_starts_knows_in_which_states_engines_were(shared: SharedConsole) -> None:
    first = console(shared)
    first.feed.tick()
    await first.share()
    later = console(shared)
    await later.share()
    later.feed.tick()
    (before,), (after,) = [
        [engine["bands"] for engine in (await picture(each))["engines"] if engine["name"] == CHAT]
        for each in (first, later)
    ]
    assert before == after != []


async def test_without_redis_each_process_shows_what_it_knows_and_says_so_once(
    shared: SharedConsole, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = console(shared), console(shared)
    for each in (first, second, first):
        await each.share()
    assert (await picture(first))["processes"] == 2
    redis.stop()
    try:
        request_id = serve(first, 1)
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                await first.share()
                assert await ids(first) == [request_id]
        assert (await picture(first))["processes"] == 1
        assert await first.find(CALLER, f"req_{9:032x}") is None
        assert [record.levelname for record in caplog.records if "console" in record.message] == ["WARNING"]
    finally:
        redis.restart()

    async def has_come_back() -> bool:
        await first.share()
        return await second.find(CALLER, request_id) is not None

    await until(has_come_back)


TEXT = '{"heard": "señor 東京"}'.encode()


def of(org_id: int, user_id: int | None = None) -> Caller:
    return Caller(org_id, "acme", "k3Jd92Xa", TARIFFS["pro"], frozenset(), user_id)


ONE, OTHER = of(1), of(2)


@pytest.fixture(params=["local", "redis"])
async def verdicts(request: pytest.FixtureRequest) -> AsyncIterator[Verdicts]:
    if request.param == "local":
        yield Verdicts()
        return
    redis: Redis = request.getfixturevalue("redis")
    async with Client.from_url(redis.url) as client:
        await client.flushall()
        yield Verdicts(client)


async def test_a_verdict_belongs_to_an_organisation_and_a_user(verdicts: Verdicts) -> None:
    for by, seen, unseen in ((of(1, 7), (of(1, 7), of(1)), (of(1, 8), of(2, 7))), (of(1), (of(1),), (of(1, 7),))):
        for text in (b"", TEXT):
            await verdicts.keep(by, f"req_{by.user_id}", text)
            assert [await verdicts.find(to, f"req_{by.user_id}") for to in seen] == [text] * len(seen)
            assert [await verdicts.find(to, f"req_{by.user_id}") for to in unseen] == [None] * len(unseen)


@pytest.mark.parametrize("text", [TEXT, b""])
@pytest.mark.parametrize("beyond", [-1, 0, 1])
async def test_an_organisation_pushes_out_its_own_verdicts_only(
    beyond: int, text: bytes, verdicts: Verdicts, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "VERDICTS_KEPT", 20)
    await verdicts.keep(OTHER, "req_other", TEXT)
    is_local = request.node.callspec.params["verdicts"] == "local"
    room = 19 if is_local else 20  # in one process both share it
    for number in range(room + beyond):
        await verdicts.keep(ONE, f"req_{number}", text)
    assert await verdicts.find(OTHER, "req_other") == TEXT
    assert (await verdicts.find(ONE, "req_0") is None) is (beyond > 0)
    assert [await verdicts.find(ONE, f"req_{number}") for number in range(1, room + beyond)] == [text] * (
        room + beyond - 1
    )


@pytest.mark.virtual
async def test_a_verdict_stays_in_memory_for_ten_minutes() -> None:
    verdicts = Verdicts()
    await verdicts.keep(ONE, "req_one", b"")
    await asyncio.sleep(1)
    await verdicts.keep(ONE, "req_one", TEXT)
    await asyncio.sleep(599.5)
    assert await verdicts.find(ONE, "req_one") == TEXT
    await asyncio.sleep(1)
    assert not any(verdicts._local.values())


async def test_processes_share_verdicts_in_redis_for_ten_minutes_and_none_is_replaced_by_the_word_that_it_will_come(
    redis: Redis,
) -> None:
    async with Client.from_url(redis.url) as one, Client.from_url(redis.url) as other:
        await Verdicts(one).keep(ONE, "req_shared", b"")
        assert await Verdicts(other).find(ONE, "req_shared") == b""
        for text in (TEXT, b""):
            await Verdicts(one).keep(ONE, "req_shared", text)
            assert await Verdicts(other).find(ONE, "req_shared") == TEXT
        assert await Verdicts(other).find(OTHER, "req_shared") is None
        (name,) = await one.keys("*req_shared")
        assert VERDICT_KEPT_S - 60 < await one.ttl(name) <= VERDICT_KEPT_S


async def test_a_verdict_that_redis_does_not_take_is_no_error_and_one_that_it_does_not_give_is(redis: Redis) -> None:
    async with Client.from_url(redis.url, socket_timeout=5) as client:
        verdicts = Verdicts(client)
        redis.stop()
        try:
            await verdicts.keep(ONE, "req_lost", TEXT)
            assert (await refusal(verdicts.find(ONE, "req_lost"))).fault.code == "state_unavailable"
        finally:
            redis.restart()
        assert await verdicts.find(ONE, "req_lost") is None
