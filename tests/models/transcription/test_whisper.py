"""Whisper base as the embedded profile sets it up: what our own voices say comes back, and nothing else does.

And the true loader over a twin of large-v3: 128 bands, 100 languages, no knowledge. What that says is noise.
"""

import asyncio
import io
import json
import os
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
from faster_whisper import transcribe as library

import configs
import models
from audio.sandbox import OWNER_WAITING, Sound
from benchmarks.quality.__main__ import main as quality
from benchmarks.quality.transcription import errors
from contract.catalog import TranscriptionModel
from contract.transcription.engine import LANGUAGES, Segment, TranscriptionJob, TranscriptUpdate
from models.transcription.adapter import SAMPLE_RATE, Recording
from models.transcription.faster_whisper import FasterWhisper, Task
from models.transcription.voice_activity import Block, Span, Window
from models.weights.files import WeightsError
from models.weights.store import ensure
from tests.models.hearing import NO_VOICES, Samples, babble, noise, spoken
from tests.models.refusals import changed, loaded_offline, refused
from tests.twins.whisper import make
from tests.waiting import until

CATALOG = configs.load("embedded")
MODEL = CATALOG.transcription["whisper-large-v3"]

SAID = {
    "en": "The harbour was quiet in the early morning. A few fishermen were mending their nets beside the old wall.",
    "de": "Guten Morgen, meine Damen und Herren. Heute sprechen wir über das Wetter in den Bergen.",
    "es": "Buenos días a todos. Hoy vamos a hablar del tiempo en las montañas.",
}
WORST = {"en": 0.35, "de": 0.6, "es": 0.6}
"""Word error rates that are still understood: the voice is espeak's, which is not a person's."""


def say(text: str, language: str = "en") -> Samples:
    return spoken(text, language, SAMPLE_RATE)


@pytest.fixture(scope="module")
def engine() -> FasterWhisper:
    return models.load(MODEL)


def with_options(**options: object) -> TranscriptionModel:
    return changed(MODEL, options=MODEL.serving.options | options)  # type: ignore[union-attr]


def job(samples: np.ndarray, **asked: object) -> TranscriptionJob:
    file = io.BytesIO()
    soundfile.write(file, samples, SAMPLE_RATE, format="FLAC")
    return TranscriptionJob(file.getvalue(), **asked)  # type: ignore[arg-type]


async def heard(parts: AsyncIterator[TranscriptUpdate]) -> list[TranscriptUpdate]:
    return [part async for part in parts]


def segments_of(parts: list[TranscriptUpdate]) -> list[Segment]:
    return [segment for part in parts for segment in part.segments]


def text_of(parts: list[TranscriptUpdate]) -> str:
    return " ".join(segment.text for segment in segments_of(parts))


async def test_what_is_said_comes_back_in_its_language(engine: FasterWhisper) -> None:
    for language, text in SAID.items():
        parts = await heard(engine.transcribe(job(say(text, language))))
        assert parts[0] == TranscriptUpdate(parts[-1].duration_s)
        assert {part.language for part in parts[1:]} == {language}
        assert errors(text, text_of(parts), language) < WORST[language], language
        done = [part.done_s for part in parts]
        assert done == sorted(done)
        assert done[-1] == parts[-1].duration_s


def test_recordings_beside_their_words_are_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for language in ("en", "de"):
        soundfile.write(tmp_path / f"{language}.flac", say(SAID[language], language), SAMPLE_RATE)
        (tmp_path / f"{language}.txt").write_text(SAID[language])
    (tmp_path / "without words.wav").write_bytes(b"")
    quality(["transcription", "--recordings", str(tmp_path)])
    rows = re.findall(r"^\| ([\w.]+) \| (\d+) \| ([\d.]+)% \|$", capsys.readouterr().out, re.MULTILINE)
    words = {f"{language}.flac": len(SAID[language].split()) for language in ("de", "en")}
    assert {name: int(count) for name, count, _ in rows} == words | {"all": sum(words.values())}
    assert all(float(share) / 100 < WORST[name.partition(".")[0]] for name, _, share in rows[:-1])


