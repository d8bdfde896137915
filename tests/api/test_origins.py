"""Whom a client without a key is counted as: what proxies have added is believed, what the client wrote is not."""

from __future__ import annotations

from typing import Any, cast

import pytest
from starlette.requests import Request

from deployments.ingress.middleware import Trace
from deployments.ingress.origins import client_network
from deployments.ingress.service import Service
from state import State
from tests.catalogs import behaving


def network(peer: str | None, *forwarded: str, proxies: int = 0) -> str:
    """`forwarded` are lines of X-Forwarded-For."""
    scope: dict[str, Any] = {
        "type": "http",
        "headers": [(b"x-forwarded-for", line.encode()) for line in forwarded],
        "client": (peer, 1) if peer else None,
        "trace": Trace(Service(behaving(), {}, cast(State, None), proxies=proxies)),
    }
    return client_network(Request(scope))


@pytest.mark.parametrize(
    ("proxies", "forwarded", "counted"),
    [
        (0, (), "10.0.0.1"),
        (0, ("192.0.2.9",), "10.0.0.1"),
        (1, ("192.0.2.9",), "192.0.2.9"),
        (1, ("203.0.113.5, 192.0.2.9",), "192.0.2.9"),
        (1, ("203.0.113.5", "192.0.2.9"), "192.0.2.9"),
        (2, ("203.0.113.5, 192.0.2.9", "10.0.0.7"), "192.0.2.9"),
        (2, ("10.0.0.7",), "10.0.0.7"),
        (1, (), "10.0.0.1"),
        (1, (" , ,",), "10.0.0.1"),
    ],
)
def test_as_many_entries_from_the_end_are_true_as_there_are_proxies(
    proxies: int, forwarded: tuple[str, ...], counted: str
) -> None:
    assert network("10.0.0.1", *forwarded, proxies=proxies) == counted


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("::ffff:192.0.2.9", "192.0.2.9"),
        ("unknown", "nowhere"),
        (None, "nowhere"),
    ],
)
def test_a_network_of_ipv6_is_one_client(address: str | None, counted: str) -> None:
    assert network(address) == counted
