"""Whether live ears write down every second of a conversation, how many words are wrong, and how late the text comes.

    python -m benchmarks.quality live --seconds 600                      as fast as one speaks, on a graph of its own
    python -m benchmarks.quality live --seconds 3600 --speed 20          as fast as it is heard
    python -m benchmarks.quality live --seconds 600 --kills 2            the engine is killed so often meanwhile
    python -m benchmarks.quality live --clips FOLDER                     people, as `transcription --help` describes it

`hour.py` makes the conversation, of which each word and its time are known. It is sent in pieces of 100 ms; a refused
one is sent again when the error says so. Speech is accounted for if it lies in a turn that is `completed` and whose
text misses no run of words, or in a piece that the ledger calls unheard.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from benchmarks.quality import hour
from benchmarks.quality.live_score import Judged, judged
from benchmarks.quality.live_session import Session, play
from benchmarks.servers import ROOT, Server, parlance, replica, working_folder
from benchmarks.speed.idle_memory import memory_mib
from benchmarks.tables import table

DEPLOYMENT = "transcription-voxtral-mini-transcribe"
SHORT_S = 5.0
"""A turn up to here is short."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=600.0, help="of the hour that are played")
    parser.add_argument("--speed", type=float, default=1.0, help="times as fast as it is spoken, at most")
    parser.add_argument("--kills", type=int, default=0, help="how often the engine is killed, at even distances")
    parser.add_argument("--languages", nargs="+", default=["en"], help="one is named to the session, several are not")
    parser.add_argument("--sentences", type=int, default=120, help="that are spoken before any comes again")
    parser.add_argument("--clips", type=Path, metavar="FOLDER", help="recordings of people in place of our voices")
    parser.add_argument("--seed", type=int, default=29)


def run(options: argparse.Namespace) -> None:
    """Makes the track unless it lies there, plays it, and prints the tables. A track of people is not kept."""
    with tempfile.TemporaryDirectory(prefix="live-") as made, working_folder("live-") as home:
        name = f"{options.seed}-{'-'.join(options.languages)}-{options.sentences}"
        folder = Path(made) / "track" if options.clips else ROOT / "var" / "live" / name
        turns = hour.prepare(folder, options.seed, options.languages, options.sentences, options.clips)
        with parlance(home) as server:
            session = asyncio.run(_play(options, server, folder / "track.wav"))
    rows = judged([turn for turn in turns if turn.end_s < options.seconds], session)
    print(report(rows, session))


async def _play(options: argparse.Namespace, server: Server, track: Path) -> Session:
    language = options.languages[0] if len(options.languages) == 1 else None
    session = Session()
    async with asyncio.TaskGroup() as group:
        watch = group.create_task(_watch(options, session))
        await play(session, server, track, options.seconds, options.speed, language)
        watch.cancel()
    return session


async def _watch(options: argparse.Namespace, session: Session) -> None:
    """Says what ingress and engine take every minute, and kills the engine where that is wanted."""
    kills = [options.seconds * (number + 1) / (options.kills + 1) for number in range(options.kills)]
    second = 0
    while True:
        if kills and session.played_s >= kills[0] and (process := replica(DEPLOYMENT)):
            os.kill(process, signal.SIGKILL)
            print(f"{kills.pop(0):.0f} s of the hour: killed the engine, process {process}", flush=True)
        if second % 60 == 0:
            processes = {name: replica(name) for name in ("ingress", DEPLOYMENT)}
            sizes = {name: memory_mib(psutil.Process(pid)) for name, pid in processes.items() if pid}
            own = ", ".join(f"{name} {own:.0f} MiB of its own" for name, (_, own, _) in sizes.items())
            print(f"after {second} s, {session.played_s:.0f} s of the hour: {own}", flush=True)
        await asyncio.sleep(1)
        second += 1


def report(rows: Sequence[Judged], session: Session) -> str:
    spoken_s = sum(row.seconds for row in rows)
    lost_s = sum(row.lost_s for row in rows)
    kinds: dict[str, Callable[[Judged], bool]] = {
        "in a quiet room": lambda row: not row.overlaps and row.noise_db is None,
        "noise 20 dB below": lambda row: not row.overlaps and row.noise_db == 20,
        "noise 10 dB below": lambda row: not row.overlaps and row.noise_db == 10,
        "two at once": lambda row: row.overlaps,
        "all": lambda _: True,
    }
    of_kinds = {name: [row for row in rows if holds(row)] for name, holds in kinds.items()}
    alone = [row for row in rows if row.turns == 1]
    by_length = {
        f"up to {SHORT_S:.0f} s": [row for row in alone if row.seconds <= SHORT_S],
        "longer": [row for row in alone if row.seconds > SHORT_S],
    }
    times = "turns | how many | text after the end, p50 | p95 | first text after the begin, p50 | p95"
    return "\n\n".join(
        [
            f"{len(rows)} turns, {spoken_s:.0f} s of speech, played in {session.wall_s:.0f} s; "
            f"{session.refusals} pieces were refused and sent again.",
            table("turns | how many | words | wrong | unaccounted", _filled(of_kinds, _words)),
            f"Unaccounted: {lost_s:.1f} s, {lost_s / spoken_s:.2%} of the speech. "
            f"The ledger at the end: {json.dumps(session.ledger)}",
            table(times, _filled(by_length, _times)),
        ]
    )


def _filled(
    groups: Mapping[str, Sequence[Judged]], cells: Callable[[Sequence[Judged]], Sequence[object]]
) -> list[tuple[object, ...]]:
    return [(name, *cells(rows)) for name, rows in groups.items() if rows]


def _words(rows: Sequence[Judged]) -> Sequence[object]:
    words, wrong = sum(row.words for row in rows), sum(row.wrong for row in rows)
    lost = sum(row.lost_s for row in rows) / sum(row.seconds for row in rows)
    return sum(row.turns for row in rows), words, f"{wrong / words:.1%}", f"{lost:.2%}"


def _times(rows: Sequence[Judged]) -> Sequence[object]:
    finals = [row.final_s for row in rows if row.final_s is not None]
    partials = [row.partial_s for row in rows if row.partial_s is not None]
    return len(rows), *_cuts(finals), *_cuts(partials)


def _cuts(values: Sequence[float]) -> tuple[str, str]:
    if len(values) < 2:
        return "", ""
    cuts = statistics.quantiles(values, n=20, method="inclusive")
    return f"{cuts[9]:.2f} s", f"{cuts[18]:.2f} s"
