"""Chat streams through the whole graph, beside `vllm serve` on the same weights and llama.cpp's server, in turns.

    python -m benchmarks.speed.chat

A round sends so many streams at one moment, of some 126 tokens in and 64 out, and waits for all. No prompt is sent
twice to one server, so no prefix cache helps. A turn measures one server alone; the table gives the median of all
rounds of all turns. llama.cpp reads the weights in 4 bits, as they are published, in a build for AVX2.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

import httptools
import uvloop

from benchmarks import tables
from benchmarks.servers import Server, parlance, working_folder
from benchmarks.speed.load import post
from benchmarks.speed.peers import MODEL, STREAMS, llama, of_its_own, vllm, vllm_python

MAX_TOKENS = 64
SPOKEN = re.compile(rb'"content":\s*"[^"]')
USAGE = tuple(re.compile(rb'"%s":\s*(\d+)' % name) for name in (b"prompt_tokens", b"completion_tokens"))
WORDS = "the of and river stone house green light seven walk paper music train winter garden small cloud bright".split()  # noqa: SIM905
PROMPT_WORDS = 75
LOADED_WITHIN_S = 120


@dataclass
class Stream(asyncio.Protocol):
    """One request on a connection of its own. Client libraries would take a share of the cores that is worth seeing."""

    request: bytes
    sent_at_s: float = 0.0
    spoken_at_s: list[float] = field(default_factory=list)
    tail: bytes = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._parser = httptools.HttpResponseParser(self)
        self._done = asyncio.get_running_loop().create_future()
        self.sent_at_s = time.perf_counter()
        self._transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(ConnectionError("the server closed the connection"))

    def on_body(self, data: bytes) -> None:
        if SPOKEN.search(data):
            self.spoken_at_s.append(time.perf_counter())
        self.tail = (self.tail + data)[-2000:]

    def on_message_complete(self) -> None:
        if (status := self._parser.get_status_code()) == 200:
            self._done.set_result(None)
        else:
            self._done.set_exception(ConnectionError(f"{status}: {self.tail.decode()}"))

    async def finish(self) -> None:
        await self._done
        self._transport.close()

    @property
    def tokens(self) -> tuple[int, int]:
        """Of prompt and answer, as the server counts them."""
        prompt, answer = (pattern.search(self.tail) for pattern in USAGE)
        assert prompt, self.tail
        assert answer, self.tail
        return int(prompt[1]), int(answer[1])


@dataclass(frozen=True, slots=True)
class Round:
    """Some streams that began together. `gap_ms` is the mean time between two tokens, of each stream."""

    ttft_ms: list[float]
    gap_ms: list[float]
    tokens_per_s: float
    tokens_in: float
    tokens_out: float


def make_request(server: Server, max_tokens: int = MAX_TOKENS, words: int = PROMPT_WORDS) -> bytes:
    """A greedy chat that has no reason to end early."""
    listed = " ".join(random.choices(WORDS, k=words))
    question = (
        f"Write a long and detailed story, of many chapters, in which all of these words come: {listed}. Begin now."
    )
    body = json.dumps(
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": question}],
            "temperature": 0,
            "max_tokens": max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    )
    return post("/v1/chat/completions", server.headers, body)


async def send(server: Server, streams: int, max_tokens: int = MAX_TOKENS, words: int = PROMPT_WORDS) -> Round:
    loop = asyncio.get_running_loop()
    requests = [make_request(server, max_tokens, words) for _ in range(streams)]
    started_s = time.perf_counter()
    opened = await asyncio.gather(
        *(loop.create_connection(partial(Stream, request), "127.0.0.1", server.port) for request in requests)
    )
    done = [stream for _, stream in opened]
    await asyncio.gather(*(stream.finish() for stream in done))
    elapsed_s = time.perf_counter() - started_s
    if not all(stream.spoken_at_s for stream in done):
        raise RuntimeError(f"{server.name} answered a prompt of {words} words with no text at all")
    tokens_in, tokens_out = zip(*(stream.tokens for stream in done), strict=True)
    return Round(
        [(stream.spoken_at_s[0] - stream.sent_at_s) * 1000 for stream in done],
        [
            (stream.spoken_at_s[-1] - stream.spoken_at_s[0]) * 1000 / max(1, tokens - 1)
            for stream, tokens in zip(done, tokens_out, strict=True)
        ],
        sum(tokens_out) / elapsed_s,
        statistics.mean(tokens_in),
        statistics.mean(tokens_out),
    )


async def measure(server: Server, streams: list[int], rounds: int) -> dict[int, list[Round]]:
    """A turn: warms the server, then so many rounds of each number of streams."""
    await asyncio.wait_for(send(server, 1), LOADED_WITHIN_S)
    await send(server, STREAMS, 8)
    return {count: [await send(server, count) for _ in range(rounds)] for count in streams}


Start = Callable[[], AbstractContextManager[Server]]


def compare(starts: list[Start], turns: int, streams: list[int], rounds: int) -> dict[tuple[str, int], list[Round]]:
    """All turns; one server runs at a time. What each turn gave goes to standard error."""
    results: dict[tuple[str, int], list[Round]] = {}
    for _ in range(turns):
        for start in starts:
            with start() as server:
                turn = {(server.name, count): m for count, m in uvloop.run(measure(server, streams, rounds)).items()}
            print(table(turn, streams), file=sys.stderr, flush=True)
            for case, measured in turn.items():
                results.setdefault(case, []).extend(measured)
    return results


def table(results: dict[tuple[str, int], list[Round]], streams: list[int]) -> str:
    """Markdown: a row for each number of streams and server, and the ratios of the first server to the others."""
    rows: list[tuple[object, ...]] = []
    names = list(dict.fromkeys(name for name, _ in results))
    for count in streams:
        figures = [_figures(results[name, count]) for name in names]
        for name, (rate, p50, p95, gap, came) in zip(names, figures, strict=True):
            rows.append((count, name, came, f"{rate:.0f}", f"{p50:.0f}/{p95:.0f}", f"{gap:.1f}"))
        for name, theirs in zip(names[1:], figures[1:], strict=True):
            rate, p50, p95, gap = (our / their for our, their in zip(figures[0][:4], theirs[:4], strict=True))
            rows.append((count, f"**by {name}**", "", f"**{rate:.2f}**", f"**{p50:.2f}**/{p95:.2f}", f"{gap:.2f}"))
    return tables.table("streams | server | tokens in/out | tokens/s | TTFT p50/p95 ms | between tokens p50 ms", rows)


def ratios(folder: Path) -> dict[str, float]:
    """Ours divided by `vllm serve`, of a short run. A cold start of ours begins in a graph that runs."""
    streams, python = [1, 8], vllm_python(folder / "peer")
    began_s = time.perf_counter()
    with vllm(python, folder) as server:
        asyncio.run(send(server, 1, 1))
        start_s = time.perf_counter() - began_s
        theirs = uvloop.run(measure(server, streams, 2))
    with parlance(folder) as server:
        asleep_s = time.perf_counter()
        asyncio.run(send(server, 1, 1))
        cold_s = time.perf_counter() - asleep_s
        ours = uvloop.run(measure(server, streams, 2))
    ratios = {"first cold start": cold_s / start_s}
    for count in streams:
        (rate, first_ms, *_), (their_rate, their_first_ms, *_) = _figures(ours[count]), _figures(theirs[count])
        ratios[f"{count} streams, tokens, rate"] = rate / their_rate
        ratios[f"{count} streams, time to first token"] = first_ms / their_first_ms
    return ratios


def _figures(rounds: list[Round]) -> tuple[float, float, float, float, str]:
    """Tokens/s (median of the rounds), TTFT p50 and p95, time between tokens p50 (over all streams), tokens in/out."""
    ttft = sorted(ms for each in rounds for ms in each.ttft_ms)
    p95 = statistics.quantiles(ttft, n=20, method="inclusive")[18] if len(ttft) > 1 else ttft[0]
    gap = statistics.median(ms for each in rounds for ms in each.gap_ms)
    came = f"{statistics.mean(r.tokens_in for r in rounds):.0f}/{statistics.mean(r.tokens_out for r in rounds):.1f}"
    return statistics.median(each.tokens_per_s for each in rounds), statistics.median(ttft), p95, gap, came


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, STREAMS])
    parser.add_argument("--turns", type=int, default=2, help="of each server")
    parser.add_argument("--rounds", type=int, default=3, help="of each turn and number of streams")
    options = parser.parse_args()
    with working_folder("chat-") as folder:
        python = vllm_python(folder / "peer")
        starts: list[Start] = [lambda: parlance(folder), lambda: vllm(python, folder)]
        if peer := of_its_own("llama"):
            starts.append(lambda: llama(peer, folder))
        results = compare(starts, options.turns, options.streams, options.rounds)
    tables.show(table(results, options.streams))


if __name__ == "__main__":
    main()
