"""The graph that is broken: two ingress replicas over PostgreSQL and Redis, started as `make serve` starts it.

Victims are found among the processes that this start has begun, by their titles, and never among others of the machine.
"""

import io
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from state.__main__ import main as run_command
from tests.cluster.conftest import ROOT, STOP_S, Server, free_ports, launched
from tests.state.servers import Postgres, Redis, run_server

CONFIG = "tests/campaign/graph.yaml"
PLAN = "enterprise"
NO_LIMIT = ("--requests-per-minute=1000000000", "--concurrent-streams=1000000000")

DRAINING_S = "30"
"""As on a cluster; on one machine `make serve` has 1."""


@dataclass
class Graph:
    """One graph with its home, which it keeps when it is started again.

    Attributes:
        server: as the tests of `tests/cluster` have it; its key is the operator's, of every scope.
        keys: of organisations, by name, that no limit stops.
    """

    home: Path
    ports: list[int]
    server: Server
    keys: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Without a path."""
        return self.server.url

    def key(self, org: str) -> str:
        """A key with every scope of an organisation, which is made where it is not there."""
        if org not in self.keys:
            self.state("org", "create", org, "--plan", PLAN)
            self.state("org", "change", org, *NO_LIMIT)
            self.keys[org] = self.state("key", "create", "--org", org, "--scopes", "all")
        return self.keys[org]

    def state(self, *arguments: str) -> str:
        """Output of `python -m state` beside the graph, run in this process. Raises RuntimeError with its errors."""
        with redirect_stdout(io.StringIO()) as output, redirect_stderr(io.StringIO()) as errors:
            status = run_command(arguments)
        if status:
            raise RuntimeError(errors.getvalue() or output.getvalue())
        return output.getvalue().strip()

    def family(self) -> list[psutil.Process]:
        """All processes of the graph. Forks are no descendants of its start, but have its home in their environment."""
        return list(self.server.family())

    def processes(self, *titles: str) -> list[psutil.Process]:
        """Those of the family with one of these titles in their command line, the oldest first."""
        found = []
        for process in self.family():
            with suppress(psutil.Error):
                line, is_over = " ".join(process.cmdline()), process.status() == psutil.STATUS_ZOMBIE
                found += [process] if not is_over and any(title in line for title in titles) else []
        return sorted(found, key=lambda process: process.create_time())

    def start(self) -> None:
        """Starts it, as after a machine has lost power."""
        self.server = launched(CONFIG, self.home, self.ports, {})

    def kill(self) -> None:
        """Kills every process of it, and returns once all of them are gone."""
        doomed = self.family()
        for process in doomed:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(doomed, STOP_S)


@contextmanager
def running(folder: Path) -> Iterator[Graph]:
    """The graph, with a home in `folder`, until the block ends."""
    home = folder / "home"
    home.mkdir()
    weights = Path(os.environ.get("PARLANCE_HOME", ROOT / "var")) / "weights"
    (home / "weights").symlink_to(weights.resolve())
    with run_server(Postgres) as postgres, run_server(Redis) as redis:
        environment = {
            "PARLANCE_HOME": str(home),
            "PARLANCE_DATABASE_URL": postgres.url,
            "PARLANCE_REDIS_URL": redis.url,
            "PARLANCE_BLOBS_URL": f"file://{home}/bytes",
            "PARLANCE_SECRET": "5c" * 32,
            "PYTHONPATH": str(ROOT),
            "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": DRAINING_S,
        }
        os.environ |= environment  # of the graph, and of `python -m state` here
        ports = free_ports(2)
        graph = Graph(home, ports, launched(CONFIG, home, ports, {}))
        try:
            yield graph
            graph.server.process.send_signal(signal.SIGINT)
            graph.server.process.wait(STOP_S)
        finally:
            graph.kill()
