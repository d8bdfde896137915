"""Every name of Ray that is not public and that this house calls or replaces. An upgrade that moves one fails here, by
that name, in seconds and without a cluster."""

from __future__ import annotations

import inspect
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.serve._private.router import AsyncioRouter, CurrentLoopRouter, RouterMetricsManager
from ray.serve.request_router import PendingRequest

from autoscaling.ray_internals.start import API_SERVER, NOT_STARTED
from deployments.fork_server.plan import OF_EVERY_REPLICA

FUNCTIONS = {
    # autoscaling/router.py
    "ray.serve.request_router:RequestRouter._remove_pending_request_from_indices": ["self", "pending_request"],
    # autoscaling/ray_internals/replica.py
    "ray.serve._private.replica:parse_disconnect_disabled_header": ["headers"],
    "ray.serve._private.replica:parse_request_timeout_header": ["headers", "default_timeout_s"],
    "ray.serve._private.replica:add_port_to_grpc_server": ["server", "address"],
    "ray.serve._private.replica:Replica._perform_graceful_shutdown": ["self"],
    # autoscaling/ray_internals/replica.py
    "ray.serve.generated.serve_pb2_grpc:ASGIServiceStub": ["channel"],
    "ray._private.authentication.grpc_authentication_client_interceptor:_get_authentication_metadata_tuple": [],
    # autoscaling/ray_internals/metrics.py
    "ray.serve._private.router:RouterMetricsManager._add_autoscaling_metrics_point": ["self"],
    "ray.serve._private.router:RouterMetricsManager.push_autoscaling_metrics_to_controller": ["self"],
    "ray.serve._private.router:RouterMetricsManager.inc_num_queued_requests": ["self"],
    "ray.serve._private.router:RouterMetricsManager.dec_num_queued_requests": ["self"],
    "ray.serve._private.controller:ServeController.run_control_loop_step": [
        "self",
        "start_time",
        "recovering_timeout",
        "num_loops",
    ],
    # autoscaling/ray_internals/agent.py
    "ray._private.prometheus_exporter:Options": ["namespace", "port", "address", "registry"],
    # autoscaling/ray_internals/start.py
    "ray._private.accelerators:get_accelerator_manager_for_resource": ["resource_name"],
    "ray._common.utils:import_attr": ["full_path", "reload_module"],
    "ray.serve._private.api:call_user_app_builder_with_args_if_necessary": ["builder", "args"],
}
"""Functions by where they stand, and the names of their parameters."""

PROPERTIES = (
    "ray.serve.request_router:RequestRouter.curr_replicas",  # autoscaling/router.py
    "ray.serve.request_router:RequestRouter.replica_queue_len_cache",
    "ray.serve._private.direct_ingress_http_util:ASGIDIReceiveProxy.queue",  # ray_internals/replica.py
    "ray.serve._private.router:RouterMetricsManager.autoscaling_config",  # ray_internals/metrics.py
)

NAMES = (
    "ray.serve._private.constants:SERVE_CONTROLLER_NAME",  # ray_internals/start.py
    "ray.serve._private.constants:SERVE_NAMESPACE",
    "ray.serve._private.constants:RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD",  # ray_internals/replica.py
    "ray.serve._private.request_router.replica_wrapper:ASGIServiceStub",  # ray_internals/replica.py
    "ray.actor:ActorClassID.from_random",  # fork_server/server.py
    "ray.actor:ActorClassID.size",
    "ray._raylet:setproctitle",
)


def named(place: str) -> Any:
    """What stands at `module:name.name`; a property as such."""
    module, _, names = place.partition(":")
    return reduce(inspect.getattr_static if "." in names else getattr, names.split("."), import_module(module))


def test_ray_is_the_version_that_these_names_were_read_in() -> None:
    assert ray.__version__.startswith("2.60.")


@pytest.mark.parametrize("place", FUNCTIONS)
def test_function_has_its_parameters(place: str) -> None:
    assert list(inspect.signature(named(place)).parameters) == FUNCTIONS[place]


@pytest.mark.parametrize("place", PROPERTIES)
def test_property_is_one(place: str) -> None:
    assert isinstance(named(place), property)


@pytest.mark.parametrize("place", NAMES)
def test_name_is_there(place: str) -> None:
    assert named(place) is not None


def test_accelerators_are_counted_by_these_names() -> None:
    manager = named("ray._private.accelerators:get_accelerator_manager_for_resource")("GPU")
    assert isinstance(manager.get_current_node_num_accelerators(), int)
    assert not inspect.signature(manager.get_current_process_visible_accelerator_ids).parameters


