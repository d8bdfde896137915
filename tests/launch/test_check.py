"""`python -m launch check`: what it prints, and with which status it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import configs
from launch.check import cost
from launch.check.cli import main
from launch.check.scaling import remarks
from tests.catalogs import behaving, chat


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PARLANCE_HOME", str(tmp_path))
    for name in ("PARLANCE_SECRET", "PARLANCE_DATABASE_URL", "PARLANCE_REDIS_URL", "PARLANCE_BLOBS_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def cells(printed: str, row: str, table: int = 0) -> list[str]:
    (line,) = (line for line in printed.split("\n\n")[table].splitlines() if line.startswith(row))
    return line.removeprefix(row).split()


def test_a_profile_that_can_work(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    main(["embedded"])
    printed = capsys.readouterr().out
    for model in configs.load("embedded").deployed():
        assert cells(printed, f"{model.deployment} ")[0] == "0-1"
    assert cells(printed, "at zero")[:2] == ["0", "0"]
    assert printed.endswith("embedded can work.\n")
    assert list(home.iterdir()) == []


def test_a_profile_that_cannot_work_shows_what_it_takes_and_why(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = yaml.safe_load((configs.FOLDER / "embedded.yaml").read_text("utf-8"))
    config["applications"][0]["args"]["ingress"] = {"replicas": 2}
    file = tmp_path / "two.yaml"
    file.write_text(yaml.safe_dump(config))
    with pytest.raises(SystemExit) as caught:
        main([str(file)])
    assert f"{file}: 2 ingress replicas cannot share SQLite" in str(caught.value)
    assert "at most" in capsys.readouterr().out


def test_a_cluster_is_judged_by_what_is_said_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["embedded", "--nodes", "2"])
    assert "set PARLANCE_SECRET" in str(caught.value)
    with pytest.raises(SystemExit) as caught:
        main(["production", "--nodes", "2", "--gpus", "0.1"])
    assert "GPU, but there are 0.1" in str(caught.value)
    assert "does not exist, but it must run" not in str(caught.value)
    capsys.readouterr()


@pytest.mark.parametrize("nodes", ["0", "-1", "x"])
def test_a_cluster_has_a_machine(nodes: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["embedded", "--nodes", nodes])
    assert caught.value.code == 2
    capsys.readouterr()


@pytest.mark.parametrize(
    ("profile", "says"), [("moon", "the profiles are cpu, embedded"), ("moon.yaml", "No such file")]
)
def test_a_profile_that_is_none(profile: str, says: str) -> None:
    with pytest.raises(SystemExit, match=says):
        main([profile])


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    told = capsys.readouterr().out
    assert "python -m launch check production --nodes 4 --gpus 8" in told
    assert "PARLANCE_SECRET" in told


def test_weights_that_several_models_share_are_counted_once() -> None:
    rows = list(cost.rows(configs.load("embedded")))
    size, unknown = cost.disk_bytes(rows)
    assert unknown == []
    assert size == sum({row.weights: row.disk_bytes or 0 for row in rows}.values())
    assert size < sum(row.disk_bytes or 0 for row in rows)


def test_memory_is_what_ray_reserves_or_grows_with_the_weights() -> None:
    reserved = cost.ReplicaCost(cpus=1, gpus=0, memory_bytes=7, fewest=0, most=2)
    free = cost.ReplicaCost(cpus=1, gpus=0, memory_bytes=None, fewest=1, most=2)
    on_gpu = cost.ReplicaCost(cpus=1, gpus=1, memory_bytes=None, fewest=0, most=1)
    rows = [cost.Row("a", "a", reserved, 5), cost.Row("b", "b", free, 100), cost.Row("c", "c", on_gpu, 10**12)]
    assert rows[0].memory_bytes == 7
    assert rows[1].memory_bytes == cost.LIBRARIES_BYTES + cost.CACHE_BYTES + 100
    assert rows[2].memory_bytes < 10**12
    assert cost.at_zero(rows) == cost.Sum(0, 1, rows[1].memory_bytes)
    assert cost.at_most(rows).gpus == 1
    assert cost.at_most(rows).memory_bytes == 14 + 2 * rows[1].memory_bytes + rows[2].memory_bytes


def test_what_the_policy_will_do_is_shown_unless_serve_decides(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    main(["embedded"])
    printed = capsys.readouterr().out
    assert cells(printed, "chat-smollm2-135m-instruct ", table=1) == ["~7", "s", "-", "30-300", "s", "-"]
    config = yaml.safe_load((configs.FOLDER / "embedded.yaml").read_text("utf-8"))
    config["applications"][0]["args"]["scaling"] = {"by": "serve"}
    file = tmp_path / "plain.yaml"
    file.write_text(yaml.safe_dump(config))
    main([str(file)])
    assert "a start" not in capsys.readouterr().out


def test_targets_that_cannot_be_reached_are_said() -> None:
    grows = {"autoscaling_config": {"max_replicas": 2}}
    late = behaving(x=chat("x", target_wait_s=1, load_s=30, deployment=grows))
    (remark,) = remarks(late)
    assert "`target_wait_s` is 1, but a request that finds the engine cold waits for 30 s; set `warm` or" in remark
    alone = behaving(x=chat("x", target_wait_s=60, load_s=30))
    assert [remark.split("; ")[1] for remark in remarks(alone)] == ["raise `autoscaling_config.max_replicas`"]
    assert not list(remarks(behaving(x=chat("x", target_wait_s=60, load_s=30, deployment=grows))))
