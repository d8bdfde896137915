"""Files a request runs through: the product files whose code runs, in the order in which they are first entered.

    python -m tests.api.walks      prints them

Each walk is made over the real app, state and gates: once untraced, so that caches are warm, then three times traced.
What all three entered counts. No spend limit is set.

Files are those whose functions are called, in every thread and task; module bodies do not count. Engines are the
obedient ones of `tests.engines`, behind the product's own gate and replica; what a real engine adds is not traced.
"""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import httpx

from state import open_state
from tests.api.bodies import BODIES
from tests.api.conftest import Api, serving
from tests.api.engines import METRICS
from tests.catalogs import behaving, chat
from tests.waiting import until

ROOT = Path(__file__).parents[2]

ROOMS = ("contract", "text", "audio", "concurrency", "configs", "state", "models", "autoscaling", "deployments")


class Calls(Counter[str]):
    """Counts calls of functions of some rooms while a block runs, by file and name, in the order of the first calls.

    It follows the thread of the block, and, if it `follows_threads`, those that have started since it was made.
    """

    def __init__(self, *rooms: str, follows_threads: bool = False) -> None:
        super().__init__()
        self._folders = tuple(f"{ROOT / room}/" for room in rooms)
        self._counts = False
        if follows_threads:
            threading.setprofile(self._note)

    def __enter__(self) -> Calls:
        self.clear()
        self._counts = True
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        self._counts = False

    @property
    def files(self) -> list[str]:
        """The files of these functions, relative to the root."""
        return list(dict.fromkeys(Path(name.rpartition(" ")[0]).relative_to(ROOT).as_posix() for name in self))

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        is_ours = self._counts and event == "call" and code.co_filename.startswith(self._folders)
        if is_ours and code.co_name != "<module>":
            self[f"{code.co_filename} {code.co_qualname}"] += 1


OPTIONS = [{"id": "red"}, {"id": "blue"}]
QUESTIONS = {"colour": {"type": "choice", "instructions": "Which colour?", "options": OPTIONS}}
SAID = {"name": "chat", "arguments": {"model": "obedient", "message": "say hello"}}
POSTS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "chat stream": ("/chat/completions", BODIES["/chat/completions"] | {"stream": True}),
    "speech": ("/audio/speech", {"input": "Good morning, how are you?", "voice": "default-en"}),
    "decision": ("/decisions", {"state": "The sky.", "questions": QUESTIONS}),
    "MCP chat": ("/mcp/mcp", BODIES["/mcp/mcp"] | {"method": "tools/call", "params": SAID}),
}
"""Walks of one request each."""


async def post(api: Api, path: str, body: dict[str, Any]) -> httpx.Response:
    """The answer, which is no refusal."""
    reply = await api.send("POST", f"/v1{path}", json=body)
    assert reply.status_code < 300, reply.text
    assert re.search(r'"error": ?\{', reply.text) is None, reply.text
    return reply


async def transcription(api: Api) -> None:
    """POST /v1/audio/uploads, PUT to its address, POST /v1/audio/transcriptions with `format_text`."""
    sound = b"a recording"
    ticket = (await post(api, "/audio/uploads", {"mime": "audio/webm", "size": len(sound)})).json()
    await api.client.put(ticket["upload_url"], content=sound, headers={"content-type": "audio/webm"})
    await post(api, "/audio/transcriptions", {"upload_id": ticket["upload_id"], "format_text": True})


async def voice_design(api: Api) -> None:
    """POST /v1/audio/voices/designs, GET until it is ready, POST .../adopt."""
    path = "/audio/voices/designs"
    draft = (await post(api, path, {"gender": "f", "age_years": 30, "language": "en"})).json()

    async def is_ready() -> bool:
        return (await api.send("GET", f"/v1{path}/{draft['id']}")).json()["status"] == "ready"

    await until(is_ready)
    await post(api, f"{path}/{draft['id']}/adopt", {"slug": f"voice-{draft['id'][-6:].lower()}"})


WALKS: Mapping[str, Callable[[Api], Awaitable[object]]] = {
    "transcription": transcription,
    "voice design": voice_design,
    **{name: partial(post, path=path, body=body) for name, (path, body) in POSTS.items()},
}


async def walks(folder: Path) -> dict[str, list[str]]:
    """Every walk, over a state in `folder`, which has a migrated database."""
    taken: dict[str, list[str]] = {}
    calls = Calls(*ROOMS, follows_threads=True)  # before a thread starts
    state = await open_state(folder)
    for loop in state._loops:  # what a process does now and then is no part of a walk
        loop.cancel()
    async with serving(behaving(obedient=chat("obedient")), state, metrics=METRICS) as api:
        for name, walk in WALKS.items():
            await walk(api)
            rounds = []
            for _ in range(3):
                with calls:
                    await walk(api)
                rounds.append(calls.files)
            # A task that runs now and then beside a walk is no part of it.
            taken[name] = [file for file in rounds[0] if all(file in files for files in rounds)]
    await state.close()
    threading.setprofile(None)
    return taken


def main() -> None:
    """Prints each walk: its files in the order of their first use."""
    with TemporaryDirectory() as folder:
        for name, files in asyncio.run(walks(Path(folder))).items():
            print(f"{name}: {len(files)} files", *files, sep="\n  ")


if __name__ == "__main__":
    main()
