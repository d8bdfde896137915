"""The record of a campaign: one outcome for each fault, as JSON from which `docs/reliability.md` is made."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

LOG = Path(__file__).parents[2] / "var/campaign.log"


@dataclass(frozen=True)
class Outcome:
    """The result of one kind of fault.

    Attributes:
        part: deaths, disks, databases, load, inputs, tenants or reloads.
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
    """One campaign: its seed, whether it was the short one, its day and machine, and all outcomes."""

    seed: int
    is_short: bool
    day: str
    machine: str
    outcomes: list[Outcome]

    def write(self, path: Path) -> None:
        """Writes the record as JSON that `read` understands."""
        rows = [vars(outcome) for outcome in self.outcomes]  # `asdict` would count the pairs of a Counter
        path.write_text(json.dumps(vars(self) | {"outcomes": rows}, indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Record:
        """The record in `path`."""
        kept = json.loads(path.read_text())
        outcomes = [Outcome(**{**row, "seen": Counter(row["seen"])}) for row in kept.pop("outcomes")]
        return cls(**kept, outcomes=outcomes)
