"""Bills outlive the process that made them."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import select

from state import State, open_state
from state.billing import audit
from state.billing.postings import LEASE_S
from state.database.tables import reservations, usage_lines
from tests.api.dying import MARKED, NOTED, STREAMS
from tests.state.books import line_count, pass_time

ROOT = Path(__file__).parent.parent.parent


async def die(home: Path, limit: int | None, how: signal.Signals) -> State:
    """Lets a process with open streams end by a signal, and opens what it leaves."""
    command = [sys.executable, "-m", "tests.api.dying", str(home), str(limit or "none")]
    child = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    said = await child.stdout.readline()
    if said == b"ready\n":
        child.send_signal(how)
    _, errors = await child.communicate()
    assert said == b"ready\n", errors.decode()
    return await open_state(home)


async def lines(state: State) -> set[tuple[int, int, int]]:
    """(quantity, micro-EUR, recovered) of all usage lines, after proving that the books add up."""
    assert await state.database.run(audit.faults) == []
    found = await state.database.run(lambda connection: list(connection.execute(select(usage_lines))))
    assert all(line.quantities == {"output_tokens": line.quantity} for line in found)
    return {(line.quantity, line.cost_micro_eur, line.recovered) for line in found}


@pytest.mark.parametrize("limit", [None, 100_000])
async def test_a_process_that_is_told_to_end_bills_its_open_streams(tmp_path: Path, limit: int | None) -> None:
    state = await die(tmp_path, limit, signal.SIGTERM)
    assert await lines(state) == {(NOTED, NOTED, 0)}
    assert await line_count(state.database) == STREAMS
    await state.close()


@pytest.mark.parametrize("limit", [None, 100_000])
async def test_a_killed_process_loses_what_came_after_its_last_mark_and_no_more(
    tmp_path: Path, limit: int | None
) -> None:
    state = await die(tmp_path, limit, signal.SIGKILL)
    assert await lines(state) == set()
    await pass_time(state.database, LEASE_S + 1)
    purses = int(limit is not None)
    assert await state.ledger.reap() == STREAMS + purses
    assert await lines(state) == {(MARKED, MARKED, 1)}
    assert await line_count(state.database) == STREAMS
    assert await state.ledger.reap() == 0
    held = select(reservations).where(reservations.c.state == "held")
    assert await state.database.run(lambda connection: list(connection.execute(held))) == []
    await state.close()
