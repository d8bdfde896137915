"""Strangers' audio: every format that is taken, what comes of files that are none, and abilities that a child loses."""

import asyncio
import fcntl
import io
import os
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import soundfile

from audio import sandbox
from audio.sandbox import NotAudio, Sound, TooLong, decode
from tests.waiting import cancelled, settled, until

RATE = 16_000
CONTAINERS = {  # muxer and encoder
    "wav": ("wav", "pcm_s16le"), "flac": ("flac", "flac"), "mp3": ("mp3", "libmp3lame"), "m4a": ("ipod", "aac"),
    "mp4": ("mp4", "aac"), "aac": ("adts", "aac"), "opus": ("ogg", "libopus"), "webm": ("webm", "libopus"),
}  # fmt: skip
FORMATS = [*CONTAINERS, "ogg"]


def hum(seconds: float, rate: int = 24_000) -> np.ndarray:
    t = np.arange(round(seconds * rate)) / rate
    return (0.4 * np.sin(2 * np.pi * 220 * t)).astype(np.float32)


def file_of(format: str, samples: np.ndarray, rate: int = 24_000, channels: int = 1) -> bytes:
    made = io.BytesIO()
    if format == "ogg":  # Vorbis
        soundfile.write(made, samples, rate, format="OGG")
        return made.getvalue()
    container, codec = CONTAINERS[format]
    layout = {1: "mono", 2: "stereo", 6: "5.1"}[channels]
    with av.open(made, "w", format=container) as file:
        stream = file.add_stream(codec, rate=rate, layout=layout)
        block = np.ascontiguousarray(np.repeat(samples, channels)[None])
        frame = av.AudioFrame.from_ndarray((block * 32767).astype(np.int16), format="s16", layout=layout)
        frame.sample_rate = rate
        file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    return made.getvalue()


def wav_head(channels: int, rate: int, data_bytes: int) -> bytes:
    fmt = struct.pack("<IHHIIHH", 16, 1, channels, rate, rate * channels * 2 & 0xFFFFFFFF, channels * 2 & 0xFFFF, 16)
    return b"RIFF\xff\xff\xff\xffWAVEfmt " + fmt + b"data" + struct.pack("<I", data_bytes)


def children() -> set[int]:
    """Processes of this one that are alive or not yet waited for."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):
            found |= set(map(int, (task / "children").read_text().split()))
    return found


Children = Callable[[], set[int]]


@pytest.fixture
def new_children() -> Children:
    """Tells the children that have come since the test began."""
    before = children()
    return lambda: children() - before


@asynccontextmanager
async def stuck(tmp_path: Path, count: int = 1, owner: str = "") -> AsyncIterator[list[asyncio.Task[Sound]]]:
    """Decodings of a file that never goes on."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDWR)
    tasks = [asyncio.create_task(decode(pipe, RATE, 30, owner)) for _ in range(count)]
    try:
        yield tasks
    finally:
        await cancelled(*tasks)
        os.close(held)


@pytest.mark.parametrize(
    ("format", "channels"), [(format, 1) for format in FORMATS] + [("mp3", 2), ("opus", 2), ("m4a", 6), ("flac", 6)]
)
async def test_every_format_is_heard(format: str, channels: int) -> None:
    sound = await decode(file_of(format, hum(1.5), channels=channels), RATE, 30)
    assert sound.sample_rate == RATE
    assert sound.seconds == len(sound.samples) / 2 / RATE == pytest.approx(1.5, abs=0.1)
    samples = np.frombuffer(sound.samples, "<i2")[:RATE] / 32768
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(RATE)))
    assert spectrum.argmax() == 220
    assert np.abs(samples).max() > 0.1
    for rate in (8_000, 24_000, 44_100) if format == "wav" else ():
        sound = await decode(file_of("wav", hum(1)), rate, 30)
        assert (sound.sample_rate, len(sound.samples)) == (rate, 2 * rate)


