"""Load: what the graph does when it is asked for much, for more than it can do, and for a long time."""

import asyncio
import hashlib
import random
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any

import httpx
import numpy as np
import psutil

from benchmarks.attacks.bombs import pcm, wav
from benchmarks.speed.idle_memory import title
from tests.campaign.app import LINE, SLOTS
from tests.campaign.clients import CLOSED, PAUSE_S, TABLE, WHOLE, Crowd, Seen, answer_of, call, is_cold, start
from tests.campaign.graph import Graph
from tests.campaign.record import Outcome, Sizes
from tests.waiting import until

UPLOAD_BYTES = 100 * 2**20
ARRIVALS = AT_ONCE = 50
HELD_S = 2.0
"""For which a call holds a slot of the engine that is overloaded: its peak is SLOTS / HELD_S answers a second."""
TIMES_CAPACITY = 3
GOODPUT = 0.8
"""Of the peak that is kept beyond capacity."""
SAMPLE_S, TREND_S = 2.0, 600.0
"""Less than ten minutes show what a start leaves behind: seven still had 1.8 MiB a minute of a new ingress."""
FLAT_KIB, FLAT_COUNT = 1024.0, 0.5
"""A minute, that memory and the number of descriptors or threads of a process may rise by in the last half."""

HELD_OVERLOAD = "test_queue_is_bounded"
HELD_COLD = "test_fifty_arrivals_at_a_cold_engine_start_it_once"
HELD_STREAMS = "test_every_client_gets_the_same_bytes_whatever_was_joined"
HELD_CANCELS = "test_storm_of_disconnects_leaves_nothing_at_work"
HELD_UPLOADS = "test_eight_uploads_at_once_do_not_grow_the_server_by_what_they_bring"
HELD_MIXED = "test_mixed_clients_leave_memory_descriptors_and_threads_of_a_server_level"


async def outcomes(seed: int, sizes: Sizes, graph: Graph) -> AsyncIterator[Outcome]:
    """One after the other, each with clients of an organisation of its own."""
    for part in (cold, streams, overload, cancels, uploads, mixed):
        crowd = Crowd(graph.url, await asyncio.to_thread(graph.key, f"load-{part.__name__}"))
        yield await part(graph, crowd, random.Random(f"{seed} {part.__name__}"), sizes)
        await crowd.http.aclose()


def outcome(fault: str, promise: str, seen: Iterable[Seen], lost: int | None = None, held_by: str = "") -> Outcome:
    """Everything counts as lost that is not whole, if it is not said how much is."""
    answers = Counter(f"{each.kind}: {each.answer}" for each in seen)
    broken = sum(each.answer not in WHOLE for each in seen)
    times = answers.total()
    return Outcome("load", fault, promise, times, broken if lost is None else lost, None, answers, held_by)


async def cold(graph: Graph, crowd: Crowd, chance: random.Random, sizes: Sizes) -> Outcome:
    """Arrivals at an engine that is at zero: each is answered, and it starts once."""
    await start(crowd)
    before = await _starts(graph, crowd)
    seen = await asyncio.gather(*(call(crowd, "say hi", "cold") for _ in range(ARRIVALS)))
    lost = sum(each.answer not in WHOLE for each in seen) + await _starts(graph, crowd) - before - 1
    fault, promise = f"{ARRIVALS} arrivals at a cold engine", "A cold engine starts once for all who wait."
    return outcome(fault, promise, seen, lost, HELD_COLD)


async def _starts(graph: Graph, crowd: Crowd) -> int:
    """Number of starts of the engine `cold`. It is at zero then."""
    await until(lambda: is_cold(crowd))
    logs = "".join(log.read_text() for log in graph.server.logs.glob("controller_*.log"))
    return sum("deployment='chat-cold'" in line and "started successfully" in line for line in logs.splitlines())


