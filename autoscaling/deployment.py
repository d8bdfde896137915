"""A stanza's `serving` as Serve's deployment options: our defaults, and over them what its table `deployment` says.

    [qwen3-tts.serving.production.deployment]
    autoscaling_config = { max_replicas = 4 }
    ray_actor_options = { num_cpus = 2, num_gpus = 0.25, accelerator_type = "L4" }

Serve drops keys that it does not know and reads `"2"` as 2. So all of it is checked here against Ray's own schemas, by
name and strictly by type, when the graph is built and before anything starts.
"""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from ray import serve
from ray.runtime_env import RuntimeEnv
from ray.serve.config import RequestRouterConfig
from ray.serve.schema import DeploymentSchema

from autoscaling.policy.options import BY_POLICY, Scaling, policy_option, terms_of
from autoscaling.ray_internals.logs import logging_config
from contract.base import ProfileError
from contract.catalog import Model, Serving

ROOT = Path(__file__).parent.parent
"""The repository, which lies at the same place on every node: interpreters of a stanza may be named from here."""

METRICS_INTERVAL_S = 2.0
"""Seconds between reports of handles and replicas, also of idle engines. No cold start waits for them."""

LOOK_BACK_S = 1.5 * METRICS_INTERVAL_S
"""Over which reports are averaged. Each must have points of its own, and Serve wants more than one interval."""

IDLE_VARIABLE = "PARLANCE_IDLE_S"
"""One idle timeout for all engines, for tests."""

HEALTH_PERIOD_S = 5
HEALTH_TIMEOUT_S = 20

ROUTER_PAUSES = {"initial_backoff_s": 0.005, "max_backoff_s": 0.1}
"""Pauses of a router that finds no free slot, before it asks replicas again; each is twice the one before."""

DRAIN_S = 900
"""Seconds in which a stopping replica may finish its calls: as long as the longest call, and as HAProxy waits for one
(`configs/ray.env`). A replica without requests stops at once."""

NOT_HERE = {
    "name": "the name is made of the kind and the id of the model",
    "num_replicas": "replicas are scaled; `autoscaling_config` sets how many",
    "max_ongoing_requests": "set it one table up, where the adapter and the gate read it too",
    "max_queued_requests": "the gate queues requests; `max_queued` one table up sets how many",
    "backpressure_config": "the gate answers for a busy engine; `when_busy` one table up sets how",
    "request_router_config": "the gate needs the router that all engines share",
    "user_config": "engines are configured by `options`, one table up",
}
"""Options of Serve that a table `deployment` may not hold, and why."""


class DeploymentTableError(ProfileError, ValueError):
    """A table `deployment` that Serve cannot use; the sentence names file, stanza and key."""


class _Nothing:
    """Is never run."""


TRIAL: serve.Deployment = serve.deployment(_Nothing)
"""Takes options to see whether Serve does."""

KNOWN = (DeploymentSchema.model_fields.keys() & inspect.signature(TRIAL.options).parameters.keys()) - NOT_HERE.keys()
"""Options that a config file and code can both set."""


def deployment_options(model: Model, python: str | None = None, scaling: Scaling = BY_POLICY) -> dict[str, Any]:
    """Arguments of `Deployment.options` for a model that is set up. Raises DeploymentTableError.

    `python` is a command of a shell that starts its workers, where that is not the interpreter of its stanza.

    By default `initial_replicas` is left out on purpose: with it, a redeploy would stop a running replica.
    """
    serving = model.setup
    table = copy.deepcopy(serving.deployment)
    place = f"{model.noun}.toml [{model.id}], table `deployment`"
    _check_allowed(place, table)
    options = merged(_defaults(serving), table)
    _check(place, "", DeploymentSchema, {"name": model.deployment, **options})
    _check_actor(place, options["ray_actor_options"])
    options |= {
        "name": model.deployment,
        "max_ongoing_requests": serving.max_ongoing_requests,
        "request_router_config": RequestRouterConfig(
            request_router_class="autoscaling.router:EngineRouter",
            request_router_kwargs={"when_busy": serving.when_busy},
            **ROUTER_PAUSES,
        ),
    }
    _finish(options, python)
    if scaling.by != "serve":
        terms = terms_of(serving, options, is_constant=IDLE_VARIABLE in os.environ)
        options["autoscaling_config"].setdefault("policy", policy_option(terms, scaling))
    _try(place, options)
    return options


