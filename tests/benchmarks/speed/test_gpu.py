"""The script that asks each model of production on a GPU: what it says where there is none."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.speed.asks import ASKS
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
