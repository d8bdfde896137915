"""What the Ray processes of a start inherit."""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from launch import environment
from launch.environment import LOCK, ROOT, RUNS_KEPT, SITE, StartError, make_run_folder, prepare_environment


@pytest.mark.parametrize("own", [None, str(ROOT), "/an/operators/own"])
def test_workers_find_the_shortcut_whatever_path_an_operator_has_set_whose_settings_stay(
    own: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.1"} | ({} if own is None else {"PYTHONPATH": own})
    monkeypatch.setattr(os, "environ", settings)
    prepare_environment(tmp_path, tmp_path)
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(ROOT), str(SITE), *([own] if own else [])]
    assert os.environ["RAY_SERVE_CONTROL_LOOP_INTERVAL_S"] == "0.1"
    assert os.environ["RAY_SERVE_METRICS_EXPORT_INTERVAL_MS"] == "5000"


def test_graphs_of_one_machine_share_no_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {})
    prepare_environment(tmp_path, tmp_path)
    names = ("HAPROXY_METRICS", "HAPROXY_STATS", "FALLBACK_PROXY_HTTP")
    ports = {int(os.environ[f"RAY_SERVE_{name}_PORT"]) for name in names}
    assert len(ports) == 3
    least_of_clients = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(ports) < min(30_000, least_of_clients)


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files, with a short path."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="t"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    shutil.rmtree(folder)


def test_ray_and_its_sockets_are_in_a_folder_of_this_user_alone(temporary: Path, tmp_path: Path) -> None:
    for _ in range(2):  # the second start moves the link of the first
        folder = make_run_folder(tmp_path)
        assert folder.stat().st_mode & 0o777 == 0o700
        assert folder.parent == temporary
        assert (tmp_path / "ray").readlink() == folder / "ray"


@pytest.mark.parametrize(
    ("mode", "refused"), [(0o755, False), (0o1777, False), (0o777, True), (0o775, True), (0o757, True)]
)
def test_a_folder_that_other_users_could_replace_is_refused(
    mode: int, refused: bool, temporary: Path, tmp_path: Path
) -> None:
    temporary.chmod(mode)
    says = f"other users may replace what is in {temporary}; set TMPDIR"
    with pytest.raises(StartError, match=says) if refused else nullcontext():
        make_run_folder(tmp_path)
    assert bool(list(temporary.iterdir())) is not refused


def test_folders_of_the_last_runs_stay(temporary: Path, tmp_path: Path) -> None:
    """Those of the last processes that have ended, and that of this one, which lives."""
    (other := temporary / "parlance-other").mkdir()
    other.chmod(0o755)  # another user may have put the lock there
    (other / LOCK).touch()
    living = make_run_folder(tmp_path)
    run = f"from pathlib import Path; from launch.environment import *; print(make_run_folder(Path({str(tmp_path)!r})))"
    ended = [
        Path(subprocess.check_output([sys.executable, "-c", run], env={"TMPDIR": str(temporary)}, text=True).strip())
        for _ in range(RUNS_KEPT + 2)
    ]
    assert {*temporary.iterdir()} == {other, living, *ended[-RUNS_KEPT:]}
    assert (tmp_path / "ray").readlink() == ended[-1] / "ray"


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_the_path_of_a_run_leaves_room_for_names_of_sockets(
    beyond: int, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = len(f"{temporary}/parlance-12345678") - beyond
    monkeypatch.setattr(environment, "RUN_BYTES", allowed)
    says = f"has {allowed + 1} bytes, and sockets leave {allowed} for it"
    with pytest.raises(StartError, match=says) if beyond > 0 else nullcontext():
        make_run_folder(tmp_path)


def test_a_home_that_cannot_be_written_is_one_sentence_and_leaves_no_folder(temporary: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "ray").mkdir()  # root may write where other users may not
    for home, name in ((tmp_path, "ray"), (tmp_path / "file", "file")):
        with pytest.raises(StartError, match=f"/{name}'; set PARLANCE_HOME to"):
            make_run_folder(home)
        assert not list(temporary.iterdir())


def test_a_start_on_a_full_disk_does_not_break_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {})
    token = tmp_path / "ray_token"
    token.touch()  # as earlier versions left it
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(StartError, match="; set PARLANCE_HOME to"):
            prepare_environment(tmp_path, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.glob("ray_token.*"))
    prepare_environment(tmp_path, tmp_path)
    assert (len(token.read_text().strip()), token.stat().st_mode & 0o777) == (64, 0o600)


@pytest.mark.parametrize(("limit", "refused"), [(8255, True), (8256, False), (8257, False), (-1, False)])
def test_haproxy_may_open_two_files_a_connection(limit: int, refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, limit))
    says = "at most 8255 files here, and HAProxy wants 8256"
    with pytest.raises(StartError, match=says) if refused else nullcontext():
        environment.check_open_files(4096)
