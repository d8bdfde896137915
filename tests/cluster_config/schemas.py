"""Manifests against Kubernetes' own schemas, and RayService (ray.io/v1) against KubeRay's, with no unknown field.

KubeRay's definition is on no package index. Below is the part of it that we use, with names and types of 1.7.0; what
lies inside pods is Kubernetes' own. Where KUBERAY_CRD names the file `ray.io_rayservices.yaml` of that release, it is
read instead, whole:

    KUBERAY_CRD=.../ray.io_rayservices.yaml .venv/bin/python -m pytest tests/cluster_config/test_kubernetes.py
"""

import functools
import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml
from referencing import Registry, Resource

KUBERNETES = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema/v1.37.0-local-strict"
KUBERAY_SHA256 = "0a8fc325e6e22b9231c1f282b309555e2ecf94227ca20a03df3d1d9a403907ab"
"""Of the definition of KubeRay 1.7.0 (Apache-2.0)."""
MAPS = {"labels", "annotations", "matchLabels", "data", "limits", "requests", "rayStartParams"}
"""Fields with keys of one's own choice."""

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
TEXTS: Schema = {"type": "object", "additionalProperties": TEXT}


def defined(name: str) -> Schema:
    """A type of Kubernetes' own."""
    return {"$ref": f"https://kubernetes.io/api/_definitions.json#/$defs/io.k8s.{name}"}


METADATA = defined("apimachinery.pkg.apis.meta.v1.ObjectMeta")


def fields(*required: str, **properties: Schema) -> Schema:
    """An object with these fields and no other."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def one_of(*values: str) -> Schema:
    """One of these texts."""
    return {"enum": list(values)}


HEAD = fields("template", rayStartParams=TEXTS, template=defined("api.core.v1.PodTemplateSpec"))

WORKERS = fields(
    "groupName",
    "maxReplicas",
    "minReplicas",
    "template",
    groupName=TEXT,
    minReplicas=NUMBER,
    replicas=NUMBER,
    maxReplicas=NUMBER,
    rayStartParams=TEXTS,
    template=defined("api.core.v1.PodTemplateSpec"),
)

CLUSTER = fields(
    "headGroupSpec",
    rayVersion=TEXT,
    authOptions=fields(mode=one_of("disabled", "token"), secretName=TEXT),
    gcsFaultToleranceOptions=fields(
        redisAddress=TEXT, redisPassword=fields(value=TEXT, valueFrom=defined("api.core.v1.EnvVarSource"))
    ),
    enableInTreeAutoscaling=FLAG,
    autoscalerOptions=fields(
        idleTimeoutSeconds=NUMBER,
        version=one_of("v1", "v2"),
        resources=defined("api.core.v1.ResourceRequirements"),
        securityContext=defined("api.core.v1.SecurityContext"),
    ),
    headGroupSpec=HEAD,
    workerGroupSpecs={"type": "array", "items": WORKERS},
)

RAY_SERVICE = fields(
    "apiVersion",
    "kind",
    "metadata",
    "spec",
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayService"},
    metadata=METADATA,
    spec=fields(
        "rayClusterConfig",
        upgradeStrategy=fields(type=one_of("NewCluster", "NewClusterWithIncrementalUpgrade", "None")),
        rayClusterDeletionDelaySeconds={"type": "integer", "minimum": 0},
        excludeHeadPodFromServeSvc=FLAG,
        serveConfigV2=TEXT,
        rayClusterConfig=CLUSTER,
    ),
)


def strict(schema: Any) -> Any:
    """Makes a schema of OpenAPI one of JSON that refuses unknown fields, as `kubectl apply` does."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: strict(part) for name, part in schema.items()}
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        closed.setdefault("additionalProperties", False)
    if schema.get("nullable"):
        closed["type"] = [schema["type"], "null"]
    return closed


def definition() -> Schema:
    """RayService, by KubeRay's own file where there is one."""
    if not (file := os.environ.get("KUBERAY_CRD")):
        return RAY_SERVICE
    text = Path(file).read_bytes()
    assert hashlib.sha256(text).hexdigest() == KUBERAY_SHA256, f"{file} is not that of KubeRay 1.7.0"
    (found,) = [version for version in yaml.safe_load(text)["spec"]["versions"] if version["name"] == "v1"]
    schema: Schema = strict(found["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = METADATA  # Kubernetes checks it by itself
    return schema


@functools.cache
def validator(kind: str, version: str) -> jsonschema.Draft202012Validator:
    """Of objects of a kind."""
    if kind == "RayService":
        schema = definition()
    else:
        file = "-".join([kind.lower(), *re.sub(r"\.[^/]*", "", version).split("/")])
        schema = json.loads((KUBERNETES / f"{file}.json").read_text("utf-8"))
    parts = Resource.from_contents(json.loads((KUBERNETES / "_definitions.json").read_text("utf-8")))
    return jsonschema.Draft202012Validator(schema, registry=parts @ Registry())


def misspelt(found: Any) -> Iterator[tuple[str, Any]]:
    """Copies of an object with one field misspelt each, at every depth; and where."""
    if isinstance(found, list):
        for place, value in enumerate(found):
            for path, spoilt in misspelt(value):
                yield f"[{place}]{path}", [*found[:place], spoilt, *found[place + 1 :]]
    if isinstance(found, dict):
        for name, value in found.items():
            if "/" in name:
                continue  # a label
            others = {other: kept for other, kept in found.items() if other != name}
            yield f".{name}", others | {f"{name}s": value}
            if name not in MAPS:
                for path, spoilt in misspelt(value):
                    yield f".{name}{path}", others | {name: spoilt}