def test_actor_ids_are_made_in_the_module_that_the_fork_server_replaces_them_in() -> None:
    assert "ActorClassID.from_random()" in inspect.getsource(import_module("ray.actor"))


@pytest.mark.parametrize("module", [name for name in OF_EVERY_REPLICA if name.startswith("ray")])
def test_module_that_the_fork_server_imports_is_there(module: str) -> None:
    import_module(module)


@pytest.mark.parametrize("program", ["default_worker.py", "setup_worker.py"])
def test_program_that_the_fork_server_stands_in_for_is_there(program: str) -> None:
    assert (Path(ray.__file__).parent / "_private/workers" / program).is_file()


def test_pending_request_has_a_future() -> None:
    assert "future" in PendingRequest.__dataclass_fields__


def test_body_queue_is_made_at_first_use() -> None:
    proxy = named("ray.serve._private.direct_ingress_http_util:ASGIDIReceiveProxy")
    assert "self._queue = None" in inspect.getsource(proxy.__init__).replace(": Optional[asyncio.Queue]", "")


def test_handle_counts_and_reports_what_waits_by_these_names() -> None:
    constructors = inspect.getsource(CurrentLoopRouter.__init__) + inspect.getsource(AsyncioRouter.__init__)
    assert "self._asyncio_router = AsyncioRouter(" in constructors
    assert "self._metrics_manager = RouterMetricsManager(" in constructors
    assert "QUEUED_REQUESTS_KEY: self.num_queued_requests" in inspect.getsource(RouterMetricsManager)


def test_processes_that_are_not_started_are_known_to_ray_by_these_names() -> None:
    parameters = named("ray._private.parameter:RayParams")
    assert inspect.signature(parameters).parameters.keys() >= NOT_STARTED.keys()
    assert "ray._private.parameter.RayParams(" in inspect.getsource(ray.init)


def test_the_dashboard_is_started_by_this_method_and_told_of_under_this_name() -> None:
    node = named("ray._private.node:Node")
    assert f"self.{API_SERVER}(" in inspect.getsource(node.start_head_processes)
    assert "self._webui_url, process_info = " in inspect.getsource(getattr(node, API_SERVER))


def test_serve_forgets_a_handle_that_is_silent() -> None:
    """So silence means that nothing waits or runs there."""
    state = named("ray.serve._private.autoscaling_state:DeploymentAutoscalingState.drop_stale_handle_metrics")
    assert "timed_out" in inspect.getsource(state)
    assert "self.metrics_store.data" in inspect.getsource(RouterMetricsManager)
    assert "self.push_autoscaling_metrics_to_controller" in inspect.getsource(RouterMetricsManager)


@pytest.mark.parametrize(
    "name",
    [
        "RAY_SERVE_CONTROL_LOOP_INTERVAL_S",
        "RAY_SERVE_AUTOSCALING_METRIC_RECORD_INTERVAL_FACTOR",
        "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS",
        "RAY_SERVE_FORCE_STOP_UNHEALTHY_REPLICAS",
    ],
)
def test_settings_in_ray_env_are_read_by_serve(name: str) -> None:
    assert f'"{name}"' in inspect.getsource(import_module("ray.serve._private.constants"))


def test_serve_replaces_a_replica_that_was_unwell_three_times() -> None:
    """`deployments.replicas.SILENCES` leaves the time for it."""
    assert import_module("ray.serve._private.constants").REPLICA_HEALTH_CHECK_UNHEALTHY_THRESHOLD == 3
    stop = inspect.getsource(named("ray.serve._private.deployment_state:DeploymentState._stop_unhealthy_replica"))
    assert "FORCE_STOP_UNHEALTHY_REPLICAS" in stop


def test_a_step_of_the_controllers_loop_is_whole_whoever_takes_it() -> None:
    """It awaits nothing, so that a step of its own and one that is asked for do not meet in the middle."""
    step = named("ray.serve._private.controller:ServeController.run_control_loop_step")
    assert "await " not in inspect.getsource(step)
    assert "self._controller_handle = controller_handle" in inspect.getsource(RouterMetricsManager.__init__)


def test_serve_still_reports_what_it_counted_before_the_call() -> None:
    """Once it does not, `autoscaling.ray_internals.metrics.hurried` need not report."""
    source = inspect.getsource(RouterMetricsManager.wrap_queued_request)
    assert "push_autoscaling_metrics_to_controller" in source
    assert "_add_autoscaling_metrics_point" not in source
