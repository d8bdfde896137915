"""Engines at zero that start as forks: with the fork server, without it, and with one that fails in the middle."""

import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import ray

from deployments.fork_server.enter import Place
from tests.cluster.conftest import ROOT, Server
from tests.fork_server.node import is_alive, open_paths
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

MODELS = "sleepy", "drowsy"
"""While one starts, the other goes to zero, which takes ten seconds."""
WITHIN_S = 120


@dataclass(frozen=True)
class Forks:
    """The fork server of a running graph, seen from below."""

    server: Server
    place: Place

    @property
    def log(self) -> str:
        """What all servers of the interpreter have said."""
        return self.place.log.read_text() if self.place.log.exists() else ""

    def pid(self) -> int:
        """The one that listens, which a start without one leaves behind."""
        if not self._listening():
            self.start(self.asleep())
        eventually(lambda: self._listening() or None, WITHIN_S, f"there is no fork server: {self.log}")
        return self._listening()[0]

    def _listening(self) -> list[int]:
        lines = self.log.splitlines()
        ready = [int(line.split()[2]) for line in lines if line.endswith(" ready")]
        return [pid for pid in ready if is_alive(pid) and f"{self.place.socket}.lock" in open_paths(pid)]

    def replicas(self, model: str) -> list[int]:
        """Processes of an engine, as Ray titles them, whoever started them."""
        title = f"ray::ServeReplica:parlance:chat-{model}"
        return [
            process.pid
            for process in psutil.process_iter(["cmdline"])
            if " ".join(process.info["cmdline"] or ()).strip().startswith(title) and self._is_ours(process.pid)
        ]

    def _is_ours(self, pid: int) -> bool:
        """Other graphs may run on this machine."""
        return any(path.startswith(str(self.place.log.parent)) for path in open_paths(pid))

    def asleep(self, *models: str) -> str:
        """The first of the engines that has no replica and no process, once there is one."""

        def found() -> str | None:
            cold = [model for model in models or MODELS if self.server.replicas(f"chat-{model}") == 0]
            return next((model for model in cold if not self.replicas(model)), None)

        return str(eventually(found, WITHIN_S, "no engine went to zero, or one at zero has a process"))

    def start(self, model: str) -> int:
        """The process of an engine, which was at zero, once it has answered. It may be at zero again."""
        return self.answers(self.asleep(model))

    def answers(self, model: str) -> int:
        """The process of an engine that answers, as Serve knows it."""
        assert self.server.chat(model, "say hi").status_code == 200
        assert httpx.get(f"{self.server.url}/healthz").status_code == 200
        logs = self.place.log.parent.glob("serve/controller_*.log")
        started = re.compile(rf"deployment='chat-{model}'.* started successfully .*\(PID: (\d+)\)")
        return int(started.findall("".join(log.read_text() for log in logs))[-1])

    def forked(self) -> list[int]:
        """Pids of all forks so far."""
        return [int(line.rsplit(" ", 1)[1]) for line in self.log.splitlines() if " forked " in line]


@pytest.fixture
def forks(server: Server) -> Forks:
    processes = psutil.Process(server.pid).children(recursive=True)
    (raylet,) = [process for process in processes if process.name() == "raylet"]
    given = dict(one.lstrip("-").split("=", 1) for one in raylet.cmdline() if "=" in one)
    worker = Path(ray.__file__).with_name("_private") / "workers/default_worker.py"
    options = {"temp-dir": given["temp_dir"], "session-name": given["session-name"], "node-id": given["node_id"]}
    return Forks(server, Place("", [str(worker), *(f"--{name}={value}" for name, value in options.items())]))


def test_an_engine_comes_back_from_zero_as_a_fork_each_time_and_alone_while_there_is_no_server(forks: Forks) -> None:
    forks.pid()
    first = forks.start("sleepy")
    os.kill(killed := forks.pid(), signal.SIGKILL)
    alone = forks.start("drowsy")
    assert alone not in forks.forked()
    assert forks.pid() != killed
    second = forks.start("sleepy")
    assert first != second
    assert {first, second} <= set(forks.forked())
    assert forks.log.count(f" {alone} imports the libraries itself: the fork server could not be used: ") == 1


