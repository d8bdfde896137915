"""The feed of the console: a snapshot, then what changes; made once for all who may see the same; and its end."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from contract.access import OPERATORS, TARIFFS, Caller, Scope
from contract.errors import INVALID_API_KEY
from contract.limits import CONSOLE_BANDS_S
from deployments.ingress.console import feed as feed_module
from deployments.ingress.console.feed import RING, Feed
from deployments.ingress.console.picture import BUSY_S, EVERYBODY, Bands, Minute, Picture, ProcessView, merged
from tests.api.asgi import exchange, http_scope
from tests.api.conftest import Api, app_over, refused
from tests.autoscaling.virtual import run
from tests.waiting import until

ACME = Caller(1, "acme", "key", TARIFFS["pro"], frozenset({Scope.CHAT}))
OPERATOR = replace(ACME, key_id="operator", scopes=frozenset(Scope))
RIVAL = replace(ACME, org_id=2, org="rival", key_id="rival")
ABOUT = {name: {"capability": "chat", "models": [name]} for name in ("chat-a", "chat-b")}


def fields(state: str = "cold", **changes: Any) -> dict[str, Any]:
    return {"state": state, "used": 0, "slots": 0} | changes


class Graph:
    """What the feed looks at, and its clock, which is that of the loop."""

    def __init__(self) -> None:
        self.picture = Picture({"chat-a": fields(), "chat-b": fields()})
        self.looks = 0
        self.feed = Feed(self._look, ABOUT, lambda: None, now_ms=self._now_ms)

    def _now_ms(self) -> int:
        return round(1000 * asyncio.get_running_loop().time())

    def _look(self) -> Picture:
        self.looks += 1
        return self.picture

    def set(self, name: str, **changes: Any) -> None:
        engines = self.picture.engines
        self.picture = replace(self.picture, engines=engines | {name: engines[name] | changes})

    def move(self, owner: str, requests: int) -> None:
        self.picture = replace(self.picture, traffic=self.picture.traffic | {owner: (requests, 0, 0)})

    def watch(self, caller: Caller = ACME, last_id: str | None = None) -> AsyncGenerator[bytes, None]:
        return self.feed.watch(caller, last_id, unchanged)


async def unchanged(caller: Caller) -> Caller:
    return caller


def read(event: bytes) -> tuple[str, str, dict[str, Any]]:
    """Id, name and data of an event."""
    lines = dict(line.split(": ", 1) for line in event.decode().strip().split("\n"))
    return lines["id"], lines["event"], json.loads(lines["data"])


def names(data: dict[str, Any]) -> dict[str, Any]:
    """Of the engines of an event, what it says beside the name."""
    engines = [dict(engine) for engine in data["engines"]]
    return {engine.pop("name"): engine for engine in engines}


def test_a_snapshot_comes_first_and_then_what_changed_and_no_more() -> None:
    async def watching() -> None:
        graph = Graph()
        async with aclosing(graph.watch()) as events:
            _, name, data = read(await anext(events))
            assert (name, set(names(data))) == ("snapshot", {"chat-a", "chat-b"})
            assert names(data)["chat-a"] == ABOUT["chat-a"] | fields() | {"bands": [[0, "cold"]]}
            assert (data["everybody"], data["processes"]) == (None, 1)
            graph.set("chat-b", state="starting", used=1)
            _, name, data = read(await anext(events))
            assert (name, names(data)) == ("change", {"chat-b": {"state": "starting", "used": 1}})
            _, name, data = read(await anext(events))
            assert (name, names(data)) == ("change", {"chat-b": {"bands": [[1000, "starting"]]}})

    run(watching())


def test_at_most_five_changes_are_told_in_a_second() -> None:
    async def watching() -> None:
        graph, clock = Graph(), asyncio.get_running_loop().time
        times_s: list[float] = []

        async def change() -> None:
            for number in range(10_000):
                graph.set("chat-a", used=number)
                graph.move("org-1", number)
                await asyncio.sleep(0.001)

        changing = asyncio.create_task(change())
        async with aclosing(graph.watch()) as events:
            await anext(events)
            while clock() < 9:
                await anext(events)
                times_s.append(clock())
                graph.feed.tick()  # the report of the process does so as well
        changing.cancel()
        assert 40 < len(times_s) <= 46
        assert min(after - before for before, after in pairwise(times_s)) >= 0.2 - 1e-6

    run(watching())


def test_while_nothing_changes_nothing_is_told_or_made(monkeypatch: pytest.MonkeyPatch) -> None:
    async def watching() -> None:
        made = counted(monkeypatch)
        graph = Graph()
        watchers = [graph.watch() for _ in range(50)]
        for events in watchers:
            await anext(events)
        assert made == ["snapshot"]
        waiting = [asyncio.create_task(anext(events)) for events in watchers]  # type: ignore[arg-type]
        graph.looks = 0
        await asyncio.sleep(59.9)
        assert (made, graph.looks) == (["snapshot"], 299)
        graph.set("chat-a", used=1)
        texts = await asyncio.gather(*waiting)
        assert (len(set(texts)), made) == (1, ["snapshot", "change"])
        for events in watchers:
            await events.aclose()
        graph.looks = 0
        await asyncio.sleep(10)
        assert graph.looks == 0

    run(watching())


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The name of each event that is encoded from now on."""
    made: list[str] = []
    encode = feed_module.named_event
    monkeypatch.setattr(feed_module, "named_event", lambda name, data: (made.append(name), encode(name, data))[1])
    return made


