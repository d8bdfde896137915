"""Weights that the installed vLLM cannot run: one sentence, before anything is loaded."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from models.llm import engine
from models.weights.files import WeightsError


def start(folder: Path, architecture: str, model_type: str) -> None:
    (folder / "config.json").write_text(json.dumps({"architectures": [architecture], "model_type": model_type}))
    engine.start(engine.EngineSpec(folder, 1024, {"enforce_eager": True}, threads=1))


@pytest.mark.parametrize("model_type", ["gemma9", "qwen3"])
def test_an_architecture_that_vllm_does_not_know_is_named(tmp_path: Path, model_type: str) -> None:
    """Whether or not transformers knows the kind of the model."""
    with pytest.raises(WeightsError, match=r"`Gemma9ForEverything`, which vLLM \S+ does not know; name other weights"):
        start(tmp_path, "Gemma9ForEverything", model_type)


@pytest.mark.skipif(importlib.util.find_spec("torchvision") is not None, reason="here it could be loaded")
def test_what_needs_a_package_that_a_cpu_has_not_says_so(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="`Qwen3_5ForConditionalGeneration`: torchvision is missing"):
        start(tmp_path, "Qwen3_5ForConditionalGeneration", "qwen3_5")
