"""Bad input of every kind: requests from the OpenAPI document, and good requests with bytes changed by the seed.

A 5xx is ours where the table of errors has its status and code. Everything else of that class is counted as lost, and
so is a process of the graph that was there before and is not there after.
"""

import asyncio
import base64
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import httpx

from benchmarks.attacks.bombs import BOMBS, encoded, tone
from benchmarks.attacks.bystander import standing_by
from benchmarks.attacks.frames import ending, event, frame, upgraded
from benchmarks.attacks.target import NOBODY, Target, code_of, opened
from contract.errors import FAULTS
from tests.audio.test_sandbox import FORMATS, file_of, hum
from tests.campaign.graph import Graph
from tests.campaign.record import Outcome, Sizes

SCHEMATHESIS = Path(".venv/campaign/bin/schemathesis").absolute()
OURS = {(fault.status, fault.code) for fault in FAULTS.values()}
DOCUMENTED = "test_replies_are_as_documented"
DECODED = "test_a_bomb_costs_little_and_leaves_nothing"
STAYING = ("Ingress", "ServeController", "raylet", "haproxy")
"""Titles of processes that no input may end. Engines may stop when idle, and decoders are ended on purpose."""
ODD = [b"", b"\0", b"\xff" * 4, b"-1", b"1e999", b"NaN", b"9" * 40, b'"', b"{" * 64, b"\r\n", b"%00", b"\xed\xa0"]
NOT_OURS = "not ours"
CHECKS = "not_a_server_error,response_schema_conformance,content_type_conformance,status_code_conformance,ignored_auth"
OPERATIONS = 40
"""Of the document, about."""
NOT_MADE = ("/v1/images/generations", "/v1/console/events")
"""Paths left out: the first is always 501, the second never ends."""

Send = Callable[[Target, bytes], Awaitable[str]]


def mutated(data: bytes, chance: random.Random) -> bytes:
    """`data` with one to four changes: a bit turned, a slice removed or repeated, bytes put in, an end cut."""
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1)
        end = min(len(data), at + chance.choice((1, 2, 8, 64)))
        change = chance.randrange(5)
        if change == 0 and at < len(data):
            data = data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        elif change == 1:
            data = data[:at] + data[end:]
        elif change == 2:
            data = data[:at] + data[at:end] * chance.choice((2, 50)) + data[end:]
        elif change == 3:
            data = data[:at] + chance.choice(ODD) + data[end:]
        elif chance.random() < 0.2:
            data = data[:at]
    return data


def judged(reply: httpx.Response) -> str:
    """Status and code of a reply, with a mark where it is a failure that is not in the table of errors."""
    name = f"{reply.status_code} {code_of(reply)}".strip()
    return name if reply.status_code < 500 or (reply.status_code, code_of(reply)) in OURS else f"{NOT_OURS}: {name}"


def json_to(path: str) -> Send:
    """A sender of bodies to a path."""

    async def send(target: Target, body: bytes) -> str:
        return judged(await target.send("POST", path, content=body, headers={"content-type": "application/json"}))

    return send


async def form(target: Target, body: bytes) -> str:
    """A body as a form with a recording."""
    headers = {"content-type": "multipart/form-data; boundary=x"}
    return judged(await target.send("POST", "/v1/audio/transcriptions", content=body, headers=headers))


async def recording(target: Target, data: bytes) -> str:
    """A file as a recording to transcribe."""
    return judged(await target.send("POST", "/v1/audio/transcriptions", files={"file": ("a.wav", data)}))


async def image(target: Target, address: bytes) -> str:
    """A `data:` address as an image in a chat."""
    content = [{"type": "image_url", "image_url": {"url": address.decode("latin-1")}}]
    body = {"model": target.models["chat"][0], "max_tokens": 1, "messages": [{"role": "user", "content": content}]}
    return judged(await target.send("POST", "/v1/chat/completions", json=body))


async def signed(target: Target, address: bytes) -> str:
    """An upload to an address that is not quite the signed one. Success would be a forgery."""
    with suppress(httpx.InvalidURL):
        content = {"content": b"x", "headers": {"content-type": "audio/wav"}}
        reply = await target.send("PUT", "/" + address.decode("latin-1").lstrip("/"), key=NOBODY, **content)
        return f"{NOT_OURS}: forged" if reply.status_code == 200 and b"signature" not in address else judged(reply)
    return "no address"


async def frames(target: Target, data: bytes) -> str:
    """Bytes on the socket of a live session."""
    try:
        async with upgraded(target) as (reader, writer):
            writer.write(data)
            writer.write_eof()
            return await ending(reader, 5)
    except (ConnectionError, asyncio.IncompleteReadError) as error:
        return str(error) if isinstance(error, ConnectionRefusedError) else "cut off"


