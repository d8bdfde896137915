"""Serves what `make serve` shows, over engines that obey: `python -m tests.docs.serving HOME`.

The organisation `demo` has its key in HOME/demo.key, and a voice of its own. Prints its port; ends when its input does.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from sqlalchemy import Connection

from state import State, open_state
from state.accounts import organisations
from state.voices import own
from tests.api.serving import listening
from tests.catalogs import embedded
from tests.state.drafts import add_voice as insert_voice


async def main(home: Path) -> None:
    """Serves until the input ends."""
    state = await open_state(home)
    await state.ensure_demo(home)
    await add_voice(state)
    async with listening(embedded(), state) as (port, _):
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


async def add_voice(state: State) -> None:
    """One voice of `demo`, so that there is a sample behind a signed address."""

    def find(connection: Connection) -> int:
        return organisations.find(connection, "demo").id

    names = {"clip_blob": "voices/1/clip.wav", "sample_blob": "voices/1/sample.mp3"}
    for name in names.values():
        await state.blobs.put(name, b"sound")
    about = {"provider": "qwen", "label": "Ours", "gender": "f", "age_group": "30-35", "primary_language": "en"}
    voice = own(slug="ours", description=None, **about)
    await insert_voice(state.database, await state.database.run(find), voice, **names, transcript="hello")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
