"""`python -m launch upgrade` under load: no request and no stream is lost, and no card is held beyond the cluster's.

Each engine wants one GPU of those that Ray is started with, one for each engine: none to spare. Clients call all
models without a pause while the graph is upgraded again and again (`PARLANCE_UPGRADES`, 3 by default). One more upgrade
is interrupted and rolled back, and the last one is to other code. The record is `upgrade.json` where
PARLANCE_CLUSTER_LOG names a folder.
"""

# No postponed annotations here: Serve reads the type of `args` of a builder.

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
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
from tests.cluster.conftest import ROOT, free_ports, run_state
from tests.docs.pages import marked
from tests.state.servers import Postgres, Redis, run_server, temporary_folder
from tests.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(3600)]

MODELS = ("one", "two", "three")
UPGRADES = int(os.environ.get("PARLANCE_UPGRADES", "3"))
STREAMS = int(os.environ.get("PARLANCE_UPGRADE_STREAMS", "3"))
"""At each upgrade: they run when it begins."""
EVENTS, PAUSE_S = 160, 0.25
"""Of each stream: it outlives the move to the new graph, which keeps its card busy for the callers who come then."""
BIN = Path(sys.executable).parent
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

    def __init__(self, site: "Site") -> None:
        self._process = subprocess.Popen(
            [BIN / "python", "-m", "tests.cluster.test_upgrade"],
            cwd=ROOT, env=site.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
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
class Site:
    """A cluster of one node with a graph."""

    url: str
    folder: Path
    env: dict[str, str]
    key: str = ""

    def run(self, *command: str | Path, code: int = 0) -> str:
        done = subprocess.run(
            [*map(str, command)], cwd=ROOT, env=self.env, capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == code, f"{command}: {done.returncode} {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def config(self, version: str) -> Path:
        """Config file of that version."""
        port = int(self.url.rpartition(":")[2])
        app = {
            "name": "parlance",
            "import_path": "tests.cluster.test_upgrade:build",
            "route_prefix": "/",
            "args": {"version": version},
        }
        file = self.folder / f"graph-{version}.yaml"
        http = {"host": "127.0.0.1", "port": port}
        file.write_text(yaml.safe_dump({"proxy_location": "HeadOnly", "http_options": http, "applications": [app]}))
        return file


@dataclass
class Load:
    """Clients of all models, each with one call after the other.

    Attributes:
        slowest_s: of the calls.
        streams: for each, whether it came whole.
    """

    site: Site
    pool: ThreadPoolExecutor
    stop: threading.Event = field(default_factory=threading.Event)
    answers: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    streams: list[Future[int]] = field(default_factory=list)

    def call(self, model: str) -> None:
        with self.client() as client:
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
            self.client() as client,
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

    def client(self) -> httpx.Client:
        return client_of(self.site)


def client_of(site: Site) -> httpx.Client:
    headers = {"authorization": f"Bearer {site.key}"}
    return httpx.Client(base_url=f"{site.url}/v1", headers=headers, timeout=300)


def body(model: str, text: str) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}]}


@contextmanager
def loaded(site: Site) -> Iterator[Load]:
    """Clients call while the block runs."""
    with ThreadPoolExecutor(2 * len(MODELS) + STREAMS * (UPGRADES + 3)) as pool:
        load = Load(site, pool)
        calls = [pool.submit(load.call, model) for model in MODELS]
        try:
            yield load
        finally:
            load.stop.set()
            for each in calls:
                each.result(300)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder(in_memory=False))
        postgres, redis = stack.enter_context(run_server(Postgres)), stack.enter_context(run_server(Redis))
        ports = free_ports(6)
        made = Site(f"http://127.0.0.1:{ports[0]}", folder, environment(folder, postgres.url, redis.url, ports))
        head = f"--head --port={ports[1]} --dashboard-port={ports[2]} --node-ip-address=127.0.0.1 --num-cpus=2"
        head += f" --num-gpus={len(MODELS)} --temp-dir={folder}/ray --object-store-memory=200000000"
        log = stack.enter_context((folder / "ray.log").open("w"))
        ray = subprocess.Popen(
            [BIN / "ray", "start", *head.split(), "--disable-usage-stats", "--block"],
            cwd=folder, env=made.env, start_new_session=True, stdout=log, stderr=log,
        )  # fmt: skip
        stack.callback(_end, ray, folder)
        eventually(lambda: "Ray runtime started" in (folder / "ray.log").read_text(), 180, "Ray did not start")
        made.run(BIN / "python", "-m", "state", "migrate")
        made.run(BIN / "serve", "deploy", made.config("0"))
        eventually(lambda: _answers(made), 120, lambda: made.run(BIN / "serve", "status"))
        run_state(made.env, "org", "create", "acme", "--plan", "enterprise")
        run_state(made.env, "org", "change", "acme", "--requests-per-minute", "1000000")
        made.key = run_state(made.env, "key", "create", "--org", "acme", "--scopes", "chat")
        yield made


