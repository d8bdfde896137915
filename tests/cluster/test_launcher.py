"""`ray up cluster.yaml` over three machines with an sshd each, as `docs/cluster.md` has it, from a fourth.

A machine is a namespace of network, processes and mounts: its own /tmp, home, host key and user `parlance`, and the
repository at /opt/parlance. The page's own lines are typed. Then one machine reboots. It takes about ten minutes, and
wants root, iproute2, openssh-server and rsync. Its log is `launcher.log` where PARLANCE_CLUSTER_LOG names a folder.
"""

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import pytest

from tests.cluster.nodes import NETWORK, Node, allowed, doors, network, node, outside, run
from tests.cluster.test_two_nodes import LOG
from tests.docs.pages import ROOT, marked
from tests.state.servers import Postgres, Redis, Seaweed, run_server, temporary_folder
from tests.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(1200)]

PAGE = ROOT / "docs/cluster.md"
USER = 20042
"""Id of the user `parlance`, whom only the machines know."""
WEIGHTS = (Path(os.environ.get("PARLANCE_HOME", ROOT / "var")) / "weights").resolve()
COMMAND_S = 420
WITHIN_S = 300
HEAD, REBOOTED, OTHER, DESK = (f"{NETWORK}.{number}" for number in (1, 2, 3, 4))

BOOT = """
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt
number=0; for path in "$@"; do mkdir /mnt/$((++number)); mount --bind "$path" /mnt/$number; done
for folder in /home /opt /root /run; do mount -t tmpfs -o mode=755 tmpfs $folder; done
for folder in /tmp /dev/shm; do mount -t tmpfs -o mode=1777 tmpfs $folder; done
number=0; for path in "$@"; do mkdir -p "$path"; mount --bind /mnt/$((++number)) "$path"; done
mkdir /opt/parlance /home/parlance /home/shared /run/sshd
mount --bind "$ROOT" /opt/parlance
mount --bind "$DISK/cluster.yaml" /opt/parlance/cluster.yaml
mount --bind "$DISK/home" /home/parlance
mount --bind "$SHARED" /home/shared
for file in passwd group shadow; do mount --bind "$DISK/$file" /etc/$file; done
exec /usr/sbin/sshd -D -e -f /dev/null -h "$DISK/host_key" -o UsePAM=no -o PasswordAuthentication=no
"""
"""The first process of a machine; its arguments are folders that are seen at their own places."""


