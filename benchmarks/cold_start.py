"""From a request at zero replicas to its first token, beside `vllm serve` from its process's start to its first token.

    python -m benchmarks.cold_start
    python -m benchmarks.cold_start --turns 2 --rounds 3

Both read their files from the page cache: a first start of each, which warms it, is not counted. A turn starts the
graph, then sends a request each time the engine is at zero again; then it starts `vllm serve` once. Only one of the
two runs at a time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

import httpx
import uvloop

from benchmarks.chat import send
from benchmarks.peers import MODEL, vllm, vllm_python
from benchmarks.servers import Server, parlance, working_folder

IDLE_S = 2
"""Until an engine is at zero. Short, so that a round does not take minutes."""
SETTLED_S = 5.0
"""After zero: the process that has ended must not share the cores with the one that starts."""
ZERO_WITHIN_S = 60


def first_token_s(server: Server) -> float:
    """Seconds from a request to the first token of its answer."""
    return uvloop.run(send(server, 1, max_tokens=2)).ttft_ms[0] / 1000


def graph_turn(folder: Path, rounds: int) -> list[float]:
    """First tokens of the graph, each from zero replicas."""
    with parlance(folder, PARLANCE_IDLE_S=str(IDLE_S)) as server:
        found = []
        for _ in range(rounds):
            await_zero(server)
            found.append(first_token_s(server))
            print(f"{server.name}: {found[-1]:.1f} s", file=sys.stderr, flush=True)
    return found


def await_zero(server: Server) -> None:
    """Waits until the engine has no replica."""
    end_s = time.monotonic() + ZERO_WITHIN_S
    while httpx.get(f"{server.url}/healthz").json()["replicas"][f"chat-{MODEL}"]:
        if time.monotonic() > end_s:
            raise SystemExit(f"the engine still runs after {ZERO_WITHIN_S} s without a request")
        time.sleep(0.2)
    time.sleep(SETTLED_S)


def peer_turn(python: Path, folder: Path) -> float:
    """The first token of the peer, from the start of its process."""
    started_s = time.perf_counter()
    with vllm(python, folder) as server:
        first_token_s(server)
        elapsed_s = time.perf_counter() - started_s
        print(f"{server.name}: {elapsed_s:.1f} s", file=sys.stderr, flush=True)
        return elapsed_s


def table(graph: list[float], peer: list[float]) -> str:
    """Markdown, with the ratio of the medians."""
    ratio = statistics.median(graph) / statistics.median(peer)
    rows = (("Parlance, from the request", graph), ("vllm serve, from its start", peer))
    lines = ["| | first token s: median | all |", "|---|---|---|"]
    lines += [
        f"| {name} | {statistics.median(found):.1f} | {', '.join(f'{seconds:.1f}' for seconds in found)} |"
        for name, found in rows
    ]
    return "\n".join([*lines, f"| **ratio** | **{ratio:.2f}** | |"])


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=2, help="of each of the two")
    parser.add_argument("--rounds", type=int, default=3, help="of the graph in each turn")
    options = parser.parse_args()
    with working_folder("cold-") as folder:
        python = vllm_python(folder / "peer")
        graph_turn(folder, 1)
        peer_turn(python, folder)
        graph: list[float] = []
        peer: list[float] = []
        for _ in range(options.turns):
            graph += graph_turn(folder, options.rounds)
            peer.append(peer_turn(python, folder))
    print(table(graph, peer))
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
