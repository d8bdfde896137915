"""Plays a track through the socket of a transcription session, and keeps what comes back and when."""

from __future__ import annotations

import asyncio
import base64
import json
import time
import wave
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.servers import Server

MODEL = "voxtral-mini-transcribe"
PIECE_S = 0.1
TURN = {"type": "server_vad"}
TRANSCRIPT = "conversation.item.input_audio_transcription"
LATEST_S = 600.0
"""Until all turns are written down, after the last piece."""


@dataclass
class Session:
    """What was sent and what came, with times of this clock in seconds.

    Attributes:
        sent: when each piece of `PIECE_S` was sent, the last time.
        events: what came, each with `at`.
        refusals: pieces that had to be sent again.
    """

    sent: list[float] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    refusals: int = 0
    wall_s: float = 0.0
    _back: int | None = None
    _wait_until: float = 0.0

    @property
    def ledger(self) -> dict[str, Any] | None:
        """The last that the session told of its seconds."""
        told = (event.get("ledger") or event.get("parlance", {}).get("ledger") for event in reversed(self.events))
        return next(filter(None, told), None)

    @property
    def played_s(self) -> float:
        return len(self.sent) * PIECE_S

    def sent_at(self, second: float) -> float:
        """When the piece with this second of the track was sent."""
        return self.sent[min(int(second / PIECE_S), len(self.sent) - 1)]

    def take(self, event: dict[str, Any]) -> None:
        """Keeps an event, and goes back to a piece that was refused."""
        self.events.append({"at": time.monotonic()} | event)
        error = event.get("error") or {}
        if event["type"] == "error" and "retry_after_ms" in error:
            generation, _, piece = str(error["event_id"]).partition("-")
            if int(generation) == self.refusals and self._back is None:  # the pieces behind it were refused as well
                self._back, self._wait_until = int(piece), time.monotonic() + error["retry_after_ms"] / 1000

    async def send(self, socket: Any, pieces: list[bytes], speed: float) -> None:
        number, begun = 0, time.monotonic()
        while number < len(pieces) or self._back is not None:
            if self._back is not None:
                number, self._back, self.refusals = self._back, None, self.refusals + 1
                del self.sent[number:]
                await asyncio.sleep(max(0.0, self._wait_until - time.monotonic()))
                begun = max(begun, time.monotonic() - number * PIECE_S / speed)
            await asyncio.sleep(max(0.0, begun + number * PIECE_S / speed - time.monotonic()))
            audio = base64.b64encode(pieces[number]).decode()
            event = {"type": "input_audio_buffer.append", "event_id": f"{self.refusals}-{number}", "audio": audio}
            self.sent.append(time.monotonic())
            await socket.send(json.dumps(event))
            number += 1
            if number == len(pieces):
                await asyncio.sleep(1)  # the last one may still be refused

    async def read(self, socket: Any) -> None:
        async for message in socket:
            self.take(json.loads(message))


async def play(
    session: Session, server: Server, track: Path, seconds: float, speed: float, language: str | None
) -> None:
    """Plays the first `seconds` of a track, PCM16 of one channel, to a session of its own."""
    from websockets.asyncio.client import connect

    with wave.open(str(track)) as file:
        rate, step = file.getframerate(), int(file.getframerate() * PIECE_S)
        pieces = [file.readframes(step) for _ in range(0, min(file.getnframes(), int(seconds * rate)), step)]
    url = f"ws://127.0.0.1:{server.port}/v1/realtime?intent=transcription"
    begun = time.monotonic()
    async with connect(url, additional_headers=server.headers, max_size=None, compression=None) as socket:
        transcription = {"model": MODEL} | ({"language": language} if language else {})
        audio = {"format": {"type": "audio/pcm", "rate": rate}, "transcription": transcription, "turn_detection": TURN}
        update = {"type": "session.update", "session": {"type": "transcription", "audio": {"input": audio}}}
        await socket.send(json.dumps(update))
        reader = asyncio.create_task(session.read(socket))
        await session.send(socket, pieces, speed)
        await socket.send(json.dumps({"type": "parlance.session.end"}))
        await asyncio.wait_for(reader, LATEST_S)
        session.wall_s = time.monotonic() - begun
