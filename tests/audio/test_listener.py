"""Live sound through the real child and the real network: what is speech, at every rate and in every code."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soxr

from audio import listener as module
from audio.listener import FRAME, RATE, Frames, Listener, ListenerFailed
from audio.listening import MEMORY_BYTES, SOUND, _g711
from tests.models.hearing import Samples, noise, spoken
from tests.waiting import cancelled, until

SENTENCE = "The train to the coast leaves from platform nine."


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop on which Ray runs the graph: pipes of children that died differ there."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    listener = Listener()
    yield listener
    await listener.close()


@pytest.fixture(scope="module")
def sentence() -> Samples:
    """A second of silence, a sentence, a second of silence, at 16 kHz."""
    silence = np.zeros(RATE, np.float32)
    return np.concatenate([silence, spoken(SENTENCE, "en", RATE), silence])


def pcm(samples: Samples, rate: int) -> bytes:
    return (soxr.resample(samples, RATE, rate) * 32_767).astype("<i2").tobytes()


def ulaw(samples: Samples) -> bytes:
    """By the formula, of which the standard's segments are an approximation."""
    low = soxr.resample(samples, RATE, 8_000)
    size = np.round(np.log1p(255 * np.abs(low)) / np.log(256) * 127).astype(np.uint8)
    return (~(size | np.where(low < 0, 0x80, 0).astype(np.uint8)) & 0xFF).astype(np.uint8).tobytes()


async def probabilities(listener: Listener, format: dict[str, object], sound: bytes, piece: int) -> list[float]:
    stream, found = listener.stream(format), list[float]()
    for start in range(0, len(sound), piece):
        _, speech = await stream.listen(sound[start : start + piece])
        found += speech
    await stream.end()
    return found