def test_a_server_that_is_stopped_in_a_start_delays_it_and_makes_no_second_replica(forks: Forks) -> None:
    pid, model = forks.pid(), forks.asleep()
    os.kill(pid, signal.SIGSTOP)
    try:
        alone, before = forks.answers(model), forks.forked()
        assert alone not in before
    finally:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: len(forks.forked()) > len(before), WITHIN_S, "it never read what had waited")
    eventually(lambda: not is_alive(forks.forked()[-1]), WITHIN_S, "a fork lives that nobody wants")


def test_a_server_that_is_killed_in_the_middle_of_a_start_is_no_clients_business(forks: Forks) -> None:
    server, model = forks.pid(), forks.asleep()
    before = len(forks.forked())
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(forks.server.chat, model, "say hi")
        eventually(lambda: len(forks.forked()) > before, WITHIN_S, "nothing was forked")
        os.kill(server, signal.SIGKILL)
        assert reply.result().status_code == 200
    assert httpx.get(f"{forks.server.url}/healthz").status_code == 200


def test_a_fork_that_is_killed_while_it_loads_is_no_clients_business(forks: Forks) -> None:
    forks.pid()
    model = forks.asleep()
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(forks.server.chat, model, "say hi")
        (killed,) = eventually(lambda: forks.replicas(model), WITHIN_S, "nothing was forked")
        os.kill(killed, signal.SIGKILL)
        assert reply.result().status_code == 200, reply.result().text
    assert killed in forks.forked()
    assert httpx.get(f"{forks.server.url}/healthz").status_code == 200


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "not well"])
def test_a_fork_that_is_killed_or_not_well_is_replaced_by_serve(forks: Forks, is_killed: bool) -> None:
    forks.pid()
    before = forks.answers("mortal")
    if is_killed:
        os.kill(before, signal.SIGKILL)
    else:
        assert forks.server.chat("mortal", "sicken").status_code == 200
    eventually(lambda: not is_alive(before), WITHIN_S, "it lives")
    eventually(
        lambda: forks.server.chat("mortal", "say back").status_code == 200, WITHIN_S, "nothing came in its place"
    )
    assert before != forks.answers("mortal") in forks.forked()


def in_a_ray_of_its_own(part: str) -> Any:
    command = [sys.executable, "-m", "tests.cluster.forked_actors", part]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert told.returncode == 0, told.stderr[-3000:]
    return json.loads(told.stdout.splitlines()[-1])


def test_ray_ends_forks_in_each_of_its_ways_and_notices_when_they_end() -> None:
    found = in_a_ray_of_its_own("ends")
    for way, seen in found["kills"].items():
        assert seen["forked"], way
        assert seen["error"] == "ActorDiedError", way
        assert seen["title"].startswith("ray::Forked"), way
    for name in ("pid", "actor", "worker"):
        assert len({seen[name] for seen in found["kills"].values()}) == len(found["kills"])
    assert found["leaves"]
    assert found["forgotten"]
    assert found["restarted"]
    assert found["logged"] >= 7  # what a worker prints is in its own log
    assert found["left"] == []


def test_rays_memory_monitor_kills_a_fork() -> None:
    assert in_a_ray_of_its_own("memory") == "OutOfMemoryError"


@pytest.mark.parametrize("title", ["ray::ServeController", "ray::ProxyActor", "ray::HAProxyManager", "bin/haproxy"])
def test_what_serves_the_graph_dies_alone_and_comes_back(server: Server, title: str) -> None:
    def titled() -> set[psutil.Process]:
        return {process for process, command in server.family().items() if title in command}

    killed, seen = titled(), list[int]()
    for process in killed:
        process.kill()

    def is_back() -> bool:
        try:
            seen.append(server.chat("obedient", "say hi").status_code)
        except httpx.TransportError:
            seen.append(0)
        return seen[-1] == 200 and bool(titled() - killed)

    assert killed
    eventually(is_back, WITHIN_S, lambda: f"it never came back: {seen}")
    assert set(seen) <= ({0, 200, 503} if "haproxy" in title.lower() else {200})
