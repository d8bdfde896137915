"""Files of every format, made in one piece and as sound comes, read back by libraries that did not write them."""

import contextlib
import io
import struct
import wave
from typing import get_args

import av
import numpy as np
import pytest
import soundfile

from audio.encoding import CODECS, Encoder, encoded
from audio.provenance import SOURCE_TYPE, STATEMENT, Provenance
from contract.catalog import AudioFormat
from tests.provenance import read_provenance

MARKS = Provenance("engine <&\"'> ü", 1_790_000_000)
FORMATS: list[AudioFormat] = ["wav", *CODECS]


def sound(seconds: float, rate: int) -> np.ndarray:
    """A hum whose pitch rises, so that a part that is lost or doubled shows."""
    t = np.arange(round(seconds * rate)) / rate
    return (0.4 * np.sin(2 * np.pi * (150 + 100 * t) * t)).astype(np.float32)


def streamed(samples: np.ndarray, format: AudioFormat, rate: int, block: int) -> list[bytes]:
    encoder = Encoder(format, rate, MARKS)
    parts = [encoder.add(samples[i : i + block]) for i in range(0, len(samples), block)]
    return [*parts, encoder.finish()]


def decoded(data: bytes, rate: int) -> np.ndarray:
    with av.open(io.BytesIO(data)) as file:
        resampler = av.AudioResampler("flt", "mono", rate)
        frames = []
        for packet in file.demux(audio=0):
            with contextlib.suppress(av.InvalidDataError):  # the last one of half a file
                frames += [made for frame in packet.decode() for made in resampler.resample(frame)]
        frames += resampler.resample(None)
    return np.concatenate([frame.to_ndarray()[0] for frame in frames])


def likeness(a: np.ndarray, b: np.ndarray) -> float:
    """Highest correlation over all shifts, 1 for the same sound."""
    size = 1 << (len(a) + len(b)).bit_length()
    crossed = np.fft.irfft(np.fft.rfft(a, size) * np.conj(np.fft.rfft(b, size)))
    return float(crossed.max() / np.sqrt((a @ a) * (b @ b)))


def test_every_format_of_the_contract_but_ogg_is_made() -> None:
    assert {*FORMATS, "ogg"} == set(get_args(AudioFormat))


of_each_format = pytest.mark.parametrize("format", FORMATS)


@of_each_format
def test_a_whole_clip_comes_back(format: AudioFormat) -> None:
    for rate in (8_000, 16_000, 22_050, 24_000, 44_100, 48_000):
        samples = sound(1.3, rate)
        back = decoded(encoded(samples, format, rate, MARKS), rate)
        assert likeness(samples, back) > 0.99, rate
        padding_s = {"wav": 0, "flac": 0, "mp3": 0.002, "opus": 0.001, "aac": 0.3}[format]
        assert abs(len(back) - len(samples)) <= padding_s * rate, rate


@of_each_format
def test_a_file_that_grows_holds_the_same_sound(format: AudioFormat) -> None:
    for block in (1, 333, 24_000, 60_000):
        samples = sound(0.1 if block == 1 else 2.5, 24_000)
        back = decoded(b"".join(streamed(samples, format, 24_000, block)), 24_000)
        assert likeness(samples, back) > 0.99, block
        assert len(samples) <= len(back) < len(samples) + 5_000, block


@of_each_format
def test_bytes_flow_as_samples_come_and_half_a_file_can_be_played(format: AudioFormat) -> None:
    parts = streamed(sound(3, 24_000), format, 24_000, 24_000)
    data = b"".join(parts)
    assert len(parts[0]) > 0.15 * len(data)
    assert sum(map(len, parts[:2])) > 0.4 * len(data)
    assert b"trainedAlgorithmicMedia" in parts[0]
    assert len(decoded(data[: len(data) // 2], 24_000)) > 24_000


@of_each_format
def test_marks_survive_in_every_container(format: AudioFormat) -> None:
    marks = {"source_type": SOURCE_TYPE, "statement": STATEMENT, "engine": "engine <&\"'> ü"}
    samples = sound(0.5, 24_000)
    for data in (encoded(samples, format, 24_000, MARKS), b"".join(streamed(samples, format, 24_000, 6_000))):
        assert read_provenance(data) == marks | {"date": "2026-09-21T14:13:20Z"}


def test_a_file_without_marks_says_nothing() -> None:
    for format in ("WAV", "FLAC"):
        file = io.BytesIO()
        soundfile.write(file, sound(0.1, 8_000), 8_000, format=format)
        assert read_provenance(file.getvalue()) == {}


@pytest.mark.parametrize("is_whole", [True, False])
def test_wav_reads_the_same_everywhere(is_whole: bool) -> None:
    samples = sound(1.01, 22_050)
    whole = encoded(samples, "wav", 22_050, MARKS)
    data = whole if is_whole else b"".join(streamed(samples, "wav", 22_050, 1_000))
    expected = np.rint(samples * 32767).astype(np.int16)
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 22_050)
        by_wave = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    by_soundfile, rate = soundfile.read(io.BytesIO(data), dtype="int16")
    assert rate == 22_050
    np.testing.assert_array_equal(by_wave, expected)
    np.testing.assert_array_equal(by_soundfile, expected)
    np.testing.assert_array_equal(np.rint(decoded(data, 22_050) * 32768).astype(np.int16), expected)


def test_sizes_in_wav_are_exact_or_said_to_be_unknown() -> None:
    samples = sound(0.5, 24_000)
    whole = encoded(samples, "wav", 24_000, MARKS)
    at = whole.index(b"data") + 4
    assert struct.unpack_from("<I", whole, 4) == (len(whole) - 8,)
    assert struct.unpack_from("<I", whole, at) == (len(samples) * 2,) == (len(whole) - at - 4,)
    streams = b"".join(streamed(samples, "wav", 24_000, 5_000))
    assert struct.unpack_from("<I", streams, 4) == struct.unpack_from("<I", streams, at) == (0xFFFFFFFF,)
    assert streams[8:at] == whole[8:at]
    assert streams[at + 4 :] == whole[at + 4 :]


def test_whole_files_say_how_long_they_are() -> None:
    for format in ("flac", "mp3"):
        data = encoded(sound(1.3, 24_000), format, 24_000, MARKS)
        assert soundfile.info(io.BytesIO(data)).frames == round(1.3 * 24_000)


@of_each_format
def test_sound_out_of_range_is_clipped_and_no_sound_is_a_file_all_the_same(format: AudioFormat) -> None:
    samples = 3 * sound(1, 24_000)
    samples[1_000] = np.nan
    back = decoded(encoded(samples, format, 24_000, MARKS), 24_000)
    assert likeness(np.nan_to_num(samples).clip(-1, 1), back) > 0.98
    data = encoded(np.zeros(0, np.float32), format, 24_000, MARKS)
    assert read_provenance(data)["engine"] == MARKS.engine
    assert len(decoded(data, 24_000)) < 2_400
