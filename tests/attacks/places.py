"""Where each attack is run: over engines that obey, on the graph of `tests/cluster`, or by `make attack` alone."""

from __future__ import annotations

import benchmarks.attacks.__main__  # noqa: F401  # fills the list
from benchmarks.attacks.attack import ATTACKS

WITHOUT_A_GRAPH = (
    "duplicate-keys",
    "json-floods",
    "wrong-values",
    "json-shapes",
    "endless-bodies",
    "samples-for-strangers",
    "idempotency-races",
    "borrowed-idempotency-keys",
    "searches-of-strangers",
    "broken-messages",
    "pages-of-others",
    "misused-tickets",
    "uploads-of-used-tickets",
    "paths-and-hosts",
    "smuggled-requests",
    "headers-of-proxies",
    "foreign-origins",
    "malformed-keys",
    "rude-closes",
    "sessions-that-read-nothing",
    "tiny-frames",
    "long-events",
    "useless-events",
    "unfinished-messages",
    "chunks-of-one-byte",
    "monstrous-frames",
    "compressed-bombs",
    "sockets-of-strangers",
    "activity-of-others",
    "verdicts-of-others",
    "searches-of-the-console",
    "pages-of-usage",
    "tickets-without-end",  # the last one: it leaves an organisation without tickets
)
"""They need neither HAProxy nor Ray nor a real engine."""
LONG = {"tickets-without-end"}
"""Those of them that the short form leaves out."""
PATIENT = {"sessions-that-read-nothing", "long-events", "useless-events", "unfinished-messages"}
"""Those of them that wait until a server gives up on a client."""

BEHIND_HAPROXY = {
    "endless-bodies",
    "paths-and-hosts",
    "smuggled-requests",
    "headers-of-proxies",
    "pages-of-others",
    "rude-closes",
}
"""Those of them that HAProxy may answer in another way, and that are run on the graph, too."""

ON_A_GRAPH = tuple(
    name
    for name, attack in ATTACKS.items()
    if not attack.is_long and (name in BEHIND_HAPROXY or name not in WITHOUT_A_GRAPH)
)

ON_REQUEST = {"bodies-that-trickle", "clients-that-read-nothing"}
"""They take minutes. Tests of the gateway show the same with shorter times."""
