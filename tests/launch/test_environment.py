"""What the Ray processes of a start inherit."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from launch import environment
from launch.environment import ROOT, SITE, prepare_environment


@pytest.mark.parametrize("own", [None, str(ROOT), "/an/operators/own"])
def test_workers_find_the_shortcut_whatever_path_an_operator_has_set(
    own: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {} if own is None else {"PYTHONPATH": own})
    prepare_environment(tmp_path, tmp_path)
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(ROOT), str(SITE), *([own] if own else [])]


def test_an_operators_own_settings_of_ray_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.1"})
    prepare_environment(tmp_path, tmp_path)
    assert os.environ["RAY_SERVE_CONTROL_LOOP_INTERVAL_S"] == "0.1"
    assert os.environ["RAY_SERVE_METRICS_EXPORT_INTERVAL_MS"] == "5000"


@pytest.mark.parametrize(("limit", "refused"), [(8255, True), (8256, False), (8257, False), (-1, False)])
def test_haproxy_may_open_two_files_for_each_connection(
    limit: int, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, limit))
    if refused:
        with pytest.raises(environment.StartError, match="at most 8255 files here, and HAProxy wants 8256"):
            environment.check_open_files(4096)
    else:
        environment.check_open_files(4096)