def _end(ray: subprocess.Popen[bytes], folder: Path) -> None:
    import psutil

    here = str(folder)
    if to := os.environ.get("PARLANCE_CLUSTER_LOG"):
        with suppress(OSError):
            shutil.copytree(folder / "ray/session_latest/logs/serve", Path(to) / "serve", dirs_exist_ok=True)
    own = [p for p in psutil.process_iter() if _env_of(p) == here]
    ray.terminate()
    _, left = psutil.wait_procs([psutil.Process(ray.pid), *own], timeout=30)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    ray.wait()


def _env_of(process: Any) -> str | None:
    import psutil

    try:
        return str(process.environ().get("PARLANCE_HOME"))
    except psutil.Error:
        return None


def _answers(site: Site) -> bool:
    try:
        return httpx.get(f"{site.url}/healthz", timeout=2).status_code == 200
    except httpx.TransportError:
        return False


def other_code(folder: Path) -> Path:
    """A copy of the tree, which has a model more."""
    code = folder / "code"
    left_out = shutil.ignore_patterns(".*", "var", "node_modules", "__pycache__")
    shutil.copytree(ROOT, code, ignore=left_out)
    file = code / Path(__file__).relative_to(ROOT)
    file.write_text(file.read_text().replace('"three")', '"three", "four")', 1))
    return code


def environment(folder: Path, database: str, redis: str, ports: list[int]) -> dict[str, str]:
    """What the page sets in every shell, with servers and ports of this machine."""
    lines = marked(ROOT / "docs/operating.md", "run on two nodes: environment")
    lines = lines.replace("postgresql://parlance@db/parlance", database).replace("redis://redis", redis)
    lines = lines.replace("s3://parlance/files", f"file://{folder}/bytes")
    lines = re.sub(r"(RAY_AUTH_TOKEN|PARLANCE_SECRET)=\S+", lambda found: f"{found[1]}={secrets.token_hex(32)}", lines)
    own = {
        "PARLANCE_HOME": str(folder),
        "RAY_ADDRESS": f"127.0.0.1:{ports[1]}",
        "RAY_DASHBOARD_ADDRESS": f"http://127.0.0.1:{ports[2]}",
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(ports[3]),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(ports[4]),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    }
    bare = {name: os.environ[name] for name in ("HOME", "LANG", "PATH") if name in os.environ}
    (folder / "h").mkdir()  # short, because sockets lie below it
    shown = subprocess.run(["bash", "-euc", f"{lines}\nenv -0"], cwd=ROOT, env=bare, capture_output=True, check=True)
    settings = dict(line.split("=", 1) for line in shown.stdout.decode().split("\0") if line)
    for name, value in settings.items():
        settings[name] = value.replace("/tmp/parlance-haproxy", f"{folder}/h")
    return settings | own


def test_upgrades_and_a_roll_back_under_load_lose_nothing(site: Site) -> None:
    for model in MODELS:  # all engines of the old graph are awake
        with client_of(site) as client:
            assert client.post("/chat/completions", json=body(model, "say hi")).status_code == 200
    driver = Driver(site)
    durations: list[float] = []
    with loaded(site) as load:
        for number in range(1, UPGRADES + 1):
            load.start_streams()
            began_s = time.monotonic()
            driver.begin(site.config(str(number)))
            assert driver.end() == [0, [f"parlance-{number + 1}"]]
            durations.append(round(time.monotonic() - began_s, 1))
            print(f"--- upgrade {number}: {durations[-1]} s {dict(load.answers)}", file=sys.stderr)
        load.start_streams()
        driver.begin(site.config("never"))
        driver.until("finishes its calls ...")
        driver.interrupt()
        assert driver.end()[0] == 130
        load.start_streams()
        began_s = time.monotonic()
        driver.begin(site.config("never"), "--rollback")
        assert driver.end() == [0, [f"parlance-{UPGRADES + 1}"]]
        back_s = round(time.monotonic() - began_s, 1)
        load.start_streams()
        driver.begin(site.config("code"), "--code", other_code(site.folder))
        assert driver.end() == [0, [f"parlance-{UPGRADES + 2}"]]
        with client_of(site) as client:
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
    if to := os.environ.get("PARLANCE_CLUSTER_LOG"):
        (Path(to) / "upgrade.json").write_text(json.dumps(record, indent=1) + "\n")
    assert set(load.answers) == {"200"}
    assert set(cut) == {EVENTS + 1}
    assert peak <= len(MODELS) + 1


if __name__ == "__main__":
    drive()
