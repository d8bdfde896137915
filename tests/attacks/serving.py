"""Serves the app over engines that obey, for two organisations: `python -m tests.attacks.serving HOME`.

Prints its port and a key of each; ends when its input does.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from contract.access import OPERATORS, Scope
from state import open_state
from tests.api.conftest import Api, client_of
from tests.api.serving import listening
from tests.catalogs import embedded


async def main(home: Path) -> None:
    """Serves until the input ends."""
    state = await open_state(home)
    async with listening(embedded(), state) as (port, service):
        api = Api(service, client_of(service))
        keys = []
        for name in ("attacker", "bystander"):
            await api.organisation(name)
            keys.append(await api.key(*(frozenset(Scope) - OPERATORS), org=name))
        sys.stdout.write(f"{port} {' '.join(keys)}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