async def test_speech_is_found_at_every_rate_and_in_g711(listener: Listener, sentence: Samples) -> None:
    for rate in (8_000, 16_000, 24_000, 44_100, 48_000):
        found = await probabilities(listener, {"type": "audio/pcm", "rate": rate}, pcm(sentence, rate), rate // 5)
        assert max(found[:28]) < 0.5, rate
        assert np.mean(np.array(found[32:-32]) > 0.5) > 0.7, rate
        assert max(found[-16:]) < 0.5, rate
    found = await probabilities(listener, {"type": "audio/pcmu"}, ulaw(sentence), 1600)
    assert np.mean(np.array(found[32:-32]) > 0.5) > 0.6


async def test_how_sound_is_cut_changes_nothing_and_all_samples_come_out(listener: Listener, sentence: Samples) -> None:
    sound, format = pcm(sentence, RATE), {"type": "audio/pcm", "rate": RATE}
    whole = await probabilities(listener, format, sound, len(sound))
    pieces = await probabilities(listener, format, sound, 2 * 333)
    assert np.allclose(whole, pieces, atol=1e-4)
    assert len(whole) == len(sentence) // FRAME
    stream = listener.stream({"type": "audio/pcm", "rate": 24_000})
    samples, _ = await stream.listen(pcm(sentence, 24_000))
    rest, _ = await stream.end()
    assert abs((len(samples) + len(rest)) // 2 - len(sentence)) <= 1


@pytest.mark.parametrize("rate", [16_000, 24_000])
async def test_speech_of_a_recording_is_counted(listener: Listener, sentence: Samples, rate: int) -> None:
    """`sentence` has some three seconds of it."""
    speech = pcm(sentence, rate)
    assert 2.0 < await listener.speech_s(speech, rate) < 4.0
    assert await listener.speech_s(speech[2 * rate :][: 2 * rate // 5], rate) < 0.3
    for kind in ("silence", "noise", "faint noise", "hum"):
        sound = (noise(kind, rate, 30.0) * 32_767).astype("<i2").tobytes()
        assert await listener.speech_s(sound, rate) < 0.1, kind


def test_codes_of_g711_are_those_of_the_standard() -> None:
    for kind, codes, expected in (
        ("audio/pcmu", [0x00, 0x80, 0xFF, 0x7F, 0xEF], [-32_124, 32_124, 0, 0, 132]),
        ("audio/pcma", [0x2A, 0xAA, 0xD5, 0x55, 0x80], [-32_256, 32_256, 8, -8, 5504]),
    ):
        assert (np.round(_g711(kind)[codes] * 32_768)).astype(int).tolist() == expected


async def test_sessions_do_not_hear_each_other(listener: Listener, sentence: Samples) -> None:
    format = {"type": "audio/pcm", "rate": RATE}
    silence = bytes(len(sentence) * 2)
    loud, quiet = await asyncio.gather(
        probabilities(listener, format, pcm(sentence, RATE), 3200), probabilities(listener, format, silence, 3200)
    )
    assert max(loud) > 0.9
    assert max(quiet) < 0.2


async def test_a_session_that_sends_much_at_once_holds_up_no_other(listener: Listener) -> None:
    format = {"type": "audio/pcm", "rate": RATE}
    much, little = listener.stream(format), listener.stream(format)
    await asyncio.gather(much.listen(bytes(3200)), little.listen(bytes(3200)))
    long = asyncio.create_task(much.listen(bytes(2 * RATE * 30)))
    await asyncio.sleep(0)
    await little.listen(bytes(3200))
    assert not long.done()
    await long


async def test_an_owner_with_many_streams_takes_turns_with_one_that_has_few(listener: Listener) -> None:
    format = {"type": "audio/pcm", "rate": RATE}
    many = [listener.stream(format, "org-1") for _ in range(20)]
    few = listener.stream(format, "org-2")
    await asyncio.gather(*(stream.listen(bytes(3200)) for stream in (*many, few)))
    floods = [asyncio.create_task(stream.listen(bytes(2 * RATE * 5))) for stream in many]
    child = await listener.child()
    await until(lambda: len(child._waiting) > 0)
    asked, ask = 0, child.ask

    async def counted(*request: Any) -> Frames:
        nonlocal asked
        asked += 1
        return await ask(*request)

    child.ask = counted  # type: ignore[method-assign]
    await few.listen(bytes(3200))
    assert asked <= 3
    assert not any(flood.done() for flood in floods)
    await asyncio.gather(*floods)


async def test_the_child_can_read_sound_and_nothing_else(listener: Listener) -> None:
    await listener.stream({"type": "audio/pcm", "rate": 24_000}).listen(b"\0\0")
    process = Path(f"/proc/{(await listener.child())._process.pid}")
    state = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines())
    assert (state["Seccomp"], state["NoNewPrivs"], state["Threads"]) == ("2", "1", "1")
    limits = (process / "limits").read_text()
    for name, value in (("Max address space", MEMORY_BYTES), ("Max open files", 3), ("Max file size", 0)):
        assert re.search(rf"{name} +{value} +{value} ", limits)


@pytest.mark.parametrize("rate", [RATE, 24_000])
async def test_a_child_that_dies_is_replaced_and_nothing_is_lost(
    listener: Listener, sentence: Samples, rate: int
) -> None:
    stream, sound = listener.stream({"type": "audio/pcm", "rate": rate}), pcm(sentence, RATE)
    samples = b""
    for start in (0, 3200, 6400):
        samples += (await stream.listen(sound[start : start + 3200]))[0]
        (await listener.child()).kill()
    samples += (await stream.listen(sound[9600:]))[0]
    samples += (await stream.end())[0]
    assert len(samples) / 2 / RATE == pytest.approx(len(sound) / 2 / rate, abs=0.001)
    assert rate != RATE or samples == sound


async def test_sound_that_comes_after_the_last_answer_of_a_child_and_before_its_exit_is_not_lost(
    listener: Listener, sentence: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, sound = listener.stream({"type": "audio/pcm", "rate": RATE}, "org-1"), pcm(sentence, RATE)
    samples, _ = await stream.listen(sound[:3200])
    child, exited = await listener.child(), asyncio.Event()
    process = child._process
    monkeypatch.setattr(child, "_process", SimpleNamespace(returncode=None, kill=process.kill, wait=exited.wait))
    process.kill()
    await until(child._stdin.is_closing)
    next_child = await listener.child()
    exited.set()
    assert next_child is not child, "what is written to a pipe that is closing is never answered"
    assert samples + (await stream.listen(sound[3200:]))[0] == sound


async def test_a_wait_that_ends_while_a_new_child_opens_the_stream_loses_nothing(
    listener: Listener, sentence: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, sound = listener.stream({"type": "audio/pcm", "rate": 24_000}), pcm(sentence, RATE)
    samples, _ = await stream.listen(sound[:9600])
    dead = await listener.child()
    dead.kill()
    await dead.reading
    child = await listener.child()
    ask = child.ask
    opening = asyncio.Event()

    async def hang(number: int, kind: int, payload: bytes) -> Frames:
        await ask(number, kind, payload)
        monkeypatch.setattr(child, "ask", ask)
        opening.set()
        return await asyncio.Future()

    monkeypatch.setattr(child, "ask", hang)
    waiting = asyncio.create_task(stream.listen(sound[9600:]))
    await opening.wait()
    assert await cancelled(waiting)
    samples += (await stream.listen(sound[9600:]))[0] + (await stream.end())[0]
    assert len(samples) / 2 / RATE == pytest.approx(len(sound) / 2 / 24_000, abs=0.001)


async def test_a_stream_whose_end_is_cancelled_is_forgotten_by_the_child(listener: Listener) -> None:
    format = {"type": "audio/pcm", "rate": 24_000}
    stream = listener.stream(format, "org-1")
    await stream.listen(bytes(3200))
    async with listener.turns.of("org-1"):
        ending = asyncio.create_task(stream.end())
        await until(lambda: listener.turns.waiting)
        await cancelled(ending)
    child = await listener.child()
    with pytest.raises(BrokenPipeError):  # the child ends by sound of a stream that it does not know
        await child.ask(stream._number, SOUND, bytes(3200))


async def test_a_child_that_cannot_start_is_told(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROGRAM", module.PROGRAM.with_name("missing.py"))
    with pytest.raises(ListenerFailed):
        await listener.stream({"type": "audio/pcm", "rate": RATE}).listen(b"\0\0")


async def test_the_child_ends_after_the_last_stream(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINGER_S", 0.0)
    stream = listener.stream({"type": "audio/pcm", "rate": RATE})
    await stream.listen(b"\0\0")
    child = await listener.child()
    await stream.end()
    await until(lambda: not child.is_alive)
