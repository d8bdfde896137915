"""Selects the deployments that start from a fork server, and what it imports for them.

Not those of a GPU: CUDA must not be touched before a fork, and nothing here has been measured beside one. Not those
with an environment of their own, because libraries read it while they are imported; an interpreter of its own has a
server of its own. And not those with an adapter that says no.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import models
from autoscaling.deployment import ROOT
from contract.catalog import Model
from models import Imports

ENTER = Path(__file__).with_name("enter.py")

QUIET_S = 5.0
"""Seconds that cores must have been free: the worker that found no server imports too, and then serves a request."""

OF_EVERY_REPLICA = (
    "ray",
    "ray._private.workers.default_worker",
    "ray._common.pydantic_compat",
    "ray.serve._private.replica",
    "ray.serve._private.controller",
    "pydantic",
    "filelock",
    "httpx",
    "numpy",
)


def commands(set_up: Iterable[Model]) -> dict[str, str]:
    """Returns the commands that replace `python` in workers, by deployment; the others start without a server.

    Raises OptionsError for a stanza that cannot be used.
    """
    wanted: defaultdict[str, dict[str, Imports]] = defaultdict(dict)
    for model in set_up:
        imports = models.imported_by(model)
        if imports and (python := interpreter(model)):
            wanted[python][model.deployment] = imports
    return {
        name: f"{shlex.quote(python)} -I -S {shlex.quote(str(ENTER))} {shlex.quote(plan(engines.values()))}"
        for python, engines in wanted.items()
        for name in engines
    }


def interpreter(model: Model) -> str | None:
    """The Python of a model's workers; None where they cannot be forked."""
    runtime_env = model.setup.deployment.get("ray_actor_options", {}).get("runtime_env", {})
    if model.setup.on_gpu or runtime_env.keys() - {"py_executable"}:
        return None
    own = runtime_env.get("py_executable")
    return str(ROOT / own) if own else sys.executable


def plan(engines: Iterable[Imports]) -> str:
    """JSON for `server.py`: all modules of `engines`, in order, and the environment that they are imported in."""
    modules, environment = dict.fromkeys(OF_EVERY_REPLICA), dict[str, str]()
    for imports in engines:
        modules |= dict.fromkeys(imports.modules)
        environment |= imports.environment
    return json.dumps({"quiet_s": QUIET_S, "modules": list(modules), "environment": environment})
