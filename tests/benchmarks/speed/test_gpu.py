"""The script that asks each model of production on a GPU: what it says where there is none."""

from __future__ import annotations

import subprocess
import sys

import pytest

import configs
from benchmarks.speed.asks import ASKS
from benchmarks.speed.gpu import main
from contract.catalog import CATALOG_TYPES
from tests.docs.pages import ROOT


def test_the_script_knows_every_capability() -> None:
    assert set(ASKS) == set(CATALOG_TYPES)


def test_without_a_gpu_it_says_so_in_one_sentence() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    command = [sys.executable, "-m", "benchmarks.speed.gpu", "bge-m3"]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert refused.stderr.strip() == (
        "torch finds no GPU here, and this shows nothing without one: run it where `nvidia-smi` lists a GPU"
    )


def test_its_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    for word in ("launch weights lock production", "--list", "--recording", "decision-v1"):
        assert word in told


def test_it_lists_every_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    told = capsys.readouterr().out
    assert all(model.id in told for model in configs.load("production").deployed())


def test_an_unknown_model_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["gemma-9"])
    assert "profile `production` has no model `gemma-9`" in capsys.readouterr().err
