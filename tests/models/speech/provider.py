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
from typing import Any

import numpy as np

from tests.models import serving

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


class Handler(serving.ProviderHandler):
    server: Provider

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.seen.append((body, {name.lower(): value for name, value in self.headers.items()}))
        with self.server.lock:
            self.server.at_once += 1
            self.server.most_at_once = max(self.server.most_at_once, self.server.at_once)
        try:
            how, colon, detail = body["input"].partition(":")
            self.behave(how, body, detail) if colon else self._speak(body)
        finally:
            with self.server.lock:
                self.server.at_once -= 1

    def _speak(self, body: dict[str, Any]) -> None:
        if self.path != "/v1/audio/speech":
            return self.send(404, b"no")
        if "voice_id" in body:
            return self._chunks("text/event-stream; charset=utf-8", [*deltas(ramp().tobytes()), DONE])
        return self._chunks("audio/wav", blocks(wav(ramp())))

    def _together(self, body: dict[str, Any], _: str) -> None:
        """Speaks once 16 are here."""
        deadline = time.monotonic() + 20
        while self.server.most_at_once < 16 and time.monotonic() < deadline:
            time.sleep(0.005)
        self._speak(body)

    def _slowly(self, body: dict[str, Any], _: str) -> None:
        """One event, then nothing until the test lets it go on."""
        self.start_chunks("text/event-stream")
        first, *others = [*deltas(ramp().tobytes()), DONE]
        self.chunk(first)
        self.server.go_on.wait(20)
        for other in others:
            self.chunk(other)
        self.chunk(b"")

    def _silent(self, body: dict[str, Any], _: str) -> None:
        self.server.go_on.wait(20)

    def _page(self, body: dict[str, Any], _: str) -> None:
        self.send(200, b"<html>please log in</html>", ("Content-Type", "text/html"))

    def _noise(self, body: dict[str, Any], _: str) -> None:
        if "voice_id" in body:
            return self._chunks("text/event-stream", [*deltas(b"<html>please log in</html>.." * 100), DONE])
        return self._chunks("audio/wav", blocks(b"<html>please log in</html>" * 1000))

    def _babble(self, body: dict[str, Any], _: str) -> None:
        self._chunks("text/event-stream", [b"data: {not json\n\n"])

    def _empty(self, body: dict[str, Any], _: str) -> None:
        self._chunks("text/event-stream" if "voice_id" in body else "audio/wav", [DONE] if "voice_id" in body else [])

    def _undone(self, body: dict[str, Any], _: str) -> None:
        self._chunks("text/event-stream", deltas(ramp().tobytes()))

    def _torn(self, body: dict[str, Any], _: str) -> None:
        self._chunks("text/event-stream", [*deltas(ramp().tobytes()[:-1]), DONE])

    def _error(self, body: dict[str, Any], _: str) -> None:
        failed = b'data: {"type": "speech.audio.error", "error": {"message": "secret detail"}}\n\n'
        self._chunks("text/event-stream", [*deltas(ramp().tobytes())[:2], failed])

    def _cut(self, body: dict[str, Any], _: str) -> None:
        whole = b"".join([*deltas(ramp().tobytes()), DONE]) if "voice_id" in body else wav(ramp())
        self.start_chunks("text/event-stream" if "voice_id" in body else "audio/wav")
        self.chunk(whole[: len(whole) // 2])
        self.close_connection = True

    def _short(self, body: dict[str, Any], _: str) -> None:
        data = wav(ramp())
        self.send_response(200)
        self.send_header("Content-Type", "audio/wav")
        self.send_header("Content-Length", str(len(data) + 1))
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = True

    def _chunks(self, kind: str, chunks: list[bytes]) -> None:
        self.start_chunks(kind)
        for chunk in [*chunks, b""]:
            self.chunk(chunk)


class Provider(serving.Provider):
    """Attributes: `most_at_once` is how many requests were under way at the same time."""

    handler = Handler

    def __init__(self) -> None:
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()
        super().__init__()


DONE = (
    b'event: speech.audio.done\ndata: {"type": "speech.audio.done", "usage": {"total_tokens": 3}}\n\ndata: [DONE]\n\n'
)


def blocks(data: bytes) -> list[bytes]:
    return [data[start : start + BLOCK] for start in range(0, len(data), BLOCK)]


def deltas(data: bytes) -> list[bytes]:
    return [
        b'event: speech.audio.delta\ndata: {"type": "speech.audio.delta", "audio_data": "%s"}\n\n'
        % base64.b64encode(block)
        for block in blocks(data)
    ]