def _seeds(target: Target, address: str) -> dict[str, tuple[Send, Sequence[bytes]]]:
    """Senders and good inputs by kind."""
    chat = {"model": target.models["chat"][0], "max_tokens": 1, "messages": [{"role": "user", "content": "say hi"}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "me", "arguments": {}}}
    wav = encoded("wav", "pcm_s16le", tone(0.3))
    file = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n' + wav + b"\r\n--x--\r\n"
    sound = base64.b64encode(bytes(4_800)).decode()
    turn = event("input_audio_buffer.append", audio=sound) + event("input_audio_buffer.commit")
    pixel = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(60)).decode()
    return {
        "JSON of a chat": (json_to("/v1/chat/completions"), [json.dumps(chat).encode()]),
        "JSON of a decision": (
            json_to("/v1/decisions"),
            [b'{"state": "x", "questions": {"q": {"type": "choice", "instructions": "?", "criteria": {"a": null}}}}'],
        ),
        "JSON of speech": (
            json_to("/v1/audio/speech"),
            [b'{"input": "hello", "speed": 1.5, "response_format": "wav"}'],
        ),
        "MCP messages": (json_to("/mcp/mcp"), [json.dumps(call).encode()]),
        "forms": (form, [file]),
        "WAV heads": (recording, [wav[:64]]),
        "data addresses": (image, [f"data:image/png;base64,{pixel}".encode()]),
        "signed addresses": (signed, [address.encode()]),
        "websocket frames": (frames, [turn, frame(1, b"{}", is_last=False) + turn]),
    }


async def outcomes(seed: int, sizes: Sizes, graph: Graph) -> AsyncIterator[Outcome]:
    """Outcomes of all kinds, the document first."""
    attacker, bystander = [await asyncio.to_thread(graph.key, org) for org in ("attacker", "bystander")]
    target = await opened(graph.url, attacker, bystander, is_short=True)
    promise = "Bad input gets an error of the table, and takes no process down."
    yield await asyncio.to_thread(_document, seed, sizes.examples, target)
    ticket = (await target.send("POST", "/v1/audio/uploads", json={"mime": "audio/wav", "size": 1})).json()
    address = urlsplit(ticket["upload_url"])
    kinds = _seeds(target, f"{address.path}?{address.query}")
    for name, (send, goods) in kinds.items():
        inputs = _changed_for(sizes.changed_s, goods, random.Random(f"{seed} {name}"))
        yield await _tried(graph, target, f"{name} changed by chance", promise, inputs, send)
    for format in FORMATS:
        good, chance = file_of(format, hum(1, 48_000), 48_000), random.Random(f"{seed} {format}")
        files = (mutated(good, chance) for _ in range(sizes.changed_files))
        yield await _tried(graph, target, f"{format} files changed by chance", promise, files, recording, DECODED)
    bombs = (make() for make in BOMBS.values())
    yield await _tried(graph, target, "files made to harm a decoder", promise, bombs, recording, DECODED)


def _changed_for(seconds: float, goods: Sequence[bytes], chance: random.Random) -> Iterator[bytes]:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        yield mutated(chance.choice(goods), chance)


async def _tried(
    graph: Graph, target: Target, fault: str, promise: str, inputs: Iterable[bytes], send: Send, held_by: str = ""
) -> Outcome:
    """The outcome of sending `inputs` one after the other while somebody else asks."""
    before, seen = _staying(graph), Counter[str]()
    with standing_by(target) as waits:
        for data in inputs:
            try:
                seen[await send(target, data)] += 1
            except httpx.HTTPError as error:
                seen[type(error).__name__] += 1
    wrong = sum(count for name, count in seen.items() if name.startswith(NOT_OURS))
    lost = len(before - _staying(graph)) + wrong + waits.failures.total()
    return Outcome("inputs", fault, promise, seen.total(), lost, None, seen, held_by)


def _staying(graph: Graph) -> set[int]:
    return {process.pid for process in graph.processes(*STAYING)}


def _document(seed: int, examples: int, target: Target) -> Outcome:
    """The outcome of requests made from the OpenAPI document."""
    if not SCHEMATHESIS.exists():
        raise SystemExit("run `make campaign`, or `make setup-campaign` before this module")
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.ndjson"
        each = max(1, examples // OPERATIONS)
        command = [str(SCHEMATHESIS), "run", f"{target.url}/openapi.json", f"--seed={seed}", f"--max-examples={each}"]
        command += ["-H", f"Authorization: Bearer {target.key}", f"--checks={CHECKS}", "--phases=fuzzing"]
        command += ["--continue-on-failure", "--no-shrink", "--suppress-health-check=all", "--report=ndjson"]
        command += [f"--report-ndjson-path={report}", *(f"--exclude-path={path}" for path in NOT_MADE)]
        subprocess.run(command, check=False, capture_output=True, cwd=folder)
        scenarios = [json.loads(line).get("ScenarioFinished") for line in report.open()]
    seen, lost = Counter[str](), 0
    for scenario in filter(None, scenarios):
        recorder = scenario["recorder"]
        seen.update(
            str((one["response"] or {}).get("status_code", "no answer"))
            for one in recorder.get("interactions", {}).values()
        )
        failed = {
            (check["name"], recorder["label"])
            for checks in recorder.get("checks", {}).values()
            for check in checks
            if check["status"] == "failure"
        }
        lost += len(failed)
        if failed:
            print(json.dumps(recorder.get("checks"))[:4000], file=sys.stderr)
        seen.update(f"{name} of {label}" for name, label in failed)
    promise = "Every answer is as the OpenAPI document has it, and none is a failure of the server."
    fault = "requests made from the OpenAPI document"
    return Outcome("inputs", fault, promise, seen.total(), lost, None, seen, DOCUMENTED)