def test_an_event_is_made_once_for_all_who_may_see_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    async def watching() -> None:
        graph, made = Graph(), counted(monkeypatch)
        graph.picture = replace(graph.picture, traffic={"org-1": (1, 0, 0), "org-2": (2, 1, 0), EVERYBODY: (3, 1, 0)})
        streams = [graph.watch(caller) for caller in (ACME, ACME, RIVAL, OPERATOR, OPERATOR)]
        snapshots = [read(await anext(events))[2] for events in streams]
        assert len(made) == 3
        sums = [(data["organisation"], data["everybody"]) for data in snapshots]
        acme, rival, everybody = (
            {"requests_per_minute": requests, "errors_per_minute": errors, "waiting": 0}
            for requests, errors in ((1, 0), (2, 1), (3, 1))
        )
        assert sums == [(acme, None), (acme, None), (rival, None), (acme, everybody), (acme, everybody)]
        for events in streams:
            await events.aclose()

    run(watching())


def test_traffic_of_others_is_told_to_nobody_but_operators() -> None:
    async def watching() -> None:
        graph = Graph()
        acme, operator = graph.watch(), graph.watch(OPERATOR)
        await anext(acme), await anext(operator)
        graph.move("org-2", 7)
        graph.move(EVERYBODY, 7)
        _, _, data = read(await anext(operator))
        assert (data["engines"], data["everybody"]["requests_per_minute"]) == ([], 7)
        told = asyncio.create_task(anext(acme))  # type: ignore[arg-type]
        await asyncio.sleep(30)
        assert not told.done()
        graph.move("org-1", 1)
        assert read(await told)[2]["organisation"]["requests_per_minute"] == 1
        await acme.aclose(), await operator.aclose()

    run(watching())


def test_who_comes_back_gets_what_it_missed_and_who_was_away_too_long_all() -> None:
    async def watching() -> None:
        graph = Graph()
        async with aclosing(graph.watch()) as events:
            last_id, _, _ = read(await anext(events))
        for used in range(1, 4):
            graph.set("chat-a", used=used, state="ready")
            graph.feed.tick()
        async with aclosing(graph.watch(last_id=last_id)) as events:
            _, name, data = read(await anext(events))
            assert (name, names(data)) == ("change", {"chat-a": {"used": 3, "state": "ready", "bands": [[0, "ready"]]}})
        for used in range(RING + 1):
            graph.set("chat-b", used=used + 100)
            graph.feed.tick()
        for stale in (last_id, "x", f"{last_id}00000", "0-0", f"{last_id.partition('-')[0]}-٣", f"{last_id}-1", ""):
            async with aclosing(graph.watch(last_id=stale)) as events:
                assert read(await anext(events))[1] == "snapshot", stale

    run(watching())


