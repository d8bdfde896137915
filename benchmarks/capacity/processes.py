"""The runs of one command, one for each core at a time, with a bar that says how far they are."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

from rich.console import Console
from rich.progress import track

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


_TRACES: list[SimulatedTrace] = []
"""Of a process that plays: all are forked, so that a long trace is in memory once."""


def _run(run: Run, play: Callable[..., Result], room: Mapping[str, float]) -> Summary:
    policy, trace = POLICIES[run.policy](run.setups, room), _TRACES[0]
    return summary(trace, play(trace, run.setups, policy, run.name, room=room))


def play_all(
    trace: SimulatedTrace, runs: Sequence[Run], play: Callable[..., Result], room: Mapping[str, float]
) -> list[Summary]:
    """The summary of each run, in their order."""
    workers = min(len(runs), len(os.sched_getaffinity(0)))
    with ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), _TRACES.append, (trace,)) as pool:
        results = pool.map(partial(_run, play=play, room=room), runs)
        return list(track(results, "runs", len(runs), console=Console(stderr=True), transient=True))
