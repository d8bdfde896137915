"""Every name of Ray that is not public and that this house calls or replaces. An upgrade that moves one fails here, by
that name, in seconds and without a cluster."""

import asyncio
import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from functools import reduce
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
import ray
from ray.serve._private import replica
from ray.serve._private.request_router import replica_wrapper

from autoscaling.ray_internals import replica as hardening
from autoscaling.ray_internals.start import API_SERVER, NOT_STARTED

FUNCTIONS = {
    # autoscaling/router.py
    "ray.serve.request_router:RequestRouter._remove_pending_request_from_indices": ["self", "pending_request"],
    # autoscaling/ray_internals/replica.py
    "ray.serve._private.replica:parse_disconnect_disabled_header": ["headers"],
    "ray.serve._private.replica:parse_request_timeout_header": ["headers", "default_timeout_s"],
    "ray.serve._private.replica:add_port_to_grpc_server": ["server", "address"],
    "ray.serve._private.replica:add_ASGIServiceServicer_to_server": ["servicer", "server"],
    "ray.serve._private.replica:create_grpc_server_with_interceptors": [
        "max_workers", "thread_name_prefix", "options", "asynchronous",
    ],
    "ray.serve._private.request_router.replica_wrapper:init_grpc_channel": [
        "address", "options", "asynchronous", "credentials",
    ],
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
        "self", "start_time", "recovering_timeout", "num_loops",
    ],
    "ray.util.metrics:Metric._record": ["self", "value", "tags"],
    # autoscaling/ray_internals/start.py
    "ray._private.accelerators:get_accelerator_manager_for_resource": ["resource_name"],
    "ray._common.utils:import_attr": ["full_path", "reload_module"],
    "ray.serve._private.api:call_user_app_builder_with_args_if_necessary": ["builder", "args"],
    # launch/upgrade/cluster.py
    "ray.serve.context:_get_global_client": ["raise_if_no_controller_running"],
    "ray.serve._private.client:ServeControllerClient.deploy_apps": ["self", "config", "_blocking"],
    "ray.serve._private.client:ServeControllerClient.get_serve_details": ["self"],
    "ray.serve._private.replica:ReplicaActor.get_num_ongoing_requests": ["self"],
    "ray.serve._private.build_app:build_app": [
        "app", "name", "route_prefix", "logging_config", "default_runtime_env", "make_deployment_handle",
        "external_scaler_enabled",
    ],
}  # fmt: skip
"""Functions by where they stand, and the names of their parameters."""

PROPERTIES = (
    "ray.serve.request_router:RequestRouter.curr_replicas",  # autoscaling/router.py
    "ray.serve.request_router:RequestRouter.replica_queue_len_cache",
    "ray.serve._private.direct_ingress_http_util:ASGIDIReceiveProxy.queue",  # ray_internals/replica.py
    "ray.serve._private.router:RouterMetricsManager.autoscaling_config",  # ray_internals/metrics.py
)

NAMES = (
    "ray.serve._private.constants:SERVE_CONTROLLER_NAME",  # ray_internals/start.py
    "ray._private.ray_constants:ENABLE_RAY_CLUSTER",
    "ray.serve._private.constants:SERVE_NAMESPACE",
    "ray.serve._private.constants:RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD",  # ray_internals/replica.py
    "ray.serve._private.request_router.replica_wrapper:ASGIServiceStub",  # ray_internals/replica.py
    "ray.serve._private.replica:RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH",
    "ray.actor:ActorClassID.from_random",  # fork_server/server.py
    "ray.actor:ActorClassID.size",
    "ray._raylet:setproctitle",
)


