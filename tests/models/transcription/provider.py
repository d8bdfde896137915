"""A provider of transcripts on a real socket: answers like Mistral's API and like OpenAI's, or misbehaves when told to.

A file that begins with `do` says how to behave: `do status:401`. What is sent to `/refusing` is refused unread.
"""

from __future__ import annotations

import gzip
import json
import re
import select
import threading
from dataclasses import dataclass
from typing import Any

from tests.models import serving

TEXT = "Good morning, Mrs. Miller. Nine o'clock?"
SEGMENTS = [("Good morning, Mrs. Miller.", 0.5, 2.0), (" Nine o'clock?", 3.5, 4.25)]
WORDS = [("Good", 0.5, 0.8), ("morning", 0.8, 1.2), ("Mrs", 1.3, 1.5), ("Miller", 1.5, 2.0),
         ("Nine", 3.5, 3.75), ("o'clock", 3.75, 4.25)]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Seen:
    """A request: its fields, its headers in lower case, and the file with its name."""

    fields: dict[str, list[str]]
    headers: dict[str, str]
    file: bytes
    filename: str


class Handler(serving.ProviderHandler):
    """Transcribes, unless the file says otherwise."""

    server: Provider

    def do_POST(self) -> None:
        if "/refusing/" in self.path:
            self.close_connection = True
            return self.send(413, b"{}")
        request = self._request()
        self.server.seen.append(request)
        self.server.arrived.set()
        if not request.file.startswith(b"do "):
            return self._transcribe(request)
        how, _, detail = request.file.decode().removeprefix("do ").partition(":")
        return self.behave(how, request, detail)

    def _request(self) -> Seen:
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
        return Seen(fields, {name.lower(): value for name, value in self.headers.items()}, file, filename)

    def _transcribe(self, request: Seen) -> None:
        if self.path != "/v1/audio/transcriptions":
            return self.send(404, b"no")
        answer = openai(request) if "response_format" in request.fields else mistral(request)
        return self.send(200, json.dumps(answer).encode())

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

    def _silent(self, request: Seen, _: str) -> None:
        """Answers when the test lets it, and sees whether the client waits until then."""
        while not self.server.go_on.is_set():
            if select.select([self.connection], [], [], 0.01)[0]:
                self.server.left.set()
                self.close_connection = True
                return
        self._transcribe(request)


class Provider(serving.Provider):
    """Attributes: `arrived` is set when a request has come, `left` when a client has gone."""

    handler = Handler

    def __init__(self) -> None:
        self.arrived = threading.Event()
        self.left = threading.Event()
        super().__init__()


def mistral(request: Seen) -> dict[str, Any]:
    """Without times there are no segments; words are among them."""
    named = request.fields.get("timestamp_granularities", [None])[0]
    listed = {"word": WORDS, "segment": SEGMENTS, None: []}[named]
    return {
        "model": "voxtral-mini-2602",
        "text": TEXT,
        "language": None,
        "segments": [
            {"type": "transcription_segment", "text": text, "start": start, "end": end, "speaker_id": None}
            for text, start, end in listed
        ],
        "usage": {"prompt_audio_seconds": 5, "prompt_tokens": 4, "completion_tokens": 9, "total_tokens": 400},
    }


def openai(request: Seen) -> dict[str, Any]:
    if request.fields["response_format"] == ["json"]:
        return {"text": TEXT}
    named = request.fields["timestamp_granularities[]"]
    answer: dict[str, Any] = {"task": "transcribe", "language": "en", "duration": 5.0, "text": TEXT}
    if "word" in named:
        answer["words"] = [{"word": text, "start": start, "end": end} for text, start, end in WORDS]
    else:
        answer["segments"] = [
            {"id": number, "seek": 0, "text": text, "start": start, "end": end, "avg_logprob": -0.2}
            for number, (text, start, end) in enumerate(SEGMENTS)
        ]
    return answer
