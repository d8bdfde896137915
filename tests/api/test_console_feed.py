"""The feed of the console: a snapshot whenever one differs, encoded once for all who may see the same; and its end."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from contract.access import TARIFFS, Caller, Scope
from contract.errors import INVALID_API_KEY
from contract.limits import CONSOLE_BANDS_S
from deployments.ingress.console import console as console_module
from deployments.ingress.console.console import Feed
from deployments.ingress.console.picture import (
    BUSY_S,
    EVERYBODY,
    Picture,
    ProcessView,
    RollingMinute,
    StateHistory,
    merged,
)
from tests.api.asgi import exchange, http_scope
from tests.api.conftest import Api, app_over, refused
from tests.waiting import cancelled, until

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
        self.feed = Feed(self._look, ABOUT, now_ms=lambda: round(1000 * asyncio.get_running_loop().time()))

    def _look(self) -> Picture:
        self.looks += 1
        return self.picture

    def set(self, name: str, **changes: Any) -> None:
        engines = self.picture.engines
        self.picture = replace(self.picture, engines=engines | {name: engines[name] | changes})

    def move(self, owner: str, requests: int) -> None:
        self.picture = replace(self.picture, traffic=self.picture.traffic | {owner: (requests, 0, 0)})

    def watch(self, caller: Caller = OPERATOR) -> AsyncGenerator[bytes, None]:
        return self.feed.watch(caller, unchanged)


async def unchanged(caller: Caller) -> Caller:
    return caller


def read(event: bytes) -> dict[str, Any]:
    """Data of a snapshot."""
    name, data = event.decode().strip().split("\n")
    assert name == "event: snapshot"
    content: dict[str, Any] = json.loads(data.removeprefix("data: "))
    return content


def names(data: dict[str, Any]) -> dict[str, Any]:
    """Of the engines of an event, what it says beside the name."""
    engines = [dict(engine) for engine in data["engines"]]
    return {engine.pop("name"): engine for engine in engines}


@pytest.mark.virtual
async def test_a_snapshot_comes_first_and_another_one_whenever_something_has_changed() -> None:
    graph = Graph()
    async with aclosing(graph.watch()) as events:
        data = read(await anext(events))
        assert set(names(data)) == {"chat-a", "chat-b"}
        assert names(data)["chat-a"] == ABOUT["chat-a"] | fields() | {"bands": [[0, "cold"]]}
        assert data["processes"] == 1
        graph.set("chat-b", state="starting", used=1)
        bands = {"bands": [[0, "cold"], [1000, "starting"]]}
        expected = names(data) | {"chat-b": ABOUT["chat-b"] | fields("starting", used=1) | bands}
        assert names(read(await anext(events))) == expected


@pytest.mark.virtual
async def test_at_most_one_snapshot_is_sent_in_a_second() -> None:
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
    assert len(times_s) in {9, 10}
    assert min(after - before for before, after in pairwise(times_s)) >= 1 - 1e-6


@pytest.mark.virtual
async def test_while_nothing_changes_nothing_is_told_or_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made = counted(monkeypatch)
    graph = Graph()
    watchers = [graph.watch() for _ in range(50)]
    for events in watchers:
        await anext(events)
    assert made == ["snapshot"]
    waiting = [asyncio.create_task(anext(events)) for events in watchers]  # type: ignore[arg-type]
    graph.looks = 0
    await asyncio.sleep(59.9)
    assert (made, graph.looks) == (["snapshot"], 59)
    graph.set("chat-a", used=1)
    texts = await asyncio.gather(*waiting)
    assert (len(set(texts)), made) == (1, ["snapshot", "snapshot"])
    for events in watchers:
        await events.aclose()
    graph.looks = 0
    await asyncio.sleep(10)
    assert graph.looks == 0


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The name of each event that is encoded from now on."""
    made: list[str] = []
    encode = console_module.named_event
    monkeypatch.setattr(console_module, "named_event", lambda name, data: (made.append(name), encode(name, data))[1])
    return made


@pytest.mark.virtual
async def test_an_event_is_made_once_for_all_who_may_see_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, made = Graph(), counted(monkeypatch)
    graph.picture = replace(graph.picture, traffic={"org-1": (1, 0, 0), "org-2": (2, 1, 0), EVERYBODY: (3, 1, 0)})
    streams = [graph.watch(caller) for caller in (ACME, ACME, RIVAL, OPERATOR, OPERATOR)]
    snapshots = [read(await anext(events)) for events in streams]
    assert len(made) == 3
    sums = [(data["organisation"], data["everybody"]) for data in snapshots]
    acme, rival, everybody = (
        {"requests_per_minute": requests, "errors_per_minute": errors, "waiting": 0}
        for requests, errors in ((1, 0), (2, 1), (3, 1))
    )
    assert sums == [(acme, None), (acme, None), (rival, None), (acme, everybody), (acme, everybody)]
    for events in streams:
        await events.aclose()


@pytest.mark.virtual
async def test_calls_of_others_are_shown_to_operators_alone() -> None:
    graph = Graph()
    acme, operator = graph.watch(ACME), graph.watch()
    await anext(acme), await anext(operator)
    for field in ("used", "waiting", "organisations", "requests_per_minute", "errors_per_minute"):
        graph.set("chat-a", **{field: 5})
        assert names(read(await anext(operator)))["chat-a"][field] == 5
    graph.move("org-2", 7)
    graph.move(EVERYBODY, 7)
    assert read(await anext(operator))["everybody"]["requests_per_minute"] == 7
    told = asyncio.create_task(anext(acme))  # type: ignore[arg-type]
    await asyncio.sleep(30)
    assert not told.done()
    graph.move("org-1", 1)
    assert read(await told)["organisation"]["requests_per_minute"] == 1
    await acme.aclose(), await operator.aclose()


