"""The program that listens to live sound for an ingress, in a child process that `audio.listener` starts.

    standard input     requests: session, kind, length (`REQUEST`), and that number of bytes
    standard output    a reply to each, in order: lengths (`REPLY`), samples, probabilities

    OPEN     the format as JSON: `{"type": "audio/pcm", "rate": 24000}`
    SOUND    sound in that format -> 16-bit samples at 16 kHz, and float32 probabilities of speech
    END      nothing -> what the resampler had not given yet; the session is forgotten

A probability is of a frame of FRAME samples. Silero's network has a state, one for each session. The process can read
and write these two streams and nothing else (`audio.confinement`).
"""

from __future__ import annotations

import json
import struct
import sys
from typing import Any

import numpy as np
import onnxruntime
import soxr

from . import confinement

RATE = 16_000
FRAME = 512
CONTEXT = 64
"""Samples before each frame that the network sees once more."""

MEMORY_BYTES = 1024**3
"""Address space. With 500 sessions it has 440 MB."""

REQUEST, REPLY = struct.Struct("<IBI"), struct.Struct("<II")
OPEN, SOUND, END = range(3)

Samples = np.ndarray[Any, np.dtype[np.float32]]


def main(weights: str) -> None:
    """Serves until the input ends."""
    network = _network(weights)
    sessions: dict[int, Channel] = {}
    # Whatever is loaded at the first use: afterwards no file can be opened.
    Channel(network, "audio/pcm", 24_000).listen(bytes(24_000), is_last=True)
    confinement.confine(None, MEMORY_BYTES)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while head := source.read(REQUEST.size):
        number, kind, length = REQUEST.unpack(head)
        payload = source.read(length)
        samples, probabilities = b"", b""
        if kind == OPEN:
            sessions[number] = Channel(network, **json.loads(payload))
        else:
            channel = sessions.pop(number) if kind == END else sessions[number]
            samples, probabilities = channel.listen(payload, is_last=kind == END)
        sink.write(REPLY.pack(len(samples), len(probabilities)) + samples + probabilities)
        sink.flush()


def _network(weights: str) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(weights, providers=["CPUExecutionProvider"], sess_options=options)


class Channel:
    """One stream of sound."""

    def __init__(self, network: Any, type: str, rate: int = 8_000) -> None:
        self._network = network
        self._table = None if type == "audio/pcm" else _g711(type)
        self._resampler = None if rate == RATE else soxr.ResampleStream(rate, RATE, 1, dtype="float32")
        self._hidden = self._cell = np.zeros((1, 1, 128), np.float32)
        self._rest = np.zeros(CONTEXT, np.float32)

    def listen(self, sound: bytes, *, is_last: bool = False) -> tuple[bytes, bytes]:
        """Bytes of the samples of this sound, and of the probabilities of the frames that are whole now."""
        if self._table is None:
            samples: Samples = np.frombuffer(sound, "<i2").astype(np.float32) / np.float32(32_768)
        else:
            samples = self._table[np.frombuffer(sound, np.uint8)]
        if self._resampler:
            samples = self._resampler.resample_chunk(samples, last=is_last)
        pcm = np.clip(np.rint(samples * 32_768), -32_768, 32_767).astype("<i2")
        return pcm.tobytes(), self._probabilities(samples).tobytes()

    def _probabilities(self, samples: Samples) -> Samples:
        """float32 [frames]. The rest is a context and what is no frame yet."""
        waiting = np.concatenate([self._rest, samples])
        frames = (len(waiting) - CONTEXT) // FRAME
        if not frames:
            self._rest = waiting
            return np.zeros(0, np.float32)
        windows = np.lib.stride_tricks.sliding_window_view(waiting, CONTEXT + FRAME)[: frames * FRAME : FRAME]
        state = {"h": self._hidden, "c": self._cell}
        speech, self._hidden, self._cell = self._network.run(None, {"input": np.ascontiguousarray(windows), **state})
        self._rest = waiting[frames * FRAME :].copy()
        return np.asarray(speech, np.float32)


def _g711(type: str) -> Samples:
    """float32 [256]: the sample of each code, of ITU-T G.711."""
    codes = np.arange(256)
    if type == "audio/pcmu":
        codes = ~codes & 0xFF
        exponent, mantissa = codes >> 4 & 7, codes & 15
        size = ((mantissa << 3) + 132 << exponent) - 132
        sign = np.where(codes & 0x80, -1, 1)
    else:
        codes = codes ^ 0x55
        exponent, mantissa = codes >> 4 & 7, codes & 15
        size = np.where(exponent == 0, (mantissa << 4) + 8, (mantissa << 4) + 264 << np.maximum(exponent - 1, 0))
        sign = np.where(codes & 0x80, 1, -1)
    samples: Samples = (sign * size / 32_768).astype(np.float32)
    return samples
