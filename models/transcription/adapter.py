"""Base of every transcriber: the file is fetched, decoded in a sandbox, and then transcribed.

transcribe(job) -> TranscriptUpdate ...             the first as soon as the file is decoded
listen(job, recording) -> TranscriptUpdate ...      the engine's own part
"""

from __future__ import annotations

import tempfile
import time
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import httpx

from audio.sandbox import NotAudio, QueueFull, SharesExhausted, Sound, TooLong, decode
from contract.catalog import TranscriptionModel
from contract.errors import AUDIO_TOO_LONG, AUDIO_UNREADABLE, BUSY, UPSTREAM_ERROR
from contract.limits import UPLOAD_BYTES
from contract.transcription.engine import TranscriptionEngine, TranscriptionJob, TranscriptUpdate

if TYPE_CHECKING:
    from audio.encoding import Samples

SAMPLE_RATE = 16_000
"""Samples per second of the sound that engines transcribe."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A decoded file.

    Attributes:
        file: as the client sent it, in memory or on disk.
        sound: its samples, at SAMPLE_RATE.
    """

    file: bytes | Path
    sound: Sound

    def samples(self, start_s: float, end_s: float) -> Samples:
        """float32 mono [n] of a part, -1 to 1."""
        import numpy as np

        first, last = round(start_s * SAMPLE_RATE), round(end_s * SAMPLE_RATE)
        part = np.frombuffer(self.sound.samples, "<i2")[first:last].astype(np.float32)
        part /= 32768.0
        return part


class TranscriptionAdapter(TranscriptionEngine):
    """One engine. Subclasses load in their constructor, after this one, and implement `listen`."""

    def __init__(self, model: TranscriptionModel, path: Path | None) -> None:
        self.model = model
        self.serving = model.setup
        self._decoding = 0

    @property
    def active_s(self) -> float:
        """As the base beside this one, ThreadedAdapter or EngineAdapter, has it.

        While a file is decoded, which has a time limit of its own, it is now.
        """
        return time.monotonic() if self._decoding else super().active_s  # type: ignore[misc]

    @abstractmethod
    def listen(self, job: TranscriptionJob, recording: Recording) -> AsyncGenerator[TranscriptUpdate, None]:
        """Yields the transcript, passage by passage; several run at the same time.

        Raises ApiError for what a client could have known; anything else counts as a failure of the engine.
        """

    async def transcribe(self, job: TranscriptionJob) -> AsyncGenerator[TranscriptUpdate, None]:
        async with fetched(job.audio) as file:
            self._decoding += 1
            try:
                sound = await decode(file, SAMPLE_RATE, job.max_seconds, job.owner)
            except TooLong as error:
                raise AUDIO_TOO_LONG(f"the recording lasts {error}, the limit for this request", param="file") from None
            except NotAudio as error:
                raise AUDIO_UNREADABLE(f"the recording cannot be decoded: {error}", param="file") from None
            except (QueueFull, SharesExhausted) as error:
                raise BUSY(f"too many {error}; send the request again shortly") from None
            finally:
                self._decoding -= 1
            yield TranscriptUpdate(sound.seconds)
            async with aclosing(self.listen(job, Recording(file, sound))) as parts:
                async for part in parts:
                    yield part


@asynccontextmanager
async def fetched(audio: bytes | str) -> AsyncIterator[bytes | Path]:
    """The file of a job: as it came, or from its address; what was downloaded is deleted afterwards."""
    if isinstance(audio, bytes):
        yield audio
        return
    address = urlsplit(audio)
    if address.scheme == "file":
        yield Path(unquote(address.path))
        return
    with tempfile.TemporaryDirectory(prefix="recording-") as folder:
        path = Path(folder) / "recording"
        await _download(audio, path)
        yield path


async def _download(address: str, path: Path) -> None:
    size = 0
    async with httpx.AsyncClient(follow_redirects=False) as client, client.stream("GET", address) as reply:
        if reply.status_code != 200:
            raise UPSTREAM_ERROR()
        with path.open("wb") as file:
            async for block in reply.aiter_bytes(1 << 20):
                size += len(block)
                if size > UPLOAD_BYTES:
                    raise UPSTREAM_ERROR()
                file.write(block)
