"""A process with open streams that ends before they do: `python -m tests.api.dying HOME LIMIT`.

Says `ready` once the first half of its streams is marked and the second half noted, and waits for a signal. Built as
Ray builds a worker: the work is in an event loop of another thread, and SIGTERM ends the main thread by SystemExit.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from state import open_state
from state.billing import reservation
from state.billing.upkeep import run_at_exit
from state.database.base import now_s
from tests.state.books import make_caller

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


def end(_number: int, _frame: FrameType | None) -> None:
    sys.exit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end)
    place, text = Path(sys.argv[1]), sys.argv[2]
    limit = None if text == "none" else int(text)
    threading.Thread(target=lambda: asyncio.run(work(place, limit)), daemon=True).start()
    signal.pause()
    while True:
        signal.pause()
