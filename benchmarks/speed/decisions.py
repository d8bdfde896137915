"""Decisions through the whole graph beside the same questions put to `vllm serve`, in turns.

    python -m benchmarks.speed.decisions                    decision-v2 beside vLLM's own /v1/systemone, both on a small
                                                        random Qwen3
    python -m benchmarks.speed.decisions --ours decision-v1   decision-v1, with weights of its own, beside /v1/systemone

In a turn each server runs alone: it is started, warmed for 20 s, because a cold start leaves work behind, measured, and
stopped. Side by side even an idle one disturbs the other: threads of vLLM spin for a while after a step. A round is one
state of `--chars` characters with so many questions. No state is sent twice to one server.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx

from benchmarks.servers import Server, parlance, working_folder
from benchmarks.speed import small_qwen3
from benchmarks.speed.load import closed_loop, cuts_ms
from benchmarks.speed.peers import MODEL, vllm_python, vllm_serve
from benchmarks.tables import table

LABELS, SIMILARITY = small_qwen3.MODEL, "decision-v1"
OPTIONS = ("billing", "technical", "sales", "other")
WARM_ROUNDS = 1
WINDOW_S = 4.0
TEXT = "My invoice of last month is wrong, and the app that I pay for is slow since Tuesday. "

Ask = Callable[[str, int], Awaitable[None]]
"""One decision: a state, and how many questions."""
Connect = Callable[[httpx.AsyncClient, Server], Ask]
Start = Callable[[], AbstractContextManager[Server]]


@dataclass(slots=True)
class Figures:
    """Of one server over all turns: seconds of decisions by count of questions, decisions a second by clients."""

    took_s: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    rates: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", choices=(LABELS, SIMILARITY), default=LABELS, help="model that decides")
    parser.add_argument("--chars", type=int, default=4000, help="of the state in a round")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9, help="of each count of questions in a turn")
    parser.add_argument("--questions", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--warm-s", type=float, default=20.0, help="seconds of questions before a turn is measured")
    options = parser.parse_args()
    with working_folder("decisions-") as folder:
        print(report(*compare(options, folder), options))


SHORT = argparse.Namespace(ours=LABELS, chars=4000, turns=1, rounds=5, questions=[1, 16], clients=[1, 8], warm_s=6.0)


def ratios(folder: Path) -> dict[str, float]:
    """Ours divided by vLLM's `/v1/systemone`, of a short run."""
    ours, theirs = compare(SHORT, folder)
    times = {f"{n} questions, time": cuts_ms(ours.took_s[n])[0] / cuts_ms(theirs.took_s[n])[0] for n in SHORT.questions}
    rates = {f"{n} clients, rate": ours.rates[n][0] / theirs.rates[n][0] for n in SHORT.clients}
    return times | rates


def compare(options: argparse.Namespace, folder: Path) -> tuple[Figures, Figures]:
    servers = _servers(options, folder)
    figures = [Figures() for _ in servers]
    for turn in range(options.turns):
        both = list(zip(servers, figures, strict=True))
        for (start, connect), results in both if turn % 2 else both[::-1]:
            with start() as server:
                asyncio.run(measure(server, connect, options, results))
    ours, theirs = figures
    return ours, theirs


def _servers(options: argparse.Namespace, folder: Path) -> tuple[tuple[Start, Connect], tuple[Start, Connect]]:
    """What starts ours, and what starts the peer."""
    python = vllm_python(folder / "venv")
    decide = partial(_decide, options.ours)
    weights = small_qwen3.make(folder / "weights")
    ours = partial(parlance, folder)
    if options.ours == LABELS:
        ours = partial(ours, small_qwen3.config_file(folder), weights_toml=small_qwen3.stanza(weights))
    # The slots, the window and the cache of our stanza.
    alike = ["--max-num-seqs", "32", "--max-model-len", "8192", "--kv-cache-memory-bytes", str(1 << 28)]
    peer = partial(vllm_serve, python, weights, folder, *alike)
    return (ours, decide), (peer, _system_one)


async def measure(server: Server, connect: Connect, options: argparse.Namespace, figures: Figures) -> None:
    """One turn of one server, which nothing disturbs."""
    async with httpx.AsyncClient(base_url=server.url, timeout=300) as client:
        ask = connect(client, server)
        numbers = itertools.count()

        async def short() -> None:
            await ask(f"Ticket {next(numbers)}: {TEXT}", 1)

        await closed_loop(short, 1, options.warm_s)
        for count in options.questions:
            figures.took_s[count] += await _rounds(ask, count, options)
        for clients in options.clients:
            took_s, elapsed_s = await closed_loop(short, clients, WINDOW_S)
            figures.rates[clients].append(len(took_s) / elapsed_s)


async def _rounds(ask: Ask, count: int, options: argparse.Namespace) -> list[float]:
    """Seconds of each round, without the first ones."""
    spent_s = []
    for index in range(WARM_ROUNDS + options.rounds):
        state = f"Ticket {count}/{index}: {TEXT * 60}"[: options.chars]
        started_s = time.perf_counter()
        await ask(state, count)
        spent_s.append(time.perf_counter() - started_s)
    return spent_s[WARM_ROUNDS:]


def report(ours: Figures, theirs: Figures, options: argparse.Namespace) -> str:
    times, rates = [], []
    for count in options.questions:
        (mine, mine_p95, _), (other, other_p95, _) = cuts_ms(ours.took_s[count]), cuts_ms(theirs.took_s[count])
        times.append((count, f"{mine:.0f} ({mine_p95:.0f})", f"{other:.0f} ({other_p95:.0f})", f"{mine / other:.2f}"))
    for clients in options.clients:
        mine, other = statistics.mean(ours.rates[clients]), statistics.mean(theirs.rates[clients])
        rates.append((clients, f"{mine:.1f}", f"{other:.1f}", f"{mine / other:.2f}"))
    systems = "through the whole graph | by `/v1/systemone` | ratio"
    return (
        f"{table(f'questions | p50 ms (p95) {systems}', times)}\n\n{table(f'clients | decisions/s {systems}', rates)}"
    )


def _instructions(index: int) -> str:
    return f"Which team should handle part {index} of this ticket?"


def _decide(model: str, client: httpx.AsyncClient, server: Server) -> Ask:
    options = [{"id": option} for option in OPTIONS]

    async def ask(state: str, count: int) -> None:
        questions = {
            f"q{index}": {"type": "choice", "instructions": _instructions(index), "options": options}
            for index in range(count)
        }
        body = {"model": model, "state": state, "questions": questions}
        reply = await client.post("/v1/decisions", json=body, headers=server.headers)
        assert len(reply.raise_for_status().json()["answers"]) == count

    return ask


def _system_one(client: httpx.AsyncClient, _: Server) -> Ask:
    question = {"type": "choice", "criteria": dict.fromkeys(OPTIONS)}

    async def ask(state: str, count: int) -> None:
        questions = {f"q{index}": question | {"instructions": _instructions(index)} for index in range(count)}
        reply = await client.post("/v1/systemone", json={"model": MODEL, "state": state, "questions": questions})
        assert len(reply.raise_for_status().json()["answers"]) == count

    return ask


if __name__ == "__main__":
    main()
