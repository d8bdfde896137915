"""`cluster/kubernetes` as containers, as KubeRay's operator and a kubelet make them of it.

Podman starts each in a network namespace on a bridge, with its user, read-only root, capabilities and limits. Left out:
the autoscaler, which asks Kubernetes for pods, and network policies.
"""

import contextlib
import json
import socket
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.nodes import plug
from tests.docs.pages import ROOT
from tests.rehearsal.images import done

MANIFESTS = ROOT / "cluster/kubernetes"
BRIDGE = "rehearse0"
NETWORK = "10.214.0"
OUTSIDE = f"{NETWORK}.254"
"""The address of stores and proxy."""
HEAD_SERVICE = "parlance-head-svc.parlance.svc.cluster.local"
FILES = 16384
"""Open files of a container, because this machine may not give more."""
DISK_BYTES = 1 << 30
"""Of an `emptyDir` on disk at most: here each is memory."""
MEMORY_BYTES = 6 << 30
"""Of a container at most: less than the manifests give to engines, which they mark to be changed."""
UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}

Spec = dict[str, Any]


def objects() -> list[Spec]:
    """Every object of the manifests."""
    return [found for file in sorted(MANIFESTS.glob("*.yaml")) for found in yaml.safe_load_all(file.read_text("utf-8"))]


