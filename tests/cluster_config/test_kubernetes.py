"""`cluster/kubernetes` as KubeRay, Kubernetes and Serve read it, and what it must keep closed."""

import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray import __version__ as ray_version
from ray.serve.schema import ServeDeploySchema

import configs
from audio.sandbox import ON_DISK_BYTES
from autoscaling import observation
from autoscaling.deployment import deployment_options
from autoscaling.metrics import nowhere
from autoscaling.observation import Observation, collector
from autoscaling.policy.options import needs
from contract.catalog import Model
from contract.limits import UPLOAD_BYTES
from launch.check.cost import replica_of
from launch.check.faults import Site, faults, plan_of
from tests.cluster_config.schemas import misspelt, validator
from tests.docs.pages import ROOT, tables

FOLDER = ROOT / "cluster/kubernetes"
OBJECTS: list[dict[str, Any]] = [
    found for file in sorted(FOLDER.glob("*.yaml")) for found in yaml.safe_load_all(file.read_text("utf-8"))
]
(SERVICE,) = [found for found in OBJECTS if found["kind"] == "RayService"]
FIRST = {found["kind"]: found for found in yaml.safe_load_all((ROOT / "cluster/first.yaml").read_text("utf-8"))}
"""One pod without KubeRay, by kinds."""
INGRESS, GATEWAY = (yaml.safe_load((FOLDER / f"proxy/{id}.yaml").read_text("utf-8")) for id in ("ingress", "gateway"))
CLUSTER = SERVICE["spec"]["rayClusterConfig"]
GROUPS = {group["groupName"]: group for group in CLUSTER["workerGroupSpecs"]}
TEMPLATES = {"head": CLUSTER["headGroupSpec"]["template"]} | {id: group["template"] for id, group in GROUPS.items()}
assert all(len(template["spec"]["containers"]) == 1 for template in TEMPLATES.values())
CONTAINERS = {id: template["spec"]["containers"][0] for id, template in TEMPLATES.items()}
OURS = {"app.kubernetes.io/part-of": "parlance"}


def named(kind: str) -> list[dict[str, Any]]:
    """Every object of a kind."""
    return [found for found in OBJECTS if found["kind"] == kind]


def reached(selector: dict[str, Any]) -> set[str]:
    """Groups listener pods a selector finds."""
    wanted = selector["matchLabels"].items()
    return {id for id, template in TEMPLATES.items() if wanted <= template["metadata"]["labels"].items()}


def test_the_first_pod_starts_the_image_as_it_is_and_keeps_its_folder() -> None:
    pod, name = FIRST["Deployment"]["spec"]["template"], FIRST["PersistentVolumeClaim"]["metadata"]["name"]
    (weights,), (container,) = pod["spec"]["initContainers"], pod["spec"]["containers"]
    assert weights["image"] == container["image"] == CONTAINERS["ingress"]["image"].replace("-ingress", "-embedded")
    assert not {"command", "args"} & container.keys()
    page = (ROOT / "docs/cluster.md").read_text("utf-8")
    (secret,) = re.findall(r"create secret generic (\S+) --from-literal=PARLANCE_SECRET=", page)
    assert container["envFrom"] == [{"secretRef": {"name": secret}}]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    # Ray's folder is refused in a /tmp that others may write, as that of a volume is.
    assert mounts == {"home": "/var/lib/parlance", "shm": "/dev/shm"}
    assert weights["command"][-2:] == [mounts["home"], weights["volumeMounts"][0]["mountPath"]]
    assert pod["spec"]["volumes"][0] == {"name": "home", "persistentVolumeClaim": {"claimName": name}}
    assert pod["spec"]["securityContext"] == TEMPLATES["ingress"]["spec"]["securityContext"]
    assert FIRST["Service"]["spec"]["selector"] == pod["metadata"]["labels"]
    assert FIRST["Deployment"]["spec"]["replicas"] == 1
    assert FIRST["Deployment"]["spec"]["strategy"] == {"type": "Recreate"}


