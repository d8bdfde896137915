"""Files that mean harm, at the length of a recording: refused, too long, or heard; never expensive, nothing is left."""

import os
import resource
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from audio import sandbox
from audio.sandbox import IN_MEMORY_BYTES, NotAudio, QueueFull, Sound, TooLong, decode
from audio.shares import Shares, SharesExhausted
from benchmarks.attacks.bombs import BOMBS, RATE, encoded
from tests.audio.test_sandbox import children, stuck
from tests.waiting import until

MAX_S = 120
CPU_S = 5
"""What the sandbox allows for MAX_S, and the start of a process."""


async def outcome(data: bytes | Path) -> Sound | Exception:
    try:
        return await decode(data, RATE, MAX_S)
    except (NotAudio, TooLong) as error:
        return error


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files are made."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@pytest.mark.parametrize("name", BOMBS)
async def test_a_bomb_costs_little_and_leaves_nothing(name: str, temporary: Path) -> None:
    data, before = BOMBS[name](), children()
    assert len(data) < 4.5 * 1024**2
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = await outcome(data)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime < CPU_S
    assert isinstance(result, TooLong) or "hours" not in name
    if isinstance(result, Sound):
        assert result.seconds <= MAX_S + 0.1
        assert len(result.samples) == round(result.seconds * RATE) * 2
    assert os.listdir(temporary) == []
    assert children() <= before


@pytest.mark.parametrize(("more", "on_disk"), [(-1, 0), (0, 0), (1, IN_MEMORY_BYTES + 2)])
async def test_sound_lies_in_a_file_without_a_name(more: int, on_disk: int, temporary: Path) -> None:
    samples = np.zeros(IN_MEMORY_BYTES // 2 + more, np.float32)
    samples[-100:] = 0.5
    file, free = encoded("wav", "pcm_s16le", samples), sandbox._disk.free
    tracemalloc.start()
    sound = await decode(file, RATE, 600)
    assert tracemalloc.get_traced_memory()[1] < IN_MEMORY_BYTES // 8
    tracemalloc.stop()
    assert not sandbox._disk._returned  # of nothing taken, it would grow with every short sound
    assert (free - sandbox._disk.free, len(sound.samples)) == (on_disk, 2 * len(samples))
    assert np.frombuffer(sound.samples, "<i2")[-101:].tolist() == [0, *[16383] * 100]
    assert os.listdir(temporary) == []


async def test_sound_on_disk_is_bounded_for_an_owner_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Shares(4 * (size := IN_MEMORY_BYTES + 2))
    monkeypatch.setattr(sandbox, "_disk", disk)
    silence = encoded("flac", "flac", np.zeros(size // 2, np.float32))

    async def sound(owner: str) -> Sound:
        return await decode(silence, RATE, 600, owner)

    with pytest.raises(TooLong):
        await decode(encoded("flac", "flac", np.zeros(300 * RATE, np.float32)), RATE, 200, "greedy")
    with monkeypatch.context() as full:
        full.setattr(sandbox, "TemporaryFile", lambda **_: open("/dev/full", "wb"))  # noqa: SIM115 (it is closed)
        with pytest.raises(OSError, match="No space left"):
            await sound("greedy")
    assert disk.free == 4 * size
    held = [await sound("greedy"), await sound("greedy")]
    with pytest.raises(SharesExhausted, match="hours of audio"):
        await sound("greedy")
    held.append(await sound("modest"))
    with pytest.raises(SharesExhausted, match="hours of audio"):
        await sound("late")
    assert (await decode(encoded("flac", "flac", np.zeros(RATE, np.float32)), RATE, 600, "late")).seconds == 1
    samples = np.frombuffer(held[0].samples, "<i2")
    held.clear()
    await until(lambda: disk.free == 3 * size)  # somebody still looks at one
    await sound("late")
    del samples
    await until(lambda: disk.free == 4 * size)


async def test_files_of_one_owner_wait_and_too_many_are_refused(tmp_path: Path) -> None:
    before = children()
    good = encoded("flac", "flac", np.zeros(RATE, np.float32))
    async with stuck(tmp_path, count=9, owner="greedy") as tasks:
        await until(lambda: len(children() - before) == 1)
        with pytest.raises(QueueFull, match="of your organisation"):
            await decode(good, RATE, 30, "greedy")
        assert (await decode(good, RATE, 30, "modest")).seconds == 1
        assert not any(task.done() for task in tasks)
    await until(lambda: not children() - before)
    assert (await decode(good, RATE, 30, "greedy")).seconds == 1


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 60), st.booleans())))
@example([("a", 51, False), ("a", 50, False), ("b", 25, False), ("c", 12, True), ("b", 1, False)])
def test_an_owner_has_at_most_what_stays_free_so_something_is_left(steps: list[tuple[str, int, bool]]) -> None:
    shares, taken = Shares(100), []
    for owner, amount, gives_back in steps:
        own = sum(part for who, part in taken if who == owner) + amount
        if own > shares.free - amount:
            with pytest.raises(SharesExhausted):
                shares.take(owner, amount)
        else:
            shares.take(owner, amount)
            taken.append((owner, amount))
        if gives_back and taken:
            with shares._lock:  # as a finaliser may, which runs while `take` is under way
                shares.give_back(*taken.pop())
        assert shares.free == 100 - sum(part for _, part in taken) > 0
