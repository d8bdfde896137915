"""Serves what `make serve` shows, over engines that obey: `python -m tests.docs.serving HOME [ORGANISATION ...]`.

The organisation `demo` has its key in HOME/demo.key, and a voice of its own. Prints its port and a key of each further
organisation; ends when its input does.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection

from contract.access import OPERATORS, Scope
from state import State, open_state
from state.accounts import organisations
from state.voices import own
from tests.api.conftest import Api, client_of
from tests.api.serving import listening
from tests.catalogs import embedded
from tests.docs.pages import ROOT
from tests.state.drafts import add_voice as insert_voice


@contextmanager
def served(home: Path, *orgs: str) -> Iterator[list[str]]:
    """A server in a process of its own: its root, and a key of each of `orgs`."""
    command = [sys.executable, "-m", "tests.docs.serving", str(home), *orgs]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    # As configs/ray.env has it: Serve takes no more from a socket than the app reads.
    environment = os.environ | {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1"}
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, env=environment, **pipes) as process:
        assert process.stdin
        assert process.stdout
        port, *keys = process.stdout.readline().split()
        yield [f"http://127.0.0.1:{port}", *keys]
        process.stdin.close()


async def main(home: Path, *orgs: str) -> None:
    """Serves until the input ends."""
    state = await open_state(home)
    await state.ensure_demo(home)
    await add_voice(state)
    async with listening(embedded(), state) as (port, service):
        api, keys = Api(service, client_of(service)), []
        for name in orgs:
            await api.organisation(name)
            keys.append(await api.key(*(frozenset(Scope) - OPERATORS), org=name))
        print(port, *keys, flush=True)
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
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
