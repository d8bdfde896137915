"""Deaths: each process of the graph is killed and stopped while clients work, and engines fail in their own ways.

After each try nothing may be missing of what was acknowledged before (`tests/cluster/survival.py`): tickets with their
bytes, voices, drafts, kept replies, bills. Every whole answer is billed once at its exact price, failures of the server
are not, the books add up, and no error is answered that is not of the table.
"""

import asyncio
import json
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import httpx
import psutil

from tests.campaign.clients import CLOSED, TABLE, WHOLE, Crowd, Seen, call
from tests.campaign.graph import Graph
from tests.campaign.record import Outcome, Sizes
from tests.cluster.survival import Estate, find, leave
from tests.waiting import until

NORMAL_S = 300
"""It counts as lost if nobody is served as before so long after a fault."""
REPEATED = 5
"""Kept replies that are asked for again."""

ENGINE = "ray::ServeReplica:parlance:chat-obedient"
INGRESS = "ray::ServeReplica:parlance:ingress"
BOTH = ("call", "call", "stream", "stream")


class Promise(NamedTuple):
    """A sentence of the docs, and the test that holds it between campaigns."""

    text: str
    held_by: str


STREAM_ENDS = Promise(
    "A stream whose engine dies ends with an error event, unbilled.",
    "test_death_in_a_stream_is_an_error_event_without_done",
)
IS_502 = Promise("An engine that fails is 502 `upstream_error`, unbilled.", "test_dead_replica_is_502_and_replaced")
GOES_ON = Promise(
    "Requests go on without it, and it comes back.", "test_what_serves_the_graph_dies_alone_and_comes_back"
)
ENDS_UNDER_WAY = Promise(
    "Only answers under way end, with a closed connection or an error.",
    "test_what_haproxy_answers_itself_is_of_the_table",
)
HEARD = Promise("No live sound is lost.", "test_a_child_that_dies_is_replaced_and_nothing_is_lost")
STARTS = Promise(
    "Engines start without it.", "test_a_server_that_is_killed_in_the_middle_of_a_start_is_no_clients_business"
)
REFUSED = Promise("Only that recording is refused.", "test_a_child_that_hangs_is_ended")
SURVIVES = Promise(
    "Nothing acknowledged is lost.", "test_the_head_dies_and_comes_back_then_the_other_node_dies_and_nothing_is_lost"
)
REPLACED = Promise(
    "An engine that hangs or breaks is replaced, its calls unbilled.",
    "test_an_engine_that_finishes_nothing_is_replaced_and_the_next_request_answered",
)


@dataclass(frozen=True)
class Fault:
    """One kind of death.

    Attributes:
        title: part of the command line of its victims; empty for every process of the graph.
        kinds: of the clients that ask meanwhile.
        victims: how many of the processes with this title; None means all of them.
        may_close: whether connections of clients may break.
        is_replaced: whether there are as many of them again afterwards, without a request.
        takes_all: whether the graph has to be started again.
    """

    name: str
    title: str
    kinds: tuple[str, ...]
    promise: Promise
    victims: int | None = 1
    may_close: bool = False
    is_replaced: bool = False
    takes_all: bool = False


FAULTS = (
    Fault("listener's child", "siblings import listening", ("live", "live"), HEARD),
    Fault("fork server", "ForkServer", ("start", "call"), STARTS),
    Fault("decoder's child", "siblings import decoding", ("recording", "recording", "call"), REFUSED),
    Fault("engine amid streams", ENGINE, ("stream",) * 6, STREAM_ENDS),
    Fault("engine amid a batch", ENGINE, ("call",) * 20, IS_502),
    Fault("every ingress", INGRESS, BOTH, ENDS_UNDER_WAY, None, may_close=True, is_replaced=True),
    Fault("one of two ingress replicas", INGRESS, BOTH, ENDS_UNDER_WAY, may_close=True, is_replaced=True),
    Fault("Serve's controller", "ray::ServeController", (*BOTH, "start"), GOES_ON, is_replaced=True),
    Fault("HAProxy", "bin/haproxy", BOTH, ENDS_UNDER_WAY, None, may_close=True, is_replaced=True),
    Fault("HAProxy's manager", "ray::HAProxyManager", BOTH, ENDS_UNDER_WAY, may_close=True, is_replaced=True),
    Fault("Ray's proxy actor", "ray::ProxyActor", BOTH, GOES_ON, is_replaced=True),
    Fault("raylet, then a start", "raylet/raylet", BOTH, SURVIVES, takes_all=True),
    Fault("node, then a start", "", BOTH, SURVIVES, None, takes_all=True),
)

