"""What an engine's process does not get to know."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autoscaling.observation import HEADERS_VARIABLES
from deployments.replicas import INGRESS_SECRETS, Replica
from state.blobs.open import BLOBS_VARIABLE
from state.keys import SECRET_VARIABLE
from state.open import DATABASE_VARIABLE
from tests.catalogs import chat


def test_what_is_of_the_ingress_is_named() -> None:
    assert {SECRET_VARIABLE, DATABASE_VARIABLE, BLOBS_VARIABLE} < set(INGRESS_SECRETS)


OF_AWS = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
"""Some of the many by which its clients find a right to what the ingress may."""


def test_an_engine_and_what_it_starts_know_no_secret_of_the_ingress(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*INGRESS_SECRETS, *OF_AWS, *HEADERS_VARIABLES):
        monkeypatch.setenv(name, "planted")
    monkeypatch.setattr("deployments.replicas.keep_replica_port_local", lambda: None)
    Replica(chat("obedient"))
    assert "planted" not in os.environ.values()
    show = "import os; print(*os.environ.values())"
    shown = subprocess.run([sys.executable, "-c", show], cwd=Path(__file__).parent, capture_output=True, text=True)
    assert "planted" not in shown.stdout
