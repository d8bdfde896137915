"""A stanza's `serving` as deployment options: replicas, slots, idle time, resources, environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ray.serve.config import RequestRouterConfig

from contract.catalog import Model

ROOT = Path(__file__).parent.parent
"""The repository, which lies at the same place on every node: interpreters of a stanza may be named from here."""

METRICS_INTERVAL_S = 0.5
"""How often handles and replicas report. A cold start waits for it; ten times a second cost a tenth of a core."""

LOOK_BACK_S = 1.0

IDLE_VARIABLE = "PARLANCE_IDLE_S"
"""One idle time for all engines, for tests."""

HEALTH_PERIOD_S = 5
HEALTH_TIMEOUT_S = 20

DRAIN_S = 30
"""How long a stopping replica may finish its streams."""


def deployment_options(model: Model) -> dict[str, Any]:
    """Arguments of `Deployment.options` for a model that is set up.

    `initial_replicas` is left out on purpose: with it, a redeploy would stop a running replica.
    """
    serving = model.serving
    assert serving is not None, f"{model.id} is not set up"
    idle_s = float(os.environ.get(IDLE_VARIABLE, serving.idle_s))
    return {
        "name": model.deployment,
        "max_ongoing_requests": serving.max_ongoing_requests,
        "autoscaling_config": {
            "min_replicas": serving.min_replicas,
            "max_replicas": serving.max_replicas,
            "target_ongoing_requests": max(1.0, serving.max_ongoing_requests * 0.75),
            "upscale_delay_s": 5,
            "downscale_delay_s": idle_s,
            "downscale_to_zero_delay_s": idle_s,
            "metrics_interval_s": METRICS_INTERVAL_S,
            "look_back_period_s": LOOK_BACK_S,
        },
        "request_router_config": RequestRouterConfig(
            request_router_class="autoscaling.router:EngineRouter",
            request_router_kwargs={"when_busy": serving.when_busy},
        ),
        "ray_actor_options": {
            "num_cpus": serving.cpus,
            "num_gpus": serving.gpus,
            "runtime_env": _runtime_env(serving.python, serving.env),
        },
        "graceful_shutdown_timeout_s": DRAIN_S,
        "health_check_period_s": HEALTH_PERIOD_S,
        "health_check_timeout_s": HEALTH_TIMEOUT_S,
    }


def _runtime_env(python: str | None, env: dict[str, str]) -> dict[str, Any]:
    """Empty for most models: a replica without an environment of its own can use a worker that is already there."""
    runtime_env: dict[str, Any] = {}
    if python:
        runtime_env["py_executable"] = str(ROOT / python)
    if env:
        runtime_env["env_vars"] = env
    return runtime_env
