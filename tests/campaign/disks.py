"""Disks: the power is lost at any moment of the work on SQLite and on the folder of bytes, and calls to the disk fail.

The works are those of `tests/state/crashing.py`, watched by `tests/state/failpoints.c`. A try counts as lost if a check
of `tests/state/remains.py` fails on what is left.
"""

import asyncio
import errno
import os
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from traceback import format_exc

from tests.campaign.record import LOG, Outcome, Sizes
from tests.state.crashing import FOR_EVER, Run, running
from tests.state.power import FAILING, Disk, Entry, notes
from tests.state.remains import CHECKS, watched

WORKS = {
    "bill": "bills, reservations and keys",
    "keep": "bytes that are stored, replaced and deleted",
    "upload": "tickets and their recordings",
    "design": "drafts, voices and their clips",
    "start": "a first start",
}
ACKNOWLEDGED = "What was acknowledged survives a loss of power, and the books add up."
ANSWERED = "A disk that fails or is full is answered with an error of the table; nothing acknowledged is lost."
HELD_POWER = "test_what_was_acknowledged_survives_death_and_a_loss_of_power"
HELD_FULL = "test_what_is_stored_after_a_sync_that_failed_survives_a_loss_of_power"
ERRORS = (errno.EIO, errno.ENOSPC)


async def outcomes(seed: int, sizes: Sizes, place: Path) -> AsyncIterator[Outcome]:
    """Losses of power and failing calls, for each kind of work; a processor for each."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        # Drafts, which take longest, are not the last to begin.
        begun = {work: pool.submit(_work, seed, sizes, work, place / work) for work in reversed(WORKS)}
        for work in WORKS:
            for outcome in await asyncio.wrap_future(begun[work]):
                yield outcome


def _work(seed: int, sizes: Sizes, work: str, folder: Path) -> list[Outcome]:
    # What the children log of each fault would hide the rows.
    with LOG.open("a") as log, running(log) as run:
        bench, name = _Bench(run, work, folder, random.Random(f"{seed} {work}")), WORKS[work]
        asyncio.run(bench.lose_power(sizes.traces, sizes.losses))
        power = bench.outcome(f"power lost amid {name}", ACKNOWLEDGED, HELD_POWER)
        asyncio.run(bench.fail_calls(sizes.failing_calls))
        return [power, bench.outcome(f"EIO and ENOSPC amid {name}", ANSWERED, HELD_FULL)]


@dataclass
class _Bench:
    """Runs of one kind of work."""

    run: Run
    work: str
    folder: Path
    chance: random.Random
    times: int = 0
    lost: int = 0
    seen: Counter[str] = field(default_factory=Counter)

    def outcome(self, fault: str, promise: str, held_by: str) -> Outcome:
        """Everything since the last one."""
        done = Outcome("disks", fault, promise, self.times, self.lost, None, self.seen, held_by)
        self.times, self.lost, self.seen = 0, 0, Counter()
        return done

    async def lose_power(self, runs: int, losses: int) -> None:
        """Loses it `losses` times in each of `runs` runs."""
        for _ in range(runs):
            disk, entries = await self._watched(fail=(0, 0, 0))
            await self._survive(disk, entries, losses)

    async def fail_calls(self, tries: int) -> None:
        """Fails one call, a few or all from some place on: at `tries` random places, if there are more.

        The power is lost as well, now and then.
        """
        _, entries = await self._watched(fail=(0, 0, 0))
        total = sum(entry.kind in FAILING for entry in entries)
        for first in self.chance.sample(range(total), min(tries, total)):
            last = self.chance.choice([first + 1, first + 5, FOR_EVER])
            disk, entries = await self._watched(fail=(first, last, self.chance.choice(ERRORS)))
            await self._check(self.folder / "home", notes(entries))
            self._count_answers(notes(entries))
            await self._survive(disk, entries, 1)

    async def _watched(self, fail: tuple[int, int, int]) -> tuple[Disk, list[Entry]]:
        return await watched(self.run, self.work, self.folder, self.chance.randrange(1 << 30), fail)

    async def _survive(self, disk: Disk, entries: list[Entry], losses: int) -> None:
        after = self.folder / "after"
        for acknowledged in disk.losses(entries, self.chance, losses, after):
            await self._check(after, acknowledged)

    async def _check(self, home: Path, acknowledged: list[str]) -> None:
        self.times += 1
        try:
            await CHECKS[self.work](f"sqlite:///{home / 'parlance.db'}", acknowledged)
        except Exception:  # of any kind: what cannot be opened is lost as well
            self.lost += 1
            print(f"{self.work}, loss {self.lost}, after {acknowledged[-20:]}: {format_exc()}", file=sys.stderr)

    def _count_answers(self, told: list[str]) -> None:
        """Counts what came instead of success, and as lost what no client should see, or sees once all is well."""
        healed = next((number for number, line in enumerate(told) if line.startswith("calls")), len(told))
        for number, line in enumerate(told):
            match line.split():
                case ["answered", name]:
                    self.seen[name] += 1
                    self._lose_if(name == "STATE_UNAVAILABLE" and number > healed, told[: number + 1])
                case ["raised", name]:
                    # No server starts on a disk that fails; once it runs, nothing but an answer may come.
                    self.seen[f"ended by {name}"] += 1
                    self._lose_if(name not in ("ApiError", "OSError") or number > healed, told[: number + 1])

    def _lose_if(self, is_lost: bool, told: list[str]) -> None:
        if is_lost:
            self.lost += 1
            print(f"{self.work}, loss {self.lost}: {told[-20:]}", file=sys.stderr)
