"""Decisions through the whole graph beside the same questions put to `vllm serve`, on the same weights, in turns.

    python -m benchmarks.decisions                          beside vLLM's own /v1/systemone, on a small random Qwen3
    python -m benchmarks.decisions --peer chat              beside one chat call a question, on SmolLM2-135M
    python -m benchmarks.decisions --vllm=--block-size=32   with further arguments of the peer

A round is one state of some 4,000 characters with so many questions, put to both servers, one after the other; who is
first alternates. Both servers run all the time, and neither has anything else to do. Both are asked for 20 s before
anything counts, because a cold start leaves work behind. No state is sent twice to one server. A chat call asks for one
token with the log-probabilities of the 20 likeliest; those of one round are sent at one moment.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from benchmarks import small_qwen3
from benchmarks.gateway import free_port, running
from benchmarks.peers import MODEL, VLLM_ENVIRONMENT, Server, parlance, vllm, vllm_python

STATE_CHARS = 4000
OPTIONS = ("billing", "technical", "sales", "other")
WARM_S = 20.0
WARM_ROUNDS = 1
WINDOW_S = 4.0
TEXT = "My invoice of last month is wrong, and the app that I pay for is slow since Tuesday. "
JSON = "application/json"

Ask = Callable[[str, int], Awaitable[None]]


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", choices=("systemone", "chat"), default="systemone")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--questions", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--windows", type=int, default=2, help="of throughput, for each server")
    parser.add_argument("--vllm", action="append", default=[], metavar="ARGUMENT", help="of `vllm serve` on the Qwen3")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        servers = stack.enter_context(_servers(options, Path(name)))
        asyncio.run(compare(*servers, options))


@contextmanager
def _servers(options: argparse.Namespace, folder: Path) -> Iterator[tuple[Server, Server]]:
    """Ours and the peer, both ready."""
    python = vllm_python(folder / "venv")
    if options.peer == "chat":
        with parlance(folder) as ours, vllm(python, folder) as peer:
            yield ours, peer
        return
    weights = small_qwen3.make(folder / "weights")
    ours_alone = parlance(folder, small_qwen3.config_file(folder), small_qwen3.stanza(weights))
    with ours_alone as ours, _system_one_server(python, folder, weights, options.vllm) as peer:
        yield ours, peer


@contextmanager
def _system_one_server(python: Path, folder: Path, weights: Path, further: list[str]) -> Iterator[Server]:
    """`vllm serve` on the small model, with the slots, the window and the cache of our stanza."""
    server = Server("vllm serve", free_port(), "", folder / "vllm.log")
    command = [str(python), "-m", "vllm.entrypoints.cli.main", "serve", str(weights), "--served-model-name", MODEL]
    command += ["--host", "127.0.0.1", "--port", str(server.port), "--enforce-eager", "--dtype", "bfloat16"]
    command += ["--max-num-seqs", "32", "--max-model-len", "8192", "--kv-cache-memory-bytes", str(1 << 28)]
    with running([*command, *further], f"{server.url}/health", server.log, VLLM_ENVIRONMENT):
        yield server


async def compare(ours: Server, peer: Server, options: argparse.Namespace) -> None:
    """Measures both and prints the tables."""
    theirs_name = "`/v1/systemone`" if options.peer == "systemone" else "as many chat calls"
    async with (
        httpx.AsyncClient(base_url=ours.url, timeout=300) as our_client,
        httpx.AsyncClient(base_url=peer.url, timeout=300) as peer_client,
    ):
        asks = {
            ours.name: _decide(our_client, ours),
            peer.name: _system_one(peer_client) if options.peer == "systemone" else _chat(peer_client),
        }
        await _warm(asks)
        print(f"| questions | one decision, p50 ms (p95) | {theirs_name}, p50 ms (p95) | ratio of p50 |")
        print("|---|---|---|---|")
        for count in options.questions:
            spent = await _rounds(asks, count, options.rounds)
            mine, theirs = (_cuts_ms(spent[name]) for name in asks)
            figures = f"{mine[0]:.0f} ({mine[1]:.0f}) | {theirs[0]:.0f} ({theirs[1]:.0f}) | {mine[0] / theirs[0]:.2f}"
            print(f"| {count} | {figures} |", flush=True)
        print(f"\n| clients | decisions of one question a second | {theirs_name} a second | ratio |\n|---|---|---|---|")
        for clients in options.clients:
            mine_a_s, theirs_a_s = await _throughput(asks, clients, options.windows)
            print(f"| {clients} | {mine_a_s:.1f} | {theirs_a_s:.1f} | {mine_a_s / theirs_a_s:.2f} |", flush=True)


async def _warm(asks: dict[str, Ask]) -> None:
    end, done = time.perf_counter() + WARM_S, 0
    while time.perf_counter() < end:
        for ask in asks.values():
            await ask(f"Warming {done}: {TEXT}", 1)
        done += 1


async def _rounds(asks: dict[str, Ask], count: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of each round by server, without the first ones."""
    spent: dict[str, list[float]] = {name: [] for name in asks}
    for index in range(WARM_ROUNDS + rounds):
        state = f"Ticket {count}/{index}: {TEXT * 60}"[:STATE_CHARS]
        turn = list(asks) if index % 2 else list(asks)[::-1]
        for name in turn:
            started = time.perf_counter()
            await asks[name](state, count)
            spent[name].append(time.perf_counter() - started)
    return {name: seconds[WARM_ROUNDS:] for name, seconds in spent.items()}


