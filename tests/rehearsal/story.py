"""The story: each step does one thing to the cluster, and fails where what must hold does not."""

import asyncio
import base64
import json
import platform
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import openai
import psutil
from websockets.asyncio.client import connect

from contract.limits import UPLOAD_BYTES
from tests.cluster import survival
from tests.cluster.nodes import outside
from tests.cluster.test_two_nodes import ALL_WELL, CALLS, serve_everything
from tests.rehearsal.images import done
from tests.rehearsal.place import Place
from tests.rehearsal.pods import OUTSIDE, of_kind
from tests.state.servers import find_binary
from tests.waiting import eventually

RECOVER_S = 300


@dataclass
class Record:
    """Events of the rehearsal, as lines with seconds.

    Attributes:
        stream_s: how long the long stream lasts.
    """

    stream_s: int
    began_s: float = field(default_factory=time.monotonic)
    steps: list[dict[str, Any]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def report(self, what: str) -> None:
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
        return {"machine": machine, "steps": [{"day": day} | step for step in self.steps]}


def migrate(here: Place, record: Record) -> None:
    """The Job that makes tables, as its manifest has it."""
    pod = of_kind("Job", "parlance-migrate")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    env = here.cluster.environment(container["envFrom"])
    limit = container["resources"]["limits"]["memory"].removesuffix("i").lower()
    words = ["podman", "--runtime=runc", "run", "--rm", "--network=host", "--read-only", "--read-only-tmpfs=false"]
    words += [f"--user={pod['securityContext']['runAsUser']}", "--cap-drop=all", "--security-opt=no-new-privileges"]
    words += [f"--memory={limit}", "--ulimit=nofile=16384:16384", "--ulimit=nproc=16384:16384", "--no-healthcheck"]
    words += [f"--tmpfs={each['mountPath']}:size=64m,mode=1777" for each in container["volumeMounts"]]
    words += [f"--env={name}={value}" for name, value in env.items()]
    done(*words, here.cluster.images["ingress"], *container["command"], within_s=300)


def start(here: Place, record: Record) -> None:
    """The head, two pods of the group `ingress`, one of `cpu`; then the graph, until each answers clients."""
    head = here.start("head", here.next())
    eventually(lambda: head.is_ready, RECOVER_S, lambda: f"the head: {head.log()[-3000:]}")
    record.report("the head is ready")
    pods = [here.start(group, here.next()) for group in ("ingress", "ingress", "cpu")]
    here.deploy()
    record.report("the operator has sent what Serve shall run")
    here.until_ready(*pods[:2])


def make_key(here: Place, record: Record) -> None:
    """The first key, in a pod of the group `ingress` as the page has it, and a chat through TLS."""
    pod = here.pod("ingress")
    pod.state("org", "create", "acme", "--plan", "pro")
    pod.state("org", "change", "acme", "--requests-per-minute", "1000000")
    here.key = pod.state("key", "create", "--org", "acme", "--scopes", "all").splitlines()[-1]
    with here.client() as client:
        path, body = CALLS["chat"]
        reply = client.post(path, json=body)
        assert reply.status_code == 200, reply.text


def capabilities(here: Place, record: Record) -> None:
    """Each capability once through TLS, its engine started by the call."""
    with here.client() as client:
        eventually(lambda: serve_everything(client) == ALL_WELL, RECOVER_S, "not every capability answers")


def upload(here: Place, record: Record) -> None:
    """The largest recording under a ticket; one byte more is refused."""
    with here.client() as client:
        ticket = client.post("/audio/uploads", json={"mime": "audio/wav", "size": UPLOAD_BYTES}).json()
        headers = {"content-type": "audio/wav"}
        reply = httpx.put(ticket["upload_url"], content=bytes(UPLOAD_BYTES), headers=headers, timeout=300)
        assert reply.is_success, reply.text
        more = client.post("/audio/uploads", json={"mime": "audio/wav", "size": UPLOAD_BYTES + 1})
        assert 400 <= more.status_code < 500, more.text


def live(here: Place, record: Record) -> None:
    """A live session through TLS that is spoken to for as long as the record says, most of it silence."""
    asyncio.run(_live(here, record.stream_s))


async def _live(here: Place, for_s: int) -> None:
    url = f"{here.proxy.url.replace('https', 'wss')}/v1/realtime?intent=transcription"
    piece = base64.b64encode(bytes(int(24_000 * 0.5) * 2)).decode()
    async with connect(url, additional_headers={"authorization": f"Bearer {here.key}"}, open_timeout=60) as socket:
        for _ in range(for_s * 2):
            await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": piece}))
            await asyncio.sleep(0.5)
        await socket.send(json.dumps({"type": "parlance.session.end"}))
        async with asyncio.timeout(60):
            events = [json.loads(text) async for text in socket]
    assert events[0]["type"] == "session.created", events[0]
    assert events[-1]["ledger"]["received_s"] == for_s, events[-1]


def beside(step: Callable[[], None]) -> Future[None]:
    """Runs a step in a thread that does not hold up an interrupt, as one of a pool would."""
    future = Future[None]()

    def run() -> None:
        try:
            future.set_result(step())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


class Streams:
    """Chat streams through TLS, each in a thread of its own."""

    def __init__(self, here: Place, count: int, tokens: int) -> None:
        self._here, self._tokens = here, tokens
        self._pool = ThreadPoolExecutor(count)
        self.begun = 0
        self._all = [self._pool.submit(self._stream) for _ in range(count)]

    def _stream(self) -> str:
        story = [{"role": "user", "content": "Tell a very long story of a journey, day after day, with every detail."}]
        body = CALLS["chat"][1] | {"stream": True, "max_tokens": self._tokens, "temperature": 1, "messages": story}
        lines: list[str] = []
        try:
            with self._here.client() as client, client.stream("POST", "/chat/completions", json=body) as reply:
                if reply.status_code != 200:
                    return f"{reply.status_code} {reply.read().decode()[:200]}"
                for line in reply.iter_lines():
                    if line.startswith("data: "):
                        self.begun += not lines
                        lines.append(line)
        except httpx.TransportError as error:
            return f"cut after {len(lines)} events: {type(error).__name__}"
        return "done" if lines and lines[-1] == "data: [DONE]" else f"ended with {lines[-1:]}"

    @property
    def open(self) -> int:
        """Streams that have not ended."""
        return sum(not stream.done() for stream in self._all)

    def ends(self) -> Counter[str]:
        """The end of each, when all have ended."""
        found = Counter(stream.result(600) for stream in self._all)
        self._pool.shutdown()
        return found


def drain(here: Place, record: Record) -> None:
    """An ingress is deleted while 50 streams are open; the operator makes another. No stream may be cut."""
    before = [pod for pod in here.kubelet.pods if pod.group == "ingress" and not pod.is_ending]
    streams = Streams(here, 50, 500)
    eventually(lambda: streams.begun >= 10, RECOVER_S, "no stream began")
    record.report(f"{streams.begun} of 50 streams have begun; {before[0].name} is deleted")
    stopping = beside(before[0].stop)
    new = here.start("ingress", here.next())
    here.until_ready(new)
    stopping.result(1000)
    record.report(f"{before[0].name} is gone with {streams.open} streams still open; {new.name} is ready")
    ends = streams.ends()
    record.report(f"streams: {', '.join(f'{count} {end}' for end, count in ends.items())}")
    assert ends == {"done": 50}


def memory(here: Place, record: Record) -> None:
    """The pod of engines reaches its memory limit amid streams. Streams may end, with a reason; all comes back."""
    pod, streams = here.pod("cpu"), Streams(here, 12, 300)
    eventually(lambda: streams.begun >= 6, RECOVER_S, "no stream began")
    grow = "a = []\nwhile True: a.append(bytearray(b'x' * (64 << 20)))"
    with suppress(AssertionError):  # the kernel ends what grows, or what Ray marked for it
        pod.run("timeout", "60", "python", "-c", grow)
    record.report(f"streams: {dict(streams.ends())}")
    capabilities(here, record)
    record.report("every capability answers again")


def head(here: Place, record: Record) -> None:
    """The head is gone with its node. Chat goes on; another head, at another address, finds every ingress replica."""
    replicas = here.running("ingress")
    assert len(replicas) == 2
    here.pod("head").remove()
    with openai.OpenAI(api_key=here.key, base_url=f"{here.proxy.url}/v1") as sdk:
        for _ in range(5):
            assert sdk.chat.completions.create(**CALLS["chat"][1]).choices
    record.report("chat goes on without a head")
    new = here.start("head", here.next())
    eventually(lambda: new.is_ready, RECOVER_S, lambda: f"the head: {new.log()[-3000:]}")
    record.report("another head is ready, at another address")
    eventually(lambda: here.nodes_alive() == 4, RECOVER_S, lambda: f"{here.nodes_alive()} nodes found the head")
    record.report("every node has found it")
    # The new controller has lost those that it cannot reach in time: it stops them, and starts others.
    eventually(
        lambda: here.running("ingress") == replicas, RECOVER_S, lambda: f"of {replicas} run {here.running('ingress')}"
    )
    record.report("its controller has recovered both ingress replicas")
    capabilities(here, record)


def full(here: Place, record: Record) -> None:
    """/tmp of the engines is full: chat, which runs, answers; what has to start may fail; then all is as before."""
    pod = here.pod("cpu")
    capabilities(here, record)
    with suppress(AssertionError):
        pod.run("dd", "if=/dev/zero", "of=/tmp/full", "bs=1M")
    with here.client() as client:
        statuses = serve_everything(client)
    record.report(f"with a full /tmp of the engines: {statuses}")
    pod.run("rm", "/tmp/full")
    assert statuses["chat"] == 200
    assert all(status in (200, 502, 503) for status in statuses.values())
    capabilities(here, record)


def roll(here: Place, record: Record) -> None:
    """Every ingress is deleted in turn, and another comes in its place, while clients call: each call succeeds."""
    stop, statuses = threading.Event(), Counter[int]()

    def call() -> None:
        with here.client() as client:
            while not stop.is_set():
                path, body = CALLS["embeddings"]
                statuses[client.post(path, json=body).status_code] += 1

    old = [pod for pod in here.kubelet.pods if pod.group == "ingress" and not pod.is_ending]
    calling = beside(call)
    for pod in old:
        stopping = beside(pod.stop)
        here.until_ready(here.start(pod.group, here.next()))
        stopping.result(1000)
        record.report(f"{pod.name} is replaced; calls by status: {dict(statuses)}")
    stop.set()
    calling.result(300)
    assert set(statuses) == {200}


def restore(here: Place, record: Record) -> None:
    """The database is dumped and restored beside, as the page has it; a second cluster finds everything."""
    with here.client() as client:
        left = survival.leave(client, here.pod("ingress").state, "acme")
        survival.order(client)
    for pod in here.kubelet.pods:
        pod.remove()
    here.kubelet.pods.clear()
    dump, url = here.folder / "parlance.dump", here.postgres.url.removesuffix("postgres")
    done(find_binary("pg_dump"), "--format=custom", "--no-owner", f"--file={dump}", f"{url}parlance")
    here.postgres.fresh("restored")
    done(find_binary("pg_restore"), "--clean", "--if-exists", "--no-owner", f"--dbname={url}restored", dump)
    here.cluster.secrets["parlance-state"]["PARLANCE_DATABASE_URL"] = outside(f"{url}restored", OUTSIDE)
    here.cluster.id = "second"
    record.report("the first cluster is gone, and its database restored under another name")
    start(here, record)
    with here.client() as client:
        capabilities(here, record)
        found = survival.find(client, here.pod("ingress").state, left)
    lost = [name for name, is_there in found.items() if not is_there]
    record.report(
        f"found: {', '.join(name for name in found if name not in lost)}; lost: {', '.join(lost) or 'nothing'}"
    )
    assert lost == []


STEPS: dict[str, Callable[[Place, Record], None]] = {
    "migration Job": migrate,
    "first start": start,
    "first key, and a chat through TLS": make_key,
    "each capability through TLS": capabilities,
    "upload of 100 MiB": upload,
    "live session by websocket": live,
    "ingress drained with 50 streams open": drain,
    "engines reach their memory limit": memory,
    "head gone and back": head,
    "full emptyDir": full,
    "rolling restart": roll,
    "backup and restore into a second cluster": restore,
}
"""In their order."""
