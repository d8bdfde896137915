"""Voxtral on vLLM: its true loader over tiny random weights, and speech of our own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import configs
from audio.sandbox import Sound
from contract.catalog import Serving, TranscriptionModel
from contract.transcription.engine import LANGUAGES, TranscriptionJob, TranscriptUpdate
from models.options import OptionsError, check
from models.transcription import voxtral
from models.transcription.adapter import SAMPLE_RATE, Recording
from models.transcription.voice_activity import WINDOW_S
from models.transcription.voxtral import ENOUGH_S, Voxtral, passages, prompt_of
from tests.models.hearing import Samples, spoken
from tests.models.refusals import refused
from tests.twins import voxtral as twin
from tests.waiting import is_busy, until

SENTENCE = "The quick brown fox runs along the river, and nobody knows where it will go tomorrow morning."


@pytest.fixture(scope="module")
def sentence() -> Samples:
    return spoken(SENTENCE, "en", SAMPLE_RATE)


@pytest.fixture(scope="module")
async def engine(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Voxtral]:
    folder = twin.make(tmp_path_factory.mktemp("voxtral") / "twin")
    loaded = Voxtral(model(), folder)
    yield loaded
    loaded.close()


def model(**options: Any) -> TranscriptionModel:
    arguments = {"dtype": "float32", "enforce_eager": True, "max_num_seqs": 8, "kv_cache_memory_bytes": 1 << 26}
    serving = Serving(
        adapter="models.transcription.voxtral:Voxtral",
        runtime="twin",
        weights="twin",
        threads=1,
        options={"engine": arguments, "times": ["segment"], "takes_terms": False} | options,
    )
    return TranscriptionModel(id="voxtral-twin", owned_by="tests", is_default=True, serving=serving)


def recorded(*parts: Samples | float) -> Recording:
    pieces = [np.zeros(round(p * SAMPLE_RATE), np.float32) if isinstance(p, float) else p for p in parts]
    samples = (np.concatenate(pieces).clip(-1, 1) * 32767).astype("<i2")
    return Recording(b"", Sound(samples.tobytes(), SAMPLE_RATE, len(samples) / SAMPLE_RATE))


async def heard(engine: Voxtral, recording: Recording, **fields: Any) -> list[TranscriptUpdate]:
    return [part async for part in engine.listen(TranscriptionJob(b"", **fields), recording)]


def texts(parts: list[TranscriptUpdate]) -> list[str]:
    return [segment.text for part in parts for segment in part.segments]


async def spans(recording: Recording) -> list[Any]:
    return [span async for span in passages(recording)]


def is_idle(engine: Voxtral) -> bool:
    """Neither the engine nor its core, which is told of what was left a moment later, has a request."""
    return not engine.unfinished and not is_busy(engine.engine)


async def test_sentences_apart_become_passages_and_close_ones_share_them_up_to_a_length(sentence: Samples) -> None:
    length = len(sentence) / SAMPLE_RATE
    found = await spans(recorded(3.0, sentence, 4.0, sentence, 2.0))
    assert len(found) == 2
    for span, start in zip(found, (3.0, 3.0 + length + 4.0), strict=True):
        assert span.start == pytest.approx(start, abs=0.6)
        assert span.end == pytest.approx(start + length, abs=0.6)
    lengths = [span.end - span.start for span in await spans(recorded(*[sentence, 0.6] * 8))]
    assert 1 < len(lengths) < 8
    assert all(length >= ENOUGH_S for length in lengths[:-1])
    assert max(lengths) <= WINDOW_S


async def test_speech_without_a_pause_is_cut_at_what_the_model_hears(sentence: Samples) -> None:
    length = len(sentence) / SAMPLE_RATE
    found = await spans(recorded(*[sentence] * (int(2 * WINDOW_S / length) + 1)))
    assert max(span.end - span.start for span in found) <= WINDOW_S
    assert all(after.start >= span.end for span, after in pairwise(found))


async def test_every_passage_is_a_segment_without_words_and_what_was_heard_grows_to_the_end(
    engine: Voxtral, sentence: Samples
) -> None:
    recording = recorded(*[part for pitch in (1.0, 0.8, 0.6) for part in (sentence * pitch, 2.0)], 5.0)
    parts = await heard(engine, recording, language="en", words=True)
    segments = [segment for part in parts for segment in part.segments]
    assert [(s.start, s.end) for s in segments] == [tuple(span) for span in await spans(recording)]
    assert [(segment.text != "", segment.words) for segment in segments] == [(True, ())] * 3
    assert {part.duration_s for part in parts} == {recording.sound.seconds}
    assert {part.language for part in parts} == {"en"}
    done = [part.done_s for part in parts]
    assert done == sorted(done)
    assert len(done) == 4
    assert done[-1] == recording.sound.seconds


async def test_the_same_sound_is_the_same_text_whatever_else_is_heard(engine: Voxtral, sentence: Samples) -> None:
    alone = texts(await heard(engine, recorded(1.0, sentence, 1.0)))
    together = await asyncio.gather(*(heard(engine, recorded(1.0, sentence, 1.0)) for _ in range(4)))
    assert [texts(parts) for parts in together] == [alone] * 4


async def test_sound_and_language_reach_the_model(engine: Voxtral, sentence: Samples) -> None:
    plain = texts(await heard(engine, recorded(1.0, sentence, 1.0)))
    assert texts(await heard(engine, recorded(1.0, sentence[::-1].copy(), 1.0))) != plain
    assert texts(await heard(engine, recorded(1.0, sentence, 1.0), language="de")) != plain


async def test_more_passages_than_go_at_once_come_in_order(engine: Voxtral, sentence: Samples) -> None:
    short = sentence[: 2 * SAMPLE_RATE]
    parts = await heard(engine, recorded(*[short, 2.0] * (2 * voxtral.AT_ONCE + 1)))
    starts = [segment.start for part in parts for segment in part.segments]
    assert len(parts) == 2 * voxtral.AT_ONCE + 2
    assert starts == sorted(starts)


async def test_silence_costs_no_request(engine: Voxtral, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(engine.engine, "generate", lambda *request: asked.append(request))
    for seconds in (0.01, 1.0, 150.0):
        (part,) = await heard(engine, recorded(seconds))
        assert (part.done_s, part.segments) == (part.duration_s, ())
    assert asked == []


async def test_leaving_takes_the_requests_out_of_the_engine(
    engine: Voxtral, sentence: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate, lengths = engine.engine.generate, iter([1])

    def one_short_answer_and_long_ones(prompt: Any, params: Any, name: str) -> Any:
        params.max_tokens = next(lengths, 1500)
        return generate(prompt, params, name)

    monkeypatch.setattr(engine.engine, "generate", one_short_answer_and_long_ones)
    async with aclosing(engine.listen(TranscriptionJob(b""), recorded(*[sentence, 2.0] * 12))) as parts:
        await anext(parts)
        await until(lambda: engine.unfinished > 0)  # the others may still be on their way there
    await until(lambda: is_idle(engine))


async def test_a_cancelled_task_takes_its_requests_out_of_the_engine(engine: Voxtral, sentence: Samples) -> None:
    task = asyncio.create_task(heard(engine, recorded(*[sentence, 2.0] * 12)))
    await until(lambda: engine.unfinished > 0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    await until(lambda: is_idle(engine))


def test_a_stanza_that_says_more_than_it_does_or_nothing_stops_the_start() -> None:
    for claim in ({"times": ["segment", "word"]}, {"times": ["word"]}, {"takes_terms": True}):
        with pytest.raises(OptionsError, match=next(iter(claim))):
            check(model(**claim))
    silent = model()
    assert silent.serving
    for name in ("times", "takes_terms"):
        options = {key: value for key, value in silent.serving.options.items() if key != name}
        with pytest.raises(OptionsError, match=f"options.{name}"):
            check(silent.model_copy(update={"serving": silent.serving.model_copy(update={"options": options})}))


async def test_a_language_that_cannot_be_said_to_the_model_is_a_failure(
    engine: Voxtral, sentence: Samples, caplog: pytest.LogCaptureFixture
) -> None:
    with refused("UPSTREAM_ERROR"):
        await heard(engine, recorded(1.0, sentence, 1.0), language="yue")
    assert not engine.unfinished
    assert "yue" not in caplog.text


async def test_a_file_is_decoded_and_heard(engine: Voxtral, sentence: Samples, tmp_path: Path) -> None:
    import soundfile

    path = tmp_path / "a recording.ogg"
    soundfile.write(path, np.concatenate([sentence, np.zeros(SAMPLE_RATE, np.float32)]), SAMPLE_RATE)
    parts = [part async for part in engine.transcribe(TranscriptionJob(path.as_uri()))]
    assert (parts[0].done_s, parts[0].segments) == (0.0, ())
    assert len(texts(parts)) == 1
    await engine.check_health()


def test_a_prompt_has_tokens_for_whole_thirty_seconds(engine: Voxtral) -> None:
    by_name = {name: rank for rank, name in twin.SPECIAL.items()}
    start = [by_name[name] for name in ("<s>", "[INST]", "[BEGIN_AUDIO]")]
    for seconds, sounds in ((0.5, 1), (WINDOW_S, 1), (WINDOW_S + 0.001, 2)):
        tokens, sound = prompt_of(
            engine.engine.renderer.get_tokenizer(), np.zeros(round(seconds * SAMPLE_RATE), np.float32), None
        )
        assert tokens == [*start, *[by_name["[AUDIO]"]] * 375 * sounds, by_name["[/INST]"], by_name["[TRANSCRIBE]"]]
        assert len(sound) == sounds * WINDOW_S * SAMPLE_RATE
        assert len(tokens) + voxtral.SPARE_TOKENS + voxtral.TOKENS_PER_S * seconds < voxtral.WINDOW


def test_every_language_that_production_offers_can_be_said(engine: Voxtral) -> None:
    production = configs.load("production").transcription["voxtral-mini-transcribe"]
    assert check(production)
    samples = np.zeros(SAMPLE_RATE, np.float32)
    tokenizer = engine.engine.renderer.get_tokenizer()
    plain = len(prompt_of(tokenizer, samples, None)[0])
    for language in production.languages:
        tokens, _ = prompt_of(tokenizer, samples, language)
        assert len(tokens) == plain + len(f"lang:{language}")
    assert set(LANGUAGES) - production.languages == {"haw", "jw", "yue"}
