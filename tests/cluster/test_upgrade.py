"""`python -m launch upgrade` under load: no request and no stream is lost, and no card is held beyond the cluster's.

Each engine wants one of the GPUs that two nodes, in network namespaces, tell Ray that they have: one for each engine,
none to spare. Clients call all models without a pause, through both nodes, while the graph is upgraded again and again
(`PARLANCE_UPGRADES`, 3 by default). One more upgrade is interrupted and rolled back, and the last one is to other code.
The record is `upgrade.json` where PARLANCE_CLUSTER_LOG names a folder.
"""

# No postponed annotations here: Serve reads the type of `args` of a builder.

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from pydantic import BaseModel

from contract.catalog import Catalog
from deployments.ingress.deployment import IngressArgs
from graph import wire
from tests.catalogs import chat
from tests.cluster.nodes import BIN, Node
from tests.cluster.test_two_nodes import LOG, START_S, Cluster, answers, machines
from tests.docs.pages import ROOT
from tests.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(3600)]

MODELS = ("one", "two", "three")
UPGRADES = int(os.environ.get("PARLANCE_UPGRADES", "3"))
STREAMS = int(os.environ.get("PARLANCE_UPGRADE_STREAMS", "3"))
"""At each upgrade: they run when it begins."""
EVENTS, PAUSE_S = 160, 0.25
"""Of each stream: it outlives the move to the new graph, which keeps its card busy for the callers who come then."""
ON_A_CARD = {"ray_actor_options": {"num_cpus": 0, "num_gpus": 1}}
LOOK_S = 0.1
END = "ended:"


class Args(BaseModel):
    """`version` stands for all that an upgrade may change."""

    version: str
    ingress: IngressArgs = IngressArgs(replicas=2, cpus=0)


def build(args: Args) -> Any:
    """Obedient engines that want a card each."""
    engines = {name: chat(name, max_ongoing_requests=100, load_s=3, deployment=ON_A_CARD) for name in MODELS}
    return wire(Catalog(profile="embedded", chat=engines), args.ingress)


def drive() -> None:
    """Runs the command with each line of input as its arguments, and prints the applications that are left.

    One process for all upgrades: on a busy machine the imports of a new one would take longer than an upgrade. At the
    end of the input it prints the most GPUs that were held at a time.
    """
    import ray
    from ray import serve

    from autoscaling.ray_internals.start import join
    from launch.upgrade.cli import main

    join("auto")
    ended, peak = threading.Event(), 0.0

    def look() -> None:
        nonlocal peak
        while not ended.wait(LOOK_S):
            peak = max(peak, ray.cluster_resources().get("GPU", 0) - ray.available_resources().get("GPU", 0))

    watcher = threading.Thread(target=look)
    watcher.start()
    for line in iter(sys.stdin.readline, ""):
        code: Any = 0
        try:
            main(line.split())
        except SystemExit as end:
            code = end.code
        left = [name for name, app in serve.status().applications.items() if app.status != "DELETING"]
        print(END, json.dumps([code, left]), flush=True)
    ended.set()
    watcher.join()
    print(peak, flush=True)


class Driver:
    """A process that runs the command (`drive`)."""

    def __init__(self, head: Node) -> None:
        self._process = subprocess.Popen(
            ["ip", "netns", "exec", head.name, BIN / "python", "-m", "tests.cluster.test_upgrade"],
            cwd=ROOT, env=head.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def begin(self, *arguments: str | Path) -> None:
        assert self._process.stdin
        self._process.stdin.write(" ".join(map(str, arguments)) + "\n")
        self._process.stdin.flush()

    def until(self, words: str) -> str:
        """The line of output with these words; those before it go to the log."""
        assert self._process.stdout
        for line in self._process.stdout:
            print(line, end="", file=sys.stderr)
            if words in line:
                return line
        raise AssertionError("the driver ended")

    def end(self) -> Any:
        """Exit status of the command, and the applications."""
        return json.loads(self.until(END).removeprefix(END))

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def peak(self) -> float:
        """The most GPUs that were held; the process ends."""
        return float(self._process.communicate("")[0].splitlines()[-1])


@dataclass
class Load:
    """Clients of all models, each with one call after the other.

    Attributes:
        slowest_s: of the calls.
        streams: for each, whether it came whole.
    """

    cluster: Cluster
    pool: ThreadPoolExecutor
    stop: threading.Event = field(default_factory=threading.Event)
    answers: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    streams: list[Future[int]] = field(default_factory=list)

    def call(self, model: str) -> None:
        with self.client(model) as client:
            while not self.stop.is_set():
                began_s = time.monotonic()
                try:
                    reply = client.post("/chat/completions", json=body(model, "say hi"))
                    answer = str(reply.status_code)
                    if answer != "200":
                        answer += f" {reply.text[:200]}"
                except httpx.TransportError as error:
                    answer = repr(error)
                self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)
                self.answers[answer] += 1

    def stream(self, model: str, running: threading.Semaphore) -> int:
        """Events of a stream, as many as came."""
        events = 0
        words = body(model, f"stream {EVENTS} {PAUSE_S}") | {"stream": True}
        with (
            suppress(httpx.TransportError),
            self.client(model) as client,
            client.stream("POST", "/chat/completions", json=words) as reply,
        ):
            for line in reply.iter_lines():
                if line.startswith("data: "):
                    if not events:
                        running.release()
                    events += 1
        return events

    def start_streams(self) -> None:
        """Returns once each has begun."""
        running = threading.Semaphore(0)
        self.streams += [self.pool.submit(self.stream, MODELS[n % len(MODELS)], running) for n in range(STREAMS)]
        for _ in range(STREAMS):
            assert running.acquire(timeout=120)

    def client(self, model: str) -> httpx.Client:
        """Of one model through the head, of the others through the other node."""
        return self.cluster.client(self.cluster.head if model == MODELS[0] else self.cluster.worker)