COMMANDS = {
    "engine hangs": "hold 3600",
    "engine blocks its event loop": "freeze 3600",
    "engine raises": "fail",
    "engine segfaults": "segfault",
    "engine runs out of memory": "exhaust",
}


@dataclass
class Tries:
    """Results of the tries of one fault."""

    seen: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    normal_s: list[float] = field(default_factory=list)

    def lose(self, what: str) -> None:
        """Counts something that was lost, by its name."""
        self.lost += 1
        self.seen[f"LOST: {what}"] += 1

    def outcome(self, fault: str, promise: Promise, times: int) -> Outcome:
        worst_s = round(max(self.normal_s), 1) if self.normal_s else None
        return Outcome("deaths", fault, promise.text, times, self.lost, worst_s, self.seen, promise.held_by)


async def outcomes(seed: int, sizes: Sizes, graph: Graph) -> AsyncIterator[Outcome]:
    """What engines do by themselves, then each fault, killed and stopped: from the smallest to the largest."""
    for name, command in COMMANDS.items():
        tries = Tries()
        for number in range(sizes.deaths):
            await _command(graph, f"{name}-{number}".replace(" ", "-"), command, tries)
        yield tries.outcome(name, REPLACED, sizes.deaths)
    for fault in FAULTS:
        ways = {"killed": None} if fault.takes_all else {"killed": None, "stopped": sizes.stopped_s}
        drawn = random.Random(f"{seed} {fault.name}").sample(list(ways), min(sizes.ways, len(ways)))
        for how in sorted(drawn):
            name, hold_s = f"{fault.name}: {how}", ways[how]
            chance, tries = random.Random(f"{seed} {name}"), Tries()
            for number in range(sizes.deaths):
                org = f"{fault.name}-{how}-{number}".lower().replace(" ", "-").replace("'", "").replace(",", "")
                try:
                    await _try(graph, org, fault, hold_s, chance, tries)
                except (TimeoutError, AssertionError, httpx.HTTPError, RuntimeError) as error:
                    tries.lose(f"the try: {type(error).__name__} {error}"[:200])
            yield tries.outcome(name, fault.promise, sizes.deaths)


async def _try(graph: Graph, org: str, fault: Fault, hold_s: float | None, chance: random.Random, tries: Tries) -> None:
    key = await asyncio.to_thread(graph.key, org)
    with graph.server.http(key) as client:
        # A process that stands still loses nothing that is stored: what its clients saw says enough.
        estate = None if hold_s else await asyncio.to_thread(leave, client, graph.state, org, "obedient")
        crowd = Crowd(graph.url, key)
        crowd.begin(fault.kinds)
        usual = await _usual(graph, fault)
        await asyncio.sleep(chance.uniform(0.2, 1.5))
        began_s = time.monotonic()
        await _strike(graph, fault, hold_s, chance)
        served_s = await crowd.until_served(fault.kinds, NORMAL_S)
        await crowd.end()
        if served_s is None:
            tries.lose("service")
            return
        tries.normal_s.append(served_s - began_s)
        if fault.is_replaced:
            await until(lambda: len(graph.processes(fault.title)) >= usual, NORMAL_S)
        await _judge(graph, org, crowd, fault.may_close or fault.takes_all, tries)
        if estate:
            await _look(graph, client, estate, tries)