ROUTERS = "ray.serve._private.router:"
SOURCES = {
    "ray.serve.request_router:PendingRequest": ["future: "],
    # Another server takes the place of this one, with the same options.
    "ray.serve._private.replica:Replica.__init__": [
        "self._server = create_grpc_server_with_interceptors(",
        '"grpc.max_receive_message_length",',
    ],
    # Between these two a replica gets another server.
    "ray.serve._private.replica:Replica._on_initialized": [
        "add_ASGIServiceServicer_to_server(self, self._server)",
        "add_port_to_grpc_server(self._server",
    ],
    # The fork server replaces the maker of ids in this module, and stands in for this program.
    "ray._private.workers.default_worker": [],
    "ray.actor": ["ActorClassID.from_random()"],
    # A handle counts and reports what waits by these names.
    f"{ROUTERS}CurrentLoopRouter.__init__": ["self._asyncio_router = AsyncioRouter("],
    f"{ROUTERS}AsyncioRouter.__init__": ["self._metrics_manager = RouterMetricsManager("],
    f"{ROUTERS}RouterMetricsManager": [
        "QUEUED_REQUESTS_KEY: self.num_queued_requests",
        "self.metrics_store.data",
        "self.push_autoscaling_metrics_to_controller",
    ],
    f"{ROUTERS}RouterMetricsManager.__init__": ["self._controller_handle = controller_handle"],
    # Serve still reports what it counted before the call. Once it does not, `ray_internals.metrics.hurried` need not.
    f"{ROUTERS}RouterMetricsManager.wrap_queued_request": ["push_autoscaling_metrics_to_controller"],
    # It forgets a handle that is silent: silence means that nothing waits or runs there.
    "ray.serve._private.autoscaling_state:DeploymentAutoscalingState.drop_stale_handle_metrics": ["timed_out"],
    # Processes that are not started, and the dashboard.
    "ray:init": ["ray._private.parameter.RayParams("],
    "ray._private.node:Node.start_head_processes": [f"self.{API_SERVER}("],
    f"ray._private.node:Node.{API_SERVER}": ["self._webui_url, process_info = "],
    # What ray.env sets.
    "ray.serve._private.constants": [
        '"RAY_SERVE_CONTROL_LOOP_INTERVAL_S"',
        '"RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S"',
        '"RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S"',
        '"RAY_SERVE_AUTOSCALING_METRIC_RECORD_INTERVAL_FACTOR"',
        '"RAY_SERVE_METRICS_EXPORT_INTERVAL_MS"',
        '"RAY_SERVE_FORCE_STOP_UNHEALTHY_REPLICAS"',
    ],
    "ray.serve._private.deployment_state": ['"SERVE_SLOW_STARTUP_WARNING_S"'],
    "ray.serve._private.deployment_state:DeploymentState._check_startup_replicas": ["is_slow and stop_on_slow"],
    "ray.serve._private.deployment_state:DeploymentState._stop_unhealthy_replica": ["FORCE_STOP_UNHEALTHY_REPLICAS"],
}
"""Passages of Ray's source that no other test depends on."""

ABSENT = {
    # A step of the controller's loop awaits nothing: its own and one that is asked for do not meet in the middle.
    "ray.serve._private.controller:ServeController.run_control_loop_step": "await ",
    f"{ROUTERS}RouterMetricsManager.wrap_queued_request": "_add_autoscaling_metrics_point",
}


def named(place: str) -> Any:
    """A property as such."""
    module, _, names = place.partition(":")
    found = import_module(module)
    return reduce(inspect.getattr_static if "." in names else getattr, names.split("."), found) if names else found


def test_ray_is_the_version_that_these_names_were_read_in() -> None:
    assert ray.__version__.startswith("2.60.")


def test_names_are_where_they_were_and_take_what_they_took() -> None:
    moved: list[Any] = []
    for place in (*FUNCTIONS, *PROPERTIES, *NAMES):
        try:
            found = named(place)
        except (AttributeError, ImportError) as missing:
            moved.append((place, missing))
            continue
        if place in FUNCTIONS and list(inspect.signature(found).parameters) != FUNCTIONS[place]:
            moved.append((place, inspect.signature(found)))
        if found is None or (place in PROPERTIES and not isinstance(found, property)):
            moved.append((place, found))
    assert moved == []


def test_the_source_says_what_we_rely_on() -> None:
    sources = {place: inspect.getsource(named(place)) for place in (*SOURCES, *ABSENT)}
    assert [text for place, said in SOURCES.items() for text in said if text not in sources[place]] == []
    assert [place for place, text in ABSENT.items() if text in sources[place]] == []


def test_accelerators_are_counted_by_these_names() -> None:
    manager = named("ray._private.accelerators:get_accelerator_manager_for_resource")("GPU")
    assert isinstance(manager.get_current_node_num_accelerators(), int)
    assert not inspect.signature(manager.get_current_process_visible_accelerator_ids).parameters


def test_processes_that_are_not_started_are_known_to_ray_by_these_names() -> None:
    parameters = named("ray._private.parameter:RayParams")
    assert inspect.signature(parameters).parameters.keys() >= NOT_STARTED.keys()


def test_serve_replaces_a_replica_that_was_unwell_three_times() -> None:
    """`deployments.replicas.SILENCES` leaves the time for it."""
    assert import_module("ray.serve._private.constants").REPLICA_HEALTH_CHECK_UNHEALTHY_THRESHOLD == 3


