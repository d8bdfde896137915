"""What a start does before anything of Ray runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from launch import start
from launch.check import faults
from launch.check.faults import Plan, Site
from launch.environment import StartError
from tests.docs.pages import ROOT


@pytest.mark.parametrize("argument", ["--port=0", "--weights-only"])
def test_a_profile_is_judged_once(argument: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[str] = []
    judge = faults.faults

    def counted(plan: Plan, site: Site) -> Iterator[str]:
        judged.append(plan.catalog.profile)
        return judge(plan, site)

    def stop(*_: object, **__: object) -> None:
        raise StartError("the weights are next")

    monkeypatch.setenv("PARLANCE_HOME", str(tmp_path))
    monkeypatch.setattr(faults, "faults", counted)
    monkeypatch.setattr(start, "prepare_environment", lambda home, run: None)
    monkeypatch.setattr(start, "_fetch_weights", stop)
    with pytest.raises(SystemExit, match="the weights are next"):
        start.main([str(ROOT / "configs/embedded.yaml"), argument])
    assert judged == ["embedded"]
