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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

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


class Provider(ThreadingHTTPServer):
    """Attributes: `seen` are all requests; `address` is the base of the API; `left` is set when a client has gone."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[Seen] = []
        self.connections = 0
        self.arrived = threading.Event()
        self.left = threading.Event()
        self.go_on = threading.Event()
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Provider

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_POST(self) -> None:
        if "/refusing/" in self.path:
            self.close_connection = True
            return self._plain(413, b"{}")
        request = self._request()
        self.server.seen.append(request)
        self.server.arrived.set()
        if not request.file.startswith(b"do "):
            return self._transcribe(request, "")
        behaviour, _, rest = request.file.decode().removeprefix("do ").partition(":")
        return getattr(self, f"_{behaviour}")(request, rest)

    def log_message(self, *_: Any) -> None:
        pass

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

    def _transcribe(self, request: Seen, _: str) -> None:
        if self.path != "/v1/audio/transcriptions":
            return self._plain(404, b"no")
        return self._answer(openai(request) if "response_format" in request.fields else mistral(request))

    def _answer(self, answer: Any) -> None:
        self._plain(200, json.dumps(answer).encode())

    def _raw(self, request: Seen, text: str) -> None:
        """Whatever the file says."""
        self._plain(200, text.encode())

    def _long(self, request: Seen, size: str) -> None:
        """An honest answer of so many bytes."""
        self._plain(200, b'{"text": ""}'.ljust(int(size)))

    def _status(self, request: Seen, status: str) -> None:
        self._plain(int(status), b'{"message": "secret detail of the provider"}')

    def _limit(self, request: Seen, _: str) -> None:
        self._plain(429, b"{}", ("Retry-After", "17"))

    def _moved(self, request: Seen, _: str) -> None:
        self._plain(307, b"", ("Location", f"{self.server.address}/audio/transcriptions"))

    def _packed(self, request: Seen, _: str) -> None:
        self._plain(200, gzip.compress(b'{"text": "' + b"a" * 1_000_000 + b'"}'), ("Content-Encoding", "gzip"))

    def _endless(self, request: Seen, _: str) -> None:
        self._start()
        while True:
            self.wfile.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")

    def _cut(self, request: Seen, _: str) -> None:
        self._start()
        self.wfile.write(b'9\r\n{"text": \r\n')
        self.close_connection = True

    def _silent(self, request: Seen, _: str) -> None:
        """Answers when the test lets it, and sees whether the client waits until then."""
        while not self.server.go_on.is_set():
            if select.select([self.connection], [], [], 0.01)[0]:
                self.server.left.set()
                self.close_connection = True
                return
        self._transcribe(request, "")

    def _plain(self, status: int, data: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _start(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()


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
    """`json` is the text alone."""
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
