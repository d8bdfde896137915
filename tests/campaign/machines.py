"""Machines: the random histories of the tests, other ones and more of them than `make test-all` draws."""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

from tests.campaign.record import LOG, Outcome, Sizes

ROOT = Path(__file__).parents[2]
MONEY = "No money is lost, promised twice or spent beyond a limit."
WORLD = "autoscaling/test_world.py"
"""Takes ten times as long as others for each history, and plays a tenth of them."""
MACHINES = {
    "test_no_history_of_two_processes_loses_money_promises_it_twice_or_passes_a_limit": (
        "state/test_ledger_processes.py", "two processes and their money", MONEY,
    ),
    "test_the_ledger_agrees_with_its_oracle": (
        "state/test_ledger_model.py", "purses, holds and leases beside an oracle", MONEY,
    ),
    "test_no_history_of_two_processes_loses_a_draft_bills_it_twice_or_leaves_bytes": (
        "state/test_draft_processes.py", "two processes and their drafts",
        "No draft is lost or billed twice, and no bytes are left.",
    ),
    "test_every_replica_knows_what_became_of_a_key_within_five_seconds": (
        "state/test_accounts.py", "keys on two replicas",
        "Every replica knows what became of a key within five seconds.",
    ),
    "test_uploads_follow_their_table": (
        "state/test_tickets.py", "tickets and their uploads", "An upload is whole or was never there.",
    ),
    "test_repetitions_follow_their_table": (
        "state/test_idempotency.py", "requests sent again", "A repeated request is done once, and answered alike.",
    ),
    "test_whatever_happens_to_a_session_its_books_are_right": (
        "api/test_live_machine.py", "live sessions", "Every sample and every second of live sound has its place.",
    ),
    "test_whatever_fails_requests_end_as_they_may_and_in_the_end_all_is_well": (
        WORLD, "replicas that fail and start while clients call",
        "Requests end as they may, and in the end all is well.",
    ),
}  # fmt: skip
"""The file, the fault and the promise of each, by its test."""


async def outcomes(seed: int, sizes: Sizes, place: Path) -> AsyncIterator[Outcome]:
    """A row for each machine; one that fails counts as one loss, and the log has its history."""
    free = asyncio.Semaphore(os.cpu_count() or 1)
    begun = [asyncio.create_task(_outcome(test, seed, sizes.histories, place, free)) for test in MACHINES]
    for outcome in begun:
        yield await outcome


async def _outcome(test: str, seed: int, histories: int, place: Path, free: asyncio.Semaphore) -> Outcome:
    file, fault, promise = MACHINES[test]
    histories //= 10 if file == WORLD else 1
    options = ("-k", "not postgresql", f"--hypothesis-seed={seed}", "--timeout=3000", f"--basetemp={place / test}")
    async with free:
        lost = await run_tests(f"{file}::{test}", *options, HISTORIES=str(histories), HISTORY_SEED=str(1000 * seed))
    return Outcome("machines", fault, promise, histories, lost.total(), None, lost, test)


async def run_tests(name: str, *options: str, **environment: str) -> Counter[str]:
    """Runs a file or one test. A failure, a skipped test, or none at all is one loss, and what was said is logged."""
    pytest = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", f"tests/{name}", "-q", *options),
        cwd=ROOT, env=os.environ | environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        said = (await pytest.communicate())[0].decode(errors="replace")
    finally:
        if pytest.returncode is None:
            pytest.terminate()
            await pytest.wait()
    if not pytest.returncode and "skipped" not in said.splitlines()[-1]:
        return Counter()
    with LOG.open("a") as log:
        log.write(said)
    return Counter({"LOST: the history in the log": 1})
