"""Import rules that only a running interpreter shows."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"torch", "vllm", "transformers", "numpy", "models"}


def test_ingress_stays_light() -> None:
    script = "import sys, deployments.ingress; print(' '.join({name.split('.')[0] for name in sys.modules}))"
    loaded = set(subprocess.check_output([sys.executable, "-c", script], text=True).split())
    assert not loaded & (HEAVY - {"numpy"})  # Ray itself imports numpy


def test_contract_needs_nothing_but_pydantic() -> None:
    script = (
        "import sys, pkgutil, importlib, contract\n"
        "for module in pkgutil.iter_modules(contract.__path__): importlib.import_module(f'contract.{module.name}')\n"
        "print(' '.join({name.split('.')[0] for name in sys.modules}))"
    )
    loaded = set(subprocess.check_output([sys.executable, "-c", script], text=True).split())
    assert not loaded & (HEAVY | {"ray", "fastapi", "starlette", "sqlalchemy"})
