"""A speech provider on a real socket: answers like Mistral's API and like vLLM-Omni, or misbehaves when told to.

The word before the first colon of `input` says how to behave; without one it speaks. Sound is a ramp, so that samples
that get lost or doubled are seen.
"""

from __future__ import annotations

import base64
import json
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

RATE = 24_000
BLOCK = 2_399
"""Bytes of a block, odd on purpose: samples do not end where blocks do."""


def ramp(samples: int = RATE // 4) -> np.ndarray[Any, Any]:
    """Float32 in -0.5 to 0.5."""
    return (np.arange(samples) % 1000 / 1000 - 0.5).astype("<f4")


def wav(samples: np.ndarray[Any, Any], rate: int = RATE) -> bytes:
    """A mono WAV of 16 bits whose header does not know its length, as servers stream it."""
    data = (samples * 32768).astype("<i2").tobytes()
    fmt = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, rate * 2, 2, 16)
    return b"RIFF\xff\xff\xff\xffWAVE" + fmt + b"data\xff\xff\xff\xff" + data


class Provider(ThreadingHTTPServer):
    """Attributes: `seen` are the bodies and headers of all requests; `address` is the base of the API."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[tuple[dict[str, Any], dict[str, str]]] = []
        self.connections = 0
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()
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
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.seen.append((body, {name.lower(): value for name, value in self.headers.items()}))
        with self.server.lock:
            self.server.at_once += 1
            self.server.most_at_once = max(self.server.most_at_once, self.server.at_once)
        try:
            behaviour, colon, _ = body["input"].partition(":")
            getattr(self, f"_{behaviour}" if colon else "_speak")(body)
        finally:
            with self.server.lock:
                self.server.at_once -= 1

    def log_message(self, *_: Any) -> None:
        pass

    def _speak(self, body: dict[str, Any]) -> None:
        if self.path != "/v1/audio/speech":
            return self._plain(404, b"no")
        if "voice_id" in body:
            return self._chunks("text/event-stream; charset=utf-8", [*deltas(ramp().tobytes()), DONE])
        return self._chunks("audio/wav", blocks(wav(ramp())))

    def _together(self, body: dict[str, Any]) -> None:
        """Speaks once 16 are here."""
        deadline = time.monotonic() + 20
        while self.server.most_at_once < 16 and time.monotonic() < deadline:
            time.sleep(0.005)
        self._speak(body)

    def _slowly(self, body: dict[str, Any]) -> None:
        """One event, then nothing until the test lets it go on."""
        self._start("text/event-stream")
        first, *others = [*deltas(ramp().tobytes()), DONE]
        self._chunk(first)
        self.server.go_on.wait(20)
        for other in others:
            self._chunk(other)
        self._chunk(b"")

    def _silent(self, body: dict[str, Any]) -> None:
        self.server.go_on.wait(20)

    def _status(self, body: dict[str, Any]) -> None:
        self._plain(int(body["input"].split(":")[1]), b'{"message": "secret detail of the provider"}')

    def _limit(self, body: dict[str, Any]) -> None:
        self._plain(429, b"{}", ("Retry-After", "17"))

    def _moved(self, body: dict[str, Any]) -> None:
        self._plain(307, b"", ("Location", "http://127.0.0.1:1/elsewhere"))

    def _page(self, body: dict[str, Any]) -> None:
        self._plain(200, b"<html>please log in</html>", ("Content-Type", "text/html"))

    def _noise(self, body: dict[str, Any]) -> None:
        """Called audio, but is none."""
        if "voice_id" in body:
            return self._chunks("text/event-stream", [*deltas(b"<html>please log in</html>.." * 100), DONE])
        return self._chunks("audio/wav", blocks(b"<html>please log in</html>" * 1000))

    def _babble(self, body: dict[str, Any]) -> None:
        self._chunks("text/event-stream", [b"data: {not json\n\n"])

    def _empty(self, body: dict[str, Any]) -> None:
        self._chunks("text/event-stream" if "voice_id" in body else "audio/wav", [DONE] if "voice_id" in body else [])

    def _undone(self, body: dict[str, Any]) -> None:
        """A whole body, but the last event is missing."""
        self._chunks("text/event-stream", deltas(ramp().tobytes()))

    def _torn(self, body: dict[str, Any]) -> None:
        """A last sample that is not whole."""
        self._chunks("text/event-stream", [*deltas(ramp().tobytes()[:-1]), DONE])

    def _error(self, body: dict[str, Any]) -> None:
        failed = b'data: {"type": "speech.audio.error", "error": {"message": "secret detail"}}\n\n'
        self._chunks("text/event-stream", [*deltas(ramp().tobytes())[:2], failed])

    def _cut(self, body: dict[str, Any]) -> None:
        """The connection ends amid the body."""
        whole = b"".join([*deltas(ramp().tobytes()), DONE]) if "voice_id" in body else wav(ramp())
        self._start("text/event-stream" if "voice_id" in body else "audio/wav")
        self._chunk(whole[: len(whole) // 2])
        self.close_connection = True

    def _short(self, body: dict[str, Any]) -> None:
        """Less than `Content-Length` says."""
        data = wav(ramp())
        self.send_response(200)
        self.send_header("Content-Type", "audio/wav")
        self.send_header("Content-Length", str(len(data) + 1))
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = True

    def _plain(self, status: int, data: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _chunks(self, kind: str, chunks: list[bytes]) -> None:
        self._start(kind)
        for chunk in [*chunks, b""]:
            self._chunk(chunk)

    def _start(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


DONE = (
    b'event: speech.audio.done\ndata: {"type": "speech.audio.done", "usage": {"total_tokens": 3}}\n\ndata: [DONE]\n\n'
)


def blocks(data: bytes) -> list[bytes]:
    return [data[start : start + BLOCK] for start in range(0, len(data), BLOCK)]


def deltas(data: bytes) -> list[bytes]:
    """Events that carry `data`."""
    return [
        b'event: speech.audio.delta\ndata: {"type": "speech.audio.delta", "audio_data": "%s"}\n\n'
        % base64.b64encode(block)
        for block in blocks(data)
    ]
