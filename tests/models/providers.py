"""Providers of speech and of transcripts on real sockets: they answer like Mistral's API and OpenAI's, or misbehave.

The word before the first colon of a text, or of a recording that begins with `do`, says how: `status:401`. Without one
they do what they are asked. What is sent to `/refusing` is refused unread. Sound is a ramp, so that samples that get
lost or doubled are seen.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import select
import struct
import threading
import time
from dataclasses import dataclass
from email.message import Message
from http.server import ThreadingHTTPServer
from typing import Any, ClassVar

import numpy as np

from contract.catalog import Serving, SpeechModel, TranscriptionModel
from tests.models.serving import Handler

KEY = "sk-of-the-test"
KEY_VARIABLE = "TEST_PROVIDER_KEY"
NOBODY = "http://127.0.0.1:1/v1"
BROKEN = (*(f"status:{status}" for status in (204, 400, 401, 500, 503)), "moved:", "cut:")
"""Failures of a provider, of speech or of transcription."""


def serving_of(adapter: str, address: str, options: dict[str, Any], deadline_s: float) -> Serving:
    return Serving(
        adapter=adapter,
        runtime="test",
        options={"key_variable": KEY_VARIABLE, "address": address} | options,
        max_ongoing_requests=16,
        deadline_s=deadline_s,
    )


def speech_model(address: str = NOBODY, deadline_s: float = 20, **options: Any) -> SpeechModel:
    own = {
        "model": "voxtral-mini-tts-3-0",
        "voices": {"bib-f-20": "voice_1"},
        "default_voices": {"de": "voice_481", "en": "voice_478"},
    }
    serving = serving_of("models.speech.mistral:MistralSpeech", address, own | options, deadline_s)
    return SpeechModel(
        id="voxtral", owned_by="t", provider="mistral", languages=("de",), max_input_chars=4000, serving=serving
    )


def transcription_model(address: str = NOBODY, deadline_s: float = 20, **options: Any) -> TranscriptionModel:
    own = {"model": "voxtral-mini-latest"}
    adapter = "models.transcription.mistral:MistralTranscription"
    serving = serving_of(adapter, address, own | options, deadline_s)
    return TranscriptionModel(id="voxtral", owned_by="t", serving=serving)


@dataclass(frozen=True, slots=True)
class Seen:
    """A request: its fields, its headers, and a file with its name."""

    fields: dict[str, Any]
    headers: Message
    file: bytes = b""
    filename: str = ""


class Provider(ThreadingHTTPServer):
    """Attributes: `seen` are all requests, as the handler notes them; `most_at_once` is how many were under way at the
    same time; `address` is the base of the API; `go_on` lets those answers go on that wait for it; `arrived` is set
    when a request has come, `left` when a client has gone.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, handler: type[ProviderHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.seen: list[Seen] = []
        self.connections = self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()
        self.go_on, self.arrived, self.left = threading.Event(), threading.Event(), threading.Event()
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, request: Seen, client_address: Any) -> None:
        """A client that has gone is no news."""

    def __exit__(self, *raised: Any) -> None:
        self.go_on.set()
        self.shutdown()
        super().__exit__(*raised)