def test_who_reads_slowly_gets_all_changes_in_one_event_and_holds_up_nobody() -> None:
    async def watching() -> None:
        graph = Graph()
        slow, quick = graph.watch(), graph.watch()
        await anext(slow), await anext(quick)
        for used in range(1, 30):
            graph.set("chat-a", used=used)
            assert names(read(await anext(quick))[2])["chat-a"] == {"used": used}
        _, name, data = read(await anext(slow))
        assert (name, names(data)["chat-a"]["used"]) == ("change", 29)
        await slow.aclose(), await quick.aclose()

    run(watching())


def test_a_key_that_ended_ends_the_feed_though_nothing_changes() -> None:
    async def watching() -> None:
        ends_s = 100

        async def current(caller: Caller) -> Caller:
            if asyncio.get_running_loop().time() > ends_s:
                raise INVALID_API_KEY()
            return caller

        graph = Graph()
        with pytest.raises(type(INVALID_API_KEY())):
            async for _ in graph.feed.watch(ACME, None, current):
                pass
        assert asyncio.get_running_loop().time() <= ends_s + 6

    run(watching())


def test_a_process_that_is_to_end_ends_all_feeds() -> None:
    async def watching() -> None:
        graph = Graph()
        streams = [graph.watch() for _ in range(3)]
        for events in streams:
            await anext(events)
        ends = [asyncio.create_task(anext(events, None)) for events in streams]  # type: ignore[arg-type]
        await asyncio.sleep(1)
        graph.feed.close()
        assert await asyncio.gather(*ends) == [None, None, None]

    run(watching())


# --- the route -------------------------------------------------------------------------------------------------------


@pytest.fixture
async def open_feed(api: Api) -> AsyncIterator[Callable[..., asyncio.Task[None]]]:
    """Opens feeds, as a browser does, whose messages come into a list."""
    tasks: list[asyncio.Task[None]] = []

    def opened(key: str, outbox: list[Any], *more: tuple[bytes, bytes]) -> asyncio.Task[None]:
        async def send(message: Any) -> None:
            outbox.append(message)

        scope = http_scope("GET", "/console/events", [(b"authorization", f"Bearer {key}".encode()), *more])
        tasks.append(asyncio.create_task(exchange(app_over(api.service), scope, b"", send)))
        return tasks[-1]

    yield opened
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def told(outbox: list[Any]) -> list[tuple[str, str, dict[str, Any]]]:
    text = b"".join(message.get("body", b"") for message in outbox[1:])
    return [read(event) for event in text.split(b"\n\n") if event.startswith(b"id: ")]


async def test_the_feed_of_the_app_shows_its_engines_and_requests(
    api: Api, open_feed: Callable[..., asyncio.Task[None]]
) -> None:
    outbox: list[Any] = []
    open_feed(api.everything, outbox)
    await until(lambda: told(outbox))
    headers = dict(outbox[0]["headers"])
    assert (outbox[0]["status"], headers[b"content-type"]) == (200, b"text/event-stream; charset=utf-8")
    ((last_id, name, data),) = told(outbox)
    engines = names(data)
    assert (name, set(engines)) == ("snapshot", {model.deployment for model in api.service.catalog.deployed()})
    assert engines["chat-obedient"]["state"] == "ready"
    assert engines["chat-obedient"]["expected_load_s"] == 3.0
    await api.chat()
    await until(lambda: len(told(outbox)) > 1)
    _, name, data = told(outbox)[-1]
    assert (name, names(data)) == ("change", {"chat-obedient": {"requests_per_minute": 1}})
    assert data["organisation"] == data["everybody"] == {"requests_per_minute": 1, "errors_per_minute": 0, "waiting": 0}
    again: list[Any] = []
    open_feed(api.everything, again, (b"last-event-id", last_id.encode()))
    await until(lambda: told(again))
    assert told(again)[0][1:2] == ("change",)


