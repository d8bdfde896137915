"""Sizes of a campaign, and its record: an outcome for each fault, as JSON from which docs/reliability.md is made."""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

LOG = Path(__file__).parents[2] / "var/campaign.log"
T = TypeVar("T")


class Sizes:
    """Counts and seconds of every part, each with the value of the whole campaign and that of the short one."""

    def __init__(self, is_short: bool) -> None:
        def size(whole: T, short: T) -> T:
            return short if is_short else whole

        self.histories = size(300, 60)  # of each machine
        # Disks, for each kind of work. What tears is rare: once in hundreds of tries.
        self.traces, self.losses = size(10, 1), size(100, 30)  # and losses of power played from each
        self.failing_calls = size(10_000, 15)  # at most; there are some hundreds
        self.databases = size(3, 1)  # tries of each fault
        self.has_nodes = size(True, False)  # two machines
        # Deaths. The short form draws whether a process is killed or stopped.
        self.deaths, self.ways = size(3, 1), size(2, 1)
        self.stopped_s = size(8.0, 5.0)
        # Load.
        self.streams, self.streams_s = size(200, 50), size(45.0, 10.0)
        self.overload_s = size(40.0, 10.0)
        self.leavers, self.uploads = size(2000, 200), size(8, 2)
        self.mixed_s = size(1080.0, 30.0)  # several rounds of Python's collector, whose garbage moves megabytes
        # Bad input, for each kind.
        self.examples = size(3_000, 300)  # made from the OpenAPI document
        self.changed_s, self.changed_files = size(30.0, 4.0), size(60, 8)
        self.asked = size(20, 4)  # times that each id of another organisation is asked for
        self.reloads, self.requests = size(8, 2), size(4_000, 0)  # at least


@dataclass(frozen=True)
class Outcome:
    """The result of one kind of fault.

    Attributes:
        part: machines, disks, databases, nodes, deaths, load, inputs, tenants or reloads.
        fault: the fault in a few words: "engine killed amid a stream".
        promise: the sentence of the docs that it attacks.
        times: how often it was tried.
        lost: how many things that had been acknowledged or promised were lost; 0 keeps the promise.
        normal_s: seconds until a request was answered as before, the worst of all tries.
        held_by: a test of `make test-all` that holds the promise between campaigns, by its name.
        seen: answers that clients got, by status and code, or by the name of what they saw.
    """

    part: str
    fault: str
    promise: str
    times: int
    lost: int
    normal_s: float | None = None
    seen: Counter[str] = field(default_factory=Counter)
    held_by: str = ""


@dataclass(frozen=True)
class Record:
    """One campaign: its seed, whether it was the short one, its day and machine, all outcomes, and seconds by part."""

    seed: int
    is_short: bool
    day: str
    machine: str
    outcomes: list[Outcome]
    took_s: dict[str, int] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Writes the record as JSON."""
        rows = [vars(outcome) for outcome in self.outcomes]  # `asdict` would count the pairs of a Counter
        path.write_text(json.dumps(vars(self) | {"outcomes": rows}, indent=1) + "\n")
