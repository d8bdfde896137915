"""Import rules that only a running interpreter shows, and what an engine's process does not get to know."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autoscaling.observation import ACCESS_VARIABLE, HEADERS_VARIABLES
from deployments.replicas import INGRESS_SECRETS, Replica
from state.blobs.open import BLOBS_VARIABLE
from state.keys import SECRET_VARIABLE
from state.open import DATABASE_VARIABLE
from tests.catalogs import chat

HEAVY = {"torch", "vllm", "transformers", "numpy", "models", "av", "mcp"}


def loaded_by(script: str) -> set[str]:
    """Top-level packages that are loaded once `script` has run."""
    program = f"{script}\nimport sys\nprint(' '.join({{name.split('.')[0] for name in sys.modules}}))"
    return set(subprocess.check_output([sys.executable, "-c", program], text=True).split())


ALL_OF_CONTRACT = """
import pkgutil, importlib, contract
for m in pkgutil.walk_packages(contract.__path__, 'contract.'): importlib.import_module(m.name)
"""
FLOWS = ("chat", "encoders", "speech", "decisions", "uploads")
UNNEEDED = {
    "import deployments.ingress.deployment": HEAVY - {"numpy"},  # Ray itself imports numpy
    "import deployments.ingress.app": HEAVY | {"ray"},
    **{f"import deployments.ingress.flows.{one}": HEAVY | {"ray", "fastapi", "starlette", "uvicorn"} for one in FLOWS},
    ALL_OF_CONTRACT: HEAVY | {"ray", "fastapi", "starlette", "sqlalchemy"},
    "import audio.sandbox": HEAVY | {"ray", "pydantic"},
}


@pytest.mark.parametrize("script", UNNEEDED)
def test_nothing_that_is_heavy_or_of_a_layer_above_is_imported(script: str) -> None:
    assert not loaded_by(script) & UNNEEDED[script]


def test_what_is_of_the_ingress_is_named() -> None:
    assert {SECRET_VARIABLE, DATABASE_VARIABLE, BLOBS_VARIABLE} < set(INGRESS_SECRETS)


OF_AWS = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
"""Some of the many by which its clients find a right to what the ingress may."""


def test_an_engine_and_what_it_starts_know_no_secret_of_the_ingress(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*INGRESS_SECRETS, *OF_AWS, *HEADERS_VARIABLES):
        monkeypatch.setenv(name, "planted")
    monkeypatch.setattr("deployments.replicas.prepare_port", lambda: None)
    monkeypatch.setenv(ACCESS_VARIABLE, "1")
    assert Replica(chat("obedient"))._observation.has_access_log, "but they know what they are to report"
    assert "planted" not in os.environ.values()
    show = "import os; print(*os.environ.values())"
    shown = subprocess.run([sys.executable, "-c", show], cwd=Path(__file__).parent, capture_output=True, text=True)
    assert "planted" not in shown.stdout