def test_clips_are_judged_beside_the_library(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    soundfile.write(tmp_path / "en.flac", say(SAID["en"]), SAMPLE_RATE)
    soundfile.write(tmp_path / "hum.flac", noise("hum", SAMPLE_RATE), SAMPLE_RATE)
    listed = [("en.flac", SAID["en"], "en", "close"), ("hum.flac", "", "", "noise")]
    keys = ("file", "text", "language", "kind")
    clips = ["\n".join(["[[clip]]", *map("{} = {!r}".format, keys, values)]) for values in listed]
    (tmp_path / "clips.toml").write_text("\n".join(clips))
    quality(["transcription", "--clips", str(tmp_path)])
    printed = capsys.readouterr().out
    rows = re.findall(r"^\| ([\w ]+) \| 1 \| 19 \| ([\d.]+)% \| ([\d.]+)% \|$", printed, re.MULTILINE)
    assert [name for name, *_ in rows] == ["en", "all", "close", "all"]
    assert all(float(share) / 100 < WORST["en"] for _, *shares in rows for share in shares)
    assert "| of 1 without speech |" in printed
    assert re.findall(r"^\| noise \| hum.flac \| ([1-9]\d*) \|", printed, re.MULTILINE) == []
    assert SAID["en"][:12] not in printed


async def test_words_and_passages_have_times_in_order(engine: FasterWhisper) -> None:
    samples = say(SAID["en"])
    silence = np.zeros(2 * SAMPLE_RATE, np.float32)
    parts = await heard(engine.transcribe(job(np.concatenate([silence, samples]), language="en", words=True)))
    segments = segments_of(parts)
    assert len(segments) == 2
    assert 1.5 < segments[0].start < 2.5
    times = [at for segment in segments for at in (segment.start, segment.end)]
    assert times == sorted(times)
    assert times[-1] <= parts[-1].duration_s
    for segment in segments:
        assert " ".join(word.text for word in segment.words) == segment.text
        assert (segment.words[0].start, segment.words[-1].end) == (segment.start, segment.end)
        assert all(word.end >= word.start for word in segment.words)
        assert all(after.start >= before.end for before, after in pairwise(segment.words))
        assert all(type(word.start) is float and 0 <= (word.probability or 0) <= 1 for word in segment.words)
        assert segment.tokens
        assert segment.avg_logprob < 0
        assert 0 <= segment.no_speech_prob < 0.5
    assert segments[0].seek == pytest.approx(segments[0].start * 100, abs=5)


async def test_who_repeats_himself_is_heard_each_time(engine: FasterWhisper) -> None:
    sentence = say("The harbour was quiet in the early morning.")
    text = text_of(await heard(engine.transcribe(job(np.concatenate([sentence] * 8), language="en"))))
    assert 6 <= text.count("morning") <= 9  # some of the other words come out differently each time


@pytest.mark.parametrize(
    ("again", "first", "chosen"),
    [([-0.1, -2], -1.2, [-0.1]), ([-2, -0.1], -2, [-0.1]), ([-2], -1.2, [-1.2]), ([-2], -2, [])],
)
def test_a_doubtful_text_gives_way_to_a_better_one_and_stays_without_one_where_it_is_bearable(
    engine: FasterWhisper, monkeypatch: pytest.MonkeyPatch, again: list[float], first: float, chosen: list[float]
) -> None:
    def text(logprob: float) -> library.Segment:
        words = [library.Word(n / 4, (n + (n != 2)) / 4, " yes", 1) for n in range(4)]  # the third takes no time
        return library.Segment(0, 0, 0, 1, " yes" * 4, [], logprob, 1, 0, words, 0)

    monkeypatch.setattr(engine._whisper, "transcribe", lambda *_, **__: (map(text, again), None))
    block, window = Block(0, np.zeros(SAMPLE_RATE, np.float32), (), 1), Window(0, 1, ())
    best = engine._again(Task("en", None, True, "a"), block, window, text(first))
    assert [segment.avg_logprob for segment in best] == chosen
    assert [len(segment.words) for segment in best] == [3 if logprob == first else 4 for logprob in chosen]


async def test_a_prompt_and_terms_decide_how_a_word_is_spelt(engine: FasterWhisper) -> None:
    samples = say("The colour of the harbour is grey.")  # espeak speaks a little differently each time
    texts = [
        text_of(await heard(engine.transcribe(job(samples, language="en", **hint))))
        for hint in ({"terms": ("harbour", "colour", "neighbour")}, {"prompt": "The harbour and its colour. " * 150})
    ]
    assert ["colour" in text for text in texts] == [True, True]


async def test_where_nobody_speaks_nothing_is_heard(engine: FasterWhisper) -> None:
    sounds = {kind: noise(kind, SAMPLE_RATE) for kind in NO_VOICES} | {"babble": babble(SAMPLE_RATE, 20)}
    for kind, sound in sounds.items():
        parts = await heard(engine.transcribe(job(sound)))
        assert segments_of(parts) == [], kind
        assert parts[-1].done_s == parts[-1].duration_s == 20


async def test_a_voice_note_does_not_wait_for_a_long_recording() -> None:
    engine = models.load(with_options(batch_size=1, beam_size=1))
    note = say("Good morning.")
    long = job(np.concatenate([say(SAID["en"])] * 12), language="en")
    order: list[str] = []

    async def listen(name: str, asked: TranscriptionJob) -> list[TranscriptUpdate]:
        parts = []
        async for part in engine.transcribe(asked):
            order.append(name)
            parts.append(part)
        return parts

    results = await asyncio.gather(listen("long", long), listen("note", job(note, language="en")))
    assert "morning" in text_of(results[1])
    assert text_of(results[0]).count("fisher") >= 6
    assert order[-1] == "long"
    assert order.count("long") > order.count("note")
    engine.close()


async def test_who_leaves_frees_the_engine_after_a_batch() -> None:
    engine = models.load(with_options(batch_size=1, beam_size=1))
    asked = job(np.concatenate([say(SAID["en"])] * 10), language="en")
    seen: list[TranscriptUpdate] = []
    async with aclosing(engine.transcribe(asked)) as parts:
        async for part in parts:
            seen.append(part)
            if part.segments:
                break
    await until(lambda: not engine._workers.stalls.started_s)
    assert seen[-1].done_s < seen[-1].duration_s / 2
    assert seen[-1].segments
    await engine.check_health()
    engine.close()


async def test_a_recording_is_read_where_it_lies_and_refused_if_too_long_or_no_audio(
    engine: FasterWhisper, tmp_path: Path
) -> None:
    path = tmp_path / "a recording.flac"
    path.write_bytes(job(np.zeros(SAMPLE_RATE, np.float32)).audio)  # type: ignore[arg-type]
    parts = await heard(engine.transcribe(TranscriptionJob(path.as_uri())))
    assert parts[-1].duration_s == 1
    assert path.exists()
    with refused("AUDIO_TOO_LONG", "the recording lasts more than 2 s"):
        await heard(engine.transcribe(job(np.zeros(3 * SAMPLE_RATE, np.float32), max_seconds=2)))
    with refused("AUDIO_UNREADABLE", "cannot be decoded"):
        await heard(engine.transcribe(TranscriptionJob(b"<html>")))


def test_what_a_stanza_says_of_languages_is_held_against_the_weights() -> None:
    for lacks, wrong in (([], "yue"), (["yue", "de"], "de")):
        says = f"`lacks_languages` of `{MODEL.id}` is wrong about {wrong}: the weights lack yue"
        with pytest.raises(WeightsError, match=says):
            models.load(with_options(lacks_languages=lacks))


def test_a_folder_that_is_no_whisper_is_refused(tmp_path: Path) -> None:
    for name in ("model.bin", "config.json", "tokenizer.json"):
        folder = tmp_path / name
        folder.mkdir()
        for file in ensure("whisper-base").iterdir():
            if file.name != name:
                (folder / file.name).symlink_to(file)
        with pytest.raises(WeightsError, match=f"it has no `{name}`"):
            FasterWhisper(MODEL, folder)
    (tmp_path / "model.bin" / "model.bin").write_bytes(b"no model" * 100)
    with pytest.raises(WeightsError, match="cannot be loaded as a model of Whisper"):
        FasterWhisper(MODEL, tmp_path / "model.bin")


async def test_a_long_recording_is_transcribed_like_a_short_one(engine: FasterWhisper) -> None:
    speech = say(SAID["de"], "de")
    short, long = (np.concatenate([speech, np.zeros(seconds * SAMPLE_RATE, np.float32)]) for seconds in (5, 605))
    texts = [segments_of(await heard(engine.transcribe(job(samples, language="de")))) for samples in (short, long)]
    assert texts[0]
    assert texts[0] == texts[1]


# The twin


LARGE = configs.load("twins").transcription["whisper-large-v3"]


@pytest.fixture(scope="module")
def twins_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    twins_home = tmp_path_factory.mktemp("twins_home")
    make(twins_home / "twins" / "whisper-large-v3")
    return twins_home


@pytest.fixture(scope="module")
def large(twins_home: Path) -> Iterator[FasterWhisper]:
    large = loaded_offline(LARGE, twins_home)
    yield large
    large.close()


async def test_a_recording_is_heard_to_its_end(large: FasterWhisper) -> None:
    samples = babble(SAMPLE_RATE, 50)
    sound = Sound((samples * 32767).astype("<i2").tobytes(), SAMPLE_RATE, len(samples) / SAMPLE_RATE)
    for language in (None, "yue", "de", "jw"):
        asked = TranscriptionJob(b"", language=language, words=True)
        parts = await heard(large.listen(asked, Recording(b"", sound)))
        assert {part.language for part in parts} == {language} if language else {parts[0].language} <= set(LANGUAGES)
        assert parts[-1].done_s == parts[-1].duration_s == 50
        times = [at for part in parts for segment in part.segments for at in (segment.start, segment.end)]
        assert times == sorted(times)
        assert all(0 <= at <= 50 for at in times)


async def test_a_batch_has_words_with_times_whatever_is_asked(large: FasterWhisper) -> None:
    from models.transcription.faster_whisper import Task

    samples = babble(SAMPLE_RATE, 20)
    windows = [Window(2.0, 11.0, (Span(2.0, 11.0),)), Window(11.0, 20.0, (Span(11.0, 20.0),))]
    block = Block(0.0, samples, tuple(windows), 20.0)
    for prompt in (None, "a prompt", "longer than Whisper reads " * 200):
        found = large.batch(Task("yue", prompt, words=True, owner=""), block, windows)
        assert len(found) == 2
        assert found[0].words
        assert all(type(word.start) is float for word in found[0].words)


async def test_all_languages_of_the_api_are_known(large: FasterWhisper) -> None:
    assert LARGE.languages == set(LANGUAGES)
    await large.check_health()


def test_bands_that_do_not_fit_are_refused(twins_home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "80"
    shutil.copytree(twins_home / "twins" / "whisper-large-v3", folder)
    file = folder / "preprocessor_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"feature_size": 80}))
    with pytest.raises(WeightsError, match=r"expects 128 mel bands, but its .* says 80"):
        FasterWhisper(LARGE, folder)


async def test_too_many_files_of_one_owner_are_refused_as_busy(large: FasterWhisper, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDWR)
    stuck = TranscriptionJob(pipe.as_uri(), owner="greedy")
    waiting = [asyncio.ensure_future(anext(large.transcribe(stuck))) for _ in range(1 + OWNER_WAITING)]
    await asyncio.sleep(0)
    with refused("BUSY", "too many requests of your organisation wait"):
        await anext(large.transcribe(stuck))
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    os.close(held)
