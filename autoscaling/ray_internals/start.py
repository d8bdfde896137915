"""Starts with Ray: machines, accelerators, applications of a config file, few processes, and little delay."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

NOT_STARTED = {"no_monitor": True, "include_log_monitor": False}
"""Parameters of a node of Ray that is alone, with a driver that reads no logs of workers: nothing asks for nodes or
follows logs. `ray start` has options of these names, `ray.init` has none; each is a process of 48 MiB."""

LOOKS_APART_S = 0.1
"""As often as Serve's controller looks without configs/ray.env."""

API_SERVER = "start_api_server"
"""The method with which a node of Ray starts its dashboard. With `include_dashboard=False` that is a process of 75 MiB
all the same, for statistics of Ray's use, which are off."""


def nodes() -> int | None:
    """Machines of the cluster that this process is connected to; None where it is connected to none."""
    import ray

    if not ray.is_initialized():
        return None
    return sum(1 for node in ray.nodes() if node["Alive"])


def join(address: str) -> None:
    """Connects this process to the Ray at `address`, also to one with its ports on loopback."""
    import ray
    from ray._private import ray_constants

    # While it is set, Ray takes 127.0.0.1 for another name of an address in the network.
    ray_constants.ENABLE_RAY_CLUSTER = False
    ray.init(address=address, log_to_driver=False, logging_level="ERROR")


class OwnNode(NamedTuple):
    """The node that this process has started, as Ray describes it to workers.

    Attributes:
        worker: program of a worker, and the arguments with the folders and the id of the node.
        environment: variables that Ray sets for workers.
    """

    worker: list[str]
    environment: dict[str, str]


def own_node() -> OwnNode:
    """Describes the node that `ray.init` has started in this process."""
    import ray
    from ray._private import worker

    node = worker._global_node
    arguments = {"temp-dir": node.get_temp_dir_path(), "session-name": node.session_name, "node-id": node.node_id}
    program = Path(ray.__file__).parent / "_private/workers/default_worker.py"
    raylet = node.all_processes["raylet"][0].process
    variables = {"RAY_RAYLET_PID": str(raylet.pid), "RAY_JOB_ID": ray.get_runtime_context().get_job_id()}
    return OwnNode([str(program), *(f"--{name}={value}" for name, value in arguments.items())], variables)


def gpus_here() -> int:
    """GPUs of this machine as Ray would count them: less those that are hidden from this process."""
    from ray._private.accelerators import get_accelerator_manager_for_resource

    manager = get_accelerator_manager_for_resource("GPU")
    count: int = manager.get_current_node_num_accelerators()
    visible = manager.get_current_process_visible_accelerator_ids()
    return count if visible is None else min(count, len(visible))


def build_application(app: Mapping[str, Any]) -> Any:
    """One of `applications` of a Serve config file, bound; nothing of Ray runs yet. Raises what its builder raises."""
    from ray._common.utils import import_attr
    from ray.serve._private.api import call_user_app_builder_with_args_if_necessary

    return call_user_app_builder_with_args_if_necessary(import_attr(app["import_path"]), app["args"])


@contextmanager
def minimal_node() -> Iterator[None]:
    """While the block runs, `ray.init` starts a node without the processes of `NOT_STARTED`, and no dashboard."""
    from ray._private import node, parameter

    def start_nothing(self: Any, **_: Any) -> None:
        self._webui_url = ""

    params, api_server = parameter.RayParams, getattr(node.Node, API_SERVER)
    parameter.RayParams = partial(params, **NOT_STARTED)
    setattr(node.Node, API_SERVER, start_nothing)
    try:
        yield
    finally:
        parameter.RayParams = params
        setattr(node.Node, API_SERVER, api_server)


@contextmanager
def hurried_controller() -> Iterator[None]:
    """While the block runs, Serve's controller looks often: each look brings what is deployed a step further."""
    import ray
    from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_NAMESPACE

    done = threading.Event()

    def hurry() -> None:
        while not done.wait(LOOKS_APART_S):
            with suppress(ValueError, ray.exceptions.RayError):  # it is not there yet
                controller = ray.get_actor(SERVE_CONTROLLER_NAME, namespace=SERVE_NAMESPACE)
                ray.get(controller.run_control_loop_step.remote(time.time(), math.inf, 0))

    thread = threading.Thread(target=hurry, name="hurry a start")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