def test_objects_are_as_kubernetes_and_kuberay_define_them_and_no_field_can_be_misspelt() -> None:
    for found in (*OBJECTS, *FIRST.values(), INGRESS):
        schema = validator(found["kind"], found["apiVersion"])
        schema.validate(found)
        assert [where for where, spoilt in misspelt(found) if schema.is_valid(spoilt)] == [], found["metadata"]["name"]


def test_the_operator_takes_it() -> None:
    """KubeRay 1.7.0 refuses some of what its schema allows; this asserts it of the parts that we have."""
    spec, metadata = SERVICE["spec"], SERVICE["metadata"]
    head, groups = CLUSTER["headGroupSpec"], CLUSTER["workerGroupSpecs"]
    params, pods = head["rayStartParams"], [template["spec"] for template in TEMPLATES.values()]
    env = {one["name"] for one in CONTAINERS["head"].get("env", [])}
    redis, options = CLUSTER["gcsFaultToleranceOptions"], CLUSTER["autoscalerOptions"]
    asked = {
        "name": re.fullmatch("[a-z]([a-z0-9-]*[a-z0-9])?", metadata["name"]) and len(metadata["name"]) <= 47,
        "annotations beside options": not any(name.startswith("ray.io/") for name in metadata.get("annotations", {})),
        "way to upgrade": spec["upgradeStrategy"]["type"]
        in {"NewCluster", "None"},  # the third wants a gateway's options
        "the cluster's own upgrades": "upgradeStrategy" not in CLUSTER,
        "delay of deletion": spec["rayClusterDeletionDelaySeconds"] >= 0,
        "tokens": tuple(map(int, CLUSTER["rayVersion"].split("."))) >= (2, 52),
        "tokens of Kubernetes": "enableK8sTokenAuth" not in CLUSTER["authOptions"],
        "behind gates that are closed": not {"networkPolicy", "tlsOptions", "historyServerOptions"} & CLUSTER.keys(),
        "the head's storage": "storage" not in redis and redis.get("backend", "redis") == "redis",
        "Redis named twice": not {"RAY_REDIS_ADDRESS", "REDIS_PASSWORD", "REDIS_USERNAME"} & env
        and not {"redis-password", "redis-username"} & params.keys(),
        "autoscaler named twice": "RAY_enable_autoscaler_v2" not in env,
        "idle time": options["idleTimeoutSeconds"] >= 0,
        "restarts with autoscaler v2": all(pod.get("restartPolicy", "Never") == "Never" for pod in pods),
        "name of the head's service": "name" not in head.get("headService", {}).get("metadata", {}),
        "resources in one place": not any("resources" in group for group in (head, *groups)),
        "labels as a parameter": not any("labels" in group["rayStartParams"] for group in (head, *groups)),
        "suspended groups": not any(group.get("suspend") for group in groups),
        "numbers of workers": all(0 <= group["minReplicas"] <= group["maxReplicas"] for group in groups),
        "numbers at the start": all(g["minReplicas"] <= g["replicas"] <= g["maxReplicas"] for g in groups),
        "names of groups": len(GROUPS) == len(groups),
    }
    assert [name for name, is_well in asked.items() if not is_well] == []


def test_serve_can_read_what_it_shall_deploy() -> None:
    config = yaml.safe_load(SERVICE["spec"]["serveConfigV2"])
    ServeDeploySchema.model_validate(config)
    # In all but where the ingress runs, and what a cluster that grows may come to, it is the profile's own file.
    profile = yaml.safe_load((ROOT / "configs/production.yaml").read_text("utf-8"))
    (deployment,) = config["applications"][0].pop("deployments")
    assert config["applications"][0]["args"].pop("scaling").keys() == {"budget"}
    assert config == profile
    assert deployment == {"name": "ingress", "ray_actor_options": {"num_cpus": 0, "resources": {"ingress": 1}}}


