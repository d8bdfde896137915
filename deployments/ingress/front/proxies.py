"""The proxies in front of the server: whose word on where a request comes from is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

PUBLIC_VARIABLE = "PARLANCE_PUBLIC_URL"
"""At which address clients call, which is the outermost proxy's where there is one."""

VARIABLE = "PARLANCE_PROXIES"
"""Addresses and networks, with spaces between them; `deployments/haproxy` reads it as well. Nobody is believed unless
the operator says so, also on this machine: a tunnel passes on what its clients wrote."""


@dataclass(frozen=True, slots=True)
class Proxies:
    """Each adds to `X-Forwarded-For` whom it heard.

    Attributes:
        networks: where the proxies are.
        behind_haproxy: whether requests come through HAProxy, with the changes of `deployments/haproxy`. It adds an
            entry to what proxies say, and takes from everybody else what they wrote.
    """

    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    behind_haproxy: bool = False

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> Proxies:
        """What the operator has said. Raises ValueError for what is no address."""
        told = environment.get(VARIABLE, "").split()
        return cls(tuple(ip_network(one, strict=False) for one in told), bool(environment.get("PARLANCE_HAPROXY")))

    def client(self, peer: str, forwarded: Sequence[str]) -> str:
        """Whom the outermost proxy heard, as it was written.

        `peer` is who has connected to this process, `forwarded` the entries of `X-Forwarded-For`. Read from the end,
        the first that is no proxy is the client: what stands before it is whatever the client wrote.
        """
        heard = forwarded if self.behind_haproxy and forwarded else [*forwarded, peer]
        return next((one for one in reversed(heard) if not self._has(one)), heard[0])

    def _has(self, one: str) -> bool:
        address = parsed(one)
        return address is not None and any(address in network for network in self.networks)


def parsed(text: str) -> IPv4Address | IPv6Address | None:
    """The address, IPv4 where IPv6 only wraps it; None for what is none."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
