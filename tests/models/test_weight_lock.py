"""Weights of a model hub, locked to commits and hashes; the hub is a server here that speaks its API."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from launch.weights import main
from models.weights import store
from models.weights.lock import resolve, update
from models.weights.stanzas import SHIPPED, Repository, read, repositories
from models.weights.store import WeightsError
from tests.docs.pages import ROOT
from tests.models.toy_weights import digest

OLD, NEW = "1" * 40, "2" * 40
WANTED = Repository(repository="owner/toy", licence="MIT")
LARGE = "model.safetensors"


@dataclass
class Shelf:
    """What the hub has: the files of the branch `main`, as of `commit`."""

    commit: str = OLD
    tags: list[str] = field(default_factory=lambda: ["license:mit", "text-generation"])
    files: dict[str, bytes] = field(
        default_factory=lambda: {
            LARGE: b"w" * 5000,
            "config.json": b"{}",
            "1_Pooling/config.json": b'{"pooling_mode": "cls"}',
            "README.md": b"# toy",
            "pytorch_model.bin": b"\x80\x02",
            "modeling.py": b"raise SystemExit",
        }
    )
    asked: list[str] = field(default_factory=list)
    address: str = ""

    def answer(self, path: str) -> tuple[int, bytes, dict[str, str]]:
        """Status, body and headers."""
        if path == "/api/models/owner/toy/revision/main":
            rows = [self._row(name, data) for name, data in self.files.items()]
            body = {"id": "owner/toy", "sha": self.commit, "tags": self.tags, "siblings": rows}
            return 200, json.dumps(body).encode(), {"Content-Type": "application/json"}
        if path == f"/api/models/owner/toy/tree/{self.commit}":
            tree = [
                {"type": "file", "path": one, "size": len(data), "oid": "0" * 40} for one, data in self.files.items()
            ]
            return 200, json.dumps(tree).encode(), {"Content-Type": "application/json"}
        start = f"/owner/toy/resolve/{self.commit}/"
        if path.startswith(start) and (name := path.removeprefix(start)) in self.files:
            self.asked.append(name)
            data = self.files[name]
            return 200, data, {"ETag": f'"{digest(data)}"', "X-Repo-Commit": self.commit}
        return 404, b"{}", {"X-Error-Code": "RevisionNotFound"}

    def _row(self, name: str, data: bytes) -> dict[str, object]:
        row: dict[str, object] = {"rfilename": name, "size": len(data), "blobId": "0" * 40}
        if name == LARGE or name.endswith(".bin"):
            row["lfs"] = {"sha256": digest(data), "size": len(data), "pointerSize": 130}
        return row


@pytest.fixture(autouse=True)
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that a test before loaded has told the hub's client to stay offline."""
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Shelf]:
    shelf = Shelf()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send(with_body=False)

        def do_GET(self) -> None:
            self.send(with_body=True)

        def send(self, *, with_body: bool) -> None:
            status, body, headers = shelf.answer(self.path.partition("?")[0])
            self.send_response(status)
            for key, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(key, value)
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    shelf.address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("PARLANCE_HOME", str(tmp_path / "home"))
    yield shelf
    server.shutdown()
    server.server_close()


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "hub.lock"


def test_a_repository_becomes_a_commit_and_every_wanted_file_a_hash(hub: Shelf, lock: Path) -> None:
    changed = update({"toy": WANTED}, lock, endpoint=hub.address)
    (stanza,) = read(lock).values()
    assert changed == {"toy": (None, stanza)}
    assert (stanza.source, stanza.revision, stanza.licence) == (("hub:owner/toy",), OLD, "MIT")
    assert {name: pin.sha256 for name, pin in stanza.files.items()} == {
        name: digest(hub.files[name]) for name in (LARGE, "config.json", "1_Pooling/config.json")
    }
    assert stanza.size_bytes == sum(len(hub.files[name]) for name in stanza.files)
    assert sorted(set(hub.asked)) == ["1_Pooling/config.json", "config.json"], "large files are not downloaded"


def test_what_is_locked_stays_at_its_commit_until_it_shall_not(hub: Shelf, lock: Path) -> None:
    update({"toy": WANTED}, lock, endpoint=hub.address)
    before = lock.read_text()
    hub.commit, hub.files["config.json"] = NEW, b'{"a": 1}'
    assert update({"toy": WANTED}, lock, endpoint=hub.address) == {}
    assert lock.read_text() == before
    assert list(update({"toy": WANTED}, lock, upgrade=True, endpoint=hub.address)) == ["toy"]
    lines, old = lock.read_text().splitlines(), before.splitlines()
    assert len(lines) == len(old)
    assert sum(one != other for one, other in zip(lines, old, strict=True)) == 2, "the commit and one file"


def test_what_others_locked_stays(hub: Shelf, lock: Path) -> None:
    update({"other": WANTED}, lock, endpoint=hub.address)
    hub.commit = NEW
    update({"a": WANTED, "toy": WANTED}, lock, endpoint=hub.address)
    assert list(read(lock)) == ["a", "other", "toy"]
    assert read(lock)["other"].revision == OLD


