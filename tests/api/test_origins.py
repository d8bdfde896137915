"""Whom a client without a key is counted as: what proxies have added is believed, what the client wrote is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest
from starlette.requests import Request

from deployments.ingress.context import Service, Trace
from deployments.ingress.front.origins import client_network
from deployments.ingress.front.proxies import Proxies
from state import State
from tests.catalogs import behaving

INSIDE = {"PARLANCE_PROXIES": "10.0.0.0/8 ::1"}
HAPROXY = {"PARLANCE_HAPROXY": "/bin/haproxy"}


def network(peer: str | None, *forwarded: str, environment: Mapping[str, str] = INSIDE) -> str:
    """`forwarded` are lines of X-Forwarded-For."""
    service = Service(behaving(), {}, cast(State, None), proxies=Proxies.of_environment(environment))
    scope: dict[str, Any] = {
        "type": "http",
        "headers": [(b"x-forwarded-for", line.encode()) for line in forwarded],
        "client": (peer, 1) if peer else None,
        "trace": Trace(service),
    }
    return client_network(Request(scope))


@pytest.mark.parametrize(
    ("peer", "forwarded", "counted"),
    [
        ("192.0.2.1", (), "192.0.2.1"),
        ("192.0.2.1", ("203.0.113.5",), "192.0.2.1"),
        ("10.0.0.1", ("192.0.2.9",), "192.0.2.9"),
        ("10.0.0.1", ("203.0.113.5, 192.0.2.9",), "192.0.2.9"),
        ("10.0.0.1", ("203.0.113.5", "192.0.2.9"), "192.0.2.9"),
        ("10.0.0.1", ("203.0.113.5, 192.0.2.9", "10.0.0.7"), "192.0.2.9"),
        ("10.0.0.1", ("10.0.0.7",), "10.0.0.7"),
        ("10.0.0.1", (), "10.0.0.1"),
        ("10.0.0.1", (" , ,",), "10.0.0.1"),
        ("::ffff:10.0.0.1", ("192.0.2.9",), "192.0.2.9"),
        ("::1", ("192.0.2.9",), "192.0.2.9"),
        ("10.0.0.1", ("203.0.113.5, unknown",), "nowhere"),
    ],
)
def test_what_proxies_have_added_is_believed_up_to_the_first_who_is_none(
    peer: str, forwarded: tuple[str, ...], counted: str
) -> None:
    assert network(peer, *forwarded) == counted


@pytest.mark.parametrize(
    ("forwarded", "counted"),
    [
        (("192.0.2.9",), "192.0.2.9"),
        (("203.0.113.5", "192.0.2.9"), "192.0.2.9"),
        (("192.0.2.9", "10.0.0.7"), "192.0.2.9"),
        ((), "172.16.0.1"),
    ],
)
def test_behind_haproxy_the_last_entry_is_whom_that_heard(forwarded: tuple[str, ...], counted: str) -> None:
    assert network("172.16.0.1", *forwarded, environment=INSIDE | HAPROXY) == counted


@pytest.mark.parametrize("environment", [{}, HAPROXY])
def test_nobody_is_a_proxy_unless_it_is_said_not_even_loopback(environment: Mapping[str, str]) -> None:
    assert network("127.0.0.1", "192.0.2.9", "127.0.0.1", environment=environment) == "127.0.0.1"


def test_what_is_no_address_stops_the_start() -> None:
    with pytest.raises(ValueError, match=r"proxy\.example"):
        Proxies.of_environment({"PARLANCE_PROXIES": "proxy.example"})


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
