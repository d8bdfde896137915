"""The runs of one command, one for each core at a time, with a bar that says how far they are."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import Progress

from benchmarks.capacity.engine import Setup
from benchmarks.capacity.policies import POLICIES
from benchmarks.capacity.run import Result
from benchmarks.capacity.summary import Summary, summary
from benchmarks.capacity.traces import SimulatedTrace

Setups = Mapping[str, Setup]


@dataclass(frozen=True)
class Run:
    """A policy, on engines as one value of the sweep sets them up."""

    name: str
    policy: str
    setups: Setups


class _Shared:
    """State that all processes share: they are forked, so that a long trace is in memory once."""

    trace: SimulatedTrace
    played: Any


def _share(trace: SimulatedTrace, played: Any) -> None:
    _Shared.trace, _Shared.played = trace, played


def _count(more: int) -> None:
    with _Shared.played.get_lock():
        _Shared.played.value += more


def _run(run: Run, play: Callable[..., Result], room: Mapping[str, float]) -> Summary:
    policy, trace = POLICIES[run.policy](run.setups, room), _Shared.trace
    return summary(trace, play(trace, run.setups, policy, run.name, room=room, progress=_count))


def play_all(
    trace: SimulatedTrace, runs: Sequence[Run], play: Callable[..., Result], room: Mapping[str, float]
) -> list[Summary]:
    """The summary of each run, in their order."""
    context = multiprocessing.get_context("fork")
    played = context.Value("q", 0)
    processes = min(len(runs), len(os.sched_getaffinity(0)))
    with (
        ProcessPoolExecutor(processes, context, _share, (trace, played)) as pool,
        Progress(console=Console(stderr=True), transient=True) as bar,
    ):
        futures = [pool.submit(_run, run, play, room) for run in runs]
        task = bar.add_task("requests", total=len(trace) * len(runs))
        while not all(future.done() for future in futures):
            bar.update(task, completed=played.value)
            time.sleep(0.2)
        return [future.result() for future in futures]