def merged(defaults: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """`table` over `defaults`: tables meet key by key, everything else is replaced whole."""
    both = {
        key: merged(defaults[key], value) if isinstance(value, dict) and isinstance(defaults.get(key), dict) else value
        for key, value in table.items()
    }
    return {**defaults, **both}


def _defaults(serving: Serving) -> dict[str, Any]:
    return {
        "autoscaling_config": {
            "min_replicas": 0,
            "max_replicas": 1,
            "target_ongoing_requests": max(1.0, serving.max_ongoing_requests * 0.75),
            "upscale_delay_s": 5,
            "downscale_delay_s": serving.idle_s,
            "downscale_to_zero_delay_s": serving.idle_s,
            "metrics_interval_s": METRICS_INTERVAL_S,
            "look_back_period_s": LOOK_BACK_S,
        },
        # No runtime environment: a replica without one of its own can use a worker that is already there.
        "ray_actor_options": {"num_cpus": 1.0, "runtime_env": {}},
        "graceful_shutdown_timeout_s": DRAIN_S,
        "health_check_period_s": HEALTH_PERIOD_S,
        "health_check_timeout_s": HEALTH_TIMEOUT_S,
        "logging_config": logging_config(os.environ),
    }


def _finish(options: dict[str, Any], python: str | None) -> None:
    """Options that belong to this machine and not to the stanza."""
    if idle_s := os.environ.get(IDLE_VARIABLE):
        delays = ("downscale_delay_s", "downscale_to_zero_delay_s")
        options["autoscaling_config"] |= dict.fromkeys(delays, float(idle_s))
    runtime_env = options["ray_actor_options"]["runtime_env"]
    if python:
        runtime_env["py_executable"] = python
    elif own := runtime_env.get("py_executable"):
        runtime_env["py_executable"] = str(ROOT / own)


def _check_allowed(place: str, table: Mapping[str, Any]) -> None:
    for key in table:
        if reason := NOT_HERE.get(key):
            raise DeploymentTableError(f"{place}: `{key}` cannot be set here: {reason}")
        if key not in KNOWN:
            raise _unknown(place, key, KNOWN)


def _check(place: str, path: str, schema: type[BaseModel], table: Mapping[str, Any]) -> None:
    """Names and types of `table`, and of the tables inside it that have a schema."""
    for key, value in table.items():
        if key not in schema.model_fields:
            raise _unknown(place, f"{path}{key}", schema.model_fields)
        if inner := _schema_of(schema.model_fields[key].annotation):
            if not isinstance(value, dict):
                raise DeploymentTableError(f"{place}: `{path}{key}` must be a table")
            _check(place, f"{path}{key}.", inner, value)
    try:
        # Read as JSON, because in strict mode Python's own values would have to be instances of Ray's classes.
        schema.model_validate_json(to_json(table), strict=True)
    except ValidationError as error:
        raise _finding(place, path, error) from None
    except (ImportError, AttributeError) as error:  # a policy is imported by its name
        raise DeploymentTableError(f"{place}: `{path.rstrip('.')}`: {error}") from None


def _schema_of(annotation: Any) -> type[BaseModel] | None:
    """The model that a field is, or may be beside a plain dict."""
    models = (t for t in (annotation, *get_args(annotation)) if isinstance(t, type) and issubclass(t, BaseModel))
    return next(models, None)


def _check_actor(place: str, actor: Mapping[str, Any]) -> None:
    """Checks that Ray's schema leaves open."""
    for name, amount in actor.get("resources", {}).items():
        if type(amount) not in (int, float):
            raise DeploymentTableError(f"{place}: `ray_actor_options.resources.{name}` must be a number")
    path, runtime_env = "ray_actor_options.runtime_env", actor["runtime_env"]
    for key in runtime_env:
        if key not in RuntimeEnv.known_fields:  # Ray takes it for a plug-in's
            raise _unknown(place, f"{path}.{key}", RuntimeEnv.known_fields)
    if not isinstance(runtime_env.get("py_executable", ""), str):
        raise DeploymentTableError(f"{place}: `{path}.py_executable` must be a string")
    try:
        RuntimeEnv(**runtime_env)
    except (TypeError, ValueError) as error:
        raise DeploymentTableError(f"{place}: `{path}`: {error}") from None


def _try(place: str, options: Mapping[str, Any]) -> None:
    """Checks of settings that depend on each other, such as a replica and the bundle that it is placed in."""
    try:
        TRIAL.options(**copy.deepcopy(dict(options)))
    except ValidationError as error:
        raise _finding(place, "", error) from None
    except (TypeError, ValueError) as error:
        raise DeploymentTableError(f"{place}: {error}") from None


def _finding(place: str, path: str, error: ValidationError) -> DeploymentTableError:
    finding = error.errors(include_url=False)[0]
    key = (path + ".".join(str(part) for part in finding["loc"])).rstrip(".")
    return DeploymentTableError(f"{place}: {f'`{key}`: ' if key else ''}{finding['msg'].removeprefix('Value error, ')}")


def _unknown(place: str, key: str, known: Any) -> DeploymentTableError:
    names = ", ".join(sorted(name for name in known if not name.startswith("_")))
    return DeploymentTableError(f"{place}: `{key}` is no option of Ray; there are {names}")
