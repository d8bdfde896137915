"""The loop that every designer shares, with a synthesiser that hums at the pitch that it is told."""

import asyncio
import io
import threading
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path

import av
import numpy as np
import pytest

from audio.provenance import SOURCE_TYPE
from contract.catalog import Serving, VoiceDesignModel
from contract.catalog.base import SpeechRuntime
from contract.voice_design.engine import DesignJob
from models.voice_design.adapter import DesignAdapter, Try, trimmed
from models.voice_design.kokoro import Point, setting_for
from tests.models.hearing import pitch_of
from tests.models.refusals import refused
from tests.models.voice_design import jobs
from tests.provenance import read_provenance
from tests.waiting import ManualClock, cancelled

RATE = 24_000
TEXT = "Good morning. This is my voice, and it hums."
SERVING = Serving(
    adapter="tests.models.voice_design.test_adapter:Humming",
    runtime="hum",
    languages=("en",),
    fallback=SpeechRuntime(runtime="hum-elsewhere"),
    max_ongoing_requests=1,
)
MODEL = VoiceDesignModel(id="hum", owned_by="t", provider="qwen", languages=("en", "de"), serving=SERVING)


def hum(f0_hz: float, seconds: float = 3.0, silence_s: float = 0.4) -> np.ndarray:
    times = np.arange(int(seconds * RATE)) / RATE
    tone = 0.5 * np.sin(2 * np.pi * f0_hz * times)
    quiet = np.zeros(int(silence_s * RATE))
    return np.concatenate([quiet, tone, quiet]).astype(np.float32)


job = partial(jobs.job, target_hz=200, text=TEXT)


class Humming(DesignAdapter[int]):
    """Each attempt is the next of `sounds`; after the last it knows nothing better."""

    sample_rate = RATE

    def __init__(self, *sounds: np.ndarray, model: VoiceDesignModel = MODEL) -> None:
        super().__init__(model, Path())
        self.sounds = sounds
        self.spoken: list[int] = []
        self.go_on = threading.Event()
        self.go_on.set()
        self.has_begun = threading.Event()

    def propose(self, job: DesignJob, tries: Sequence[Try[int]]) -> int | None:
        return len(tries) if len(tries) < len(self.sounds) else None

    def speak(self, job: DesignJob, voice: int) -> np.ndarray:
        self.spoken.append(voice)
        self.has_begun.set()
        self.go_on.wait(60)
        return self.sounds[voice]

    def recipe(self, voice: int) -> str:
        return f"voice {voice}"


async def test_the_first_attempt_in_band_is_taken() -> None:
    designer = Humming(hum(150), hum(210), hum(200))
    made = await designer.design(job())
    assert (made.recipe, made.attempts_used, made.in_band) == ("voice 1", 2, True)
    assert made.f0_hz == pytest.approx(210, abs=1)
    assert designer.spoken == [0, 1]


async def test_the_nearest_in_semitones_is_kept_where_none_is_in_band() -> None:
    made = await Humming(hum(100), hum(280), hum(150)).design(job())
    assert (made.recipe, made.attempts_used, made.in_band) == ("voice 2", 3, False)  # 5.0 semitones, 280 Hz is 5.8


async def test_attempts_are_counted_to_the_budget_and_the_band_has_two_ends() -> None:
    for attempts, used, is_in_band in ((1, 1, False), (2, 2, False), (3, 3, True), (4, 3, True)):
        made = await Humming(hum(100), hum(120), hum(200), hum(201)).design(job(attempts=attempts))
        assert (made.attempts_used, made.in_band) == (used, is_in_band)
    for band_hz, is_in_band in (((190.0, 210.0), True), ((190.0, 199.0), False), ((201.0, 210.0), False)):
        made = await Humming(hum(200)).design(job(band_hz=band_hz))
        assert made.in_band is is_in_band, band_hz


NO_VOICES = {
    "nothing": np.zeros(0, np.float32),
    "silence": np.zeros(3 * RATE, np.float32),
    "too short for the text": hum(200, 0.8),
    "too long for the text": hum(200, 14.0),
    "noise": np.random.default_rng(1).standard_normal(3 * RATE).astype(np.float32) / 4,
    "hardly a voice": np.concatenate([hum(200, 0.5), hum(0.1, 2.0)]),
}


async def test_what_is_no_voice_is_not_delivered() -> None:
    for name, sound in NO_VOICES.items():
        made = await Humming(sound, hum(100)).design(job())
        assert (made.recipe, made.attempts_used) == ("voice 1", 2), name
        with refused("UPSTREAM_ERROR"):
            await Humming(sound).design(job())


async def test_who_speaks_slowly_or_chinese_may_take_longer() -> None:
    for seconds, speed, is_plausible in ((10.5, 1.0, True), (12.0, 1.0, False), (12.0, 0.8, True)):
        made = await Humming(hum(200, seconds, 0), hum(210)).design(job(speed=speed))
        assert (made.attempts_used == 1) is is_plausible
    assert (await Humming(hum(200, 7.0)).design(job(text="早上好。这就是我的声音，我来朗读。"))).in_band


