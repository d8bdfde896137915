"""Two nodes, an ingress replica on each, over PostgreSQL, Redis and S3: a Ray cluster as `docs/operating.md` has it.

The page's own lines are run, with addresses of this machine. Then the nodes are parted, the head dies and comes back,
and the other node dies. The tests are one story, in their order. Its log is `two-nodes.log` where
PARLANCE_CLUSTER_LOG names a folder.
"""

import json
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import yaml

from contract.errors import FAULTS
from tests.cluster import survival
from tests.cluster.nodes import BIN, Node, allowed, doors, network, node, outside, parted, run
from tests.docs.pages import ROOT, marked
from tests.state.servers import Postgres, Redis, Seaweed, run_server, temporary_folder
from tests.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

PAGE = ROOT / "docs/operating.md"
LOG = "PARLANCE_CLUSTER_LOG"
START_S = 240
RECOVER_S = 240
MOMENT_S = 5
"""Less than Ray gives a node that does not answer."""
ORG = "acme"
"""As on the page."""

COMMON = """--resources='{"ingress": 1}' --object-store-memory=200000000 --disable-usage-stats"""
"""Of both nodes, which are one machine."""

CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (
        "/chat/completions",
        {
            "model": "smollm2-135m-instruct",
            "max_tokens": 16,
            "temperature": 0,
            "messages": [{"role": "user", "content": "Name the capital of France."}],
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


STREAM = " in pieces"


@dataclass
class Cluster:
    """The graph on two nodes.

    Attributes:
        folder: of Ray on the head.
        told: what happened, with the seconds since the beginning.
    """

    head: Node
    worker: Node
    folder: Path
    redis: str
    key: str = ""
    began_s: float = field(default_factory=time.monotonic)
    told: list[str] = field(default_factory=list)

    def tell(self, what: str) -> None:
        """Adds a line to the log."""
        self.told.append(f"{time.monotonic() - self.began_s:6.1f} s  {what}")

    def state(self, *arguments: str) -> str:
        """`python -m state`, on the head's machine."""
        return self.head.run(BIN / "python", "-m", "state", *arguments)

    def client(self, at: Node) -> httpx.Client:
        """Of HAProxy of this node."""
        headers = {"authorization": f"Bearer {self.key}"}
        return httpx.Client(base_url=f"{at.url}/v1", headers=headers, timeout=300)

    def start_head(self, cpus: int, more: str = "") -> None:
        """The page's line; without processors the head runs no engine, as in `cluster/`."""
        line = marked(PAGE, "run on two nodes: head").replace("redis:6379", self.redis)
        # Both start outside the checkout: workers import from that folder first, before the new code of an upgrade.
        # A machine that starts has an empty /tmp; from this file, and the other node's processes, Ray would take it
        # that the head still runs.
        (self.folder / "ray/ray_current_cluster").unlink(missing_ok=True)
        here = f"--node-ip-address={self.head.address} --temp-dir={self.folder}/ray --num-cpus={cpus} {COMMON} {more}"
        self.head.run("bash", "-euc", f"cd {self.folder}; {line.replace('--block', here)}")

    def start_worker(self, more: str = "") -> None:
        """The page's line."""
        line = marked(PAGE, "run on two nodes: worker").replace("HEAD", self.head.address)
        here = f"--node-ip-address={self.worker.address} --num-cpus=4 {COMMON} {more}"
        self.worker.run("bash", "-euc", f"cd {self.folder}; {line.replace('--block', here)}")


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
    with machines() as made:
        start(made)
        yield made
        if to := os.environ.get(LOG):
            (Path(to) / "two-nodes.log").write_text("\n".join(made.told) + "\n", "utf-8")


@contextmanager
def machines() -> Iterator[Cluster]:
    """Two machines without Ray, and the stores that they share."""
    if not allowed():
        pytest.skip("network namespaces want root and iproute2")
    with ExitStack() as stack:
        # A short path, because sockets lie below it.
        folder = stack.enter_context(temporary_folder(in_memory=False))
        postgres, redis = (stack.enter_context(run_server(kind)) for kind in (Postgres, Redis))
        bucket = stack.enter_context(run_server(Seaweed))
        stack.enter_context(network())
        stack.enter_context(doors(postgres.url, redis.url, bucket.url))
        env = environment(
            folder, {"postgresql://parlance@db/parlance": postgres.url, "redis://redis": redis.url}, bucket
        )
        head = stack.enter_context(node(1, env, folder / "a"))
        worker = stack.enter_context(node(2, env, folder / "b"))
        yield Cluster(head, worker, folder, outside(redis.url).removeprefix("redis://"))


def environment(folder: Path, addresses: dict[str, str], bucket: Seaweed) -> dict[str, str]:
    """What the page sets in every shell, with servers of this machine in place of its names."""
    home = folder / "home"
    home.mkdir()
    weights = Path(os.environ.get("PARLANCE_HOME", ROOT / "var")) / "weights"
    (home / "weights").symlink_to(weights.resolve())
    lines = marked(PAGE, "run on two nodes: environment")
    for name, url in addresses.items():
        lines = lines.replace(name, outside(url))
    lines = re.sub(r"(RAY_AUTH_TOKEN|PARLANCE_SECRET)=\S+", lambda found: f"{found[1]}={secrets.token_hex(32)}", lines)
    bare = {name: os.environ[name] for name in ("HOME", "LANG", "PATH") if name in os.environ}
    bare |= {name: outside(value) for name, value in bucket.environment.items()} | {"PARLANCE_HOME": str(home)}
    shown = run("bash", "-euc", f"{lines}\nenv -0", env=bare)
    return dict(line.split("=", 1) for line in shown.split("\0") if line)


def start(made: Cluster) -> None:
    """Ray on both nodes, and what the page does once."""
    made.start_head(cpus=0)
    made.start_worker()
    config = yaml.safe_load((ROOT / "configs/embedded.yaml").read_text("utf-8"))
    config |= {"proxy_location": "EveryNode", "http_options": {"host": "0.0.0.0", "port": 8000}}
    (app,) = config["applications"]
    app["args"]["ingress"] = {"replicas": 2}
    app["deployments"] = [{"name": "ingress", "ray_actor_options": {"num_cpus": 0, "resources": {"ingress": 1}}}]
    (made.folder / "graph.yaml").write_text(yaml.safe_dump(config), "utf-8")
    once = marked(PAGE, "run on two nodes: once").replace("configs/embedded.yaml", f"{made.folder}/graph.yaml")
    made.key = made.head.run("bash", "-euc", once).splitlines()[-1]
    for machine in (made.head, made.worker):
        eventually(lambda machine=machine: answers(machine), START_S, f"{machine.name} never answered")
    made.tell("two nodes: the head, and one with engines; an ingress replica and HAProxy on each")


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


def test_every_capability_answers_through_both_nodes(cluster: Cluster) -> None:
    for machine in (cluster.head, cluster.worker):
        with cluster.client(machine) as client:
            assert serve_everything(client) == ALL_WELL
        cluster.tell(f"every capability answers through {machine.name}: {', '.join(ALL_WELL)}")


def ask(client: httpx.Client, name: str) -> str | None:
    """Code of the error that a call or a stream ends with, or `whole`, or `closed` where the connection broke."""
    path, body = CALLS[name.removesuffix(STREAM)]
    if name.endswith(STREAM):
        body = body | {"stream": True, "max_tokens": 400}
    try:
        reply = client.post(path, json=body)
    except (httpx.NetworkError, httpx.RemoteProtocolError):
        return "closed"
    last = reply.text.strip().rpartition("data: ")[2]
    if last == "[DONE]" or (reply.status_code == 200 and not name.endswith(STREAM)):
        return "whole"
    code: str | None = json.loads(last)["error"]["code"]
    return code


@pytest.mark.parametrize("is_given_up", [False, True], ids=["for a moment", "until one is given up"])
def test_nodes_that_are_parted_lose_nothing_and_answer_again(cluster: Cluster, is_given_up: bool) -> None:
    """While no packet goes from one to the other, the node with the engines serves whoever asks there."""
    org, begun = f"parted-{is_given_up}".lower(), threading.Event()
    cluster.state("org", "create", org, "--plan", "pro")
    own = replace(cluster, key=cluster.state("key", "create", "--org", org, "--scopes", "all"))
    with own.client(own.worker) as client, own.client(own.head) as other, ThreadPoolExecutor() as pool:
        left = survival.leave(client, own.state, org)
        left.orders.append(survival.order(other))  # a long call, by either node's ingress
        assert serve_everything(client) == ALL_WELL  # nothing that sleeps could be woken without the head
        other.event_hooks["response"].append(lambda _: begun.set())
        client.timeout = other.timeout = 400  # more than any call's deadline
        asked = [pool.submit(ask, other, f"chat{STREAM}")]
        assert begun.wait(60)
        with parted():
            asked += [pool.submit(ask, other, name) for name in CALLS]
            # HAProxy may have sent some to the other node's ingress before it knew.
            asked += [pool.submit(ask, client, name) for name in CALLS]
            if is_given_up:
                eventually(
                    lambda: {ask(client, name) for name in CALLS} == {"whole"}, RECOVER_S, "the engines' node is out"
                )
                eventually(lambda: nodes_alive(own) == 1, RECOVER_S, "Ray never gave the node up")
                assert serve_everything(client) == ALL_WELL
                left.orders.append(survival.order(client))
            else:
                time.sleep(MOMENT_S)
        if is_given_up:
            eventually(lambda: not answers(own.worker), RECOVER_S, "the node that was given up never ended")
            own.worker.kill()  # of what Ray had not ended
            own.start_worker()
        for machine, http in ((own.worker, client), (own.head, other)):
            eventually(lambda machine=machine: answers(machine), START_S, f"{machine.name} never came back")
            eventually(lambda http=http: {ask(http, name) for name in CALLS} == {"whole"}, RECOVER_S, "not all is back")
        ends = {each.result() for each in asked}
        found = survival.find(other, own.state, left)
    cluster.tell(f"parted {'until one was given up' if is_given_up else 'for a moment'}: {ends}, all is back")
    assert ends <= {"whole", "closed", *(row.code for row in FAULTS.values())}
    assert [name for name, is_there in found.items() if not is_there] == []


def test_the_head_dies_and_comes_back_then_the_other_node_dies_and_nothing_is_lost(cluster: Cluster) -> None:
    with cluster.client(cluster.worker) as client:
        left = survival.leave(client, cluster.state, ORG)
        cluster.head.kill()
        cluster.tell("the head is killed, with all of its processes")
        # With the retries that the SDK makes unasked: what HAProxy had sent to the ingress that died is lost.
        with openai.OpenAI(api_key=cluster.key, base_url=f"{cluster.worker.url}/v1") as sdk:
            for _ in range(5):
                assert sdk.chat.completions.create(**CALLS["chat"][1]).choices
        cluster.tell("chat goes on through the other node, without a head")

        cluster.start_head(cpus=4)  # the one that this cluster goes on with when its other node dies
        cluster.tell("the head is started again with the same line")
        eventually(lambda: answers(cluster.head), RECOVER_S, "the head's ingress never came back")
        eventually(lambda: serve_everything(client) == ALL_WELL, RECOVER_S, "not all is back")
        cluster.tell("every capability answers again; nothing was deployed anew")
        left.orders.append(survival.order(client))

    cluster.worker.kill()
    cluster.tell("the other node is killed, with its engines and its ingress")
    eventually(lambda: nodes_alive(cluster) == 1, RECOVER_S, "Ray never noticed that a node is gone")
    with cluster.client(cluster.head) as client:
        eventually(lambda: serve_everything(client) == ALL_WELL, RECOVER_S, "something never came back")
        cluster.tell("every capability answers through the head alone")
        # Addresses of the node that died are now those of the one that lives.
        left.upload_url = left.upload_url.replace(cluster.worker.address, cluster.head.address)
        found = survival.find(client, cluster.state, left)
    lost = [name for name, is_there in found.items() if not is_there]
    kept = ", ".join(name for name in found if name not in lost)
    cluster.tell(f"survived both: {kept}; lost: {', '.join(lost) or 'nothing'}")
    assert lost == []


def test_a_third_node_would_need_the_token(cluster: Cluster) -> None:
    cluster.head.run(*list_nodes(cluster.head))
    env = cluster.head.env | {"RAY_AUTH_TOKEN": "f" * 64}
    with pytest.raises(AssertionError, match=r"(?i)token"):
        run("ip", "netns", "exec", cluster.head.name, *list_nodes(cluster.head), env=env)
