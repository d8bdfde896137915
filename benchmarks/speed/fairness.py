"""What one organisation that sends as fast as it may costs another: its p95 alone, and beside the flood.

    python -m benchmarks.speed.fairness

One client of one organisation asks short things of the whole graph, alone and, in turns, while CLIENTS connections of
another one ask long things of the same engine without a pause, after a refusal (429) again at once.
"""

from __future__ import annotations

import argparse
import json
import statistics
from concurrent.futures import ThreadPoolExecutor

import httpx

from benchmarks.servers import NO_END, Server, customer, parlance, working_folder
from benchmarks.speed.load import Figures, Job, measure
from benchmarks.tables import show, table

SHORT, LONG = "What is the capital of France?", "Tell me a long story about a lighthouse and its keeper."
CLIENTS = 80
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


def flood_key(server: Server) -> str:
    """A key of a second organisation, with no limit of rate."""
    return customer({"PARLANCE_HOME": server.home}, "flood", "enterprise", f"--requests-per-minute={NO_END}")


def compare(server: Server, flood: str, case: str, rounds: int, seconds: float) -> tuple[object, ...]:
    """A row of the table: medians over the rounds."""
    path, short, long = CASES[case]
    probe = Job(server.port, path, server.headers, json.dumps(short), 1, seconds)
    # It begins before and ends after what is measured beside it.
    many = Job(
        server.port, path, {"Authorization": f"Bearer {flood}"}, json.dumps(long), CLIENTS, seconds + 4, floods=True
    )
    httpx.post(f"{server.url}{path}", json=short, headers=server.headers, timeout=300).raise_for_status()
    alone, beside = [], []
    for _ in range(rounds):
        alone.append(measure(probe))
        with ThreadPoolExecutor(1) as pool:
            flooding = pool.submit(measure, many)
            beside.append(measure(probe))
            flooded = flooding.result()
    before_ms, after_ms = (statistics.median(figures.whole_ms[1] for figures in runs) for runs in (alone, beside))
    failed = sum(sum(figures.failures.values()) for figures in [*alone, *beside])
    times = f"{after_ms / before_ms:.1f}"
    return case, f"{before_ms:.0f}", f"{after_ms:.0f}", times, failed, _refusals(flooded)


def _refusals(flooded: Figures) -> str:
    refused = ", ".join(f"{count} times {status}" for status, count in flooded.failures.items())
    return f"{flooded.requests_per_s:.1f}/s" + (f", {refused}" if refused else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    with working_folder("fairness-") as folder, parlance(folder) as server:
        flood = flood_key(server)
        rows = [compare(server, flood, case, options.rounds, options.seconds) for case in CASES]
    show(table("engine | p95 alone, ms | p95 beside, ms | times | refused of the one | the flood", rows))


if __name__ == "__main__":
    main()
