"""Weights of a model hub, locked to commits and hashes; the hub is a server here that speaks its API."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from launch.weights import main
from models.weights import store
from models.weights.lock import resolve, update
from models.weights.stanzas import SHIPPED, Repository, read, repositories
from models.weights.store import WeightsError
from tests.docs.pages import ROOT
from tests.models.weights.hub import LARGE, NEW, OLD, Hub, digest, found

WANTED = Repository(repository="owner/toy", licence="MIT")
WANTED_FILES = (LARGE, "config.json", "1_Pooling/config.json")


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "hub.lock"


def want(home: Path, repository: str = "owner/toy") -> None:
    home.mkdir(exist_ok=True)
    (home / "repositories.toml").write_text(f'[toy]\nrepository = "{repository}"\nlicence = "MIT"\n')


def run(program: str, hub: Hub) -> str:
    environ = os.environ | {"HF_ENDPOINT": hub.address}
    command = [sys.executable, "-c", program]
    child = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    return child.stdout


def test_a_repository_becomes_a_commit_and_every_wanted_file_a_hash(hub: Hub, lock: Path) -> None:
    changed = update({"toy": WANTED}, lock, endpoint=hub.address)
    (stanza,) = read(lock).values()
    assert changed == {"toy": (None, stanza)}
    assert (stanza.source, stanza.revision, stanza.licence) == (("hub:owner/toy",), OLD, "MIT")
    assert {name: pin.sha256 for name, pin in stanza.files.items()} == {
        name: digest(hub.files[name]) for name in WANTED_FILES
    }
    assert stanza.size_bytes == sum(len(hub.files[name]) for name in stanza.files)
    assert sorted(set(hub.asked)) == ["1_Pooling/config.json", "config.json"], "large files are not downloaded"


def test_what_is_locked_stays_at_its_commit_until_it_shall_not(hub: Hub, lock: Path) -> None:
    update({"toy": WANTED}, lock, endpoint=hub.address)
    before = lock.read_text()
    hub.commit, hub.files["config.json"] = NEW, b'{"a": 1}'
    assert update({"toy": WANTED}, lock, endpoint=hub.address) == {}
    assert lock.read_text() == before
    assert list(update({"toy": WANTED}, lock, upgrade=True, endpoint=hub.address)) == ["toy"]
    lines, old = lock.read_text().splitlines(), before.splitlines()
    assert len(lines) == len(old)
    assert sum(one != other for one, other in zip(lines, old, strict=True)) == 2, "the commit and one file"


def test_what_others_locked_stays_and_a_lock_of_another_repository_is_replaced(hub: Hub, lock: Path) -> None:
    update({"other": WANTED}, lock, endpoint=hub.address)
    hub.commit = NEW
    update({"a": WANTED, "toy": WANTED}, lock, endpoint=hub.address)
    assert list(read(lock)) == ["a", "other", "toy"]
    assert read(lock)["other"].revision == OLD
    narrower = WANTED.model_copy(update={"without": ("1_Pooling/*",)})
    update({"other": narrower}, lock, endpoint=hub.address)
    assert (read(lock)["other"].revision, len(read(lock)["other"].files)) == (NEW, 2)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tags": ["license:cc-by-nc-4.0"]}, "is under `cc-by-nc-4.0` now, but repositories.toml says `MIT`"),
        ({"files": {"config.json": b"{}"}}, "has no weights among"),
        ({"files": {LARGE: b"w", "config.json": b'{"auto_map": {}}'}}, "asks to run its own code"),
        ({"commit": "main"}, "the hub gave no commit"),
        ({"files": {"../config.json": b"{}", LARGE: b"w"}}, "could not download|names of files outside"),
    ],
)
def test_what_is_not_locked(hub: Hub, lock: Path, change: dict[str, object], says: str) -> None:
    for name, value in change.items():
        setattr(hub, name, value)
    with pytest.raises(WeightsError, match=says):
        update({"toy": WANTED}, lock, endpoint=hub.address)
    assert not lock.exists()


def test_a_licence_may_be_called_otherwise_and_a_branch_may_not(hub: Hub) -> None:
    hub.tags = ["license:openrail"]
    wanted = Repository(repository="owner/toy", licence="OpenRAIL-M", tag="openrail")
    assert resolve(wanted, hub.address).licence == "OpenRAIL-M"
    with pytest.raises(WeightsError, match="could not look up `owner/toy`"):
        resolve(wanted.model_copy(update={"branch": "moon"}), hub.address)


def test_the_command_locks_what_a_profile_loads(home: Path, hub: Hub, lock: Path) -> None:
    want(home)
    program = (
        "from launch import weights\n"
        "weights._weights_of = lambda profile: {'toy', 'of-a-wheel'}\n"
        f"weights.main(['lock', 'mine', '--into', {str(lock)!r}])"
    )
    printed = run(program, hub)
    assert f"not locked   -> {OLD[:12]}" in printed
    assert "1 weights of `mine` come from the hub; 1 changed" in printed
    assert list(read(lock)) == ["toy"]
    with pytest.raises(SystemExit, match="offline mode is on"):
        main(["lock", "mine", "--offline"])


def test_a_start_refuses_what_is_not_locked(home: Path, hub: Hub, lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    want(home)
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
    assert store.manifest()["toy"].revision == OLD
    want(home, "owner/other")
    with pytest.raises(WeightsError, match="were locked for another repository"):
        store.check("toy")


def test_weights_of_the_hub_are_locked_at_their_first_use_where_that_is_allowed_and_nothing_else_is_fetched(
    home: Path, hub: Hub
) -> None:
    want(home)
    with pytest.raises(WeightsError, match="are not locked to a commit"):
        store.ensure("toy")
    with pytest.raises(WeightsError, match="are not locked to a commit"):
        store.ensure("toy", may_lock=True, offline=True)
    program = "from launch.weights import main; main(['fetch', 'toy'])"
    for _ in range(2):
        run(program, hub)
        hub.commit = NEW
    assert read(home / "hub.lock")["toy"].revision == OLD
    assert found(store.ensure("toy", offline=True)) == {name: hub.files[name] for name in WANTED_FILES}
    assert set(hub.asked) == set(WANTED_FILES)


def test_an_operators_own_stanza_comes_before_what_is_wanted(home: Path, hub: Hub) -> None:
    want(home, "owner/other")
    update({"toy": WANTED}, home / "weights.toml", endpoint=hub.address)
    store.check("toy", only_pinned=True)


def test_the_list_names_what_is_not_locked(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["list"])
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("gemma-4-12b "))
    assert "not locked" in line
    assert line.endswith("hub:google/gemma-4-12B-it")


def test_every_shipped_repository_can_be_read(tmp_path: Path) -> None:
    known = repositories(tmp_path)
    assert SHIPPED.is_file()
    assert all(one.wants("config.json") or one.files != () for one in known.values())
    assert not any(one.wants("modeling.py") or one.wants("pytorch_model.bin") for one in known.values())