@pytest.mark.parametrize(("channels", "one"), [(1, 0), (2, 1), (3, 2), (4, 1), (6, 3), (8, 3), (9, 8), (64, 63)])
async def test_each_channel_without_a_place_is_heard_as_loud_as_the_others(channels: int, one: int) -> None:
    tracks = np.zeros((RATE, channels), "<i2")
    tracks[:, one] = 32_767 * hum(1, RATE)
    sound = await decode(wav_head(channels, RATE, tracks.nbytes) + tracks.tobytes(), RATE, 30)
    assert np.frombuffer(sound.samples, "<i2").max() == pytest.approx(0.4 * 32_767 / channels, rel=0.01)


async def test_a_file_on_disk_is_read_where_it_lies(tmp_path: Path) -> None:
    path = tmp_path / "https:clip"
    path.write_bytes(file_of("m4a", hum(1)))
    assert (await decode(path, RATE, 30)).seconds == pytest.approx(1, abs=0.1)
    with pytest.raises(FileNotFoundError):
        await decode(tmp_path / "none", RATE, 30)


@pytest.mark.parametrize(
    ("seconds", "is_taken"), [(2 - 1 / RATE, True), (2.0, True), (2.1, True), (2.1 + 1 / RATE, False), (9, False)]
)
async def test_length_is_bounded(seconds: float, is_taken: bool) -> None:
    data = file_of("wav", hum(seconds, RATE), RATE)
    if is_taken:
        assert (await decode(data, RATE, 2)).seconds == pytest.approx(seconds)
    else:
        with pytest.raises(TooLong, match=r"^more than 2 s$") as caught:
            await decode(data, RATE, 2)
        assert caught.value.seconds == 2


NO_AUDIO = [
    *(b"", b"\0", b"text" * 5_000, bytes(100_000), np.random.default_rng(1).bytes(100_000), b"PK\3\4" + bytes(1_000)),
    *(b"RIFF\xff\xff\xff\xffWAVE", b"ID3\4\0\0\x7f\x7f\x7f\x7f", b"fLaC" + b"\xff" * 1_000, b"OggS" + b"\xff" * 1_000),
    b"\0\0\0\x20ftypM4A " + bytes(16) + b"\xff\xff\xff\xf0moov" + b"\xff" * 1_000,
    *(b"\x1a\x45\xdf\xa3" + b"\xff" * 1_000, wav_head(1, 16_000, 0)),
]
NO_SHAPES = [(1_000, 16_000), (65_535, 8_000), (0, 16_000), (1, 0), (1, 1), (1, 3_999), (1, 2**31), (1, 2**32 - 1)]


async def test_what_is_no_audio_or_has_the_shape_of_no_recording_is_refused() -> None:
    for data in (*NO_AUDIO, *(wav_head(*shape, 400_000) + bytes(400_000) for shape in NO_SHAPES)):
        with pytest.raises(NotAudio):
            pytest.fail(f"{data[:32]!r} gave {await decode(data, RATE, 30)}")


