"""Two machines out of one: Ray nodes in network namespaces, with PostgreSQL, Redis and S3 on a third address.

The namespaces stand on a bridge of their own and reach nothing else. Needs root and iproute2.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.docs.pages import ROOT

BRIDGE = "parlance0"
NETWORK = "10.213.0"
STORES = f"{NETWORK}.254"
BIN = Path(sys.executable).parent
COMMAND_S = 120


def run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    """Output of a command; AssertionError with what it said where it fails."""
    done = subprocess.run(
        [*map(str, command)], cwd=ROOT, env=env, capture_output=True, text=True, timeout=COMMAND_S, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


def allowed() -> bool:
    """Whether this process may make networks."""
    if os.getuid() != 0 or not shutil.which("ip"):
        return False
    tried = subprocess.run(["ip", "link", "add", BRIDGE, "type", "bridge"], capture_output=True, check=False)
    if tried.returncode == 0:
        run("ip", "link", "del", BRIDGE)
    return tried.returncode == 0


@contextmanager
def network(bridge: str = BRIDGE, stores: str = STORES) -> Iterator[None]:
    """The bridge, with the address of the stores."""
    run("ip", "link", "add", bridge, "type", "bridge")
    try:
        run("ip", "addr", "add", f"{stores}/24", "dev", bridge)
        run("ip", "link", "set", bridge, "up")
        yield
    finally:
        run("ip", "link", "del", bridge)


def plug(name: str, address: str, cable: str, bridge: str = BRIDGE) -> None:
    """Connects a network namespace to the bridge."""
    run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
    run("ip", "link", "set", cable, "master", bridge, "up")
    run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
    for device in ("eth0", "lo"):
        run("ip", "-n", name, "link", "set", device, "up")


@contextmanager
def parted() -> Iterator[None]:
    """Loses every packet between the two machines, which still reach the stores, and are reached from here."""
    try:
        _isolate("on")
        yield
    finally:
        _isolate("off")


def _isolate(is_isolated: str) -> None:
    for number in (1, 2):
        run("ip", "link", "set", f"parlance-v{number}", "type", "bridge_slave", "isolated", is_isolated)


@dataclass(frozen=True)
class Node:
    """A machine with an address of its own; `env` is what its Ray processes are told."""

    name: str
    address: str
    env: dict[str, str]

    @property
    def url(self) -> str:
        """Of its HAProxy."""
        return f"http://{self.address}:8000"

    def run(self, *command: str | Path) -> str:
        """Runs a command there."""
        return run("ip", "netns", "exec", self.name, *command, env=self.env)

    def kill(self) -> None:
        """The power goes: every process of the machine at once."""
        for pid in run("ip", "netns", "pids", self.name).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


@contextmanager
def node(number: int, env: dict[str, str], folder: Path) -> Iterator[Node]:
    """A machine on the bridge, gone with all its processes afterwards."""
    made = Node(f"parlance{number}", f"{NETWORK}.{number}", env | _haproxy(folder))
    cable = f"parlance-v{number}"
    run("ip", "netns", "add", made.name)
    try:
        plug(made.name, made.address, cable)
        yield made
    finally:
        made.kill()
        # The namespace lives until its last process is gone, and the cable as long, unless it is cut.
        subprocess.run(["ip", "link", "del", cable], capture_output=True, check=False)
        run("ip", "netns", "del", made.name)


def _haproxy(folder: Path) -> dict[str, str]:
    """Machines have a disk each; these share one, and HAProxy's files must not meet."""
    folder.mkdir()
    names = {
        "CONFIG_FILE_LOC": "haproxy.cfg",
        "SOCKET_PATH": "admin.sock",
        "SERVER_STATE_BASE": "",
        "SERVER_STATE_FILE": "server-state",
    }
    return {f"RAY_SERVE_HAPROXY_{name}": str(folder / file) for name, file in names.items()}


@contextmanager
def doors(*urls: str, at: str = STORES) -> Iterator[None]:
    """Lets the machines reach servers that listen on loopback, at the same ports of another address."""
    with ExitStack() as stack:
        for url in urls:
            port = urlsplit(url).port
            assert port
            server = stack.enter_context(socket.create_server((at, port)))
            threading.Thread(target=_accept, args=(server, port), daemon=True).start()
        yield


def outside(url: str, at: str = STORES) -> str:
    """A server's address as the machines see it."""
    return url.replace("127.0.0.1", at)


def _accept(server: socket.socket, port: int) -> None:
    with contextlib.suppress(OSError):  # closed: the test is over
        while True:
            client, _ = server.accept()
            threading.Thread(target=_connect, args=(client, port), daemon=True).start()


def _connect(client: socket.socket, port: int) -> None:
    with client, socket.create_connection(("127.0.0.1", port)) as inner:
        back = threading.Thread(target=_pump, args=(inner, client), daemon=True)
        back.start()
        _pump(client, inner)
        back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(1 << 16):
            target.sendall(piece)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
