"""What one organisation that sends as fast as it may costs another: its p95 alone, and beside the flood.

    python -m benchmarks.speed.fairness
    python -m benchmarks.speed.fairness --config configs/embedded.yaml --clients 80

The whole graph runs with its real engines. One client of one organisation asks short things, first alone, then while
`--clients` connections of another one ask long things of the same engine without a pause. A refusal of the flood (429)
is not waited for: it asks again at once. What it still waits for at the end it gives up. Alone and beside are measured
in turns, each for `--seconds`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from benchmarks.servers import NO_END, Server, parlance, working_folder
from benchmarks.speed.load import Figures, Job, measure

SHORT, LONG = "What is the capital of France?", "Tell me a long story about a lighthouse and its keeper."
PHRASE = "A short announcement. "

CASES: dict[str, tuple[str, dict[str, object], dict[str, object]]] = {
    "chat": (
        "/v1/chat/completions",
        {"model": "smollm2-135m-instruct", "messages": [{"role": "user", "content": SHORT}], "max_tokens": 8},
        {"model": "smollm2-135m-instruct", "messages": [{"role": "user", "content": LONG}], "max_tokens": 128},
    ),
    "embeddings": (
        "/v1/embeddings",
        {"model": "all-minilm-l6-v2", "input": SHORT},
        {"model": "all-minilm-l6-v2", "input": [LONG] * 32},
    ),
    "speech": (
        "/v1/audio/speech",
        {"provider": "supertonic", "input": PHRASE, "language": "en"},
        {"provider": "supertonic", "input": PHRASE * 40, "language": "en"},
    ),
}
"""Path, what the one client asks, and what the flood asks."""


def flood_key(home: Path) -> str:
    """A key of a second organisation, with no limit of rate."""

    def state(*arguments: str) -> str:
        command = [sys.executable, "-m", "state", *arguments]
        environment = os.environ | {"PARLANCE_HOME": str(home)}
        return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

    state("org", "create", "flood", "--plan", "enterprise")
    state("org", "change", "flood", f"--requests-per-minute={NO_END}")
    return state("key", "create", "--org", "flood", "--scopes", "all")


def compare(server: Server, flood: str, case: str, clients: int, rounds: int, seconds: float) -> str:
    """A row of the table: medians over the rounds."""
    path, short, long = CASES[case]
    one = Job(server.port, path, server.headers, json.dumps(short), 1, seconds)
    # It begins before and ends after what is measured beside it.
    many = Job(
        server.port, path, {"Authorization": f"Bearer {flood}"}, json.dumps(long), clients, seconds + 4, floods=True
    )
    httpx.post(f"{server.url}{path}", json=short, headers=server.headers, timeout=300).raise_for_status()
    alone, beside = [], []
    for _ in range(rounds):
        alone.append(measure(one))
        with ThreadPoolExecutor(1) as pool:
            flooding = pool.submit(measure, many)
            beside.append(measure(one))
            flooded = flooding.result()
    before_ms, after_ms = (statistics.median(figures.whole_ms[1] for figures in found) for found in (alone, beside))
    failed = sum(sum(figures.failures.values()) for figures in [*alone, *beside])
    return f"| {case} | {before_ms:.0f} | {after_ms:.0f} | {after_ms / before_ms:.1f} | {failed} | {_told(flooded)} |"


def _told(flooded: Figures) -> str:
    refused = ", ".join(f"{count} times {status}" for status, count in flooded.failures.items())
    return f"{flooded.requests_per_s:.1f}/s" + (f", {refused}" if refused else "")


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="configs/embedded.yaml")
    parser.add_argument("--engines", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--clients", type=int, default=80)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    with working_folder("fairness-") as folder, parlance(folder, options.config) as server:
        flood = flood_key(next(folder.glob("home-*")))
        print("| engine | p95 alone, ms | p95 beside, ms | times | refused of the one | the flood |")
        print("|---|---|---|---|---|---|")
        for case in options.engines:
            print(compare(server, flood, case, options.clients, options.rounds, options.seconds), flush=True)
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
