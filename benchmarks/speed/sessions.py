"""What open live sessions take from everybody else: processor time of the ingress, and requests per second.

    python -m benchmarks.speed.sessions
    python -m benchmarks.speed.sessions --speaking 5       so many of those beside the requests are spoken to

The whole graph answers at once (`benchmarks.speed.instant`). First sessions are open in which nobody speaks, then some
are open beside the requests of `benchmarks.speed.gateway`, in turns with none. The clients of the sessions are a
process of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

import psutil

from benchmarks.servers import Server, working_folder
from benchmarks.speed.gateway import CASES, Case, System, graph, warm
from benchmarks.speed.load import measure
from benchmarks.speed.waits import replica

MODULE = "benchmarks.speed.sessions"
PIECE_S = 0.1
RATE = 24_000
PAIRS_OF_CASES: tuple[Case, ...] = tuple(case for case in CASES if case != (True, 1))


@contextmanager
def open_sessions(server: Server, count: int, speaking: int = 0) -> Iterator[None]:
    """So many sessions, in a process of their own; `speaking` of them send noise at the pace of speech."""
    command = [sys.executable, "-m", MODULE, "--hold", str(count), "--speaking", str(speaking)]
    environment = os.environ | {"PARLANCE_KEY": server.key, "SERVER_PORT": str(server.port)}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as clients:
        assert clients.stdin
        assert clients.stdout
        if "open" not in clients.stdout.readline():
            raise SystemExit("the sessions do not open")
        yield
        clients.stdin.close()


async def hold(count: int, speaking: int) -> None:
    """The process of the clients: opens, says so, and closes when its input ends."""
    from websockets.asyncio.client import connect

    url = f"ws://127.0.0.1:{os.environ['SERVER_PORT']}/v1/realtime?intent=transcription"
    headers = {"Authorization": f"Bearer {os.environ['PARLANCE_KEY']}"}
    async with AsyncExitStack() as stack:
        sockets = [
            await stack.enter_async_context(connect(url, additional_headers=headers, ping_interval=None))
            for _ in range(count)
        ]
        for socket in sockets:
            await socket.recv()
        tasks = [asyncio.create_task(speak(socket)) for socket in sockets[:speaking]]
        print("open", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        for task in tasks:
            task.cancel()


async def speak(socket: object) -> None:
    """Sends noise for ever; what comes back is dropped by whoever reads the socket."""
    noise = base64.b64encode(os.urandom(int(2 * RATE * PIECE_S))).decode()
    event = json.dumps({"type": "input_audio_buffer.append", "audio": noise})
    while True:
        await socket.send(event)  # type: ignore[attr-defined]
        await asyncio.sleep(PIECE_S)


def share_of_core(seconds: float) -> dict[str, float]:
    """Shares of a core that the ingress and its children, and HAProxy, take during `seconds`."""
    ingress = psutil.Process(replica("ingress"))
    watched = {
        "ingress": [ingress, *ingress.children(recursive=True)],
        "HAProxy": [each for each in psutil.process_iter(["name"]) if each.info["name"] == "haproxy"],
    }

    def spent() -> dict[str, float]:
        return {name: sum(sum(each.cpu_times()[:2]) for each in some) for name, some in watched.items()}

    before, begun = spent(), time.monotonic()
    time.sleep(seconds)
    length = time.monotonic() - begun
    return {name: (after - before[name]) / length for name, after in spent().items()}


def idle(server: Server, counts: tuple[int, ...], seconds: float) -> str:
    """Markdown: what so many sessions take in which nobody speaks."""
    lines = ["| sessions in which nobody speaks | ingress, of a core | HAProxy |", "|---|---|---|"]
    for count in counts:
        with open_sessions(server, count):
            shares = share_of_core(seconds)
        lines.append(f"| {count} | {shares['ingress']:.1%} | {shares['HAProxy']:.1%} |")
    return "\n".join(lines)


def beside(system: System, count: int, speaking: int, rounds: int, seconds: float) -> str:
    """Markdown: requests per second with sessions and without, in turns; the ratio is the median of the rounds'."""
    rates: dict[Case, list[tuple[float, float]]] = {case: [] for case in PAIRS_OF_CASES}
    for _ in range(rounds):
        without = {case: rate(system, case, seconds) for case in PAIRS_OF_CASES}
        with open_sessions(system.server, count, speaking):
            for case in PAIRS_OF_CASES:
                rates[case].append((without[case], rate(system, case, seconds)))
    lines = [
        f"| case | requests/s without | with {count} sessions, {speaking} of them speaking | ratio |",
        "|---|---|---|---|",
    ]
    for (stream, clients), pairs in rates.items():
        alone, open_ = (statistics.median(side) for side in zip(*pairs, strict=True))
        ratio = statistics.median(after / before for before, after in pairs)
        lines.append(f"| {'stream' if stream else 'unary'}, {clients} | {alone:.0f} | {open_:.0f} | {ratio:.2f} |")
    return "\n".join(lines)


def rate(system: System, case: Case, seconds: float) -> float:
    """Requests per second of one case."""
    return measure(system.job(case[1], case[0], seconds)).requests_per_s


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", type=int, default=200, help="sessions in which nobody speaks")
    parser.add_argument("--open", type=int, default=50, help="sessions beside requests")
    parser.add_argument("--speaking", type=int, default=0, help="of them")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement of requests")
    parser.add_argument("--idle-seconds", type=float, default=60.0)
    parser.add_argument("--hold", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.hold is not None:
        asyncio.run(hold(options.hold, options.speaking))
        return
    with working_folder("sessions-") as folder, graph(folder) as (_, whole):
        warm(whole)
        print(idle(whole.server, (0, options.idle), options.idle_seconds), flush=True)
        print(beside(whole, options.open, options.speaking, options.rounds, options.seconds))
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