SCRIPT = """
import asyncio
from ray.serve._private.direct_ingress_http_util import ASGIDIReceiveProxy
from autoscaling.ray_internals.replica import bound_body_queue

taken = 0

async def receive():
    global taken
    taken += 1
    await asyncio.sleep(0)
    return {"type": "http.request", "body": b"x", "more_body": True} if taken < 1000 else {"type": "http.disconnect"}

async def run():
    bound_body_queue()
    proxy = ASGIDIReceiveProxy({"type": "http"}, receive, asyncio.get_running_loop())
    fetching = proxy.fetch_until_disconnect_task()
    for _ in range(5000):
        await asyncio.sleep(0)
    print(taken)
    read = 0
    while (await proxy())["type"] == "http.request":
        read += 1
    await fetching
    print(read)

asyncio.run(run())
"""


HEADERS = {b"x-request-disconnect-disabled": b"?1", b"x-request-timeout-seconds": b"0.01"}


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Serve's module, which is as it was after the test."""
    for name in (*hardening.UNTRUSTED_HEADER_PARSERS, hardening.PORT_OPENER):
        monkeypatch.setattr(replica, name, getattr(replica, name))
    return replica


def test_headers_that_would_switch_off_care_mean_nothing_to_serve(serve: ModuleType) -> None:
    hardening.ignore_client_control_headers()
    assert serve.parse_disconnect_disabled_header(HEADERS) is False
    assert serve.parse_request_timeout_header(HEADERS, 7.0) == 7.0


MISSING: tuple[tuple[Any, str, Callable[[], None], str], ...] = (
    *((replica, name, hardening.ignore_client_control_headers, name) for name in hardening.UNTRUSTED_HEADER_PARSERS),
    (replica, hardening.PORT_OPENER, hardening.keep_replica_port_local, "the port of replicas would be open"),
    (replica.Replica, hardening.SHUTDOWN, lambda: hardening.call_at_shutdown(lambda: None), hardening.SHUTDOWN),
    (replica, hardening.REGISTER, hardening.allow_pings, "replicas would close connections"),
    (replica_wrapper, hardening.CHANNEL, hardening.end_calls_to_lost_nodes, "gone would wait for minutes"),
    (replica_wrapper, hardening.STUB, hardening.send_token_as_metadata, f"Ray has no `{hardening.STUB}`"),
)
"""Names of Serve, what would replace each at a start, and why it refuses where Serve has it no more."""


@pytest.mark.usefixtures("serve")
def test_start_is_refused_where_serve_has_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hardening.LOOPBACK_VARIABLE, "1")
    for place, name, replace, why in MISSING:
        with monkeypatch.context() as patch:
            patch.delattr(place, name)
            with pytest.raises(RuntimeError, match=why):
                replace()


def test_where_ports_may_be_open_nothing_is_replaced(serve: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    delattr(serve, hardening.PORT_OPENER)
    monkeypatch.setenv(hardening.LOOPBACK_VARIABLE, "")
    hardening.keep_replica_port_local()


@pytest.mark.parametrize(
    ("settings", "taken"),
    [
        # One more is in the hand of whoever waits for room.
        ({"THROUGHPUT_OPTIMIZED": "1"}, hardening.MESSAGES["http"] + 1),
        ({"THROUGHPUT_OPTIMIZED": "0", "RUN_USER_CODE_IN_SEPARATE_THREAD": "1"}, 1000),  # as Serve has it
    ],
)
def test_a_body_that_nobody_reads_stays_in_the_network_unless_routes_have_an_event_loop_of_their_own(
    settings: dict[str, str], taken: int
) -> None:
    environment = os.environ | {f"RAY_SERVE_{name}": value for name, value in settings.items()}
    printed = subprocess.check_output([sys.executable, "-c", SCRIPT], env=environment, text=True)
    assert printed.split() == [str(taken), "999"], "taken while nobody reads, and read in the end"


async def test_a_replica_that_is_told_to_go_says_so_before_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    acts: list[str] = []

    async def waits(self: object) -> None:
        await asyncio.sleep(0)
        acts.append("waited")

    monkeypatch.setattr(replica.Replica, hardening.SHUTDOWN, waits)
    hardening.call_at_shutdown(lambda: acts.append("told"))
    await getattr(replica.Replica, hardening.SHUTDOWN)(object())
    assert acts == ["told", "waited"]
