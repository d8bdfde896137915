"""Decisions through the whole graph beside the same reads as chat calls to `vllm serve`, on the same weights.

    python -m benchmarks.decisions
    python -m benchmarks.decisions --rounds 9 --questions 1 4 16

A round is one state of some 4,000 characters with so many questions: one request to us, and to `vllm serve` as many
chat calls at one moment, with `max_tokens=1` and the log-probabilities of the 20 likeliest tokens. No state is sent
twice to one server. The servers run one after the other, and each is asked a few times before it counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from benchmarks.peers import MODEL, Server, parlance, vllm, vllm_python

STATE_CHARS = 4000
OPTIONS = ("billing", "technical", "sales", "other")
WARM_ROUNDS = 2
TEXT = "My invoice of last month is wrong, and the app that I pay for is slow since Tuesday. "

Ask = Callable[[httpx.AsyncClient, str, int], Awaitable[None]]


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--questions", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = vllm_python(folder / "venv")
        with parlance(folder) as ours:
            mine = asyncio.run(measure(ours, _decide(ours), options))
            rates = asyncio.run(throughput(ours, options.clients))
        with vllm(python, folder) as peer:
            theirs = asyncio.run(measure(peer, _chat(peer), options))
    print("| questions | one decision, p50 ms | as many chat calls, p50 ms | ratio |\n|---|---|---|---|")
    for count in options.questions:
        print(f"| {count} | {mine[count]:.0f} | {theirs[count]:.0f} | {mine[count] / theirs[count]:.2f} |")
    for clients, rate in rates.items():
        print(f"\n{clients} clients: {rate:.1f} decisions of one question a second")


async def measure(server: Server, ask: Ask, options: argparse.Namespace) -> dict[int, float]:
    """Median milliseconds by number of questions."""
    medians = {}
    async with httpx.AsyncClient(base_url=server.url, timeout=300) as client:
        for count in options.questions:
            spent = []
            for index in range(WARM_ROUNDS + options.rounds):
                state = f"{server.name} {count} {index}: {TEXT * 60}"[:STATE_CHARS]
                started = time.perf_counter()
                await ask(client, state, count)
                spent.append(time.perf_counter() - started)
            medians[count] = statistics.median(spent[WARM_ROUNDS:]) * 1000
    return medians


async def throughput(server: Server, clients: list[int], seconds: float = 5.0) -> dict[int, float]:
    """Decisions a second with one question about a short state, by number of clients."""
    ask, rates = _decide(server), {}
    async with httpx.AsyncClient(base_url=server.url, timeout=300) as client:
        for count in clients:
            done, end = 0, time.perf_counter() + seconds

            async def one(name: int, end: float = end) -> None:
                nonlocal done
                while time.perf_counter() < end:
                    await ask(client, f"client {name}, {done}: {TEXT}", 1)
                    done += 1

            await asyncio.gather(*(one(name) for name in range(count)))
            rates[count] = done / seconds
    return rates


def _instructions(index: int) -> str:
    return f"Which team should handle part {index} of this ticket?"


def _decide(server: Server) -> Ask:
    headers = {"authorization": f"Bearer {server.key}"}

    async def ask(client: httpx.AsyncClient, state: str, count: int) -> None:
        options = [{"id": option} for option in OPTIONS]
        questions = {
            f"q{index}": {"type": "choice", "instructions": _instructions(index), "options": options}
            for index in range(count)
        }
        reply = await client.post("/v1/decisions", json={"state": state, "questions": questions}, headers=headers)
        assert len(reply.raise_for_status().json()["answers"]) == count

    return ask


def _chat(server: Server) -> Ask:
    async def one(client: httpx.AsyncClient, state: str, index: int) -> None:
        listed = "\n".join(f"{letter}: {option}" for letter, option in zip("ABCD", OPTIONS, strict=True))
        text = f"{state}\n\nQuestion: {_instructions(index)}\n{listed}\nAnswer with one letter."
        body: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": text}]}
        body |= {"max_tokens": 1, "temperature": 0, "logprobs": True, "top_logprobs": 20}
        reply = await client.post("/v1/chat/completions", content=json.dumps(body), headers={"content-type": JSON})
        assert reply.raise_for_status().json()["choices"][0]["logprobs"]

    async def ask(client: httpx.AsyncClient, state: str, count: int) -> None:
        await asyncio.gather(*(one(client, state, index) for index in range(count)))

    return ask


JSON = "application/json"

if __name__ == "__main__":
    main()
