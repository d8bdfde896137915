import asyncio
import io
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from contract.limits import SPARE_BYTES
from state.blobs import folder
from state.blobs.base import CHUNK_BYTES, MAX_NAME_CHARS, Blobs
from state.blobs.folder import UNFINISHED, UNFINISHED_S, FolderBlobs
from state.blobs.open import open_blobs
from tests.docs.pages import ROOT
from tests.state.books import fault_of
from tests.state.bucket import Bucket, run_bucket
from tests.waiting import cancelled, settled

NAME = "samples/espeak-ng/M1-de.mp3"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    with run_bucket() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture(params=["folder", "s3"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    if request.param == "folder":
        return open_blobs(tmp_path)
    request.getfixturevalue("bucket")
    return open_blobs(tmp_path, "s3://store/some/prefix")


async def in_pieces(*pieces: bytes, error: Exception | None = None) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
    if error:
        raise error


@pytest.mark.parametrize("pieces", [[b""], [b"x"], [bytes(range(256)) * 5000], [b"a" * 4_000_000, b"b" * 11_000_000]])
async def test_what_is_put_is_found(blobs: Blobs, pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    assert await blobs.put(NAME, data if len(pieces) == 1 else in_pieces(*pieces)) == len(data)
    assert await blobs.find(NAME) == data
    assert await blobs.exists(NAME)
    blob = await blobs.stream(NAME)
    assert blob is not None
    assert blob.size_bytes == len(data)
    chunks = [chunk async for chunk in blob.chunks]
    assert b"".join(chunks) == data
    assert len(chunks) > 1 or len(pieces) == 1
    with await asyncio.to_thread(urllib.request.urlopen, await blobs.address(NAME, 60)) as reply:
        assert reply.read() == data


async def test_putting_again_replaces_and_deleting_ends_it(blobs: Blobs) -> None:
    for _ in range(2):
        assert await blobs.find(NAME) is None
        assert await blobs.stream(NAME) is None
        assert not await blobs.exists(NAME)
        await blobs.delete(NAME)
        await blobs.put(NAME, b"a long first one")
        await blobs.put(NAME, b"second")
        assert await blobs.find(NAME) == b"second"
        await blobs.delete(NAME)


async def test_a_folder_is_deleted_with_all_that_is_in_it_and_nothing_else(blobs: Blobs) -> None:
    gone, kept = ("a/b/1", "a/b/2", "a/b/c/3"), ("a/bc/4", "a/5", "b/6")
    for name in (*gone, *kept):
        await blobs.put(name, b"x")
    await asyncio.gather(*(blobs.delete_all("a/b") for _ in range(5)))
    assert [await blobs.exists(name) for name in gone] == [False] * 3
    assert [await blobs.exists(name) for name in kept] == [True] * 3
    await blobs.delete_all("a/b")
    await blobs.delete_all("never")


async def test_a_stream_that_breaks_off_stores_nothing(blobs: Blobs) -> None:
    with pytest.raises(ConnectionResetError):
        await blobs.put(NAME, in_pieces(b"x" * 6_000_000, error=ConnectionResetError()))
    assert not await blobs.exists(NAME)
    await blobs.put(NAME, b"old")
    with pytest.raises(ZeroDivisionError):
        await blobs.put(NAME, in_pieces(b"new", error=ZeroDivisionError()))
    assert await blobs.find(NAME) == b"old"


async def test_a_writer_that_is_cancelled_stores_nothing(blobs: Blobs) -> None:
    reached, never = asyncio.Event(), asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"x"
        reached.set()
        await never.wait()

    writer = asyncio.create_task(blobs.put(NAME, endless()))
    await reached.wait()
    assert await cancelled(writer)
    assert not await blobs.exists(NAME)


async def test_many_writers_of_one_name_leave_one_of_theirs(blobs: Blobs) -> None:
    written = [bytes([number]) * 100_000 for number in range(20)]
    await asyncio.gather(*(blobs.put(NAME, data) for data in written))
    assert await blobs.find(NAME) in written


async def test_malformed_names_are_refused_everywhere_and_those_at_the_edge_are_taken(blobs: Blobs) -> None:
    for name in (
        *("", "/", "/etc/passwd", "..", "../x", "a/../b", "a/..", "./a", "a/./b", "a//b", "a/", ".hidden", "a/.hidden"),
        *(f"{UNFINISHED}/x", "a\\b", "a b", "a\n", "a\x00b", "ä", "%2e%2e/a", "a?b", "a#1", "x" * (MAX_NAME_CHARS + 1)),
    ):
        uses = [use(name) for use in (blobs.find, blobs.stream, blobs.exists, blobs.delete, blobs.delete_all)]
        for use in (*uses, blobs.put(name, b"x"), blobs.presign(name, 60), blobs.address(name, 60)):
            with pytest.raises(ValueError, match="not a valid name of a blob"):
                await use
    for name in ("a", "a..b", "a-b_c.D/0/_x", "-", "x" * MAX_NAME_CHARS):
        await blobs.put(name, b"x")
        assert await blobs.find(name) == b"x"
        await blobs.delete(name)


async def test_only_the_service_can_read_its_files(tmp_path: Path) -> None:
    (tmp_path / "bytes").mkdir(mode=0o755)
    before = os.umask(0)
    try:
        blobs = open_blobs(tmp_path)
        await blobs.put("a/b/c", b"secret")
        await blobs.put("a/b/d", in_pieces(b"secret"))
    finally:
        os.umask(before)
    root = tmp_path / "bytes"
    folders = {path: path.stat().st_mode & 0o777 for path in (root, *root.rglob("*"))}
    assert {mode for path, mode in folders.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in folders.items() if path.is_file()} == {0o600}


async def test_what_dead_processes_left_is_cleared_away_after_a_while(tmp_path: Path) -> None:
    blobs = open_blobs(tmp_path)
    unfinished = tmp_path / "bytes" / UNFINISHED

    def leave() -> None:
        for name, age_s in {"old": UNFINISHED_S + 60, "new": UNFINISHED_S - 60}.items():
            (unfinished / name).write_bytes(b"half")
            os.utime(unfinished / name, (0, time.time() - age_s))

    leave()
    open_blobs(tmp_path)
    assert [path.name for path in unfinished.iterdir()] == ["new"]
    leave()
    await blobs.drop_unfinished()
    assert [path.name for path in unfinished.iterdir()] == ["new"]


async def test_a_folder_that_does_not_work_is_a_503(tmp_path: Path) -> None:
    blobs = open_blobs(tmp_path)
    await blobs.put("a/b", b"x")
    (tmp_path / "bytes" / UNFINISHED).rmdir()
    for use in (blobs.put(NAME, b"x"), blobs.put("a/b/c", b"x"), blobs.find("a"), blobs.delete("a")):
        assert await fault_of(use) == "STATE_UNAVAILABLE"


async def test_a_disk_that_hangs_holds_up_no_thread_of_others(tmp_path: Path) -> None:
    answers, hung = threading.Event(), list[Path]()

    def hang(folder: Path) -> int:
        hung.append(folder)
        answers.wait()
        return SPARE_BYTES

    blobs = FolderBlobs(tmp_path, hang)
    calls = [asyncio.create_task(blobs.free_bytes()) for _ in range(100)]
    await settled()
    try:
        assert await asyncio.wait_for(asyncio.to_thread(len, hung), 10) < 100
        calls[0].cancel()
    finally:
        answers.set()
    gone, *others = await asyncio.gather(*calls, return_exceptions=True)
    assert (type(gone), set(others)) == (asyncio.CancelledError, {0})


async def test_the_event_loop_closes_and_deletes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads, unlink, blobs = list[int](), Path.unlink, open_blobs(tmp_path)

    class File(io.FileIO):
        def close(self) -> None:
            if not self.closed:
                threads.append(threading.get_ident())
            super().close()

    monkeypatch.setattr(folder, "_create", lambda path: File(path, "xb"))
    monkeypatch.setattr(folder, "_open", lambda path: File(path, "rb"))
    monkeypatch.setattr(
        Path, "unlink", lambda *path, **how: threads.append(threading.get_ident()) or unlink(*path, **how)
    )
    await blobs.put(NAME, b"x")
    assert await blobs.find(NAME) == b"x"
    assert len(threads) == 3
    assert threading.get_ident() not in threads


async def test_a_file_can_be_read_to_its_end_after_it_was_replaced_or_deleted(tmp_path: Path) -> None:
    blobs = open_blobs(tmp_path)
    await blobs.put(NAME, b"a" * (2 * CHUNK_BYTES + 1))
    blob = await blobs.stream(NAME)
    assert blob is not None
    first = await anext(blob.chunks)
    await blobs.put(NAME, b"b")
    await blobs.delete(NAME)
    rest = [chunk async for chunk in blob.chunks]
    assert first + b"".join(rest) == b"a" * (2 * CHUNK_BYTES + 1)


async def test_a_store_that_does_not_work_is_a_503_without_its_reasons(
    bucket: Bucket, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blobs = open_blobs(tmp_path, "s3://store")
    bucket.fault = "refuses"
    uses = (blobs.put(NAME, b"x"), blobs.find(NAME), blobs.exists(NAME), blobs.delete(NAME))
    assert await asyncio.gather(*map(fault_of, uses)) == ["STATE_UNAVAILABLE"] * len(uses)
    assert str(bucket.server_port) not in caplog.text


async def test_a_bucket_holds_what_was_put_under_its_prefix_and_has_addresses(bucket: Bucket, tmp_path: Path) -> None:
    blobs = open_blobs(tmp_path, "s3://store")
    await blobs.put(NAME, b"x")
    await open_blobs(tmp_path, "s3://store/some/prefix/").put(NAME, b"y")
    assert bucket.objects == {f"store/{NAME}": b"x", f"store/some/prefix/{NAME}": b"y"}
    assert not (tmp_path / "bytes").exists()
    address = await blobs.presign(NAME, 3600) or ""
    assert address.startswith(f"{bucket.url}/store/{NAME}?")
    assert "X-Amz-Expires=3600" in address
    assert "X-Amz-Signature=" in address
    with await asyncio.to_thread(urllib.request.urlopen, address) as reply:
        assert reply.read() == b"x"


async def test_a_folder_can_be_named_and_has_no_addresses_and_other_schemes_are_refused(tmp_path: Path) -> None:
    assert await open_blobs(tmp_path).presign(NAME, 3600) is None
    shared = tmp_path / "a shared ä"
    await open_blobs(tmp_path, shared.as_uri()).put("x", b"x")
    assert (shared / "x").read_bytes() == b"x"
    for url in ("", "bytes", "/var/bytes", "file:", "file://host/x", "s3:", "s3:///x", "gs://b", "https://x"):
        with pytest.raises(ValueError, match="PARLANCE_BLOBS_URL"):
            open_blobs(tmp_path, url)


def test_memory_does_not_grow_with_the_length_of_a_stream(tmp_path: Path) -> None:
    code = (
        "import asyncio, resource, sys; from pathlib import Path; from state.blobs.open import open_blobs\n"
        "async def pieces(n):\n"
        "    for _ in range(n): yield b'x' * 65536\n"
        "async def run():\n"
        "    blobs = open_blobs(Path(sys.argv[1])); await blobs.put('a', pieces(16))\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "    await blobs.put('a', pieces(1600))\n"
        "    total = 0\n"
        "    async for chunk in (await blobs.stream('a')).chunks: total += len(chunk)\n"
        "    assert total == 1600 * 65536\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
        "asyncio.run(run())"
    )
    grown = subprocess.run([sys.executable, "-c", code, tmp_path], check=True, capture_output=True, text=True).stdout
    assert int(grown) < 10_000  # KiB, of 100 MiB that went through


async def test_the_settings_of_the_page_reach_a_store_that_is_not_of_aws(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs/operating.md").read_text("utf-8")
    section = page.partition("## Object storage\n")[2].partition("\n## ")[0]
    settings = dict(re.findall(r"^([A-Z_]+)=(\S+)", section, re.MULTILINE))
    assert settings["AWS_ENDPOINT_URL"].startswith("http:")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in (settings | {"AWS_ENDPOINT_URL": bucket.url}).items():
        monkeypatch.setenv(name, value)
    blobs = open_blobs(tmp_path, settings["PARLANCE_BLOBS_URL"])
    await blobs.put(NAME, b"x")
    assert bucket.objects == {f"parlance/files/{NAME}": b"x"}
    assert await blobs.find(NAME) == b"x"
    address = await blobs.presign(NAME, 60)
    assert address is not None
    assert address.startswith(f"{bucket.url}/parlance/files/{NAME}?")
    assert "change-me" not in address