async def streams(graph: Graph, crowd: Crowd, chance: random.Random, sizes: Sizes) -> Outcome:
    """Streams at the same time, again and again."""
    crowd.begin(["stream"] * sizes.streams)
    await asyncio.sleep(sizes.streams_s)
    await crowd.end()
    fault = f"{sizes.streams} streams at a time for {sizes.streams_s:.0f} s"
    return outcome(fault, "Each stream is whole.", crowd.seen, held_by=HELD_STREAMS)


async def overload(graph: Graph, crowd: Crowd, chance: random.Random, sizes: Sizes) -> Outcome:
    """Arrivals at three times the capacity of an engine; what it cannot do is refused at once."""
    duration_s = sizes.overload_s
    await call(crowd, "say hi", "full")
    peak = await _peak(crowd, duration_s / 2)
    strange, refused = 0, Counter[str]()

    async def arrive() -> bool:
        nonlocal strange
        try:
            reply = await crowd.chat(f"hold {HELD_S}", "full")
        except httpx.TransportError:
            strange += 1
            return False
        refused[answer_of(reply)] += 1
        is_refusal = reply.status_code in {429, 503} and "retry-after" in reply.headers
        strange += reply.status_code != 200 and not is_refusal
        return reply.status_code == 200

    kept, sent = await _arrivals(TIMES_CAPACITY * SLOTS / HELD_S, duration_s, arrive)
    began_s = time.monotonic()

    async def is_answered() -> bool:
        return (await call(crowd, "say hi", "full")).answer in WHOLE

    await until(is_answered)
    normal_s = round(time.monotonic() - began_s, 1)
    refused[f"{sent:.1f} arrivals and {kept:.1f} answers a second, {kept / peak:.0%} of the peak"] = 1
    promise = f"429 or 503 with `Retry-After`; at least {GOODPUT:.0%} of the peak are answered."
    lost = strange + (kept < GOODPUT * peak)
    fault = f"{TIMES_CAPACITY} times the capacity for {duration_s:.0f} s ({SLOTS} slots, {LINE} wait)"
    return Outcome("load", fault, promise, refused.total() - 1, lost, normal_s, refused, HELD_OVERLOAD)


async def _peak(crowd: Crowd, duration_s: float) -> float:
    """Whole answers a second, to as many clients as there are slots."""

    async def insist() -> int:
        count, end_s = 0, time.monotonic() + duration_s
        while time.monotonic() < end_s:
            count += (await call(crowd, f"hold {HELD_S}", "full")).answer in WHOLE
        return count

    began_s = time.monotonic()
    whole = sum(await asyncio.gather(*(insist() for _ in range(SLOTS))))
    return whole / (time.monotonic() - began_s)


async def _arrivals(
    rate: float, duration_s: float, arrive: Callable[[], Coroutine[Any, Any, bool]]
) -> tuple[float, float]:
    """Whole answers a second and arrivals a second, where `rate` of them were to arrive."""
    began_s, arrivals = time.monotonic(), list[asyncio.Task[bool]]()
    for number in range(int(rate * duration_s)):
        await asyncio.sleep(max(0.0, began_s + number / rate - time.monotonic()))
        arrivals.append(asyncio.create_task(arrive()))
    sent_s = time.monotonic() - began_s
    whole = sum(await asyncio.gather(*arrivals))
    return whole / (time.monotonic() - began_s), len(arrivals) / sent_s