async def _look(graph: Graph, client: httpx.Client, estate: Estate, tries: Tries) -> None:
    """What was acknowledged before is looked for."""
    try:
        still = await asyncio.to_thread(find, client, graph.state, estate)
    except (AssertionError, RuntimeError, httpx.HTTPError) as error:
        still = {f"the estate: {error}": False}
    for what in [what for what, is_there in still.items() if not is_there]:
        tries.lose(what)


async def _usual(graph: Graph, fault: Fault) -> int:
    """Number of victims, once there is one."""
    await until(lambda: graph.processes(fault.title), NORMAL_S)
    return len(graph.processes(fault.title))


async def _strike(graph: Graph, fault: Fault, hold_s: float | None, chance: random.Random) -> None:
    """Kills or stops the victims. The children of a moment are caught as soon as there is one."""
    victims: list[psutil.Process] = []
    while not victims:
        victims = graph.processes(fault.title)
        await asyncio.sleep(0)
    if fault.victims:
        victims = chance.sample(victims, min(fault.victims, len(victims)))
    for process in victims:
        with suppress(psutil.Error):
            process.send_signal(signal.SIGSTOP if hold_s else signal.SIGKILL)
    if hold_s:
        await asyncio.sleep(hold_s)
        for process in victims:
            with suppress(psutil.Error):
                process.resume()
    if fault.takes_all:
        await asyncio.to_thread(graph.kill)
        await asyncio.to_thread(graph.start)


async def _command(graph: Graph, org: str, command: str, tries: Tries) -> None:
    """An engine that does this when it is asked to, beside calls of another one."""
    key = await asyncio.to_thread(graph.key, org)
    crowd = Crowd(graph.url, key)
    assert (await call(crowd, "say hi", "hanging")).answer in WHOLE
    crowd.begin(["call", "stream"])
    began_s = time.monotonic()
    crowd.seen.append(replace(await call(crowd, command, "hanging"), kind="command"))
    while (again := await call(crowd, "say back", "hanging")).answer not in WHOLE:
        crowd.seen.append(again)
        if time.monotonic() > began_s + NORMAL_S:
            tries.lose("service")
            break
        await asyncio.sleep(1)
    tries.normal_s.append(time.monotonic() - began_s)
    await crowd.end()
    await _judge(graph, org, crowd, may_close=False, tries=tries)


async def _judge(graph: Graph, org: str, crowd: Crowd, may_close: bool, tries: Tries) -> None:
    """Answers, bills and kept replies of the clients."""
    kept = [seen for seen in crowd.seen if seen.kind == "call" and seen.idempotency_key][-REPEATED:]
    headers = [{"idempotency-key": seen.idempotency_key} for seen in kept]
    again = await asyncio.gather(*(crowd.chat("hold 0.5", headers=each) for each in headers))
    bills: dict[str, list[int]] = {}
    for line in json.loads(await asyncio.to_thread(graph.state, "usage", "--org", org, "--format", "json")):
        bills.setdefault(line["request_id"], []).append(line["cost_micro_eur"])
    for reply in again:
        if reply.status_code != 200 or reply.headers["x-request-id"] in bills:
            tries.lose(f"a kept reply: {reply.status_code}")
    for seen in crowd.seen:
        tries.seen[f"{seen.kind}: {seen.answer}"] += 1
        if fault := _fault(seen, bills.get(seen.request_id, []), may_close):
            tries.lose(fault)
    try:
        await asyncio.to_thread(graph.state, "check")
    except RuntimeError as error:
        tries.lose(f"the books: {error}")


def _fault(seen: Seen, bill: list[int], may_close: bool) -> str:
    """Fault of an answer; empty where it is as promised."""
    if seen.answer.startswith(CLOSED):
        return "" if may_close else f"an answer of {seen.kind}: {seen.answer}"
    if seen.answer not in WHOLE | TABLE:
        return f"an answer of the table: {seen.kind} {seen.answer}"
    if (seen.price is not None and sum(bill) != seen.price) or len(bill) > 1:
        return f"a bill: {bill} for {seen.kind} {seen.answer}"
    return ""
