"""Surroundings of the pods: stores, a proxy with TLS, and a kubelet that probes them."""

import os
import secrets
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import yaml

from benchmarks.servers import free_port
from tests.cluster.nodes import doors, network, outside
from tests.docs.pages import ROOT
from tests.rehearsal.images import done
from tests.rehearsal.pods import BRIDGE, OUTSIDE, Cluster, Names, Pod, make_slice, of_kind
from tests.state.servers import Postgres, Redis, Seaweed, run_server
from tests.waiting import eventually

BUCKET = "parlance"
START_S = 420
PROFILE = "embedded"
"""Small models that run here; the manifests name `production`, whose engines want GPUs."""


class Proxy:
    """nginx with TLS, as docs/behind-a-proxy.md has it, in front of every pod that is ready."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.certificate = folder / "proxy.pem"
        self._key = folder / "proxy.key"
        made = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1")
        done(*made, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", self._key, "-out", self.certificate)
        self._process: subprocess.Popen[bytes] | None = None
        self._behind: list[str] = []

    def lead_to(self, addresses: list[str]) -> None:
        """Sends requests to these pods from now on, as endpoints of the service."""
        if sorted(addresses) == self._behind or not addresses:
            return
        self._behind = sorted(addresses)
        config = self._folder / "nginx.conf"
        config.write_text(self._config(), "utf-8")
        if self._process:
            self._process.send_signal(1)  # SIGHUP: open connections stay
        else:
            self._process = subprocess.Popen(["nginx", "-c", config, "-g", "daemon off;"])

    def _config(self) -> str:
        page = (ROOT / "docs/behind-a-proxy.md").read_text("utf-8")
        block = page.split("```nginx\n")[1].split("```")[0]
        block = block.replace("listen 443 ssl", f"listen 127.0.0.1:{self.port} ssl")
        block = block.replace("/etc/ssl/speech.example.org.pem", str(self.certificate))
        block = block.replace("/etc/ssl/private/speech.example.org.key", str(self._key))
        block = block.replace("proxy_pass http://127.0.0.1:8000;", f"proxy_pass http://pods; proxy_bind {OUTSIDE};")
        pods = "".join(f" server {address}:8000;" for address in self._behind)
        logs = f"error_log {self._folder}/nginx.log; access_log off; client_body_temp_path {self._folder}/body;"
        own = f"user root; worker_processes 1; pid {self._folder}/nginx.pid; events {{ worker_connections 1024; }}"
        return f"{own}\nhttp {{ {logs}\nupstream pods {{{pods} }}\n{block} }}\n"

    def stop(self) -> None:
        if self._process:
            self._process.terminate()
            self._process.wait(30)


class Kubelet:
    """Probes pods as their manifest says, starts ended containers again, and leads the proxy to pods that are ready."""

    def __init__(self, proxy: Proxy, report: Callable[[str], None]) -> None:
        self.pods: list[Pod] = []
        self._proxy = proxy
        self._report = report
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._due: dict[tuple[str, str], float] = {}
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.wait(0.5):
            for pod in [each for each in self.pods if not each.is_ending]:
                with suppress(AssertionError):  # taken away meanwhile
                    self._look_at(pod)
            ready = [pod.address for pod in self.pods if pod.is_ready and not pod.is_head]
            self._proxy.lead_to(ready)

    def _look_at(self, pod: Pod) -> None:
        if not pod.is_running:
            why = "for its memory" if pod.was_killed_for_memory else "by itself"
            self._report(f"{pod.name} ended {why}, and is started again")
            pod.again()
            return
        if not pod.is_started:
            pod.is_started = bool(self._probe(pod, "startupProbe"))
            return
        if (lives := self._probe(pod, "livenessProbe")) is not None:
            pod.misses = 0 if lives else pod.misses + 1
            if pod.misses >= pod.container["livenessProbe"]["failureThreshold"]:
                self._report(f"{pod.name} is not alive, and is started again")
                done("podman", "stop", "--time=10", pod.name)
        if (answers := self._probe(pod, "readinessProbe")) is not None and not pod.is_ending:
            if pod.is_ready != answers:
                self._report(f"{pod.name} is {'ready' if answers else 'not ready'}")
            pod.is_ready = answers

    def _probe(self, pod: Pod, kind: str) -> bool | None:
        """The answer of a probe; None where it is not due."""
        probe = pod.container[kind]
        if time.monotonic() < self._due.get((pod.name, kind), 0):
            return None
        self._due[pod.name, kind] = time.monotonic() + probe["periodSeconds"]
        where = probe["httpGet"]
        url = f"http://{pod.address}:{where['port']}{where['path']}"
        try:
            return httpx.get(url, timeout=probe.get("timeoutSeconds", 1), trust_env=False).is_success
        except httpx.TransportError:
            return False

    def stop(self) -> None:
        self._ends.set()
        self._thread.join(30)


@dataclass
class Place:
    """A cluster with all around it."""

    folder: Path
    cluster: Cluster
    proxy: Proxy
    kubelet: Kubelet
    postgres: Postgres
    key: str = ""
    numbers: Iterator[int] = field(default_factory=lambda: count(11))

    def next(self) -> int:
        """The number of a new pod, which is never that of one before."""
        return next(self.numbers)

    def nodes_alive(self) -> int:
        """Nodes as the head sees them."""
        listed = self.ray("GET", "/api/v0/nodes").json()["data"]["result"]["result"]
        return sum(node["state"] == "ALIVE" for node in listed)

    def running(self, deployment: str) -> set[str]:
        """Ids of its replicas that run, as Serve's controller sees them."""
        app = self.ray("GET", "/api/serve/applications/").json()["applications"].get("parlance", {"deployments": {}})
        replicas = app["deployments"].get(deployment, {"replicas": []})["replicas"]
        return {replica["replica_id"] for replica in replicas if replica["state"] == "RUNNING"}

    def pod(self, group: str) -> Pod:
        """The newest of a group."""
        return [pod for pod in self.kubelet.pods if pod.group == group and not pod.is_ending][-1]

    def start(self, group: str, number: int) -> Pod:
        """A new pod, which the kubelet looks after."""
        pod = Pod(self.cluster, group, number)
        try:
            pod.start()
        finally:
            self.kubelet.pods.append(pod)
        return pod

    def until_ready(self, *pods: Pod) -> None:
        """Waits until each can answer."""
        for pod in pods:
            eventually(lambda pod=pod: pod.is_ready, START_S, lambda pod=pod: f"{pod.name}: {pod.log()[-3000:]}")

    def ray(self, method: str, path: str, **options: Any) -> httpx.Response:
        """A call of the operator to the head's dashboard."""
        token = {"authorization": f"Bearer {self.cluster.secrets['parlance']['auth_token']}"}
        url = f"http://{self.pod('head').address}:8265{path}"
        return httpx.request(method, url, headers=token, timeout=60, trust_env=False, **options)

    def deploy(self) -> None:
        """serveConfigV2, as the operator sends it; the profile is the one that runs here."""
        config = yaml.safe_load(of_kind("RayService")["spec"]["serveConfigV2"])
        arguments = config["applications"][0]["args"]
        arguments |= {"profile": PROFILE, "country": "DE"}
        arguments["ingress"]["live"] = True
        reply = self.ray("PUT", "/api/serve/applications/", json=config)
        assert reply.is_success, reply.text

    def client(self) -> httpx.Client:
        """Of the API, through TLS."""
        headers = {"authorization": f"Bearer {self.key}"}
        return httpx.Client(base_url=f"{self.proxy.url}/v1", headers=headers, timeout=300)