def body(model: str, text: str) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}]}


@contextmanager
def loaded(cluster: Cluster) -> Iterator[Load]:
    """Clients call while the block runs."""
    with ThreadPoolExecutor(2 * len(MODELS) + STREAMS * (UPGRADES + 3)) as pool:
        load = Load(cluster, pool)
        calls = [pool.submit(load.call, model) for model in MODELS]
        try:
            yield load
        finally:
            load.stop.set()
            for each in calls:
                each.result(300)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with machines() as made:
        made.start_head(cpus=1, more=f"--num-gpus={len(MODELS) - 1}")
        made.start_worker("--num-gpus=1")
        made.state("migrate")
        made.head.run(BIN / "serve", "deploy", config(made, "0"))
        for node in (made.head, made.worker):
            eventually(lambda node=node: answers(node), START_S, lambda: made.head.run(BIN / "serve", "status"))
        made.state("org", "create", "acme", "--plan", "enterprise")
        made.state("org", "change", "acme", "--requests-per-minute", "1000000")
        made.key = made.state("key", "create", "--org", "acme", "--scopes", "chat")
        try:
            yield made
        finally:
            if to := os.environ.get(LOG):
                shutil.copytree(made.folder / "ray/session_latest/logs/serve", Path(to) / "serve", dirs_exist_ok=True)


def config(cluster: Cluster, version: str) -> Path:
    """Config file of that version."""
    app = {
        "name": "parlance",
        "import_path": "tests.cluster.test_upgrade:build",
        "route_prefix": "/",
        "args": {"version": version},
        "deployments": [{"name": "ingress", "max_replicas_per_node": 1}],
    }
    http = {"host": "0.0.0.0", "port": 8000}
    file = cluster.folder / f"graph-{version}.yaml"
    file.write_text(yaml.safe_dump({"proxy_location": "EveryNode", "http_options": http, "applications": [app]}))
    return file


def other_code(folder: Path) -> Path:
    """A copy of the tree, which has a model more."""
    code = folder / "code"
    left_out = shutil.ignore_patterns(".*", "var", "node_modules", "__pycache__")
    shutil.copytree(ROOT, code, ignore=left_out)
    file = code / Path(__file__).relative_to(ROOT)
    file.write_text(file.read_text().replace('"three")', '"three", "four")', 1))
    return code


def application(upgrades: int) -> str:
    """Name of the graph after so many upgrades."""
    return f"parlance-{upgrades + 1}" if upgrades else "parlance"


def test_upgrades_and_a_roll_back_under_load_lose_nothing(cluster: Cluster) -> None:
    for model in MODELS:  # all engines of the old graph are awake
        with cluster.client(cluster.head) as client:
            assert client.post("/chat/completions", json=body(model, "say hi")).status_code == 200
    driver = Driver(cluster.head)
    durations: list[float] = []
    with loaded(cluster) as load:
        for number in range(1, UPGRADES + 1):
            load.start_streams()
            began_s = time.monotonic()
            driver.begin(config(cluster, str(number)))
            assert driver.end() == [0, [application(number)]]
            durations.append(round(time.monotonic() - began_s, 1))
            print(f"--- upgrade {number}: {durations[-1]} s {dict(load.answers)}", file=sys.stderr)
        load.start_streams()
        driver.begin(config(cluster, "never"))
        driver.until("finishes its calls ...")
        driver.interrupt()
        assert driver.end()[0] == 130
        load.start_streams()
        began_s = time.monotonic()
        driver.begin(config(cluster, "never"), "--rollback")
        assert driver.end() == [0, [application(UPGRADES)]]
        back_s = round(time.monotonic() - began_s, 1)
        load.start_streams()
        driver.begin(config(cluster, "code"), "--code", other_code(cluster.folder))
        assert driver.end() == [0, [application(UPGRADES + 1)]]
        with cluster.client(cluster.head) as client:
            assert {model["id"] for model in client.get("/models").json()["data"]} == {*MODELS, "four"}
    cut = Counter(each.result(300) for each in load.streams)
    peak = driver.peak()
    record = {
        "upgrades": UPGRADES,
        "seconds": durations,
        "back_s": back_s,
        "answers": dict(load.answers),
        "slowest_s": round(load.slowest_s, 1),
        "streams": dict(cut),
        "peak_gpus": peak,
    }
    print(json.dumps(record), file=sys.stderr)
    if to := os.environ.get(LOG):
        (Path(to) / "upgrade.json").write_text(json.dumps(record, indent=1) + "\n")
    assert set(load.answers) == {"200"}
    assert set(cut) == {EVENTS + 1}
    assert peak <= len(MODELS) + 1


if __name__ == "__main__":
    drive()
