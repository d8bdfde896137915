"""What a request walks through: the product files whose code runs, in the order in which they are first entered.

    python -m tests.api.walks      prints them

Each walk is made over the real app, state and gates: once untraced, so that caches are warm, then three times traced.
What all three entered counts. No spend limit is set.

Files are those that a call entered (`tests/api/tracing.py` says how, and what a climb is). Engines are the obedient
ones of `tests.engines`, behind the product's own replica class; what a real engine of the profile `embedded` adds is
not traced but listed in `ENGINE_SIDE`. Metrics go to a function of this file, as they go to Ray's elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from sqlalchemy import create_engine

from contract.access import Scope
from deployments.ingress.app import build_app
from deployments.ingress.console import Console
from deployments.ingress.context import Service
from state import open_state
from state.database.migrate import upgrade_schema
from tests.api.conftest import Api
from tests.api.engines import METRICS, local_engines
from tests.api.tracing import Tracer, Walk, in_all
from tests.catalogs import behaving, chat
from tests.waiting import until

CHAT_ENGINE = (
    "models/chat/adapter.py",
    "models/chat/request.py",
    "models/llm/vllm_internals/serving.py",
    "models/chat/turns.py",
    "models/llm/plain_text.py",
    "models/chat/cut.py",
    "models/llm/vllm_internals/core.py",
    "models/llm/vllm_internals/steps.py",
    "models/chat/events.py",
)
KOKORO = (
    "models/stepping.py",
    "models/kokoro/speaker.py",
    "models/kokoro/styles.py",
    "models/kokoro/phonemes.py",
    "models/kokoro/network.py",
    "models/espeak/library.py",
    "audio/encoding.py",
    "audio/provenance.py",
)
ENGINE_SIDE: Mapping[str, tuple[str, ...]] = {
    "chat stream": CHAT_ENGINE,
    "speech": (
        "models/speech/adapter.py",
        "models/speech/expressive.py",
        "models/speech/kokoro.py",
        "text/sentences.py",
        *KOKORO,
    ),
    "transcription": (
        "models/transcription/adapter.py",
        "models/transcription/faster_whisper.py",
        "models/transcription/voice_activity.py",
        "models/transcription/whisper.py",
        "models/stepping.py",
        "audio/sandbox.py",
        "audio/confinement.py",
        "audio/decoding.py",
    ),
    "voice design": (
        "models/voice_design/adapter.py",
        "models/voice_design/kokoro.py",
        "models/voice_design/palette.py",
        "audio/pitch.py",
        *KOKORO,
    ),
    "decision": (
        "models/decisions/measured_scorer.py",
        "models/decisions/similarity.py",
        "models/encoders.py",
        "models/batching.py",
    ),
    "MCP chat": CHAT_ENGINE,
}
"""Files that a request runs in the engine of `embedded`, by walk. They were counted by reading."""


# --- the walks -------------------------------------------------------------------------------------------------------


async def chat_stream(api: Api) -> None:
    """POST /v1/chat/completions with `stream`."""
    reply = await api.chat(stream=True)
    assert reply.text.endswith("data: [DONE]\n\n"), reply.text


async def speech(api: Api) -> None:
    """POST /v1/audio/speech."""
    body = {"input": "Good morning, how are you?", "voice": "default-en"}
    reply = await api.send("POST", "/v1/audio/speech", json=body)
    assert reply.status_code == 200, reply.text


async def transcription(api: Api) -> None:
    """POST /v1/audio/uploads, PUT to its address, POST /v1/audio/transcriptions with `format_text`."""
    sound = b"a recording"
    ticket = (await api.send("POST", "/v1/audio/uploads", json={"mime": "audio/webm", "size": len(sound)})).json()
    await api.client.put(ticket["upload_url"], content=sound, headers={"content-type": "audio/webm"})
    body = {"upload_id": ticket["upload_id"], "format_text": True}
    reply = await api.send("POST", "/v1/audio/transcriptions", json=body)
    assert reply.status_code == 200, reply.text


async def voice_design(api: Api) -> None:
    """POST /v1/audio/voices/designs, GET until it is ready, POST .../adopt."""
    path = "/v1/audio/voices/designs"
    draft = (await api.send("POST", path, json={"gender": "f", "age_years": 30, "language": "en"})).json()

    async def is_ready() -> bool:
        return (await api.send("GET", f"{path}/{draft['id']}")).json()["status"] == "ready"

    await until(is_ready)
    reply = await api.send("POST", f"{path}/{draft['id']}/adopt", json={"slug": f"voice-{draft['id'][-6:].lower()}"})
    assert reply.status_code == 200, reply.text


async def decision(api: Api) -> None:
    """POST /v1/decisions."""
    options = [{"id": "red"}, {"id": "blue"}]
    questions = {"colour": {"type": "choice", "instructions": "Which colour?", "options": options}}
    reply = await api.send("POST", "/v1/decisions", json={"state": "The sky.", "questions": questions})
    assert reply.status_code == 200, reply.text


async def mcp_chat(api: Api) -> None:
    """POST /mcp/mcp, tools/call of `chat`."""
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "chat", "arguments": {"model": "obedient", "message": "say hello"}},
    }
    headers = {"accept": "application/json, text/event-stream"}
    reply = await api.send("POST", "/mcp/mcp", json=call, headers=headers)
    assert "hello" in reply.text, reply.text


WALKS: Mapping[str, Callable[[Api], Awaitable[None]]] = {
    "chat stream": chat_stream,
    "speech": speech,
    "transcription": transcription,
    "voice design": voice_design,
    "decision": decision,
    "MCP chat": mcp_chat,
}


async def walks(folder: Path) -> dict[str, Walk]:
    """Every walk, over a state in `folder`, which has a migrated database."""
    catalog = behaving(obedient=chat("obedient"))
    with Tracer() as tracer:  # before a thread starts
        state = await open_state(folder)
        for loop in state._loops:  # what a process does now and then is no part of a walk
            loop.cancel()
        engines = local_engines(catalog)
        service = Service(catalog, engines, state, metrics=METRICS, console=Console(catalog, engines))
        transport = httpx.ASGITransport(build_app(service), raise_app_exceptions=False)
        taken: dict[str, Walk] = {}
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            api = Api(service, client)
            await api.organisation("acme")
            api.everything = await api.key(*Scope)
            for name, walk in WALKS.items():
                await walk(api)
                taken[name] = in_all([await tracer.follow(partial(walk, api)) for _ in range(3)])
        await service.drafts.close()
        await state.close()
    return taken


# --- on the command line ---------------------------------------------------------------------------------------------


def main() -> None:
    """Prints each walk: its files in the order of their first use, and its climbs."""
    with TemporaryDirectory() as folder:
        engine = create_engine(f"sqlite:///{folder}/parlance.db")
        with engine.begin() as connection:
            upgrade_schema(connection)
        engine.dispose()
        for name, walk in asyncio.run(walks(Path(folder))).items():
            files = walk.files_with(ENGINE_SIDE[name])
            print(f"{name}: {len(files)} files, {len(walk.climbs)} climbs", *files, sep="\n  ")
            print(*(f"  climb: {caller} to {callee}" for caller, callee in walk.climbs), sep="\n")


if __name__ == "__main__":
    main()