@contextmanager
def place(folder: Path, images: dict[str, str], report: Callable[[str], None]) -> Iterator[Place]:
    """Stores, network and proxy, without pods. Everything is gone afterwards."""
    with ExitStack() as stack:
        postgres, redis = (stack.enter_context(run_server(kind)) for kind in (Postgres, Redis))
        bucket = stack.enter_context(run_server(Seaweed))
        word = secrets.token_hex(16)
        done("redis-cli", "-p", str(redis.port), "config", "set", "requirepass", word)
        make_slice()
        stack.enter_context(network(BRIDGE, OUTSIDE))
        stack.enter_context(doors(postgres.url, redis.url, bucket.url, at=OUTSIDE))
        names = Names()
        stack.callback(names.close)
        proxy = Proxy(folder)
        stack.callback(proxy.stop)
        store = {name: outside(value, OUTSIDE) for name, value in bucket.environment.items()}
        state = {
            "PARLANCE_SECRET": secrets.token_hex(32),
            "PARLANCE_DATABASE_URL": outside(postgres.fresh("parlance"), OUTSIDE),
            "PARLANCE_REDIS_URL": outside(redis.url, OUTSIDE).replace("redis://", f"redis://:{word}@"),
            "PARLANCE_BLOBS_URL": f"s3://{BUCKET}/files",
            **store,
        }
        own = {"parlance": {"auth_token": secrets.token_hex(32), "redis_password": word}, "parlance-state": state}
        settings = {"PARLANCE_PUBLIC_URL": proxy.url, "PARLANCE_PROXIES": OUTSIDE}
        _make_home(folder / "home")
        redis_address = outside(redis.url, OUTSIDE).removeprefix("redis://")
        cluster = Cluster(folder, images, own, settings, redis_address, names)
        kubelet = Kubelet(proxy, report)
        made = Place(folder, cluster, proxy, kubelet, postgres)
        stack.callback(lambda: [pod.remove() for pod in kubelet.pods])
        stack.callback(kubelet.stop)
        yield made


def _make_home(home: Path) -> None:
    """The folder of all nodes, which belongs to user 1000; weights as the Job that fetches them leaves them."""
    source = (Path(os.environ.get("PARLANCE_HOME", ROOT / "var")) / "weights").resolve()
    shutil.copytree(source, home / "weights", symlinks=True)
    done("chown", "-R", "1000:1000", home)


def leftovers() -> list[str]:
    """Networks of a rehearsal that are still there."""
    return [name for name in done("ip", "netns", "list").split() if name.startswith("rehearse-")] + (
        [BRIDGE] if Path(f"/sys/class/net/{BRIDGE}").exists() else []
    )
