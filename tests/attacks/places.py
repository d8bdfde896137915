"""Where each attack is run: over engines that obey, on the graph of `tests/cluster`, or by `make attack` alone."""

import benchmarks.attacks.__main__  # noqa: F401  # fills the list
from benchmarks.attacks.attack import ATTACKS

NEED_A_GRAPH = {
    "half-sent-requests",
    "bodies-that-stop",
    "unread-replies",
    "held-bodies",
    "herd-at-a-sleeping-engine",
    "one-key-that-starves-others",
    "schema-bombs",
    "hostile-audio",
    "hostile-forms",
    "forged-turns",
    "floods-of-voice-design",
}
"""They need HAProxy, Ray or a real engine."""
ON_REQUEST = {"bodies-that-trickle", "clients-that-read-nothing"}
"""They take minutes. Tests of the gateway show the same with shorter times."""
LONG = {"tickets-without-end"}
"""Those of the others that the short form leaves out."""
PATIENT = {"sessions-that-read-nothing", "long-events", "useless-events", "unfinished-messages"}
"""Those of them that wait until a server gives up on a client."""

WITHOUT_A_GRAPH = sorted((name for name in ATTACKS if name not in NEED_A_GRAPH | ON_REQUEST), key=LONG.__contains__)
"""The long one comes last: it leaves an organisation without tickets."""

BEHIND_HAPROXY = {
    "endless-bodies",
    "paths-and-hosts",
    "smuggled-requests",
    "headers-of-proxies",
    "pages-of-others",
    "rude-closes",
}
"""Those of the others that HAProxy may answer in another way, and that are run on the graph, too."""

ON_A_GRAPH = tuple(
    name for name, attack in ATTACKS.items() if not attack.is_long and name in BEHIND_HAPROXY | NEED_A_GRAPH
)