@dataclass
class Machine:
    """One that can be rebooted: what is in its home stays, /tmp and all processes go."""

    number: int
    disk: Path
    shared: Path
    stack: ExitStack = field(default_factory=ExitStack)
    init: int = 0
    boots: int = 0

    @property
    def address(self) -> str:
        return f"{NETWORK}.{self.number}"

    def boot(self) -> None:
        """Lays its namespaces out, and waits for its sshd."""
        self.boots += 1
        made: Node = self.stack.enter_context(node(self.number, {}, self.disk / f"boot{self.boots}"))
        kept = {Path(sys.base_prefix), Path(sys.prefix).resolve(), ROOT, WEIGHTS, self.disk, self.shared}
        new = ("unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc")
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "ROOT": str(ROOT), "DISK": str(self.disk)}
        command = ("ip", "netns", "exec", made.name, *new, "bash", "-euc", BOOT, "boot", *sorted(map(str, kept)))
        with (self.disk / "log").open("ab") as log:
            process = subprocess.Popen(command, env=env | {"SHARED": str(self.shared)}, stdout=log, stderr=log)
        self.stack.callback(process.wait)
        self.stack.callback(made.kill)
        eventually(lambda: process.poll() is not None or self._accepts(), 30, f"{made.name} has no sshd")
        assert process.poll() is None, (self.disk / "log").read_text("utf-8")
        (self.init,) = [child.pid for child in psutil.Process(process.pid).children()]

    def reboot(self) -> None:
        """The power goes, and comes back."""
        self.stack.close()
        self.boot()

    def type(self, line: str) -> str:
        """Runs a line in the user's shell there, in the repository; what it printed."""
        command = ["nsenter", f"--target={self.init}", "--all", "setpriv", f"--reuid={USER}", f"--regid={USER}"]
        command += ["--clear-groups", "env", "-i", "HOME=/home/parlance", "USER=parlance", f"PATH={os.environ['PATH']}"]
        done = subprocess.run(
            [*command, "bash", "-euc", f"cd /opt/parlance; {line}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.stdout[-6000:]}"
        return done.stdout

    def programs(self) -> list[str]:
        """Processes there but for sshd, by command lines."""
        found = []
        for pid in run("ip", "netns", "pids", f"parlance{self.number}").split():
            try:
                found.append(" ".join(psutil.Process(int(pid)).cmdline()))
            except psutil.NoSuchProcess:
                continue
        return [line for line in found if "sshd" not in line and not line.startswith("unshare")]

    def _accepts(self) -> bool:
        with closing(socket.socket()) as probe:
            return probe.connect_ex((self.address, 22)) == 0


@dataclass
class Site:
    """Three machines, the desk from which they are started, and the log."""

    machines: dict[str, Machine]
    began_s: float = field(default_factory=time.monotonic)
    lines: list[str] = field(default_factory=list)

    def report(self, what: str) -> None:
        self.lines.append(f"{time.monotonic() - self.began_s:6.1f} s  {what}")

    @property
    def desk(self) -> Machine:
        return self.machines[DESK]


@pytest.fixture
def site() -> Iterator[Site]:
    if not allowed():
        pytest.skip("network namespaces want root and iproute2")
    if not (Path("/usr/sbin/sshd").exists() and shutil.which("rsync")):
        pytest.skip("openssh-server or rsync is not installed")
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder(in_memory=False))
        postgres, redis = (stack.enter_context(run_server(kind)) for kind in (Postgres, Redis))
        bucket = stack.enter_context(run_server(Seaweed))
        stack.enter_context(network())
        stack.enter_context(doors(postgres.url, redis.url, bucket.url))
        shared = folder / "shared"
        shared.mkdir()
        (shared / "weights").symlink_to(WEIGHTS)
        os.chown(shared, USER, USER)
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key")
        made = Site({})
        for number in (1, 2, 3, 4):
            machine = Machine(number, disk(folder, number), shared)
            made.machines[machine.address] = machine
            stack.enter_context(machine.stack)
            machine.boot()
        home = made.desk.disk / "home"
        shutil.copy(folder / "key", home / ".ssh/id_ed25519")
        (home / ".ssh/config").write_text("StrictHostKeyChecking accept-new\n", "utf-8")
        (home / ".parlance").mkdir()
        (home / ".parlance/environment").write_text(environment(postgres.url, redis.url, bucket), "utf-8")
        own(home)
        try:
            yield made
        finally:
            if to := os.environ.get(LOG):
                (Path(to) / "launcher.log").write_text("\n".join(made.lines) + "\n", "utf-8")


def disk(folder: Path, number: int) -> Path:
    """Files that a machine keeps while it is off: its user and home, its key, and the repository's file."""
    made = folder / f"machine{number}"
    (made / "home/.ssh").mkdir(parents=True)
    shutil.copy(folder / "key.pub", made / "home/.ssh/authorized_keys")
    (made / "home/.bashrc").touch()
    own(made / "home")
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", made / "host_key")
    lines = {
        "passwd": f"parlance:x:{USER}:{USER}::/home/parlance:/bin/bash",
        "group": f"parlance:x:{USER}:",
        "shadow": "parlance:*:20000::::::",
    }
    for name, line in lines.items():
        (made / name).write_text(Path("/etc", name).read_text("utf-8") + line + "\n", "utf-8")
    text = (ROOT / "cluster.yaml").read_text("utf-8").replace("192.0.2.", f"{NETWORK}.")
    (made / "cluster.yaml").write_text(text, "utf-8")
    return made


def own(home: Path) -> None:
    """Gives a home to its user, closed to others."""
    for path in (home, *home.rglob("*")):
        os.chown(path, USER, USER)
        path.chmod(0o700 if path.is_dir() else 0o600)


def environment(postgres: str, redis: str, bucket: Seaweed) -> str:
    """The block that the page has filled in."""
    text = marked(ROOT / "docs/operating.md", "run on two nodes: environment")
    text = re.sub(r"(RAY_AUTH_TOKEN|PARLANCE_SECRET)=\S+", lambda found: f"{found[1]}={secrets.token_hex(32)}", text)
    for name, url in {"postgresql://parlance@db/parlance": postgres, "redis://redis": redis}.items():
        text = text.replace(name, outside(url))
    variables = {name: outside(value) for name, value in bucket.environment.items()} | {"PARLANCE_HOME": "/home/shared"}
    return text.replace("set +a", "\n".join(f"{name}='{value}'" for name, value in variables.items()) + "\nset +a")


def answers(address: str, key: str) -> bool:
    """Says if a request through HAProxy of this machine is answered."""
    try:
        body = {"model": "all-minilm-l6-v2", "input": "a cat"}
        headers = {"authorization": f"Bearer {key}"}
        reply = httpx.post(f"http://{address}:8000/v1/embeddings", json=body, headers=headers, timeout=120)
    except httpx.TransportError:
        return False
    return reply.status_code == 200


def typed(block: str) -> str:
    """Lines of the page, with a profile that has its weights here."""
    return (
        marked(PAGE, f"run on three machines: {block}")
        .replace("production", "embedded")
        .replace("192.0.2.", f"{NETWORK}.")
    )


def test_machines_are_started_one_reboots_and_all_are_stopped_as_the_page_says(site: Site) -> None:
    # In all but the models it is the file of the page.
    graph = (ROOT / "configs/production.yaml").read_text("utf-8").replace("profile: production", "profile: embedded")
    (site.desk.shared / "graph.yaml").write_text(graph.replace("only_pinned_weights: true", ""), "utf-8")
    shown = site.desk.type(typed("start").replace("configs/embedded.yaml", "/home/shared/graph.yaml"))
    (key,) = re.findall(r"prl_\w+", shown)[-1:]
    site.report("ray up, migrate, check, serve deploy, organisation and key are typed")
    eventually(lambda: len(nodes(site)) == 3, WITHIN_S, "a machine is missing")
    site.report("three machines are in the cluster")
    answered(site, key)

    before = nodes(site)[REBOOTED]
    site.machines[REBOOTED].reboot()
    site.report(f"{REBOOTED} has been rebooted")
    eventually(lambda: nodes(site).get(REBOOTED, before) != before, WITHIN_S, "it never came back")
    site.report(f"the head has started Ray on {REBOOTED} again")
    answered(site, key)

    site.desk.type(typed("stop"))
    site.report("all is stopped")
    eventually(lambda: not any(machine.programs() for machine in site.machines.values()), 60, "a process is left")


def answered(site: Site, key: str) -> None:
    """Waits for an answer; HAProxy runs where a replica does."""
    found = eventually(
        lambda: [at for at in (HEAD, REBOOTED, OTHER) if answers(at, key)], WITHIN_S, "nothing ever answered"
    )
    site.report(f"a request is answered through {', '.join(found)}")


def nodes(site: Site) -> dict[str, str]:
    """Those alive, as Ray sees them: ids by addresses."""
    shown = site.machines[HEAD].type(". ~/.parlance/environment && ray list nodes --format json")
    listed = json.loads(shown[shown.index("[") :])
    return {found["node_ip"]: found["node_id"] for found in listed if found["state"] == "ALIVE"}