def of_kind(kind: str, name: str = "parlance") -> Spec:
    """The one object of this kind and name."""
    (found,) = [each for each in objects() if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def size(text: str) -> int:
    """Bytes of a quantity such as 16Gi."""
    return int(text[:-2]) * UNITS[text[-2:]]


SLICE = "rehearse"
"""The group of all containers, as a kubelet has one, with a share of the processor that such a node has for pods."""


def make_slice() -> None:
    """Without it all containers together would get as much of a busy machine as one other process."""
    group = Path("/sys/fs/cgroup/cpu", SLICE)
    if group.parent.is_dir():
        group.mkdir(exist_ok=True)
        (group / "cpu.shares").write_text("10240", "utf-8")


class Names:
    """A DNS server that knows the services of the cluster, on the bridge.

    Attributes:
        addresses: by name.
    """

    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((OUTSIDE, 53))
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                query, client = self._socket.recvfrom(512)
                self._socket.sendto(self._reply(query), client)

    def _reply(self, query: bytes) -> bytes:
        end, labels = 12, []
        while length := query[end]:
            labels.append(query[end + 1 : end + 1 + length].decode())
            end += 1 + length
        question = query[12 : end + 5]
        known = self.addresses.get(".".join(labels))
        is_address = known and question[-4:-2] == b"\0\1"
        counts = b"\0\1" + (b"\0\1" if is_address else b"\0\0") + bytes(4)
        head = query[:2] + (b"\x85\x80" if known else b"\x85\x83") + counts
        record = b"\xc0\x0c\0\1\0\1\0\0\0\5\0\4" + socket.inet_aton(known) if known and is_address else b""
        return head + question + record

    def close(self) -> None:
        self._socket.close()


@dataclass
class Cluster:
    """A RayCluster: the spec, and what its pods share.

    Attributes:
        images: by target; secrets: by name; settings: values that take the place of those in settings.yaml.
    """

    folder: Path
    images: dict[str, str]
    secrets: dict[str, dict[str, str]]
    settings: dict[str, str]
    redis: str
    names: Names
    id: str = "first"
    spec: Spec = field(default_factory=lambda: dict(of_kind("RayService")["spec"]["rayClusterConfig"]))

    def environment(self, sources: list[Spec]) -> dict[str, str]:
        """Variables of `envFrom`."""
        env: dict[str, str] = {}
        for source in sources:
            if "configMapRef" in source:
                env |= of_kind("ConfigMap", source["configMapRef"]["name"])["data"] | self.settings
            else:
                secret = self.secrets.get(source["secretRef"]["name"])
                assert secret is not None or source["secretRef"].get("optional"), source
                env |= secret or {}
        return env

    def of_ray(self) -> dict[str, str]:
        """Variables that the operator adds to every pod."""
        token = self.secrets[self.spec["authOptions"]["secretName"]]["auth_token"]
        assert self.spec["authOptions"]["mode"] == "token"
        return {
            "RAY_CLUSTER_NAME": "parlance",
            "RAY_PORT": "6379",
            "RAY_USAGE_STATS_KUBERAY_IN_USE": "1",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": token,
            "RAY_gcs_rpc_server_reconnect_timeout_s": "600",
            "RAY_TIMEOUT_MS_TASK_WAIT_FOR_DEATH_INFO": "0",
            # Of services, in every pod of the namespace.
            "PARLANCE_SERVE_SVC_SERVICE_HOST": f"{NETWORK}.253",
            "PARLANCE_SERVE_SVC_SERVICE_PORT": "8000",
            "PARLANCE_SERVE_SVC_PORT": f"tcp://{NETWORK}.253:8000",
            "PARLANCE_HEAD_SVC_PORT": f"tcp://{NETWORK}.253:6379",
        }


def memory_of(container: Spec) -> int:
    """The memory limit of a container in bytes."""
    return min(size(container["resources"]["limits"]["memory"]), MEMORY_BYTES)


def start_command(params: dict[str, str], container: Spec, is_head: bool) -> str:
    """The line that the operator writes."""
    limits, requests = container["resources"]["limits"], container["resources"]["requests"]
    wanted = {"block": "true", "dashboard-agent-listen-port": "52365", "memory": str(memory_of(container))} | params
    wanted.setdefault("num-cpus", limits.get("cpu", requests["cpu"]))
    if is_head:
        wanted |= {
            "head": "true",
            "dashboard-host": "0.0.0.0",
            "no-monitor": "true",
            "redis-password": "$REDIS_PASSWORD",
        }
    else:
        wanted |= {"address": f"{HEAD_SERVICE}:6379"}
    words = [f"--{name}" if value == "true" else f"--{name}={value}" for name, value in sorted(wanted.items())]
    return f"ulimit -n 65536; ray start {' '.join(words)}"


@dataclass
class Pod:
    """One pod of a group, with the container that runs in it."""

    cluster: Cluster
    group: str
    number: int
    is_ending: bool = False
    is_started: bool = False
    is_ready: bool = False
    misses: int = 0
    mounts: dict[str, Path] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of its container, its namespace, and its host."""
        return f"rehearse-{self.group}-{self.number}"

    @property
    def address(self) -> str:
        """On the bridge."""
        return f"{NETWORK}.{self.number}"

    @property
    def is_head(self) -> bool:
        return self.group == "head"

    @property
    def _group(self) -> Spec:
        if self.is_head:
            return dict(self.cluster.spec["headGroupSpec"])
        (found,) = [each for each in self.cluster.spec["workerGroupSpecs"] if each["groupName"] == self.group]
        return dict(found)

    @property
    def template(self) -> Spec:
        return dict(self._group["template"]["spec"])

    @property
    def container(self) -> Spec:
        (found,) = self.template["containers"]
        return dict(found)

    def start(self) -> None:
        """Makes its network and volumes, waits for the head as the operator's init container does, and starts it."""
        done("ip", "netns", "add", self.name)
        plug(self.name, self.address, f"rehearse-v{self.number}", BRIDGE)
        done("ip", "-n", self.name, "route", "add", "default", "via", OUTSIDE)
        for volume in self.template["volumes"]:
            self._make_volume(volume)
        if self.is_head:
            self.cluster.names.addresses[HEAD_SERVICE] = self.address
        else:
            self._wait_for_the_head()
        container, params = self.container, dict(self._group["rayStartParams"])
        env = self.cluster.environment(container["envFrom"]) | self.cluster.of_ray() | self._own()
        env |= {each["name"]: each["value"] for each in container.get("env", [])}
        command = start_command(params, container, self.is_head)
        limits = {"memory": memory_of(container), "cpu": container["resources"]["limits"].get("cpu")}
        self._run(self.name, env | {"KUBERAY_GEN_RAY_START_CMD": command}, limits, command, "--detach")

    def _own(self) -> dict[str, str]:
        """Variables that the operator gives this pod."""
        env = {"RAY_CLOUD_INSTANCE_ID": self.name, "RAY_NODE_TYPE_NAME": "headgroup" if self.is_head else self.group}
        if self.is_head:
            secret = self.cluster.secrets["parlance"]["redis_password"]
            redis = {"RAY_REDIS_ADDRESS": self.cluster.redis, "REDIS_PASSWORD": secret}
            return env | redis | {"RAY_ADDRESS": "127.0.0.1:6379", "RAY_external_storage_namespace": self.cluster.id}
        return env | {"RAY_ADDRESS": f"{HEAD_SERVICE}:6379", "FQ_RAY_IP": HEAD_SERVICE, "RAY_IP": "parlance-head-svc"}

    def _wait_for_the_head(self) -> None:
        """The init container `wait-gcs-ready`, with the limits that the operator gives it."""
        env = self.cluster.of_ray() | self._own()
        line = f"until ray health-check --address {HEAD_SERVICE}:6379 >/dev/null 2>&1; do sleep 1; done"
        self._run(f"{self.name}-wait", env, {"memory": size("256Mi"), "cpu": "0.2"}, line, "--rm", within_s=300)

    def _make_volume(self, volume: Spec) -> None:
        """A folder as a kubelet lays it: root's, of the pod's group, open to all in the pod."""
        place = self.cluster.folder / self.name / volume["name"]
        if "persistentVolumeClaim" in volume:
            self.mounts[volume["name"]] = self.cluster.folder / "home"
            return
        place.mkdir(parents=True)
        limit = size(volume["emptyDir"].get("sizeLimit", "1Gi"))
        limit = limit if volume["emptyDir"].get("medium") == "Memory" else min(limit, DISK_BYTES)
        group = self.template["securityContext"]["fsGroup"]
        done("mount", "-t", "tmpfs", "-o", f"size={limit},mode=2777,gid={group}", "tmpfs", place)
        self.mounts[volume["name"]] = place

    def _run(
        self, name: str, env: dict[str, str], limits: Spec, line: str, *options: str, within_s: float = 60
    ) -> None:
        confined, user = self.container["securityContext"], self.template["securityContext"]
        words = ["podman", "--runtime=runc", "run", f"--name={name}", f"--hostname={self.name}", *options]
        words += [f"--network=ns:/run/netns/{self.name}", f"--user={user['runAsUser']}:{user['runAsGroup']}"]
        words += [
            f"--group-add={user['fsGroup']}",
            f"--ulimit=nofile={FILES}:{FILES}",
            f"--ulimit=nproc={FILES}:{FILES}",
        ]
        words += [f"--cap-drop={each}" for each in confined["capabilities"]["drop"]]
        words += ["--security-opt=no-new-privileges"] if confined["allowPrivilegeEscalation"] is False else []
        words += ["--read-only", "--read-only-tmpfs=false"] if confined["readOnlyRootFilesystem"] else []
        words += [f"--memory={limits['memory']}", f"--memory-swap={limits['memory']}", "--no-healthcheck"]
        words += [f"--cgroup-parent=/{SLICE}"]
        words += [f"--cpu-quota={round(float(limits['cpu']) * 100_000)}"] if limits["cpu"] else []
        words += [f"--dns={OUTSIDE}"]
        words += [f"--env={key}={value}" for key, value in env.items()]
        words += [
            f"--volume={self.mounts[each['name']]}:{each['mountPath']}" for each in self.container["volumeMounts"]
        ]
        image = self.cluster.images[self.container["image"].rpartition("-")[2].partition(":")[0]]
        # It stands for what the image starts, as `command` does. This machine's containers.conf(5) is for builds.
        words = ["env", f"CONTAINERS_CONF={Path(__file__).with_name('containers.conf')}", *words]
        done(*words, '--entrypoint=["/bin/bash","-c","--"]', image, line, within_s=within_s)

    def run(self, *command: str, within_s: float = 120) -> str:
        """`kubectl exec`."""
        return done("podman", "exec", self.name, *command, within_s=within_s)

    def state(self, *arguments: str) -> str:
        """`python -m state` in this pod."""
        return self.run("python", "-m", "state", *arguments)

    @property
    def is_running(self) -> bool:
        return self._inspect()["State"]["Running"] is True

    @property
    def was_killed_for_memory(self) -> bool:
        return self._inspect()["State"]["OOMKilled"] is True

    def _inspect(self) -> Spec:
        return dict(json.loads(done("podman", "inspect", self.name))[0])

    def log(self) -> str:
        """Output of its container."""
        finished = subprocess.run(["podman", "logs", self.name], capture_output=True, text=True, check=False)
        return finished.stdout + finished.stderr

    def again(self) -> None:
        """Starts the container once more in the same pod."""
        self.is_started = self.is_ready = False
        self.misses = 0
        done("podman", "start", self.name)

    def stop(self) -> None:
        """`kubectl delete pod`: `preStop`, SIGTERM, and SIGKILL at the end of the grace period."""
        self.is_ending, self.is_ready = True, False
        grace_s = self.template.get("terminationGracePeriodSeconds", 30)
        hook = self.container.get("lifecycle", {}).get("preStop")
        if hook:
            self.run(*hook["exec"]["command"], within_s=grace_s)
        done("podman", "stop", f"--time={grace_s}", self.name, within_s=grace_s + 30)
        self.remove()

    def remove(self) -> None:
        """Takes away what is left of it; the power goes where it still runs."""
        self.is_ending, self.is_ready = True, False
        for name in (self.name, f"{self.name}-wait"):
            subprocess.run(["podman", "rm", "--force", "--time=0", name], capture_output=True, check=False)
        for name, place in self.mounts.items():
            if name != "home":
                subprocess.run(["umount", "--lazy", place], capture_output=True, check=False)
        with contextlib.suppress(AssertionError):
            done("ip", "link", "del", f"rehearse-v{self.number}")
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True, check=False)
