"""The program that decodes a file of a client, in a child process that `audio.sandbox` starts.

It starts for every file, so it imports PyAV, and of this project only its sibling: packages would triple its start.

    standard input     the file, open and seekable
    standard output    little-endian 16-bit mono samples at the requested rate
    standard error     `ready`, once it is confined; one word at the end, `sound` if all went well

FFmpeg may use few formats and codecs, and no file but this one: a playlist opens nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import av
import av.subtitles.codeccontext  # PyAV imports these two when it opens a file; then it is too late
import av.subtitles.stream
from av.filter import Graph

from . import confinement

FORMATS = "wav,w64,aiff,flac,mp3,aac,mov,ogg,matroska"
"""Demuxers. `mov` is mp4 and m4a as well, `matroska` webm."""

CODECS = (
    "mp3float,mp3,aac,flac,alac,opus,vorbis,pcm_u8,pcm_s8,pcm_s16le,pcm_s16be,pcm_s24le,pcm_s24be,pcm_s32le,pcm_s32be,"
    "pcm_f32le,pcm_f32be,pcm_f64le,pcm_f64be,pcm_alaw,pcm_mulaw,adpcm_ms,adpcm_ima_wav"
)

RATES_HZ = (4_000, 384_000)
"""Sample rates of files. One of 1 Hz would be stretched to thousands of times its size."""

PADDING_S = 0.1
"""Silence that codecs add to a file at its ends; a file is not too long because of it."""


class Unreadable(Exception):
    """The file is no sound in a known format, or too long. Its text is one of the sandbox's verdicts."""


def main(sample_rate: int, max_seconds: float, cpu_s: int) -> None:
    """Confines the process, decodes within `cpu_s`, writes the verdict, and ends the process."""
    confinement.confine(cpu_s)
    av.logging.set_level(None)
    _report("ready")
    limit = int((max_seconds + PADDING_S) * sample_rate) * 2
    try:
        for block in decoded(sample_rate):
            limit -= len(block)
            if limit < 0:
                raise Unreadable("too_long")
            _write(1, block)
        verdict = "sound"
    except Unreadable as error:
        verdict = str(error)
    except av.FFmpegError:
        verdict = "unreadable"
    _report(verdict)
    os._exit(0)


def decoded(sample_rate: int) -> Iterator[bytes]:
    """Blocks of 16-bit mono samples of the file at standard input, at `sample_rate`. Raises Unreadable, FFmpegError."""
    options = {
        "format_whitelist": FORMATS,
        "codec_whitelist": CODECS,
        "protocol_whitelist": "none",
        "max_streams": "64",
    }
    with open(0, "rb", buffering=0) as raw:
        file = av.open(raw, metadata_errors="ignore", container_options=options, io_open=_refuse)
        stream = next((s for s in file.streams.audio if s.codec_context), None)
        if stream is None or stream.codec_context.name not in CODECS.split(","):
            raise Unreadable("no_sound")
        stream.codec_context.thread_count = 1
        to_mono = None
        for frame in _frames(file, stream):
            if to_mono is None or not to_mono.takes(frame):
                if to_mono:
                    yield from to_mono.blocks()
                to_mono = _ToMono(frame, sample_rate)
            yield from to_mono.blocks(frame)
        if to_mono is None:
            raise Unreadable("no_sound")
        yield from to_mono.blocks()


def _frames(file: Any, stream: Any) -> Iterator[Any]:
    """The frames that can be decoded. Broken parts are skipped, as players do, unless most parts are broken."""
    good = broken = 0
    with suppress(av.FFmpegError):  # the file ends before it says so
        for packet in file.demux(stream):
            try:
                frames = packet.decode()
            except av.FFmpegError:
                broken += 1
                continue
            good += bool(frames)
            yield from frames
    if broken > good:
        raise Unreadable("unreadable")


class _ToMono:
    """Mixes and resamples frames of one kind, by FFmpeg, without threads."""

    def __init__(self, frame: Any, sample_rate: int) -> None:
        if not RATES_HZ[0] <= frame.sample_rate <= RATES_HZ[1]:
            raise Unreadable("rate")
        self._kind = _kind(frame)
        self._graph = Graph()
        self._graph.threads = 1
        rate, format, layout = self._kind
        source = {"sample_rate": rate, "sample_fmt": format, "channel_layout": layout, "time_base": f"1/{rate}"}
        # Channels without places are tracks. FFmpeg would take some for subwoofers, which it leaves out.
        tracks = range(frame.layout.nb_channels if layout.endswith("channels") else 0)
        mix = ("pan", "mono|c0<" + "+".join(f"c{track}" for track in tracks)) if tracks else ("anull",)
        sink = {"sample_rates": sample_rate, "sample_fmts": "s16", "channel_layouts": "mono"}
        self._graph.link_nodes(
            self._graph.add("abuffer", **{name: str(value) for name, value in source.items()}),
            self._graph.add(*mix),
            self._graph.add("aformat", **{name: str(value) for name, value in sink.items()}),
            self._graph.add("abuffersink"),
        ).configure()

    def takes(self, frame: Any) -> bool:
        return _kind(frame) == self._kind

    def blocks(self, frame: Any = None) -> Iterator[bytes]:
        """The sound of `frame`; without one, what is left."""
        if frame is not None:
            frame.pts = None
        self._graph.push(frame)
        while True:
            try:
                mono: Any = self._graph.pull()
            except (av.BlockingIOError, av.EOFError):
                return
            yield bytes(mono.planes[0])[: mono.samples * 2]


def _kind(frame: Any) -> tuple[int, str, str]:
    return frame.sample_rate, frame.format.name, frame.layout.name


def _refuse(url: str, flags: int, options: dict[str, str]) -> Any:
    raise Unreadable("unreadable")


def _report(word: str) -> None:
    _write(2, word.encode() + b"\n")


def _write(to: int, data: bytes) -> None:
    while data:
        data = data[os.write(to, data) :]
