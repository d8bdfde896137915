"""The part of KubeRay's RayService (ray.io/v1) that we use, as a JSON schema that allows nothing else.

Names and types are those of KubeRay 1.7.0 (Apache-2.0), whose own definition our file was held to once, whole. Pods and
all that Kubernetes knows itself are not repeated here: its own schemas read them.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
TEXTS: Schema = {"type": "object", "additionalProperties": TEXT}
OF_KUBERNETES: Schema = {"type": "object"}


def fields(*required: str, **properties: Schema) -> Schema:
    """An object with these fields and no other."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def one_of(*values: str) -> Schema:
    """One of these texts."""
    return {"enum": list(values)}


HEAD = fields("template", rayStartParams=TEXTS, template=OF_KUBERNETES)

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
    template=OF_KUBERNETES,
)

CLUSTER = fields(
    "headGroupSpec",
    rayVersion=TEXT,
    authOptions=fields(mode=one_of("disabled", "token"), secretName=TEXT),
    gcsFaultToleranceOptions=fields(redisAddress=TEXT, redisPassword=fields(value=TEXT, valueFrom=OF_KUBERNETES)),
    enableInTreeAutoscaling=FLAG,
    autoscalerOptions=fields(
        idleTimeoutSeconds=NUMBER,
        version=one_of("v1", "v2"),
        resources=OF_KUBERNETES,
        securityContext=OF_KUBERNETES,
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
    metadata=OF_KUBERNETES,
    spec=fields(
        "rayClusterConfig",
        upgradeStrategy=fields(type=one_of("NewCluster", "NewClusterWithIncrementalUpgrade", "None")),
        rayClusterDeletionDelaySeconds={"type": "integer", "minimum": 0},
        excludeHeadPodFromServeSvc=FLAG,
        serveConfigV2=TEXT,
        rayClusterConfig=CLUSTER,
    ),
)
