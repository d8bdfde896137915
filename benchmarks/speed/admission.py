"""What the checks of a request cost by themselves: key, scope, rate, reserve, settle, in this process and without HTTP.

    python -m benchmarks.speed.admission
    python -m benchmarks.speed.admission --postgres postgresql://parlance@127.0.0.1/empty

One client after the other. SQLite waits for its disk, and PostgreSQL does unless its `fsync` is off. The database of
`--postgres` must be empty.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from pathlib import Path

from benchmarks.servers import make_customer, working_folder
from benchmarks.speed.load import cuts_ms
from contract.access import Scope
from state import open_state
from state.database.base import migrate
from state.keys import SECRET_VARIABLE


async def admit(database_url: str, home: Path, requests: int) -> str:
    """A row of the table; the first tenth of the requests is left out."""
    os.environ.setdefault(SECRET_VARIABLE, "00" * 32)
    await migrate(database_url)
    key = make_customer({"PARLANCE_HOME": str(home), "PARLANCE_DATABASE_URL": database_url})
    state = await open_state(home, database_url)
    try:
        admitting_s, settling_s = [], []
        for index in range(requests):
            started_s = time.perf_counter()
            caller = await state.accounts.authenticate(f"Bearer {key}")
            verdict = await state.rates.hit(caller)
            caller.require(Scope.CHAT)
            assert verdict.allowed
            hold = await state.ledger.reserve(
                caller, line="chat:x", model="x", estimate_micro_eur=40, request_id=f"req_{index}"
            )
            admitted_s = time.perf_counter()
            await hold.settle(30, 10, "tokens")
            admitting_s.append(admitted_s - started_s)
            settling_s.append(time.perf_counter() - admitted_s)
    finally:
        await state.close()
    cells = (
        "/".join(f"{ms:.2f}" for ms in cuts_ms(seconds[requests // 10 :])) for seconds in (admitting_s, settling_s)
    )
    return f"| {database_url.split(':')[0]} | {' | '.join(cells)} |"


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--postgres", metavar="ADDRESS", help="an empty database, measured after SQLite")
    parser.add_argument("--requests", type=int, default=2000)
    options = parser.parse_args()
    print("| database | key, scope, rate, reserve: p50/p95/p99 ms | settle: p50/p95/p99 ms |\n|---|---|---|")
    with working_folder("admission-") as home:
        for url in filter(None, (f"sqlite:///{home / 'admission.db'}", options.postgres)):
            print(asyncio.run(admit(url, home, options.requests)), flush=True)
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
