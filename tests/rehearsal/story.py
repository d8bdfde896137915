"""The story: each step does one thing to the cluster, and fails where what must hold does not."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psutil

from tests.cluster.test_two_nodes import ALL_WELL, CALLS, serve_everything
from tests.rehearsal.images import done
from tests.rehearsal.place import Place
from tests.rehearsal.pods import of_kind
from tests.waiting import eventually

RECOVER_S = 300


@dataclass
class Record:
    """What happened, as lines with seconds.

    Attributes:
        stream_s: how long the long stream lasts.
    """

    stream_s: int
    began_s: float = field(default_factory=time.monotonic)
    steps: list[dict[str, Any]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def tell(self, what: str) -> None:
        """Prints a line, and keeps it with the step that is under way."""
        print(f"{time.monotonic() - self.began_s:7.1f} s    {what}", flush=True)
        self.notes.append(what)

    def time(self, name: str, step: Callable[[], object]) -> None:
        """Runs a step and keeps how long it took."""
        self.notes, start_s = [], time.monotonic()
        try:
            step()
        except BaseException:
            self.failed.append(name)
            raise
        finally:
            took_s = time.monotonic() - start_s
            self.steps.append({"step": name, "s": round(took_s, 1), "notes": self.notes, "ok": name not in self.failed})
            print(f"{time.monotonic() - self.began_s:7.1f} s  {name}: {took_s:.1f} s", flush=True)

    def row(self, day: str) -> dict[str, Any]:
        """As it is published."""
        machine = (
            f"{psutil.cpu_count()} processors, {psutil.virtual_memory().total / 2**30:.0f} GiB, {platform.system()}"
        )
        return {"day": day, "machine": machine, "steps": self.steps, "failed": self.failed}


def migrate(here: Place, record: Record) -> None:
    """The Job that makes tables, as its manifest has it."""
    pod = of_kind("Job", "parlance-migrate")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    told = here.cluster.environment(container["envFrom"])
    limit = container["resources"]["limits"]["memory"].removesuffix("i").lower()
    words = ["podman", "--runtime=runc", "run", "--rm", "--network=host", "--read-only", "--read-only-tmpfs=false"]
    words += [f"--user={pod['securityContext']['runAsUser']}", "--cap-drop=all", "--security-opt=no-new-privileges"]
    words += [f"--memory={limit}", "--ulimit=nofile=16384:16384", "--ulimit=nproc=16384:16384", "--no-healthcheck"]
    words += [f"--tmpfs={each['mountPath']}:size=64m,mode=1777" for each in container["volumeMounts"]]
    words += [f"--env={name}={value}" for name, value in told.items()]
    done(*words, here.cluster.images["ingress"], *container["command"], within_s=300)


def start(here: Place, record: Record) -> None:
    """The head, two pods of the group `ingress`, one of `cpu`; then the graph, until each answers clients."""
    head = here.start("head", 11)
    eventually(lambda: head.is_ready, RECOVER_S, lambda: f"the head: {head.log()[-3000:]}")
    record.tell("the head is ready")
    pods = [here.start(group, number) for group, number in (("ingress", 21), ("ingress", 22), ("cpu", 31))]
    here.deploy()
    record.tell("the operator has sent what Serve shall run")
    here.until_ready(*pods[:2])


def make_key(here: Place, record: Record) -> None:
    """The first key, in a pod of the group `ingress` as the page has it, and a chat through TLS."""
    pod = here.pod("ingress")
    pod.state("org", "create", "acme", "--plan", "pro")
    here.key = pod.state("key", "create", "--org", "acme", "--scopes", "all").splitlines()[-1]
    with here.client() as client:
        path, body = CALLS["chat"]
        reply = client.post(path, json=body)
        assert reply.status_code == 200, reply.text


def capabilities(here: Place, record: Record) -> None:
    """Each capability once through TLS, its engine started by the call."""
    with here.client() as client:
        eventually(lambda: serve_everything(client) == ALL_WELL, RECOVER_S, "not every capability answers")


STEPS: dict[str, Callable[[Place, Record], None]] = {
    "migration Job": migrate,
    "first start": start,
    "first key, and a chat through TLS": make_key,
    "each capability through TLS": capabilities,
}
"""In their order."""