def test_a_lock_of_another_repository_is_made_anew(hub: Shelf, lock: Path) -> None:
    update({"toy": WANTED}, lock, endpoint=hub.address)
    hub.commit = NEW
    narrower = WANTED.model_copy(update={"without": ("1_Pooling/*",)})
    update({"toy": narrower}, lock, endpoint=hub.address)
    assert (read(lock)["toy"].revision, len(read(lock)["toy"].files)) == (NEW, 2)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tags": ["license:cc-by-nc-4.0"]}, "is under `cc-by-nc-4.0` by now, and repositories.toml says `MIT`"),
        ({"files": {"config.json": b"{}"}}, "has no weights among"),
        ({"files": {LARGE: b"w", "config.json": b'{"auto_map": {}}'}}, "asks for code of its own"),
        ({"commit": "main"}, "the hub gave no commit"),
        ({"files": {"../config.json": b"{}", LARGE: b"w"}}, "could not download|names of files outside"),
    ],
)
def test_what_is_not_locked(hub: Shelf, lock: Path, change: dict[str, object], says: str) -> None:
    for name, value in change.items():
        setattr(hub, name, value)
    with pytest.raises(WeightsError, match=says):
        update({"toy": WANTED}, lock, endpoint=hub.address)
    assert not lock.exists()


def test_a_licence_that_the_hub_calls_otherwise(hub: Shelf) -> None:
    hub.tags = ["license:openrail"]
    wanted = Repository(repository="owner/toy", licence="OpenRAIL-M", tag="openrail")
    assert resolve(wanted, hub.address).licence == "OpenRAIL-M"


def test_a_branch_that_the_hub_does_not_have(hub: Shelf) -> None:
    with pytest.raises(WeightsError, match="could not look up `owner/toy`"):
        resolve(WANTED.model_copy(update={"branch": "moon"}), hub.address)


def test_the_command_locks_what_a_profile_loads(
    hub: Shelf, lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "repositories.toml").write_text('[toy]\nrepository = "owner/toy"\nlicence = "MIT"\n')
    program = (
        "from launch import weights\n"
        "weights._weights_of = lambda profile: {'toy', 'of-a-wheel'}\n"
        f"weights.main(['lock', 'mine', '--into', {str(lock)!r}])"
    )
    environ = os.environ | {"HF_ENDPOINT": hub.address}
    child = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environ, capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr
    assert f"not locked   -> {OLD[:12]}" in child.stdout
    assert "1 weights of `mine` are of the hub; 1 changed" in child.stdout
    assert list(read(lock)) == ["toy"]
    with pytest.raises(SystemExit, match="offline mode is on"):
        main(["lock", "mine", "--offline"])


def test_what_is_locked_is_fetched_and_verified(
    hub: Shelf, lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update({"toy": WANTED}, lock, endpoint=hub.address)
    monkeypatch.setattr(store, "LOCK", lock)
    store.check("toy", only_pinned=True)
    assert store.manifest()["toy"].revision == OLD


def test_a_start_refuses_what_is_not_locked(
    hub: Shelf, lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "repositories.toml").write_text('[toy]\nrepository = "owner/toy"\nlicence = "MIT"\n')
    monkeypatch.setattr(store, "LOCK", lock)
    store.check("toy")  # it would be locked at its first use
    with pytest.raises(WeightsError) as caught:
        store.check("toy", only_pinned=True)
    assert str(caught.value) == (
        "the weights `toy` are not locked to a commit of `owner/toy`: run `python -m launch weights lock PROFILE` "
        "where the model hub can be reached, and commit hub.lock"
    )
    update({"toy": WANTED}, home / "hub.lock", endpoint=hub.address)
    with pytest.raises(WeightsError, match="are not locked to a commit"):
        store.check("toy", only_pinned=True)
    update({"toy": WANTED}, lock, endpoint=hub.address)
    store.check("toy", only_pinned=True)
    (home / "repositories.toml").write_text('[toy]\nrepository = "owner/other"\nlicence = "MIT"\n')
    with pytest.raises(WeightsError, match="were locked for another repository"):
        store.check("toy")


def test_weights_of_the_hub_are_locked_at_their_first_use_where_that_is_allowed(
    hub: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "repositories.toml").write_text('[toy]\nrepository = "owner/toy"\nlicence = "MIT"\n')
    with pytest.raises(WeightsError, match="are not locked to a commit"):
        store.ensure("toy")
    with pytest.raises(WeightsError, match="are not locked to a commit"):
        store.ensure("toy", may_lock=True, offline=True)
    program = "from launch.weights import main; main(['fetch', 'toy'])"
    environ = os.environ | {"HF_ENDPOINT": hub.address}
    for _ in range(2):
        child = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environ, capture_output=True, check=False)
        assert child.returncode == 0, child.stderr
        hub.commit = NEW
    assert read(home / "hub.lock")["toy"].revision == OLD
    assert (store.ensure("toy", offline=True) / LARGE).read_bytes() == hub.files[LARGE]


def test_an_operators_own_stanza_comes_before_what_is_wanted(hub: Shelf, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "repositories.toml").write_text('[toy]\nrepository = "owner/other"\nlicence = "MIT"\n')
    update({"toy": WANTED}, home / "weights.toml", endpoint=hub.address)
    store.check("toy", only_pinned=True)


def test_the_list_names_what_is_not_locked(hub: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    main(["list"])
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("gemma-4-12b "))
    assert "not locked" in line
    assert line.endswith("hub:google/gemma-4-12B-it")


def test_every_shipped_repository_can_be_read(tmp_path: Path) -> None:
    known = repositories(tmp_path)
    assert SHIPPED.is_file()
    assert all(one.wants("config.json") or one.files != () for one in known.values())
    assert not any(one.wants("modeling.py") or one.wants("pytorch_model.bin") for one in known.values())
