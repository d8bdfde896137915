"""The proxies in front of the server, which are believed about where a request comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

PUBLIC_VARIABLE = "PARLANCE_PUBLIC_URL"
"""At which address clients call, which is the outermost proxy's where there is one."""

VARIABLE = "PARLANCE_PROXIES"
"""Addresses and networks, with spaces between them; `deployments/haproxy` reads it as well. No sender is believed
unless the operator names it, also on this machine: a tunnel passes on what its clients wrote."""


@dataclass(frozen=True, slots=True)
class Proxies:
    """The proxies that are believed. Each of them appends the address of its peer to `X-Forwarded-For`.

    Attributes:
        networks: networks of the proxies.
        behind_haproxy: whether requests come through HAProxy, with the changes of `deployments/haproxy`. It adds an
            entry to what proxies say, and removes what all others wrote.
    """

    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    behind_haproxy: bool = False

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> Proxies:
        """The proxies that the operator names. Raises ValueError for what is no address."""
        entries = environment.get(VARIABLE, "").split()
        return cls(
            tuple(ip_network(entry, strict=False) for entry in entries), bool(environment.get("PARLANCE_HAPROXY"))
        )

    def client(self, peer: str, forwarded: Sequence[str]) -> str:
        """The address of the client, as the outermost proxy wrote it.

        `peer` is who has connected to this process, `forwarded` the entries of `X-Forwarded-For`. Read from the end,
        the first that is no proxy is the client: what stands before it is whatever the client wrote.
        """
        addresses = self._senders(peer, forwarded)
        return next((address for address in reversed(addresses) if not self._has(address)), addresses[0])

    def sent(self, peer: str, forwarded: Sequence[str]) -> bool:
        """Says if one of the proxies has sent a request here, and vouches for its headers."""
        return self._has(self._senders(peer, forwarded)[-1])

    def _senders(self, peer: str, forwarded: Sequence[str]) -> Sequence[str]:
        """The addresses of all that passed a request on, the last one last."""
        return forwarded if self.behind_haproxy and forwarded else [*forwarded, peer]

    def _has(self, text: str) -> bool:
        address = parsed(text)
        return address is not None and any(address in network for network in self.networks)


def parsed(text: str) -> IPv4Address | IPv6Address | None:
    """The address, IPv4 where IPv6 only wraps it; None for what is none."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
