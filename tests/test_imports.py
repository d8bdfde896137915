"""Import rules that only a running interpreter shows."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"torch", "vllm", "transformers", "numpy", "models", "av", "mcp"}


def loaded_by(script: str) -> set[str]:
    """Top-level packages that are loaded once `script` has run."""
    program = f"{script}\nimport sys\nprint(' '.join({{name.split('.')[0] for name in sys.modules}}))"
    return set(subprocess.check_output([sys.executable, "-c", program], text=True).split())


def test_ingress_stays_light() -> None:
    assert not loaded_by("import deployments.ingress.deployment") & (HEAVY - {"numpy"})  # Ray itself imports numpy


def test_routes_need_no_ray() -> None:
    assert not loaded_by("import deployments.ingress.app") & (HEAVY | {"ray"})


@pytest.mark.parametrize("capability", ["chat", "encoders", "speech", "decisions", "uploads"])
def test_flows_need_no_http(capability: str) -> None:
    loaded = loaded_by(f"import deployments.ingress.flows.{capability}")
    assert not loaded & (HEAVY | {"ray", "fastapi", "starlette", "uvicorn"})


def test_contract_needs_nothing_but_pydantic() -> None:
    every = (
        "import pkgutil, importlib, contract\n"
        "for m in pkgutil.walk_packages(contract.__path__, 'contract.'): importlib.import_module(m.name)"
    )
    assert not loaded_by(every) & (HEAVY | {"ray", "fastapi", "starlette", "sqlalchemy"})


def test_audio_that_the_ingress_sees_needs_no_codec() -> None:
    assert not loaded_by("import audio.sandbox") & (HEAVY | {"ray", "pydantic"})