def test_ingress_pods_hold_an_ingress_each_and_no_engine() -> None:
    params = GROUPS["ingress"]["rayStartParams"]
    assert params["num-cpus"] == CLUSTER["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert yaml.safe_load(yaml.safe_load(params["resources"])) == {"ingress": 1}
    assert GROUPS["ingress"]["minReplicas"] == 2


def test_the_start_is_refused_until_the_proxy_with_tls_is_named() -> None:
    """Nobody in the cluster's whole network is believed by default."""
    (settings,) = [found["data"] for found in named("ConfigMap")]
    assert settings["PARLANCE_PROXIES"] == ""
    plan = plan_of(yaml.safe_load(SERVICE["spec"]["serveConfigV2"])["applications"][0]["args"])
    assert any("PARLANCE_PROXIES" in reason for reason in faults(plan, Site(settings, is_here=False)))
    named_too = settings | {"PARLANCE_PROXIES": "10.1.2.3"}
    assert not any("PARLANCE_PROXIES" in reason for reason in faults(plan, Site(named_too, is_here=False)))


def test_gpus_are_at_zero_until_somebody_asks() -> None:
    with_gpus = {id for id, found in CONTAINERS.items() if "nvidia.com/gpu" in found["resources"]["limits"]}
    assert with_gpus == {"gpu"}
    assert {GROUPS[id]["minReplicas"] for id in with_gpus} == {0}
    assert CLUSTER["enableInTreeAutoscaling"]
    assert CLUSTER["autoscalerOptions"]["version"] == "v2"


def test_engines_may_take_what_all_pods_of_the_groups_have() -> None:
    """By default the policy starts what fits the nodes that are there, and Ray is never asked for another."""
    args = yaml.safe_load(SERVICE["spec"]["serveConfigV2"])["applications"][0]["args"]
    needed = {name for m in configs.load("production").deployed() for name in needs(deployment_options(m))} - {"CPU"}
    limits = [(GROUPS[id]["maxReplicas"], CONTAINERS[id]["resources"]["limits"]) for id in GROUPS.keys() - {"ingress"}]
    gpus = sum(pods * limit.get("nvidia.com/gpu", 0) for pods, limit in limits)
    memory_bytes = sum(pods * int(limit["memory"].removesuffix("Gi")) << 30 for pods, limit in limits)
    assert args["scaling"]["budget"] == {"GPU": gpus, "memory": memory_bytes}
    assert args["scaling"]["budget"].keys() == needed


def test_a_group_at_zero_waits_for_no_label_that_only_running_nodes_have() -> None:
    """GPU feature discovery labels nodes that run; these labels belong to pools and machine types."""
    terms = GROUPS["gpu"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (keys,) = [
        {part["key"] for term in wanted["nodeSelectorTerms"] for part in term["matchExpressions"]}
        for wanted in terms.values()
    ]
    assert keys == {
        "node.kubernetes.io/instance-type",
        "karpenter.k8s.aws/instance-gpu-name",
        "cloud.google.com/gke-accelerator",
    }
    assert all("nodeSelector" not in template["spec"] for template in TEMPLATES.values())


def test_what_carries_streams_ends_gently() -> None:
    """KubeRay's service sends clients to every worker, and HAProxy runs wherever a replica does."""
    for group in GROUPS:
        template = TEMPLATES[group]
        assert template["spec"]["terminationGracePeriodSeconds"] > 930  # the longest call, and half a minute before
        assert template["metadata"]["annotations"] == {"karpenter.sh/do-not-disrupt": "true"}
        (*python, program) = CONTAINERS[group]["lifecycle"]["preStop"]["exec"]["command"]
        assert python == ["python", "-c"]
        compile(program, "preStop", "exec")
        assert "ray drain-node" in program


PORTS = {"HAProxy": "port == 8000", "a replica that other nodes send to": "30000 <= port <= 31000"}


@pytest.mark.parametrize("listener", PORTS)
def test_a_pod_waits_until_its_last_stream_has_ended(listener: str) -> None:
    """The program of `preStop` itself, without its waits, over connections of this machine."""
    program = CONTAINERS["cpu"]["lifecycle"]["preStop"]["exec"]["command"][-1]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        asked = re.sub(r"subprocess\.run\([\s\S]*", "print(talking())", program)
        for of, condition in PORTS.items():  # the others may be in use on this machine
            assert condition in asked
            asked = asked.replace(condition, f"port == {port}" if of == listener else "False")
        assert asked.endswith("print(talking())")

        def is_talking() -> str:
            return subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout

        assert is_talking() == "False\n"
        with socket.create_connection(("127.0.0.1", port)), server.accept()[0]:
            assert is_talking() == "True\n"


def fits(model: Model, id: str) -> bool:
    replica, limits = replica_of(model), CONTAINERS[id]["resources"]["limits"]
    memory_bytes, gpus = int(limits["memory"].removesuffix("Gi")) << 30, limits.get("nvidia.com/gpu", 0)
    return replica.cpus <= int(limits["cpu"]) and replica.gpus <= gpus and (replica.memory_bytes or 0) <= memory_bytes


def test_every_engine_of_production_fits_a_pod_and_what_takes_no_gpu_one_without() -> None:
    for model in configs.load("production").deployed():
        fitting = {id for id in GROUPS.keys() - {"ingress"} if fits(model, id)}
        assert ("gpu" in fitting, "cpu" in fitting) == (True, replica_of(model).gpus == 0), model.deployment


def test_ray_is_the_one_that_is_installed_asks_for_its_token_and_survives_its_head() -> None:
    assert CLUSTER["rayVersion"] == ray_version
    assert CLUSTER["authOptions"] == {"mode": "token", "secretName": "parlance"}
    password = CLUSTER["gcsFaultToleranceOptions"]["redisPassword"]
    assert password == {"valueFrom": {"secretKeyRef": {"name": "parlance", "key": "redis_password"}}}


def test_the_first_pod_copies_weights_whose_copy_was_interrupted(tmp_path: Path) -> None:
    image, volume = tmp_path / "image", tmp_path / "volume"
    for folder in (image, volume):
        (folder / "weights/a model").mkdir(parents=True)
    (image / "weights/a model/w.bin").write_bytes(b"whole")
    (image / "weights/new.json").touch()
    (volume / "weights/a model/w.bin").write_bytes(b"who")  # and newer
    (volume / "parlance.db").touch()
    command = FIRST["Deployment"]["spec"]["template"]["spec"]["initContainers"][0]["command"][:-2]
    subprocess.run([*command, image, volume], check=True)
    found = {path.relative_to(volume).as_posix(): path.read_bytes() for path in volume.rglob("*") if path.is_file()}
    assert found == {"weights/a model/w.bin": b"whole", "weights/new.json": b"", "parlance.db": b""}


@pytest.mark.parametrize("group", TEMPLATES)
def test_pods_may_do_little_and_know_no_secret_of_others(group: str) -> None:
    pod, confined = TEMPLATES[group]["spec"], CONTAINERS[group]["securityContext"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["runAsUser"] == 1000  # as the images have it
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is (group == "head")
    assert confined["capabilities"] == {"drop": ["ALL"]}
    assert not confined["allowPrivilegeEscalation"]
    assert confined["readOnlyRootFilesystem"]
    secrets = {source["secretRef"]["name"] for source in CONTAINERS[group]["envFrom"] if "secretRef" in source}
    # The graph is built on the head, which must know whether a key is missing.
    of_group = {"head": {"parlance-state", "parlance-providers"}, "ingress": {"parlance-state"}}
    assert secrets == of_group.get(group, {"parlance-providers"}) | {"parlance-traces"}


def test_tmp_is_bounded_and_holds_what_three_engines_that_listen_keep_there() -> None:
    slots = sum(m.serving.max_ongoing_requests for m in configs.load("production").transcription.values() if m.serving)
    for group, template in TEMPLATES.items():
        (limit,) = [v["emptyDir"]["sizeLimit"] for v in template["spec"]["volumes"] if v["name"] == "tmp"]
        assert int(limit.removesuffix("Gi")) << 30 > 3 * ON_DISK_BYTES + slots * UPLOAD_BYTES, group


def test_pods_are_probed() -> None:
    alive = {"path": "/api/healthz", "port": 52365}
    for group, container in CONTAINERS.items():
        assert container["livenessProbe"]["httpGet"] == alive
        ready = alive if group == "head" else {"path": "/-/healthz", "port": 8000}
        assert container["readinessProbe"]["httpGet"] == ready


def test_no_file_holds_a_secret_and_no_image_is_the_latest() -> None:
    assert named("Secret") == []
    text = "".join(file.read_text("utf-8") for file in FOLDER.glob("*.yaml"))
    assert re.findall(r"://[^/\s]*:[^/\s]*@|PARLANCE_SECRET|prl_|AKIA", text) == []
    for container in CONTAINERS.values():
        assert re.search(r":\d+\.\d+\.\d+(@sha256:[0-9a-f]{64})?$", container["image"])


def test_strangers_reach_three_ports_and_every_pod_is_behind_that() -> None:
    allowed: dict[str, set[int]] = {}
    for policy in named("NetworkPolicy"):
        for rule in policy["spec"].get("ingress", ()):
            if rule["from"] != [{"podSelector": {"matchLabels": OURS}}]:
                for group in reached(policy["spec"]["podSelector"]):
                    allowed.setdefault(group, set()).update(port["port"] for port in rule["ports"])
    assert allowed.pop("head") == {8000, 8080, 8265}  # the operator of KubeRay talks to the head
    assert allowed == {group: {8000, 8080} for group in GROUPS}
    (closed,) = [p for p in named("NetworkPolicy") if p["spec"]["policyTypes"] == ["Ingress", "Egress"]]
    assert reached(closed["spec"]["podSelector"]) == set(TEMPLATES)


def test_spans_reach_a_collector_that_is_named_and_nothing_is_told_until_then() -> None:
    """Every slot is a variable that the service reads, off, and in every pod; all reach the port of the collector."""
    (settings,) = [found["data"] for found in named("ConfigMap")]
    explained = {row[0] for table in tables(ROOT / "docs/settings.md", "variable") for row in table}
    assert settings.keys() <= explained
    assert not Observation.of_environment(settings, "ingress", nowhere).is_on
    assert settings["RAY_LOG_TO_STDERR"] == "0"
    address = "http://otel-collector.monitoring:4318"
    assert collector(settings | {"OTEL_EXPORTER_OTLP_ENDPOINT": address}) == address
    assert list(observation.faults(settings | {"OTEL_EXPORTER_OTLP_ENDPOINT": address})) == []
    for container in CONTAINERS.values():
        assert {"configMapRef": {"name": "parlance"}} in container["envFrom"]
    (policy,) = [p for p in named("NetworkPolicy") if p["spec"]["policyTypes"] == ["Egress"]]
    (rule,) = policy["spec"]["egress"]
    assert reached(policy["spec"]["podSelector"]) == set(TEMPLATES)
    assert rule["ports"] == [{"port": 4318, "protocol": "TCP"}]
    assert rule["to"][0]["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "monitoring"}


def test_a_drained_node_leaves_an_ingress() -> None:
    (budget,) = named("PodDisruptionBudget")
    assert reached(budget["spec"]["selector"]) == {"ingress"}
    # Kubernetes takes no `maxUnavailable` where a controller has no scale, and RayCluster has none.
    assert budget["spec"]["minAvailable"] == 1 < GROUPS["ingress"]["minReplicas"]


def test_neither_it_nor_rays_own_launcher_knows_a_model() -> None:
    text = "".join(file.read_text("utf-8") for file in (*FOLDER.glob("*.yaml"), ROOT / "cluster.yaml"))
    assert [model.id for model in configs.load("production").models() if model.id in text] == []


def test_tables_are_made_by_the_image_and_with_the_secrets_of_the_ingress() -> None:
    (job,) = [job for job in named("Job") if job["metadata"]["name"] == "parlance-migrate"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python", "-m", "state", "migrate"]
    assert container["image"] == CONTAINERS["ingress"]["image"]
    assert container["envFrom"] == CONTAINERS["ingress"]["envFrom"]
    # The network lets it reach the database.
    assert job["spec"]["template"]["metadata"]["labels"].items() >= OURS.items()


def test_weights_are_fetched_by_the_image_of_the_engines_into_the_folder_of_all_nodes() -> None:
    (job,) = [job for job in named("Job") if job["metadata"]["name"] == "parlance-prefetch"]
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == ["python", "-m", "launch", "weights", "fetch", "--profile", "production"]
    assert container["image"] == CONTAINERS["cpu"]["image"]
    assert pod["volumes"][0] == TEMPLATES["cpu"]["spec"]["volumes"][0]
    assert container["volumeMounts"][0] in CONTAINERS["cpu"]["volumeMounts"]


def test_the_pod_of_the_page_reaches_the_folder_of_weights() -> None:
    (text,) = re.findall(r"apply -f - <<'END'\n(.*?)^END$", (ROOT / "docs/cluster.md").read_text("utf-8"), re.M | re.S)
    pod = yaml.safe_load(text)
    validator("Pod", "v1").validate(pod)
    assert pod["metadata"]["namespace"] == SERVICE["metadata"]["namespace"]
    assert pod["spec"]["volumes"] == [TEMPLATES["cpu"]["spec"]["volumes"][0]]
    assert pod["spec"]["containers"][0]["volumeMounts"][0] in CONTAINERS["cpu"]["volumeMounts"]


def longest_call_s() -> float:
    """Waiting and answering of the model that may take longest; drafts of voices are asked after, not waited for."""
    served = [model.serving for model in configs.load("production").deployed() if model.noun != "voice_design"]
    return max(serving.wait_s + serving.deadline_s for serving in served if serving)


def test_proxies_allow_what_the_page_says_and_what_calls_need() -> None:
    page = (ROOT / "docs/cluster.md").read_text("utf-8")
    (mib,) = re.findall(r"^\| a body \| (\d+) MiB", page, re.M)
    (first_s,) = re.findall(r"answer \| (\d+) s .*call", page)
    told = {name.rpartition("/")[2]: text for name, text in INGRESS["metadata"]["annotations"].items()}
    assert int(mib) * 2**20 == UPLOAD_BYTES
    assert told["proxy-body-size"] == f"{mib}m"
    assert told["proxy-request-buffering"] == told["proxy-buffering"] == "off"
    assert int(told["proxy-read-timeout"]) == int(told["proxy-send-timeout"]) == int(first_s) > longest_call_s()
    (rule,) = GATEWAY["spec"]["rules"]
    assert rule["timeouts"] == {"request": f"{first_s}s", "backendRequest": f"{first_s}s"}


def test_a_proxy_leads_to_the_service_that_kuberay_makes() -> None:
    (path,) = INGRESS["spec"]["rules"][0]["http"]["paths"]
    (backend,) = GATEWAY["spec"]["rules"][0]["backendRefs"]
    assert path["backend"]["service"] == {"name": "parlance-serve-svc", "port": {"number": 8000}}
    assert backend == {"name": f"{SERVICE['metadata']['name']}-serve-svc", "port": 8000}
