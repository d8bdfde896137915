"""Files that mean harm: small, and each made to cost a decoder time, memory, or its life."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable

import av
import numpy as np

RATE = 16_000


def encoded(container: str, codec: str, samples: np.ndarray, rate: int = RATE, layout: str = "mono") -> bytes:
    made = io.BytesIO()
    with av.open(made, "w", format=container) as file:
        stream = file.add_stream(codec, rate=rate, layout=layout)
        assert isinstance(stream, av.AudioStream)
        frame = av.AudioFrame.from_ndarray((samples[None] * 32767).astype(np.int16), format="s16", layout=layout)
        frame.sample_rate = rate
        file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    return made.getvalue()


def tone(seconds: float, rate: int = RATE) -> np.ndarray:
    return (0.4 * np.sin(2 * np.pi * 220 * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def wav(fmt: bytes, *chunks: bytes, data_bytes: int = 0xFFFFFFFF) -> bytes:
    head = b"RIFF\xff\xff\xff\xffWAVEfmt " + struct.pack("<I", len(fmt)) + fmt
    return head + b"".join(chunks) + b"data" + struct.pack("<I", data_bytes) + bytes(64_000)


def pcm(channels: int = 1, rate: int = RATE, bits: int = 16, block: int = 2) -> bytes:
    return struct.pack("<HHIIHH", 1, channels, rate, rate * block & 0xFFFFFFFF, block, bits)


def a_billion_hertz() -> bytes:
    return wav(pcm(rate=1_000_000_000))


def every_channel_there_is() -> bytes:
    return wav(pcm(channels=65_535, block=65_534))


def blocks_of_nothing() -> bytes:
    return wav(pcm(block=0))


def bits_that_no_sample_has() -> bytes:
    return wav(pcm(bits=65_535, block=65_535))


def a_chunk_longer_than_the_file() -> bytes:
    return wav(pcm(), b"LIST" + struct.pack("<I", 0xFFFFFFF0))


def ten_thousand_chunks() -> bytes:
    return wav(pcm(), (b"LIST" + struct.pack("<I", 4) + b"INFO") * 10_000)


def an_extensible_format_of_zeros() -> bytes:
    return wav(struct.pack("<HHIIHH", 0xFFFE, 1, RATE, 2 * RATE, 2, 16) + struct.pack("<H", 22) + bytes(22))


def flac_of_hours_of_silence() -> bytes:
    return encoded("flac", "flac", np.zeros(8_000 * 3_600, np.float32), 8_000)


def flac_that_says_all_samples() -> bytes:
    made = bytearray(encoded("flac", "flac", tone(1)))
    made[21] |= 0x0F
    made[22:26] = b"\xff" * 4
    return bytes(made[: len(made) // 3])


def opus_of_hours_of_silence() -> bytes:
    return encoded("ogg", "libopus", np.zeros(8_000 * 600, np.float32), 8_000)


def adts_frames_of_no_length() -> bytes:
    """The header of an AAC frame over and over, each with a length of seven bytes: itself."""
    return bytes.fromhex("fff1504000fffc") * 100_000


def adts_frames_that_lie() -> bytes:
    return bytes.fromhex("fff15080fffffc") * 100_000


def m4a_without_its_index() -> bytes:
    made = encoded("ipod", "aac", tone(2))
    return made[: made.index(b"moov") - 4]


def m4a_with_four_billion_samples() -> bytes:
    made = bytearray(encoded("ipod", "aac", tone(2)))
    at = made.index(b"stsz")
    made[at + 8 : at + 16] = struct.pack(">II", 1, 0xFFFFFFFF)
    return bytes(made)


def m4a_with_an_endless_time() -> bytes:
    made = bytearray(encoded("ipod", "aac", tone(2)))
    at = made.index(b"stts")
    made[at + 12 : at + 20] = struct.pack(">II", 0xFFFFFFFF, 0xFFFFFFFF)
    return bytes(made)


def boxes_in_boxes() -> bytes:
    inner = b""
    for _ in range(5_000):
        inner = struct.pack(">I", 8 + len(inner)) + b"moov" + inner
    return b"\0\0\0\x18ftypM4A \0\0\0\0M4A isom" + inner


def matroska_of_a_thousand_streams() -> bytes:
    made = io.BytesIO()
    with av.open(made, "w", format="matroska") as file:
        streams = [file.add_stream("pcm_s16le", rate=8_000, layout="mono") for _ in range(1_000)]
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), format="s16", layout="mono")
        frame.sample_rate = 8_000
        for stream in streams:
            file.mux(stream.encode(frame))
    return made.getvalue()


def ogg_of_a_thousand_streams() -> bytes:
    return encoded("ogg", "libopus", tone(0.02, 48_000), 48_000) * 1_000


def mp3_of_another_kind_in_each_frame() -> bytes:
    mono, stereo = encoded("mp3", "libmp3lame", tone(0.05)), encoded("mp3", "libmp3lame", tone(0.05, 44_100), 44_100)
    return (mono + stereo) * 500


def mp3_behind_a_tag_of_256_mib() -> bytes:
    return b"ID3\4\0\0\x7f\x7f\x7f\x7f" + encoded("mp3", "libmp3lame", tone(1))


def a_page_of_the_web() -> bytes:
    return b"<!DOCTYPE html><html><body>404 Not Found</body></html>" * 100


def a_picture() -> bytes:
    return b"\x89PNG\r\n\x1a\n" + bytes(10_000)


def an_archive() -> bytes:
    return b"PK\3\4" + bytes(10_000)


def numbers_that_are_none() -> bytes:
    """Samples of floating point: infinities and what is no number."""
    samples = np.tile(np.array([np.nan, np.inf, -np.inf, 3e38], "<f4"), 8_000)
    fmt = struct.pack("<HHIIHH", 3, 1, RATE, RATE * 4, 4, 32)
    return (
        b"RIFF\xff\xff\xff\xffWAVEfmt " + struct.pack("<I", 16) + fmt + b"data" + struct.pack("<I", len(samples) * 4)
        + samples.tobytes()
    )  # fmt: skip


BOMBS: tuple[Callable[[], bytes], ...] = (
    a_billion_hertz, every_channel_there_is, blocks_of_nothing, bits_that_no_sample_has, a_chunk_longer_than_the_file,
    ten_thousand_chunks, an_extensible_format_of_zeros, flac_of_hours_of_silence, flac_that_says_all_samples,
    opus_of_hours_of_silence, adts_frames_of_no_length, adts_frames_that_lie, m4a_without_its_index,
    m4a_with_four_billion_samples, m4a_with_an_endless_time, boxes_in_boxes, matroska_of_a_thousand_streams,
    ogg_of_a_thousand_streams, mp3_of_another_kind_in_each_frame, mp3_behind_a_tag_of_256_mib, a_page_of_the_web,
    a_picture, an_archive, numbers_that_are_none,
)  # fmt: skip
