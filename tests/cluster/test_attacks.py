"""Attacks that need the real graph: HAProxy, Ray, and engines that are real where the profile has them."""

import asyncio

import pytest

from benchmarks.attacks.__main__ import attack_all
from benchmarks.attacks.attack import ATTACKS
from tests.attacks.places import ON_A_GRAPH
from tests.cluster.conftest import Server

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def keys(server: Server) -> tuple[str, str]:
    """One of each of two organisations of their own, so that no other test pays for what is done here."""
    return _customer(server, "attacker"), _customer(server, "bystander")


@pytest.mark.parametrize("name", ON_A_GRAPH)
def test_attack_is_held(server: Server, keys: tuple[str, str], name: str) -> None:
    (verdict,) = asyncio.run(attack_all(server.url, *keys, [ATTACKS[name]], is_short=True))
    if verdict.passed is None:
        pytest.skip(verdict.saw)
    assert verdict.passed, verdict.saw


def _customer(server: Server, name: str) -> str:
    server.state("org", "create", name, "--plan", "pro")
    return server.state("key", "create", "--org", name, "--scopes", "all")