@pytest.mark.virtual
async def test_who_reads_slowly_gets_the_newest_snapshot_and_holds_up_nobody() -> None:
    graph = Graph()
    slow, quick = graph.watch(), graph.watch()
    await anext(slow), await anext(quick)
    for used in range(1, 30):
        graph.set("chat-a", used=used)
        assert names(read(await anext(quick)))["chat-a"]["used"] == used
    assert names(read(await anext(slow)))["chat-a"]["used"] == 29
    await slow.aclose(), await quick.aclose()


@pytest.mark.virtual
async def test_a_key_that_ended_ends_the_feed_though_nothing_changes() -> None:
    ends_s = 100

    async def current(caller: Caller) -> Caller:
        if asyncio.get_running_loop().time() > ends_s:
            raise INVALID_API_KEY()
        return caller

    graph = Graph()
    with pytest.raises(type(INVALID_API_KEY())):
        async for _ in graph.feed.watch(ACME, current):
            pass
    assert asyncio.get_running_loop().time() <= ends_s + 6


@pytest.mark.virtual
async def test_a_process_that_is_to_end_ends_all_feeds() -> None:
    graph = Graph()
    streams = [graph.watch() for _ in range(3)]
    for events in streams:
        await anext(events)
    ends = [asyncio.create_task(anext(events, None)) for events in streams]  # type: ignore[arg-type]
    await asyncio.sleep(1)
    graph.feed.close()
    assert await asyncio.gather(*ends) == [None, None, None]


@pytest.fixture
async def open_feed(api: Api) -> AsyncIterator[Callable[..., asyncio.Task[None]]]:
    """Opens feeds, as a browser does, whose messages come into a list."""
    tasks: list[asyncio.Task[None]] = []

    def opened(key: str, outbox: list[Any]) -> asyncio.Task[None]:
        async def send(message: Any) -> None:
            outbox.append(message)

        scope = http_scope("GET", "/console/events", [(b"authorization", f"Bearer {key}".encode())])
        tasks.append(asyncio.create_task(exchange(app_over(api.service), scope, b"", send)))
        return tasks[-1]

    yield opened
    await cancelled(*tasks)


def told(outbox: list[Any]) -> list[dict[str, Any]]:
    text = b"".join(message.get("body", b"") for message in outbox[1:])
    return [read(event) for event in text.split(b"\n\n") if event.startswith(b"event: ")]


async def test_the_feed_of_the_app_shows_its_engines_and_requests(
    api: Api, open_feed: Callable[..., asyncio.Task[None]]
) -> None:
    outbox: list[Any] = []
    open_feed(api.everything, outbox)
    await until(lambda: told(outbox))
    headers = dict(outbox[0]["headers"])
    assert (outbox[0]["status"], headers[b"content-type"]) == (200, b"text/event-stream; charset=utf-8")
    engines = names(told(outbox)[0])
    assert set(engines) == {model.deployment for model in api.service.catalog.deployed()}
    assert engines["chat-obedient"]["state"] == "ready"
    assert engines["chat-obedient"]["expected_load_s"] == 2.0
    await api.chat()
    await until(lambda: len(told(outbox)) > 1)
    data = told(outbox)[-1]
    assert names(data) == engines | {"chat-obedient": engines["chat-obedient"] | {"requests_per_minute": 1}}
    assert data["organisation"] == data["everybody"] == {"requests_per_minute": 1, "errors_per_minute": 0, "waiting": 0}


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


@pytest.mark.virtual
async def test_single_calls_do_not_show_in_the_state_of_an_engine_with_one_slot() -> None:
    graph, states = Graph(), list[str]()
    graph.set("chat-a", state="ready", slots=1)

    async def watched() -> None:
        async for event in graph.watch(RIVAL):
            state = names(read(event))["chat-a"]["state"]
            states.extend([] if states[-1:] == [state] else [state])

    watch = asyncio.create_task(watched())
    for number in range(200):
        graph.set("chat-a", state="ready" if number % 7 else "busy")
        await asyncio.sleep(0.2)
    graph.set("chat-a", state="failed")
    await asyncio.sleep(2)
    graph.feed.close()
    await watch
    assert states[-2:] == ["busy", "failed"]
    assert len(states) <= 4, "busy for all these calls"


def test_what_ended_counts_for_a_minute() -> None:
    minute = RollingMinute()
    minute.add(0.0, Counter(a=2), Counter(a=1))
    minute.add(30.0, Counter(a=1, b=1), Counter())
    assert (minute.requests, minute.errors) == (Counter(a=3, b=1), Counter(a=1))
    minute.add(60.0, Counter(), Counter())
    assert (minute.requests, minute.errors) == (Counter(a=1, b=1), Counter())
    minute.add(90.0, Counter(), Counter())
    assert (dict(minute.requests), dict(minute.errors)) == ({}, {})


def test_bands_are_of_the_last_hour_and_busy_ones_do_not_flicker() -> None:
    bands = StateHistory()
    for second in range(2 * CONSOLE_BANDS_S):
        bands.note(1000 * second, "busy" if second % 2 else "ready")
    assert [state for _, state in bands.runs] == ["busy"]
    end_ms = 2000 * CONSOLE_BANDS_S
    assert bands.note(end_ms + 1000 * round(BUSY_S), "ready")
    for second in range(1, 2 * CONSOLE_BANDS_S):
        bands.note(end_ms + 60_000 + 1000 * second, "starting" if second % 2 else "cold")
    assert len(bands.runs) <= CONSOLE_BANDS_S + 1


def view(
    state: str, used: int, slots: int, loaded: tuple[int, float | None] = (0, None), **traffic: Any
) -> ProcessView:
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