async def cancels(graph: Graph, crowd: Crowd, chance: random.Random, sizes: Sizes) -> Outcome:
    """Clients that leave at any moment of a stream; then nothing works on, and nothing is reserved."""
    count, seen = sizes.leavers, Counter[str]()
    await asyncio.to_thread(graph.state, "budget", "set", "--org", "load-cancels", "--limit-micro-eur", "1000000000")
    assert (await call(crowd)).answer in WHOLE

    async def leave(after_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(after_s):
                seen[(await crowd.ask("stream")).answer] += 1
                return
        seen["left"] += 1

    waves = [chance.sample(range(1000), AT_ONCE) for _ in range(count // AT_ONCE)]
    for wave in waves:
        await asyncio.gather(*(leave(moment / 1000 + PAUSE_S) for moment in wave))
    began_s = time.monotonic()
    lost = await _not_within(lambda: _is_idle(crowd), "works on for clients that left", seen)
    lost += await _not_within(lambda: _is_released(graph, "load-cancels"), "is reserved for them", seen)
    normal_s = round(time.monotonic() - began_s, 1)
    promise = "Nothing works on for clients that left."
    return Outcome("load", f"{count} clients that leave", promise, count, lost, normal_s, seen, HELD_CANCELS)


async def _not_within(condition: Callable[[], Awaitable[bool]], what: str, seen: Counter[str]) -> int:
    """1 if the condition does not come true in time."""
    try:
        await until(condition)
    except TimeoutError:
        seen[f"LOST: something {what}"] += 1
        return 1
    return 0


async def _is_idle(crowd: Crowd) -> bool:
    return (await crowd.chat("count")).json()["choices"][0]["message"]["content"] in {"0", "ok"}


async def _is_released(graph: Graph, org: str) -> bool:
    """Whether nothing is held of the organisation's budget, apart from what its servers keep in advance."""
    names, values = (await asyncio.to_thread(graph.state, "budget", "list", "--org", org)).splitlines()
    await asyncio.to_thread(graph.state, "check")
    row = dict(zip(names.split(), values.split(), strict=True))
    return row["held_micro_eur"] == "0"


async def uploads(graph: Graph, crowd: Crowd, chance: random.Random, sizes: Sizes) -> Outcome:
    """Recordings of the largest size at the same time: the engine gets each byte of each."""
    content = chance.randbytes(UPLOAD_BYTES - 46)
    seen = await asyncio.gather(*(_upload(crowd, number, content) for number in range(sizes.uploads)))
    promise = "The engine gets each byte of a recording."
    return outcome(f"{sizes.uploads} uploads of 100 MiB at a time", promise, seen, held_by=HELD_UPLOADS)


async def _upload(crowd: Crowd, number: int, content: bytes) -> Seen:
    head = wav(pcm(), data=bytes([number, 0]) + content)[: -len(content)]
    digest = hashlib.sha256(head)
    digest.update(content)
    size = len(head) + len(content)

    async def blocks() -> AsyncIterator[bytes]:
        yield head
        for at in range(0, len(content), 1 << 20):
            yield content[at : at + (1 << 20)]

    ticket = await crowd.http.post("/v1/audio/uploads", json={"mime": "audio/wav", "size": size})
    if ticket.status_code >= 300:
        return Seen("upload", answer_of(ticket))
    headers = {"content-type": "audio/wav", "content-length": str(size)}
    put = await crowd.http.put(ticket.json()["upload_url"], content=blocks(), headers=headers)
    if put.status_code >= 300:
        return Seen("upload", answer_of(put))
    body = {"upload_id": ticket.json()["upload_id"], "language": "en"}
    reply = await crowd.http.post("/v1/audio/transcriptions", json=body)
    if reply.status_code == 200 and reply.json()["text"].strip() != digest.hexdigest():
        return Seen("upload", "other bytes")
    return Seen("upload", answer_of(reply))


async def mixed(graph: Graph, crowd: Crowd, chance: random.Random, sizes: Sizes) -> Outcome:
    """All kinds of clients for a long time, of which some leave early and some read slowly; nothing grows."""
    kinds = ["call", "stream", "live", "recording"]
    over, seen = asyncio.Event(), Counter[str]()

    async def insist(kind: str) -> None:
        while not over.is_set():
            manner = chance.random()
            if manner < 0.1:
                with suppress(TimeoutError):
                    async with asyncio.timeout(chance.uniform(0, 1)):
                        await crowd.ask(kind)
                seen[f"{kind}: left"] += 1
            else:
                answer = await (_slow(crowd) if manner < 0.15 else crowd.ask(kind))
                seen[f"{answer.kind}: {answer.answer}"] += 1

    clients = [asyncio.create_task(insist(kind)) for kind in kinds * 3]
    trends = Trends(graph)
    end_s = time.monotonic() + sizes.mixed_s
    while time.monotonic() < end_s:
        await asyncio.to_thread(trends.sample)
        await asyncio.sleep(SAMPLE_S)
    over.set()
    await asyncio.gather(*clients)
    usual = WHOLE | TABLE | {"left"}
    strange = sum(count for name, count in seen.items() if name.split(": ", 1)[1] not in usual or CLOSED in name)
    times = seen.total()
    rising = dict.fromkeys(trends.rising(), 1) if sizes.mixed_s >= TREND_S else {}
    seen.update({f"LOST: {name}": 1 for name in rising} | {f"a minute: {line}": 1 for line in trends.lines()})
    promise = "Memory, descriptors and threads of every process stay level."
    fault = f"mixed clients for {sizes.mixed_s:.0f} s"
    return Outcome("load", fault, promise, times, strange + len(rising), None, seen, HELD_MIXED)


async def _slow(crowd: Crowd) -> Seen:
    """A client that reads a stream much slower than it is written."""
    messages = [{"role": "user", "content": "stream 200 0.001"}]
    body = {"model": "obedient", "messages": messages, "stream": True}
    async with crowd.http.stream("POST", "/v1/chat/completions", json=body) as reply:
        async for _ in reply.aiter_bytes(256):
            await asyncio.sleep(0.02)
    return Seen("slow reader", str(reply.status_code))


class Trends:
    """Memory, descriptors and threads of each process over time.

    Memory is what a process has for itself: a chat engine without a GPU has its prompt cache in shared pages, which it
    takes when they are first written, up to `kv_cache_memory_bytes`.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._began_s = time.monotonic()
        self._points: defaultdict[tuple[str, int], list[tuple[float, float, int, int]]] = defaultdict(list)

    def sample(self) -> None:
        """One point for each process."""
        minute = (time.monotonic() - self._began_s) / 60
        for process in self._graph.family():
            with suppress(psutil.Error, OSError):
                memory = process.memory_info()
                kib = (memory.rss - memory.shared) / 1024
                point = (minute, kib, process.num_fds(), process.num_threads())
                self._points[title(process), process.pid].append(point)

    def slopes(self) -> dict[str, np.ndarray]:
        """KiB, descriptors and threads a minute by a line fitted to the least of each minute, for all of one name.

        Of processes that were there all the time. What requests hold comes and goes: within minutes it moves the memory
        of an ingress by megabytes, up in one and down in the other. What leaks does so in both.
        """
        most = max(map(len, self._points.values()))
        fitted: defaultdict[str, np.ndarray] = defaultdict(lambda: np.zeros(3))
        for (name, _), points in self._points.items():
            last = np.array(points[len(points) // 2 :])
            minutes = last[:, 0].astype(int)
            lows = np.array([last[minutes == minute].min(axis=0) for minute in np.unique(minutes)])
            if len(points) > 0.9 * most and len(lows) > 2:
                fitted[name] += np.polyfit(lows[:, 0], lows[:, 1:], 1)[0]
        return fitted

    def lines(self) -> list[str]:
        """Slopes in words."""
        return [
            f"{name} {kib:+.0f} KiB, {files:+.1f} descriptors, {threads:+.1f} threads"
            for name, (kib, files, threads) in self.slopes().items()
        ]

    def rising(self) -> list[str]:
        """Measurements that are not level."""
        most = (FLAT_KIB, FLAT_COUNT, FLAT_COUNT)
        slopes = self.slopes().items()
        return [name for name, slope in slopes if (slope > most).any()]