@pytest.mark.parametrize("format", FORMATS)
async def test_half_a_file_is_refused_or_heard_as_far_as_it_goes(format: str) -> None:
    data = file_of(format, hum(2))
    with suppress(NotAudio):
        assert 0.3 < (await decode(data[: len(data) // 2], RATE, 30)).seconds < 1.5


async def test_a_file_of_which_most_is_broken_is_refused() -> None:
    data = np.frombuffer(file_of("m4a", hum(4)), np.uint8).copy()
    data[: len(data) // 4][500::37] ^= 0xFF
    assert (await decode(data.tobytes(), RATE, 30)).seconds > 2
    data[len(data) // 4 : -len(data) // 10][::37] ^= 0xFF  # all but the index, which comes last
    with pytest.raises(NotAudio):
        await decode(data.tobytes(), RATE, 30)


async def test_a_size_or_length_that_is_declared_is_not_believed() -> None:
    for data_bytes in (0xFFFFFFFF, 0xFFFFFF00, 0x7FFFFFFF):
        assert (await decode(wav_head(1, RATE, data_bytes) + bytes(2 * RATE), RATE, 2)).seconds == 1
    data = bytearray(file_of("flac", hum(1)))
    data[21] |= 0x0F  # 36 bits of STREAMINFO: 2**36 - 1 samples
    data[22:26] = b"\xff" * 4
    assert (await decode(bytes(data), RATE, 2)).seconds == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    "list_of",
    [
        "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:2,\n{}\n#EXT-X-ENDLIST\n",
        "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:2,\nfile://{}\n#EXT-X-ENDLIST\n",
        "ffconcat version 1.0\nfile '{}'\n",
        "[playlist]\nFile1={}\n",
        '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"><Period><AdaptationSet><Representation>'
        "<BaseURL>{}</BaseURL></Representation></AdaptationSet></Period></MPD>",
        "v=0\nc=IN IP4 127.0.0.1\nm=audio 9 RTP/AVP 0\n",
    ],
)
async def test_a_list_of_files_opens_none(list_of: str, tmp_path: Path) -> None:
    other = tmp_path / "other.wav"
    other.write_bytes(file_of("wav", hum(2)))
    with pytest.raises(NotAudio):
        await decode(list_of.format(other).encode(), RATE, 30)


def pictures(seconds_of_sound: int) -> bytes:
    """A film of one picture, with or without sound."""
    made = io.BytesIO()
    with av.open(made, "w", format="webm") as file:
        video = file.add_stream("libvpx", rate=10)
        video.width = video.height = 64
        video.pix_fmt = "yuv420p"
        frames: list[tuple[Any, Any]] = [(video, av.VideoFrame(64, 64, "yuv420p"))]
        if seconds_of_sound:
            frame = av.AudioFrame.from_ndarray(hum(seconds_of_sound, 48_000)[None], format="flt", layout="mono")
            frame.sample_rate = 48_000
            frames.append((file.add_stream("libopus", rate=48_000, layout="mono"), frame))
        for stream, frame in [*frames, *((stream, None) for stream, _ in frames)]:
            file.mux(stream.encode(frame))
    return made.getvalue()


async def test_a_film_is_heard_and_pictures_alone_are_no_sound() -> None:
    assert (await decode(pictures(1), RATE, 30)).seconds == pytest.approx(1, abs=0.1)
    with pytest.raises(NotAudio, match="no sound"):
        await decode(pictures(0), RATE, 30)


async def test_parts_of_other_kinds_are_joined() -> None:
    parts = file_of("mp3", hum(1)) + file_of("mp3", hum(1, 44_100), 44_100, channels=2)
    assert (await decode(parts, RATE, 30)).seconds == pytest.approx(2, abs=0.15)


async def test_a_child_gives_way_to_whatever_else_runs_here(new_children: Children, tmp_path: Path) -> None:
    async with stuck(tmp_path) as (task,):
        pipe = os.open(tmp_path / "pipe", os.O_RDWR)
        os.write(pipe, b"\0")
        await until(lambda: not any(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))))  # who reads has started
        os.close(pipe)
        (child,) = new_children()
        await until(lambda: "Seccomp:\t2" in Path(f"/proc/{child}/status").read_text())
        assert os.getpriority(os.PRIO_PROCESS, child) == min(os.getpriority(os.PRIO_PROCESS, 0) + sandbox.NICE, 19)
        os.kill(child, signal.SIGSEGV)
        with pytest.raises(NotAudio, match="failed"):
            await task
    assert (await decode(file_of("wav", hum(1)), RATE, 30)).seconds == 1


async def test_a_call_that_is_cancelled_leaves_no_child(new_children: Children, tmp_path: Path) -> None:
    async with stuck(tmp_path) as (task,):
        await until(new_children)
        assert await cancelled(task)
        await until(lambda: not new_children())


async def test_a_child_that_hangs_is_ended(
    new_children: Children, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "PATIENCE", 0.2)
    async with stuck(tmp_path) as (task,):
        with pytest.raises(NotAudio, match="too long"):
            await task
        await until(lambda: not new_children())


async def test_children_are_few(new_children: Children, tmp_path: Path) -> None:
    async with stuck(tmp_path, count=5) as tasks:
        seen = []
        for task in tasks[:3]:
            await until(lambda: len(new_children()) == sandbox.CHILDREN)
            seen.append(len(new_children()))
            task.cancel()
        assert max(seen) == sandbox.CHILDREN
    await until(lambda: not new_children())


async def test_64_files_wait_in_all_and_no_more() -> None:
    slots = sandbox._slots
    async with slots.of("one"), slots.of("two"):
        tasks: list[asyncio.Task[Sound]] = []
        for count, refused in ((63, 0), (64, 0), (65, 1)):
            owners = [f"org-{number % 10}" for number in range(len(tasks), count)]
            tasks += [asyncio.create_task(decode(b"RIFF", RATE, 30, owner)) for owner in owners]
            await settled()
            assert (slots.waiting, sum(task.done() for task in tasks)) == (count - refused, refused)
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(end, sandbox.QueueFull) for end in ends) == 1


def run_instead(monkeypatch: pytest.MonkeyPatch, folder: Path, statements: str) -> None:
    """Lets children run `statements` instead of the decoder."""
    program = folder / "program.py"
    program.write_text(f"import os\n\ndef main(*arguments):\n    {statements}\n")
    monkeypatch.setattr(sandbox, "PROGRAM", program)


async def test_a_child_has_no_environment_and_its_failure_is_not_the_clients(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PARLANCE_PEPPER", "secret")
    run_instead(monkeypatch, tmp_path, "raise SystemExit(dict(os.environ))")
    with pytest.raises(RuntimeError, match="did not start") as caught:
        await decode(b"RIFF", RATE, 30)
    assert "secret" not in str(caught.value)


async def test_a_child_that_gives_too_much_or_lacks_memory_is_no_audio(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run_instead(monkeypatch, tmp_path, "while True: os.write(1, bytes(1 << 16))")
    with pytest.raises(NotAudio):
        await decode(b"RIFF", RATE, 30)
    (folder := tmp_path / "another").mkdir()
    run_instead(monkeypatch, folder, "os.write(2, b'ready\\n'); bytes(1 << 62)")
    with pytest.raises(NotAudio, match="memory"):
        await decode(b"RIFF", RATE, 30)


START = """
import errno, os, resource, signal, socket, sys, threading
from audio.confinement import confine
FAILURES = (OSError, MemoryError, RuntimeError, ValueError)
confine({cpu_s})
"""

TRIES = {
    "a file to read": "open('/etc/hostname')", "a file to write": "open('/tmp/parlance-confined', 'w')",
    "a pipe": "os.pipe()", "a socket": "socket.socket()", "a thread": "threading.Thread(target=print).start()",
    "a child": "os.fork()", "another program": "os.execv('/bin/true', ['true'])",
    "a signal to the parent": "os.kill(os.getppid(), 0)",
    "other limits": "resource.setrlimit(resource.RLIMIT_NOFILE, (9, 9))", "memory": "bytearray(600 * 1024**2)",
    "a link": "os.symlink('/', '/tmp/parlance-confined')", "a folder's names": "os.listdir('/')",
    "a file, with a descriptor free": "os.close(0); open('/etc/hostname')",
    "a socket, with a descriptor free": "socket.socket()",
}  # fmt: skip


def run_confined(script: str, cpu_s: int = 5) -> subprocess.CompletedProcess[str]:
    script = START.format(cpu_s=cpu_s) + script
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)


def test_nothing_new_can_be_had() -> None:
    script = "".join(f"try:\n {call}\n print({name!r})\nexcept FAILURES:\n pass\n" for name, call in TRIES.items())
    done = run_confined(script + "print('end')")
    assert (done.stdout, done.stderr, done.returncode) == ("end\n", "", 0)


def test_what_is_left_works() -> None:
    done = run_confined("print(len(bytes(300 * 1024**2)), sum(range(9)), sys.stdin.read())")
    assert done.stdout == f"{300 * 1024**2} 36 \n"


def test_time_ends() -> None:
    assert run_confined("while True: pass", cpu_s=0).returncode in (-signal.SIGKILL, -signal.SIGXCPU)


def test_a_file_that_is_open_does_not_grow(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with path.open("wb") as file:
        script = START.format(cpu_s=5) + "os.write(1, b'x')"
        done = subprocess.run([sys.executable, "-c", script], stdout=file, stderr=subprocess.PIPE, check=False)
    assert b"File too large" in done.stderr
    assert path.read_bytes() == b""
