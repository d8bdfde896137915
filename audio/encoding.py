"""Samples to files: wav, flac, mp3, opus (in Ogg) and aac (ADTS), each with its provenance.

    encoder = Encoder("mp3", 24_000, provenance)
    out.write(encoder.add(samples)); ...; out.write(encoder.finish())         # as samples come
    encoded(samples, "mp3", 24_000, provenance)                               # a whole clip

A file that streams cannot say at its beginning how long it is: wav then says 0xFFFFFFFF, flac says nothing. Such files
decode well. A whole file says it.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from audio.provenance import Provenance
from contract.catalog import AudioFormat

if TYPE_CHECKING:
    import numpy as np

    Samples = np.ndarray[Any, np.dtype[np.float32]]

UNKNOWN_SIZE = 0xFFFFFFFF


class Encoder:
    """One file that grows. Not for several threads at a time.

    Args:
        format: one of the keys of `CODECS`, or `wav`.
        sample_rate: samples per second of the input. A codec without it gets its next higher rate.
        provenance: origin of the sound.
        whole: `add` returns nothing, and `finish` the file, which says how long it is.
    """

    def __init__(self, format: AudioFormat, sample_rate: int, provenance: Provenance, *, whole: bool = False) -> None:
        self._sink: io.BytesIO | _Stream = io.BytesIO() if whole else _Stream()
        self._writer: _Wav | _Coded  # its `add` gets at most a second of float32 samples in [-1, 1]
        if format == "wav":
            self._writer = _Wav(self._sink, sample_rate, provenance)
        else:
            self._writer = _Coded(self._sink, CODECS[format], sample_rate, provenance)
        self._sample_rate = sample_rate
        self._resampler = _resampler(sample_rate, self._writer.rate)
        self._has_sound = False

    def add(self, samples: Samples) -> bytes:
        """The bytes of the file that these samples, float32 mono in [-1, 1], made ready; possibly none."""
        self._has_sound |= len(samples) > 0
        self._add(samples, is_last=False)
        return self._sink.take() if isinstance(self._sink, _Stream) else b""

    def finish(self) -> bytes:
        """The rest of the file. Nothing may be added afterwards."""
        import numpy as np

        # Most readers refuse a file without any sound: it gets one silent sample.
        self._add(np.zeros(0 if self._has_sound else 1, np.float32), is_last=True)
        self._writer.finish()
        return self._sink.take() if isinstance(self._sink, _Stream) else self._sink.getvalue()

    def _add(self, samples: Samples, is_last: bool) -> None:
        import numpy as np

        # Long blocks in one call have killed encoders: none gets more than a second.
        for start in range(0, max(len(samples), 1), self._sample_rate):
            block = np.nan_to_num(samples[start : start + self._sample_rate]).clip(-1, 1).astype(np.float32, copy=False)
            if self._resampler:
                block = self._resampler.resample_chunk(block, last=is_last).clip(-1, 1)
            if len(block):
                self._writer.add(block)


def encoded(samples: Samples, format: AudioFormat, sample_rate: int, provenance: Provenance) -> bytes:
    """A whole clip, float32 mono in [-1, 1], as a file that says how long it is."""
    encoder = Encoder(format, sample_rate, provenance, whole=True)
    return encoder.add(samples) + encoder.finish()


@dataclass(frozen=True, slots=True)
class Codec:
    """Settings by which PyAV makes one format: FFmpeg's names of the muxer and the encoder, and options of the muxer.

    `bits_per_second` is for lossy formats; speech in one channel.
    """

    container: str
    name: str
    bits_per_second: int | None = None
    options: dict[str, str] = field(default_factory=dict)

    def rate_for(self, sample_rate: int) -> int:
        """The rate to encode at: the given one if the encoder has it, else the next above, else the highest."""
        import av

        rates = sorted(av.Codec(self.name, "w").audio_rates or [sample_rate])
        return next((rate for rate in rates if rate >= sample_rate), rates[-1])


CODECS: dict[AudioFormat, Codec] = {
    "flac": Codec("flac", "flac", options={"metadata_header_padding": "0"}),
    "mp3": Codec("mp3", "libmp3lame", 96_000),
    "opus": Codec("ogg", "libopus", 48_000, {"page_duration": "200000"}),  # in us; one second is the muxer's own
    "aac": Codec("adts", "aac", 96_000, {"write_id3v2": "1"}),
}


class _Stream:
    """A sink that cannot be read or wound back, so that PyAV writes what needs neither."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        return data


class _Coded:
    """A file of any other format than wav, written by FFmpeg's encoders."""

    def __init__(self, sink: io.BytesIO | _Stream, codec: Codec, sample_rate: int, provenance: Provenance) -> None:
        import av

        self.rate = codec.rate_for(sample_rate)
        options = {"flush_packets": "1"} | codec.options
        self._file = av.open(sink, "w", format=codec.container, container_options=options)
        self._file.metadata.update(provenance.tags())
        stream = self._file.add_stream(codec.name, rate=self.rate, layout="mono")
        assert isinstance(stream, av.AudioStream)
        self._stream = stream
        if codec.bits_per_second is not None:
            self._stream.bit_rate = codec.bits_per_second
        self._file.start_encoding()

    def add(self, samples: Samples) -> None:
        import av

        frame = av.AudioFrame.from_ndarray(_pcm16(samples)[None], format="s16", layout="mono")
        frame.sample_rate = self.rate
        self._file.mux(self._stream.encode(frame))

    def finish(self) -> None:
        self._file.mux(self._stream.encode(None))
        self._file.close()


class _Wav:
    """16-bit PCM. The provenance stands before the sound, where a player that streams finds it."""

    def __init__(self, sink: io.BytesIO | _Stream, sample_rate: int, provenance: Provenance) -> None:
        self.rate = sample_rate
        self._sink = sink
        fmt = b"fmt " + struct.pack("<IHHIIHH", 16, 1, 1, sample_rate, sample_rate * 2, 2, 16)
        self._head = fmt + provenance.chunks()
        self._sink.write(b"RIFF" + struct.pack("<I", UNKNOWN_SIZE) + b"WAVE" + self._head)
        self._sink.write(b"data" + struct.pack("<I", UNKNOWN_SIZE))

    def add(self, samples: Samples) -> None:
        self._sink.write(_pcm16(samples).astype("<i2").tobytes())

    def finish(self) -> None:
        if isinstance(self._sink, _Stream):
            return
        size = self._sink.tell()
        for at, value in ((4, size - 8), (16 + len(self._head), size - 20 - len(self._head))):
            self._sink.seek(at)
            self._sink.write(struct.pack("<I", value))


def _pcm16(samples: Samples) -> np.ndarray[Any, np.dtype[np.int16]]:
    import numpy as np

    return np.rint(samples * 32767).astype(np.int16)


def _resampler(from_rate: int, to_rate: int) -> Any:
    if from_rate == to_rate:
        return None
    import soxr

    return soxr.ResampleStream(from_rate, to_rate, 1, dtype="float32")