def _cuts_ms(seconds: list[float]) -> tuple[float, float]:
    """Median and 95th percentile."""
    ordered = sorted(seconds)
    return statistics.median(ordered) * 1000, ordered[int(0.95 * (len(ordered) - 1) + 0.5)] * 1000


async def _throughput(asks: dict[str, Ask], clients: int, windows: int) -> list[float]:
    """Decisions a second with one question about a short state, by server; in turns."""
    done = dict.fromkeys(asks, 0)
    for window in range(windows):
        for name, ask in asks.items():
            done[name] += await _window(ask, clients, window)
    return [count / (windows * WINDOW_S) for count in done.values()]


async def _window(ask: Ask, clients: int, window: int) -> int:
    end, done = time.perf_counter() + WINDOW_S, 0

    async def one(client: int) -> None:
        nonlocal done
        while time.perf_counter() < end:
            await ask(f"clients {clients}/{client}, {window}, {done}: {TEXT}", 1)
            done += 1

    await asyncio.gather(*(one(client) for client in range(clients)))
    return done


# --- what is asked ---------------------------------------------------------------------------------------------------


def _instructions(index: int) -> str:
    return f"Which team should handle part {index} of this ticket?"


def _decide(client: httpx.AsyncClient, server: Server) -> Ask:
    headers = {"authorization": f"Bearer {server.key}"}
    options = [{"id": option} for option in OPTIONS]

    async def ask(state: str, count: int) -> None:
        questions = {
            f"q{index}": {"type": "choice", "instructions": _instructions(index), "options": options}
            for index in range(count)
        }
        reply = await client.post("/v1/decisions", json={"state": state, "questions": questions}, headers=headers)
        assert len(reply.raise_for_status().json()["answers"]) == count

    return ask


def _system_one(client: httpx.AsyncClient) -> Ask:
    question = {"type": "choice", "criteria": dict.fromkeys(OPTIONS)}

    async def ask(state: str, count: int) -> None:
        questions = {f"q{index}": question | {"instructions": _instructions(index)} for index in range(count)}
        reply = await client.post("/v1/systemone", json={"model": MODEL, "state": state, "questions": questions})
        assert len(reply.raise_for_status().json()["answers"]) == count

    return ask


def _chat(client: httpx.AsyncClient) -> Ask:
    async def one(state: str, index: int) -> None:
        listed = "\n".join(f"{letter}: {option}" for letter, option in zip("ABCD", OPTIONS, strict=True))
        text = f"{state}\n\nQuestion: {_instructions(index)}\n{listed}\nAnswer with one letter."
        body: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": text}]}
        body |= {"max_tokens": 1, "temperature": 0, "logprobs": True, "top_logprobs": 20}
        reply = await client.post("/v1/chat/completions", content=json.dumps(body), headers={"content-type": JSON})
        assert reply.raise_for_status().json()["choices"][0]["logprobs"]

    async def ask(state: str, count: int) -> None:
        await asyncio.gather(*(one(state, index) for index in range(count)))

    return ask


if __name__ == "__main__":
    main()