async def test_clip_and_measurements_belong_together() -> None:
    made = await Humming(hum(190)).design(job())
    samples = np.frombuffer(made.clip.samples, "<i2") / 32_768
    pitch = pitch_of(samples, made.clip.sample_rate)
    assert pitch.voiced_windows == made.voiced_windows
    assert (pitch.f0_hz, pitch.p25_hz, pitch.p75_hz) == pytest.approx((made.f0_hz, made.p25_hz, made.p75_hz), abs=0.1)
    assert len(samples) / RATE == pytest.approx(3.1, abs=0.02)  # the silence is gone, but for a margin
    assert made.clip.transcript == TEXT


async def test_what_is_too_loud_is_cut_and_does_not_wrap() -> None:
    made = await Humming(3 * hum(190)).design(job())
    samples = np.frombuffer(made.clip.samples, "<i2")
    assert (samples.max(), samples.min()) == (32_767, -32_767)
    assert pitch_of(samples, RATE).f0_hz == pytest.approx(190, abs=1)


async def test_the_sample_is_an_mp3_file_that_says_what_made_it() -> None:
    for language, engine in (("en", "hum"), ("de", "hum-elsewhere")):
        made = await Humming(hum(200)).design(job(language=language))
        marks = read_provenance(made.sample)
        assert (marks["engine"], marks["source_type"]) == (engine, SOURCE_TYPE)
        with av.open(io.BytesIO(made.sample)) as file:
            assert file.format.name == "mp3"
            assert file.duration is not None
            assert file.duration / av.time_base == pytest.approx(3.1, abs=0.15)


async def test_synthesis_is_what_is_billed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on by 2 s whenever a voice has spoken."""
    from models.voice_design import adapter

    clock = ManualClock()

    class Slow(Humming):
        def speak(self, job: DesignJob, voice: int) -> np.ndarray:
            clock.now_s += 2.0
            return super().speak(job, voice)

    monkeypatch.setattr(adapter, "time", clock)
    assert (await Slow(hum(100), np.zeros(0, np.float32), hum(200)).design(job())).seconds == 6.0


async def test_whoever_leaves_stops_the_designer_after_the_attempt() -> None:
    designer = Humming(hum(100), hum(120), hum(200))
    designer.go_on.clear()
    design = asyncio.create_task(designer.design(job()))
    await asyncio.to_thread(designer.has_begun.wait, 60)
    assert await cancelled(design)
    designer.go_on.set()
    assert (await designer.design(job())).in_band  # the only thread is free again
    assert designer.spoken == [0, 0, 1, 2]


async def test_an_engine_that_fails_is_heard_of_and_the_next_design_works() -> None:
    class Failing(Humming):
        def speak(self, job: DesignJob, voice: int) -> np.ndarray:
            if not self.spoken:
                self.spoken.append(-1)
                raise RuntimeError("out of memory")
            return super().speak(job, voice)

    designer = Failing(hum(200))
    with pytest.raises(RuntimeError, match="out of memory"):
        await designer.design(job())
    assert (await designer.design(job())).in_band
    await designer.check_health()


def test_silence_is_taken_from_both_ends() -> None:
    assert len(trimmed(hum(200, 1.0, 0.5), RATE)) == pytest.approx(1.1 * RATE, abs=200)
    assert len(trimmed(np.zeros(RATE, np.float32), RATE)) == 0
    assert len(trimmed(np.zeros(0, np.float32), RATE)) == 0


EXPECTED = [Point(0, 100), Point(1, 200)]


def test_settings_follow_what_is_expected_and_what_was_measured() -> None:
    for target_hz, setting in ((100, 0), (200, 1), (141.4, 0.5), (60, 0), (400, 1), (118.9, 0.25), (168.2, 0.75)):
        assert setting_for(target_hz, EXPECTED, []) == pytest.approx(setting, abs=0.003)
    low_hz = 141.4 / 2 ** (1 / 12)  # one measurement moves the whole curve
    assert setting_for(141.4, EXPECTED, [Point(0.5, low_hz)]) == pytest.approx(0.5 + 1 / 12, abs=0.003)
    measured = [Point(0.8, 180), Point(0.2, 90)]  # what was measured on both sides is interpolated
    assert 0.45 < setting_for(127.3, EXPECTED, measured) < 0.55
    assert setting_for(90, EXPECTED, measured) == pytest.approx(0.2, abs=0.003)


def test_it_closes_in_on_voices_that_are_not_as_expected() -> None:
    """Within 2 % after four attempts, though the voice is higher or lower and does not move evenly."""
    for bend, shift, target_hz in product((0.7, 1.0, 1.6), (0.85, 1.0, 1.2), (115, 150, 180)):
        heights_hz = {setting: 100 * shift * 2 ** (setting**bend) for setting in (0, 1)}
        measured: list[Point] = []
        for _ in range(4):
            setting = setting_for(target_hz, EXPECTED, measured)
            measured.append(Point(setting, 100 * shift * 2 ** (setting**bend)))
        nearest_hz = min(max(target_hz, heights_hz[0]), heights_hz[1])
        assert min(abs(point.f0_hz / nearest_hz - 1) for point in measured) < 0.02, (bend, shift, target_hz)