class ProviderHandler(Handler):
    """Subclasses have `request_read`, `answer`, and a method for each way of their own to misbehave."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Provider
    path_of_api: ClassVar[str]

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_POST(self) -> None:
        if "/refusing/" in self.path:
            self.close_connection = True
            return self.send(413, b"{}")
        server, (request, how, detail) = self.server, self.request_read()
        server.seen.append(request)
        server.arrived.set()
        with server.lock:
            server.at_once += 1
            server.most_at_once = max(server.most_at_once, server.at_once)
        try:
            if how:
                getattr(self, f"_{how}")(request, detail)
            elif self.path == self.path_of_api:
                self.answer(request)
            else:
                self.send(404, b"no")
        finally:
            with server.lock:
                server.at_once -= 1
        return None

    def _status(self, request: Seen, status: str) -> None:
        self.send(int(status.partition(":")[0]), b'{"message": "secret detail of the provider"}')

    def _limit(self, request: Seen, _: str) -> None:
        self.send(429, b"{}", ("Retry-After", "17"))

    def _moved(self, request: Seen, _: str) -> None:
        self.send(307, b"", ("Location", f"{self.server.address}{self.path.removeprefix('/v1')}"))

    def _page(self, request: Seen, _: str) -> None:
        self.send(200, b"<html>please log in</html>", ("Content-Type", "text/html"))

    def _together(self, request: Seen, _: str) -> None:
        """Answers once 16 requests are here."""
        deadline = time.monotonic() + 20
        while self.server.most_at_once < 16 and time.monotonic() < deadline:
            time.sleep(0.005)
        self.answer(request)

    def _silent(self, request: Seen, _: str) -> None:
        """Answers when the test lets it, and sees whether the client waits until then."""
        while not self.server.go_on.is_set():
            if select.select([self.connection], [], [], 0.01)[0]:
                self.server.left.set()
                self.close_connection = True
                return
        self.answer(request)

    def start_chunks(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


# Speech

RATE = 24_000
BLOCK = 2_399
"""Bytes of a block, odd on purpose: samples do not end where blocks do."""
DONE = (
    b'event: speech.audio.done\ndata: {"type": "speech.audio.done", "usage": {"total_tokens": 3}}\n\ndata: [DONE]\n\n'
)
FAILED = b'data: {"type": "speech.audio.error", "error": {"message": "secret detail"}}\n\n'


def ramp(samples: int = RATE // 4) -> np.ndarray[Any, Any]:
    """Float32 in -0.5 to 0.5."""
    return (np.arange(samples) % 1000 / 1000 - 0.5).astype("<f4")


def wav(samples: np.ndarray[Any, Any], rate: int = RATE) -> bytes:
    """A mono WAV of 16 bits whose header does not know its length, as servers stream it."""
    data = (samples * 32768).astype("<i2").tobytes()
    fmt = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, rate * 2, 2, 16)
    return b"RIFF\xff\xff\xff\xffWAVE" + fmt + b"data\xff\xff\xff\xff" + data


def blocks(data: bytes) -> list[bytes]:
    return [data[start : start + BLOCK] for start in range(0, len(data), BLOCK)]


def deltas(data: bytes) -> list[bytes]:
    delta = b'event: speech.audio.delta\ndata: {"type": "speech.audio.delta", "audio_data": "%s"}\n\n'
    return [delta % base64.b64encode(block) for block in blocks(data)]


class SpeechHandler(ProviderHandler):
    path_of_api = "/v1/audio/speech"

    def request_read(self) -> tuple[Seen, str, str]:
        fields = json.loads(self.rfile.read(int(self.headers["content-length"])))
        how, colon, detail = fields["input"].partition(":")
        return Seen(fields, self.headers), colon and how, detail

    def answer(self, request: Seen) -> None:
        self._chunks(request, [*deltas(ramp().tobytes()), DONE], blocks(wav(ramp())))

    def _noise(self, request: Seen, _: str) -> None:
        page = b"<html>please log in</html>.." * 1000
        self._chunks(request, [*deltas(page), DONE], blocks(page[:-1]))

    def _empty(self, request: Seen, _: str) -> None:
        self._chunks(request, [DONE], [])

    def _babble(self, request: Seen, _: str) -> None:
        self._chunks(request, [b"data: {not json\n\n"])

    def _undone(self, request: Seen, _: str) -> None:
        self._chunks(request, deltas(ramp().tobytes()))

    def _torn(self, request: Seen, _: str) -> None:
        self._chunks(request, [*deltas(ramp().tobytes()[:-1]), DONE])

    def _error(self, request: Seen, _: str) -> None:
        self._chunks(request, [*deltas(ramp().tobytes())[:2], FAILED])

    def _cut(self, request: Seen, _: str) -> None:
        events = b"".join([*deltas(ramp().tobytes()), DONE])
        self._chunks(request, [events[: len(events) // 2]], [wav(ramp())[:6000]], end=False)
        self.close_connection = True

    def _slowly(self, request: Seen, _: str) -> None:
        """One event, then nothing until the test lets it go on."""
        first, *others = [*deltas(ramp().tobytes()), DONE]
        self._chunks(request, [first], end=False)
        self.server.go_on.wait(20)
        for other in [*others, b""]:
            self.chunk(other)

    def _short(self, request: Seen, _: str) -> None:
        data = wav(ramp())
        self.send_response(200)
        self.send_header("Content-Type", "audio/wav")
        self.send_header("Content-Length", str(len(data) + 1))
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = True

    def _chunks(
        self, request: Seen, events: list[bytes], sound: list[bytes] | None = None, *, end: bool = True
    ) -> None:
        """`events` to whom they were promised, and `sound` to the others."""
        of_events = sound is None or "voice_id" in request.fields
        self.start_chunks("text/event-stream; charset=utf-8" if of_events else "audio/wav")
        for chunk in [*(events if of_events else sound or []), *([b""] if end else [])]:
            self.chunk(chunk)


# Transcripts

TEXT = "Good morning, Mrs. Miller. Nine o'clock?"
SEGMENTS = [("Good morning, Mrs. Miller.", 0.5, 2.0), (" Nine o'clock?", 3.5, 4.25)]
WORDS = [("Good", 0.5, 0.8), ("morning", 0.8, 1.2), ("Mrs", 1.3, 1.5), ("Miller", 1.5, 2.0),
         ("Nine", 3.5, 3.75), ("o'clock", 3.75, 4.25)]  # fmt: skip


class TranscriptionHandler(ProviderHandler):
    path_of_api = "/v1/audio/transcriptions"

    def request_read(self) -> tuple[Seen, str, str]:
        body = self.rfile.read(int(self.headers["content-length"]))
        boundary = self.headers["content-type"].partition("boundary=")[2].encode()
        fields: dict[str, list[str]] = {}
        file, filename = b"", ""
        for part in body.split(b"--" + boundary)[1:-1]:
            head, _, content = part.removeprefix(b"\r\n").removesuffix(b"\r\n").partition(b"\r\n\r\n")
            names = dict(re.findall(r'(name|filename)="([^"]*)"', head.decode()))
            if "filename" in names:
                file, filename = content, names["filename"]
            else:
                fields.setdefault(names["name"], []).append(content.decode())
        how, _, detail = file.decode().removeprefix("do ").partition(":") if file.startswith(b"do ") else ("", "", "")
        return Seen(fields, self.headers, file, filename), how, detail

    def answer(self, request: Seen) -> None:
        made = of_openai(request) if "response_format" in request.fields else of_mistral(request)
        self.send(200, json.dumps(made).encode())

    def _raw(self, request: Seen, text: str) -> None:
        self.send(200, text.encode())

    def _long(self, request: Seen, size: str) -> None:
        self.send(200, b'{"text": ""}'.ljust(int(size)))

    def _packed(self, request: Seen, _: str) -> None:
        self.send(200, gzip.compress(b'{"text": "' + b"a" * 1_000_000 + b'"}'), ("Content-Encoding", "gzip"))

    def _endless(self, request: Seen, _: str) -> None:
        self.start_chunks("application/json")
        while True:
            self.chunk(b" " * 0x10000)

    def _cut(self, request: Seen, _: str) -> None:
        self.start_chunks("application/json")
        self.chunk(b'{"text": ')
        self.close_connection = True


def of_mistral(request: Seen) -> dict[str, Any]:
    """Without times there are no segments; words are among them."""
    named = request.fields.get("timestamp_granularities", [None])[0]
    listed = {"word": WORDS, "segment": SEGMENTS, None: []}[named]
    segments = [
        {"type": "transcription_segment", "text": text, "start": start, "end": end, "speaker_id": None}
        for text, start, end in listed
    ]
    usage = {"prompt_audio_seconds": 5, "prompt_tokens": 4, "completion_tokens": 9, "total_tokens": 400}
    return {"model": "voxtral-mini-2602", "text": TEXT, "language": None, "segments": segments, "usage": usage}


def of_openai(request: Seen) -> dict[str, Any]:
    if request.fields["response_format"] == ["json"]:
        return {"text": TEXT}
    answer: dict[str, Any] = {"task": "transcribe", "language": "en", "duration": 5.0, "text": TEXT}
    if "word" in request.fields["timestamp_granularities[]"]:
        return answer | {"words": [{"word": text, "start": start, "end": end} for text, start, end in WORDS]}
    segments = [
        {"id": number, "seek": 0, "text": text, "start": start, "end": end, "avg_logprob": -0.2}
        for number, (text, start, end) in enumerate(SEGMENTS)
    ]
    return answer | {"segments": segments}
