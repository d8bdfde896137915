"""Files that mean harm: small, and each made to cost a decoder time, memory, or its life."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable

import av
import numpy as np

RATE = 16_000


def encoded(container: str, codec: str, samples: np.ndarray, rate: int = RATE, layout: str = "mono") -> bytes:
    content = io.BytesIO()
    with av.open(content, "w", format=container) as file:
        stream = file.add_stream(codec, rate=rate, layout=layout)
        assert isinstance(stream, av.AudioStream)
        frame = av.AudioFrame.from_ndarray((samples[None] * 32767).astype(np.int16), format="s16", layout=layout)
        frame.sample_rate = rate
        file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    return content.getvalue()


def tone(seconds: float, rate: int = RATE) -> np.ndarray:
    return (0.4 * np.sin(2 * np.pi * 220 * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def wav(fmt: bytes, *chunks: bytes, data: bytes = b"") -> bytes:
    """A WAV file of `data`, or of some silence that says it has no end."""
    head = b"RIFF\xff\xff\xff\xffWAVEfmt " + struct.pack("<I", len(fmt)) + fmt
    return head + b"".join(chunks) + b"data" + struct.pack("<I", len(data) or 0xFFFFFFFF) + (data or bytes(64_000))


def pcm(channels: int = 1, rate: int = RATE, bits: int = 16, block: int = 2) -> bytes:
    return struct.pack("<HHIIHH", 1, channels, rate, rate * block & 0xFFFFFFFF, block, bits)


def flac_that_says_all_samples() -> bytes:
    content = bytearray(encoded("flac", "flac", tone(1)))
    content[21] |= 0x0F
    content[22:26] = b"\xff" * 4
    return bytes(content[: len(content) // 3])


def m4a_that_lies(box: bytes, at: int, *numbers: int) -> bytes:
    """An M4A file with other numbers in one of its boxes."""
    content = bytearray(encoded("ipod", "aac", tone(2)))
    struct.pack_into(">II", content, content.index(box) + at, *numbers)
    return bytes(content)


def m4a_without_its_index() -> bytes:
    content = encoded("ipod", "aac", tone(2))
    return content[: content.index(b"moov") - 4]


def boxes_in_boxes() -> bytes:
    inner = b""
    for _ in range(5_000):
        inner = struct.pack(">I", 8 + len(inner)) + b"moov" + inner
    return b"\0\0\0\x18ftypM4A \0\0\0\0M4A isom" + inner


def matroska_of_a_thousand_streams() -> bytes:
    content = io.BytesIO()
    with av.open(content, "w", format="matroska") as file:
        streams = [file.add_stream("pcm_s16le", rate=8_000, layout="mono") for _ in range(1_000)]
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), format="s16", layout="mono")
        frame.sample_rate = 8_000
        for stream in streams:
            file.mux(stream.encode(frame))
    return content.getvalue()


def mp3_of_another_kind_in_each_frame() -> bytes:
    mono, stereo = encoded("mp3", "libmp3lame", tone(0.05)), encoded("mp3", "libmp3lame", tone(0.05, 44_100), 44_100)
    return (mono + stereo) * 500


def numbers_that_are_none() -> bytes:
    """Samples of floating point: infinities and what is no number."""
    samples = np.tile(np.array([np.nan, np.inf, -np.inf, 3e38], "<f4"), 8_000)
    return wav(struct.pack("<HHIIHH", 3, 1, RATE, RATE * 4, 4, 32), data=samples.tobytes())


BOMBS: dict[str, Callable[[], bytes]] = {
    "a billion hertz": lambda: wav(pcm(rate=1_000_000_000)),
    "every channel there is": lambda: wav(pcm(channels=65_535, block=65_534)),
    "blocks of nothing": lambda: wav(pcm(block=0)),
    "bits that no sample has": lambda: wav(pcm(bits=65_535, block=65_535)),
    "a chunk longer than the file": lambda: wav(pcm(), b"LIST" + struct.pack("<I", 0xFFFFFFF0)),
    "ten thousand chunks": lambda: wav(pcm(), (b"LIST" + struct.pack("<I", 4) + b"INFO") * 10_000),
    "an extensible format of zeros": lambda: wav(
        struct.pack("<HHIIHHH", 0xFFFE, 1, RATE, 2 * RATE, 2, 16, 22) + bytes(22)
    ),
    "flac of hours of silence": lambda: encoded("flac", "flac", np.zeros(8_000 * 3_600, np.float32), 8_000),
    "flac that says all samples": flac_that_says_all_samples,
    "opus of hours of silence": lambda: encoded("ogg", "libopus", np.zeros(8_000 * 600, np.float32), 8_000),
    # The header of an AAC frame over and over, each with a length of seven bytes: itself.
    "adts frames of no length": lambda: bytes.fromhex("fff1504000fffc") * 100_000,
    "adts frames that lie": lambda: bytes.fromhex("fff15080fffffc") * 100_000,
    "m4a without its index": m4a_without_its_index,
    "m4a with four billion samples": lambda: m4a_that_lies(b"stsz", 8, 1, 0xFFFFFFFF),
    "m4a with an endless time": lambda: m4a_that_lies(b"stts", 12, 0xFFFFFFFF, 0xFFFFFFFF),
    "boxes in boxes": boxes_in_boxes,
    "matroska of a thousand streams": matroska_of_a_thousand_streams,
    "ogg of a thousand streams": lambda: encoded("ogg", "libopus", tone(0.02, 48_000), 48_000) * 1_000,
    "mp3 of another kind in each frame": mp3_of_another_kind_in_each_frame,
    "mp3 behind a tag of 256 MiB": lambda: b"ID3\4\0\0\x7f\x7f\x7f\x7f" + encoded("mp3", "libmp3lame", tone(1)),
    "a page of the web": lambda: b"<!DOCTYPE html><html><body>404 Not Found</body></html>" * 100,
    "a picture": lambda: b"\x89PNG\r\n\x1a\n" + bytes(10_000),
    "an archive": lambda: b"PK\3\4" + bytes(10_000),
    "numbers that are none": numbers_that_are_none,
}
"""Makers of files, by name."""
