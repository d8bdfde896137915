"""The profile `gpu`: which models a card gets, that they fit it together, and what the page says of them."""

import io
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

import configs
from autoscaling.deployment import deployment_options
from launch import start
from launch.check.faults import plan_of
from launch.selection import SPARE_GPU_GIB, fit_gpu, gpu_gib
from tests.docs.pages import ROOT

SMALL = ["bge-m3", "whisper-large-v3"]
ON_GPU = {model.id: model for model in configs.load("gpu").deployed() if model.serving and model.serving.on_gpu}
FREE_OF_CARD_GIB = {"24 GB": 22.0, "48 GB": 44.5, "80 GB": 79.1}
"""An L4, an L40S and an H100, as their driver counts them, less what is spared. Other cards of a size have more."""


def set_up(config: dict[str, Any], gib: float) -> list[str]:
    """Ids of what runs on a card of `gib`, the smallest first."""
    fit_gpu(config, gib)
    (app,) = config["applications"]
    deployed = {model.id for model in plan_of(app["args"]).catalog.deployed()}
    return [id for id in sorted(ON_GPU, key=lambda id: taken(id)) if id in deployed]


def taken(id: str) -> float:
    return ON_GPU[id].setup.gpu_gib


def fresh() -> dict[str, Any]:
    return dict(yaml.safe_load((configs.FOLDER / "gpu.yaml").read_text("utf-8")))


def test_a_card_gets_the_models_that_fit_it_together() -> None:
    chats = ["qwen3.5-9b", "gemma-4-12b", "qwen3.8-27b"]
    expected = {0: [], 5.5: SMALL}
    for gib, count in ((20.4, 0), (20.5, 1), (38.4, 1), (38.5, 2), (74.4, 2), (74.5, 3)):
        expected[gib] = [*SMALL, *chats[:count]]
    assert {gib: set_up(fresh(), gib + SPARE_GPU_GIB) for gib in expected} == expected


def test_what_runs_on_the_gpu_says_what_it_takes_and_all_may_be_awake_at_once() -> None:
    assert {one.id for one in configs.load("gpu").deployed() if one.serving and one.serving.gpu_gib} == {*ON_GPU}
    shares = [deployment_options(model)["ray_actor_options"]["num_gpus"] for model in ON_GPU.values()]
    assert sum(shares) <= 1
    assert all(deployment_options(model)["autoscaling_config"]["max_replicas"] == 1 for model in ON_GPU.values())


def test_a_chat_model_is_productions_in_8_bits_with_a_cache_that_is_stated() -> None:
    """So what the twins show of production's arguments holds here; the card's size is in none of them."""
    for id in (id for id, model in ON_GPU.items() if model.noun == "chat"):
        ours, theirs = ON_GPU[id].setup, configs.load("production").chat[id].setup
        assert (ours.adapter, ours.weights, ours.runtime) == (theirs.adapter, theirs.weights, theirs.runtime)
        engine = dict(ours.options["engine"])
        cache_gib = engine.pop("kv_cache_memory_bytes") / 2**30
        most = ours.max_ongoing_requests
        assert engine == {"quantization": "fp8", "max_num_seqs": most, "gpu_memory_utilization": 0.05}
        assert cache_gib < taken(id) / 3


@pytest.mark.parametrize(
    ("says", "status", "expected"),
    [("23034", 0, 23034 / 1024), ("8192\n4096", 0, 8), ("", 0, None), ("[N/A]", 0, None), ("No devices", 6, None)],
)
def test_the_driver_is_asked_for_the_memory_of_the_first_gpu(
    says: str, status: int, expected: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_gib() is None
    driver = tmp_path / "nvidia-smi"
    driver.write_text(f"#!/bin/sh\necho '{says}'\nexit {status}\n")
    driver.chmod(0o755)
    assert gpu_gib() == expected


def test_a_start_says_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr(start, "console", Console(file=said, soft_wrap=True))
    monkeypatch.setattr(start, "gpu_gib", lambda: 24.0)
    start._plans(fresh(), small=False)
    assert said.getvalue() == "left out, because the GPU has 24.0 GiB of memory: gemma-4-12b, qwen3.8-27b\n"


def test_the_page_has_the_numbers_of_the_stanzas() -> None:
    text = (ROOT / "docs/one-gpu.md").read_text("utf-8")
    told = {
        id: (float(gib), int(window.replace(",", "") or 0))
        for id, gib, window in re.findall(r"^\| `([\w.-]+)` \|[^|]*\| ([\d.]+) \|[^|]*\| ?([\d,]*) ?\|$", text, re.M)
    }
    windows = {id: getattr(model, "context_window", 0) if model.noun == "chat" else 0 for id, model in ON_GPU.items()}
    assert told == {id: (taken(id), windows[id]) for id in ON_GPU}
    for card, free_gib in FREE_OF_CARD_GIB.items():
        (cell,) = re.findall(rf"^\| {card}[^|]*\|([^|]*)\|", text, re.MULTILINE)
        assert re.findall(r"`([\w.-]+)`", cell) == set_up(fresh(), free_gib + SPARE_GPU_GIB), card