async def test_a_feed_is_one_of_the_streams_of_its_key(api: Api, open_feed: Callable[..., asyncio.Task[None]]) -> None:
    await api.change(plan="free")
    key = await api.key(Scope.CHAT)
    outboxes: list[list[Any]] = [[] for _ in range(TARIFFS["free"].concurrent_streams)]
    feeds = [open_feed(key, outbox) for outbox in outboxes]
    await until(lambda: all(map(told, outboxes)))
    refused(await api.send("GET", "/console/events", key), 429, "rate_limit_exceeded")
    feeds[0].cancel()
    await asyncio.wait({feeds[0]})
    open_feed(key, outboxes[0])
    assert api.state.rates.open_streams == 3


async def test_a_key_without_the_scope_of_operators_sees_no_sum_of_all(
    api: Api, open_feed: Callable[..., asyncio.Task[None]]
) -> None:
    outbox: list[Any] = []
    open_feed(await api.key(*(frozenset(Scope) - OPERATORS)), outbox)
    await until(lambda: told(outbox))
    assert told(outbox)[0][2]["everybody"] is None


# --- what is counted -------------------------------------------------------------------------------------------------


def test_what_ended_counts_for_a_minute() -> None:
    minute = Minute()
    minute.add(0.0, Counter(a=2), Counter(a=1))
    minute.add(30.0, Counter(a=1, b=1), Counter())
    assert (minute.requests, minute.errors) == (Counter(a=3, b=1), Counter(a=1))
    minute.add(60.0, Counter(), Counter())
    assert (minute.requests, minute.errors) == (Counter(a=1, b=1), Counter())
    minute.add(90.0, Counter(), Counter())
    assert (dict(minute.requests), dict(minute.errors)) == ({}, {})


def test_bands_are_of_the_last_hour_and_busy_ones_do_not_flicker() -> None:
    bands = Bands()
    for second in range(2 * CONSOLE_BANDS_S):
        bands.note(1000 * second, "busy" if second % 2 else "ready")
    assert [state for _, state in bands.runs] == ["busy"]
    end_ms = 2000 * CONSOLE_BANDS_S
    assert bands.note(end_ms + 1000 * round(BUSY_S), "ready")
    for second in range(1, 2 * CONSOLE_BANDS_S):
        bands.note(end_ms + 60_000 + 1000 * second, "starting" if second % 2 else "cold")
    assert len(bands.runs) <= CONSOLE_BANDS_S + 1


Loaded = tuple[int, float | None]


def view(state: str, used: int, slots: int, loaded: Loaded = (0, None), **traffic: Any) -> ProcessView:
    engine = fields(state, used=used, slots=slots, waiting=used, organisations=1, expected_load_s=2.0)
    engine |= {"loaded_ms": loaded[0], "last_load_s": loaded[1], "requests_per_minute": 3, "errors_per_minute": 1}
    return ProcessView({"chat-a": engine}, traffic)


@pytest.mark.parametrize(
    ("views", "state"),
    [
        ([view("busy", 2, 2)], "busy"),
        ([view("ready", 1, 2), view("ready", 1, 2)], "busy"),
        ([view("ready", 1, 4), view("ready", 2, 4)], "ready"),
        ([view("cold", 0, 0), view("starting", 0, 0)], "starting"),
        ([view("cold", 0, 0), view("failed", 0, 0)], "failed"),
        ([view("cold", 0, 0), view("cold", 0, 0)], "cold"),
        ([view("ready", 0, 2), view("cold", 0, 0)], "ready"),
    ],
)
def test_an_engine_is_what_all_processes_together_see(views: list[ProcessView], state: str) -> None:
    assert merged(views).engines["chat-a"]["state"] == state


def test_what_several_processes_see_is_added_up() -> None:
    mine, other = view("ready", 1, 4, (1, 9.0), a=[1, 0, 2]), view("ready", 2, 4, (2, 8.0), a=[1, 1, 0], b=[5, 0, 0])
    picture = merged([mine, other])
    assert picture.engines["chat-a"] == {
        "state": "ready", "used": 3, "slots": 4, "waiting": 3, "organisations": 1, "expected_load_s": 2.0,
        "last_load_s": 8.0, "requests_per_minute": 6, "errors_per_minute": 2,
    }  # fmt: skip
    assert (picture.traffic, picture.processes) == ({"a": (2, 1, 2), "b": (5, 0, 0)}, 2)
