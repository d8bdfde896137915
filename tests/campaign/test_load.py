"""Load without a graph: which measurements of a process count as a trend, and a server that mixed clients use."""

import asyncio
import base64
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from benchmarks.attacks.sockets import session
from tests.campaign.clients import Crowd, answer_of, call, stream
from tests.campaign.load import SAMPLE_S, Trends
from tests.campaign.record import Sizes
from tests.cluster.conftest import ROOT

MINUTES = Sizes(False).mixed_s / 60
RECORDING = b"good morning" + bytes(512 * 1024)
SILENCE = base64.b64encode(bytes(9_600)).decode()
CLIENTS, ROUNDS = 10, 5
"""Of each kind at once, and how often they come."""


def rise(kib: float) -> Callable[[float], tuple[float, float, float]]:
    return lambda minute: (90_000 + kib * minute, 40, 20)


SERIES: dict[str, tuple[Sequence[Callable[[float], tuple[float, float, float]]], bool]] = {
    "level": ([lambda minute: (90_000 + 3_000 * math.sin(12 * minute), 40 + round(8 * minute) % 3, 20)], False),
    "comes and goes": ([lambda minute: (90_000 + 6_000 * (minute % 1 > 0.3 and minute > 9), 40, 20)], False),
    "garbage is collected now and then": ([lambda minute: (90_000 + 7_000 * (minute % 6) / 6, 40, 20)], False),
    "has grown at its start": ([lambda minute: (90_000 + 50_000 * (minute > 4), 40 + 9 * (minute > 4), 20)], False),
    "moves from one to another": ([rise(2_000), rise(-1_500)], False),
    "memory": ([rise(2_048)], True),
    "memory of both": ([rise(600), rise(600)], True),
    "descriptors": ([lambda minute: (90_000, 40 + math.floor(minute), 20)], True),
    "threads": ([lambda minute: (90_000, 40, 20 + math.floor(minute))], True),
}
"""KiB, descriptors and threads of processes of one name by the minute, and whether they are found to rise."""


@pytest.mark.parametrize("name", SERIES)
def test_a_rise_in_the_last_half_is_found_and_one_before_is_not(name: str) -> None:
    processes, is_found = SERIES[name]
    trends = Trends(cast(Any, None))
    for pid, series in enumerate(processes):
        for number in range(int(MINUTES * 60 / SAMPLE_S)):
            minute = number * SAMPLE_S / 60
            trends._points["engine", pid].append(cast(Any, (minute, *series(minute))))
    assert trends.rising() == ["engine"] * is_found


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[psutil.Process, Crowd]]:
    command = [sys.executable, "-m", "tests.api.serving", str(tmp_path)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, **pipes) as process:
        assert process.stdout is not None
        port, key = process.stdout.readline().split()
        yield psutil.Process(process.pid), Crowd(f"http://127.0.0.1:{port}", key)
        process.communicate(timeout=30)


async def use(crowd: Crowd) -> set[str]:
    """Answers to one client of each kind, of which one leaves a stream after its first line."""

    async def live() -> str:
        async with session(crowd.target) as socket:
            for event in ({"type": "input_audio_buffer.append", "audio": SILENCE}, {"type": "parlance.session.end"}):
                await socket.send(json.dumps(event))
            return str([json.loads(text)["type"] async for text in socket][-1])

    async def leave() -> str:
        body = {"model": "obedient", "stream": True, "messages": [{"role": "user", "content": "stream 10000 0.01"}]}
        async with crowd.http.stream("POST", "/v1/chat/completions", json=body) as reply:
            return (await anext(reply.aiter_lines())).partition(":")[0]

    async def transcribe() -> str:
        files = {"file": ("a.mp3", RECORDING)}
        return answer_of(await crowd.http.post("/v1/audio/transcriptions", files=files, data={"language": "en"}))

    seen = await asyncio.gather(call(crowd, "say hi"), stream(crowd, 5, 0.001))
    return {*(each.answer for each in seen), *await asyncio.gather(live(), leave(), transcribe())}


async def test_mixed_clients_leave_memory_descriptors_and_threads_of_a_server_level(
    server: tuple[psutil.Process, Crowd],
) -> None:
    process, crowd = server

    async def sizes(rounds: int) -> tuple[int, ...]:
        """Bytes, descriptors and threads of the server and its children after rounds of clients."""
        for _ in range(rounds):
            answers = await asyncio.gather(*(use(crowd) for _ in range(CLIENTS)))
            assert set.union(*answers) == {"200", "200 [DONE]", "data", "parlance.session.ledger"}
        family = [process, *process.children(recursive=True)]
        measured = [(one.memory_info().rss, one.num_fds(), one.num_threads()) for one in family]
        return tuple(map(sum, zip(*measured, strict=True)))

    before = await sizes(2)
    grown = [after - earlier for after, earlier in zip(await sizes(ROUNDS), before, strict=True)]
    assert all(map(int.__lt__, grown, (ROUNDS * CLIENTS * len(RECORDING) // 2, 4, 4))), grown
