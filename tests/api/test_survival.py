"""Bills outlive the process that made them: `python -m tests.api.test_survival HOME LIMIT` ends before its streams do.

It says `ready` once the first half of its streams is marked and the second half noted, and waits for a signal. Built as
Ray builds a worker: the work is in an event loop of another thread, and SIGTERM ends the main thread by SystemExit.
"""

import asyncio
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sqlalchemy import select

from state import open_state
from state.billing import audit, reservation
from state.billing.postings import LEASE_S
from state.billing.upkeep import run_at_exit
from state.database.base import now_s
from state.database.tables import reservations, usage_lines
from tests.state.books import line_count, make_caller, pass_time

STREAMS = 20
MARKED, NOTED = 30, 50
"""micro-EUR of each stream when it was marked, and at the end."""


async def work(home: Path, limit: int | None) -> None:
    """Streams that go on until the process ends."""
    reservation.MARK_S = 0.0
    state = await open_state(home)
    run_at_exit(state.ledger.close)
    caller = await make_caller(state.database, limit)
    holds = [
        await state.ledger.reserve(caller, line="chat:m", model="m", estimate_micro_eur=100, request_id=f"r{n}")
        for n in range(STREAMS)
    ]
    for hold in holds:
        hold.note(MARKED, MARKED, "tokens", {"output_tokens": MARKED})
    await state.ledger.mark()
    # A mark does not wait for its commit; this does, and comes after it.
    await state.database.run(now_s)
    reservation.MARK_S = 1000.0
    for hold in holds:
        hold.note(NOTED, NOTED, "tokens", {"output_tokens": NOTED})
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


@pytest.mark.parametrize("limit", [None, 100_000])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_a_process_that_ends_bills_its_streams_and_one_that_is_killed_as_far_as_they_were_marked(
    tmp_path: Path, limit: int | None, how: signal.Signals
) -> None:
    command = [sys.executable, "-m", "tests.api.test_survival", str(tmp_path), str(limit or 0)]
    root, pipe = Path(__file__).parent.parent.parent, subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*command, cwd=root, stdout=pipe, stderr=pipe)
    assert child.stdout is not None
    said = await child.stdout.readline()
    if said == b"ready\n":
        child.send_signal(how)
    _, errors = await child.communicate()
    assert said == b"ready\n", errors.decode()
    state = await open_state(tmp_path)

    async def lines() -> set[tuple[int, int, int]]:
        """(quantity, micro-EUR, recovered) of all usage lines, after proving that the books add up."""
        assert await state.database.run(audit.faults) == []
        found = await state.database.run(lambda connection: list(connection.execute(select(usage_lines))))
        assert all(line.quantities == {"output_tokens": line.quantity} for line in found)
        return {(line.quantity, line.cost_micro_eur, line.recovered) for line in found}

    if how is signal.SIGTERM:
        assert await lines() == {(NOTED, NOTED, 0)}
    else:
        assert await lines() == set()
        await pass_time(state.database, LEASE_S + 1)
        purses = int(limit is not None)
        assert await state.ledger.reap() == STREAMS + purses
        assert await lines() == {(MARKED, MARKED, 1)}
        assert await state.ledger.reap() == 0
        held = select(reservations).where(reservations.c.state == "held")
        assert await state.database.run(lambda connection: list(connection.execute(held))) == []
    assert await line_count(state.database) == STREAMS
    await state.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    threading.Thread(target=lambda: asyncio.run(work(Path(sys.argv[1]), int(sys.argv[2]) or None)), daemon=True).start()
    while True:
        signal.pause()
