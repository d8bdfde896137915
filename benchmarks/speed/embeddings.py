"""Texts per second of embeddings through the whole graph, beside the infinity server on the same weights, in turns.

    python -m benchmarks.speed.embeddings

Each case is a number of clients that send requests of some texts of 20 tokens, one after the other. A round measures
every system once; the table gives the median of the rounds and the ratios to the last system. `--in-process` adds the
adapter in this process, without Ray and HTTP: what the graph adds is between its column and that of the graph.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks import tables
from benchmarks.servers import Server, parlance, working_folder
from benchmarks.speed.load import closed_loop, cuts_ms
from benchmarks.speed.peers import infinity, of_its_own
from contract.catalog import EmbeddingModel, Serving
from contract.embeddings import EmbeddingsJob
from models import load

Embed = Callable[[list[str]], Awaitable[object]]

CASES = ((1, 1), (1, 32), (8, 1), (8, 32))
"""Clients, and texts of each request."""

WEIGHTS = "all-minilm-l6-v2"
WORDS = "time person year way day thing man world life hand part child eye woman place work week case point".split()  # noqa: SIM905
WORDS_OF_20_TOKENS = 18


@dataclass(frozen=True, slots=True)
class Figures:
    texts_per_s: float
    p50_ms: float
    p95_ms: float


def make_text() -> str:
    """Words that are one token each; with the two special ones they are 20."""
    return " ".join(random.choices(WORDS, k=WORDS_OF_20_TOKENS))


async def measure(embed: Embed, clients: int, texts: int, seconds: float) -> Figures:
    latencies_s, elapsed_s = await closed_loop(lambda: embed([make_text() for _ in range(texts)]), clients, seconds)
    return Figures(len(latencies_s) * texts / elapsed_s, *cuts_ms(latencies_s)[:2])


@contextmanager
def adapter(dtype: str) -> Iterator[Embed]:
    """The adapter in this process, as a replica has it."""
    serving = Serving(
        adapter="models.embeddings:TransformerEmbedder",
        runtime=WEIGHTS,
        weights=WEIGHTS,
        threads=os.cpu_count() or 1,
        options={"dtype": dtype},
    )
    facts = EmbeddingModel(id=WEIGHTS, owned_by="", dimensions=384, context_window=256, serving=serving)
    with closing(load(facts)) as engine:
        yield lambda texts: engine.embed(EmbeddingsJob(tuple(texts)))


def over_http(server: Server, path: str) -> Embed:
    client = httpx.AsyncClient(base_url=server.url, headers=server.headers, timeout=120)

    async def embed(texts: list[str]) -> object:
        reply = await client.post(path, json={"model": WEIGHTS, "input": texts, "encoding_format": "base64"})
        return reply.raise_for_status()

    return embed


async def compare(systems: dict[str, Embed], rounds: int, seconds: float) -> dict[tuple[str, int, int], list[Figures]]:
    """Every case with every system in turns. The systems of a round run one after the other, seconds apart."""
    figures: dict[tuple[str, int, int], list[Figures]] = {}
    for embed in systems.values():
        await measure(embed, 2, 8, 1.0)
    for _ in range(rounds):
        for clients, texts in CASES:
            for name, embed in systems.items():
                results = await measure(embed, clients, texts, seconds)
                figures.setdefault((name, clients, texts), []).append(results)
    return figures


def table(systems: list[str], figures: dict[tuple[str, int, int], list[Figures]]) -> str:
    """Markdown: a row for each case, the last system is what the others are divided by."""
    rows = []
    for clients, texts in CASES:
        results = [figures[name, clients, texts] for name in systems]
        rates = [statistics.median(each.texts_per_s for each in rounds) for rounds in results]
        cells = [f"{rate:.0f}, {_latency(rounds)}" for rate, rounds in zip(rates, results, strict=True)]
        ratios = ", ".join(f"{rate / rates[-1]:.2f}" for rate in rates[:-1])
        rows.append((f"{clients}, {texts}", *cells, ratios))
    columns = " | ".join(f"{name}: texts/s, p50/p95 ms" for name in systems)
    return tables.table(f"clients, texts each | {columns} | ratios", rows)


def ratios(folder: Path) -> dict[str, float]:
    """Texts a second through the whole graph, divided by those of the adapter in this process, of a short run."""
    ours, bare = "graph", "adapter"
    with parlance(folder) as server, adapter("float32") as in_process:
        systems = {ours: over_http(server, "/v1/embeddings"), bare: in_process}
        figures = asyncio.run(compare(systems, 1, 2.0))

    def rate(system: str, clients: int, texts: int) -> float:
        return figures[system, clients, texts][0].texts_per_s

    return {f"{c} clients, {t} texts, rate": rate(ours, c, t) / rate(bare, c, t) for c, t in CASES}


def _latency(rounds: list[Figures]) -> str:
    return f"{statistics.median(r.p50_ms for r in rounds):.0f}/{statistics.median(r.p95_ms for r in rounds):.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--in-process", nargs="+", choices=("bfloat16", "float32"), default=[], help="bare adapters")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(working_folder("embeddings-"))
        systems: dict[str, Embed] = {}
        for dtype in options.in_process:
            systems[f"adapter in process, {dtype}"] = stack.enter_context(adapter(dtype))
        systems["the whole graph"] = over_http(stack.enter_context(parlance(folder)), "/v1/embeddings")
        if python := of_its_own("infinity"):
            peer = stack.enter_context(infinity(python, WEIGHTS, folder))
            systems["infinity's own server"] = over_http(peer, "/embeddings")
        figures = asyncio.run(compare(systems, options.rounds, options.seconds))
    tables.show(table(list(systems), figures))


if __name__ == "__main__":
    main()
