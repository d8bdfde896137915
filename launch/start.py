"""Runs a Serve config file on this machine, in the foreground: weights, state, cluster, graph.

python -m launch [configs/embedded.yaml] [--port 8000] [--warm] [--offline]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from rich.console import Console

from contract import VERSION
from contract.catalog import Model
from launch.environment import ROOT, StartError, free_port, prepare_environment
from launch.selection import fit_gpu, gpu_gib, leave_out_large, memory_gib, wake_chat, woken
from launch.welcome import say_ready

if TYPE_CHECKING:
    from launch.check.faults import Plan

console = Console(file=sys.stderr, highlight=False, soft_wrap=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Starts, says how to use what runs, and stops all of it on Ctrl-C."""
    args = command_line().parse_args(arguments)
    try:
        config = _read_config(args.config)
        home = Path(os.environ.get("PARLANCE_HOME", "var")).resolve()
        os.environ["PARLANCE_HOME"] = str(home)
        if args.weights_only:
            plans = _plans(config, small=args.small)
            _refuse(plans)
            _fetch_weights(_models(plans), offline=args.offline)
            return
        http = config["http_options"] | ({"port": args.port} if args.port else {})
        _check_port(http["host"], http["port"])
        metrics_port = args.metrics_port or free_port(http["port"] + 1)
        with tempfile.TemporaryDirectory(prefix="parlance-", ignore_cleanup_errors=True) as run:
            prepare_environment(home, Path(run))
            models = _models(_plans(config, small=args.small))
            if args.warm:
                wake_chat(config, models)
            built = _build(config)
            _fetch_weights(models, offline=args.offline)
            serve_until_stopped(config, built, models, http, home, metrics_port)
    except StartError as error:
        sys.exit(f"parlance: {error}")


def serve_until_stopped(
    config: dict[str, Any], built: list[Any], models: list[Model], http: dict[str, Any], home: Path, metrics_port: int
) -> None:
    """Blocks until SIGINT or SIGTERM. Raises StartError."""
    os.umask(0o077)
    stop = _stop_signal()
    key = asyncio.run(_demo_key(home))
    with _step("starting the graph"):
        _deploy(config, built, http, metrics_port)
    try:
        host = "127.0.0.1" if http["host"] == "0.0.0.0" else http["host"]  # nobody can call all addresses
        metrics_url = f"http://127.0.0.1:{metrics_port}/metrics"
        say_ready(console, f"http://{host}:{http['port']}", metrics_url, home, key, models, woken(config))
        stop.wait()
    finally:
        _shut_down()


def command_line() -> argparse.ArgumentParser:
    """The arguments of `python -m launch`."""
    parser = argparse.ArgumentParser(
        prog="python -m launch",
        description="Run a Parlance graph on this machine until Ctrl-C stops it.",
        epilog="The folder PARLANCE_HOME (default var/) holds the database, the keys and the weights. "
        "`python -m launch check PROFILE` checks a profile, `python -m launch weights` manages weights.",
    )
    parser.add_argument("--version", action="version", version=f"Parlance {VERSION}")
    default = ROOT / "configs/embedded.yaml"
    parser.add_argument("config", nargs="?", type=Path, default=default, help="Serve config file (default: embedded)")
    parser.add_argument("--port", type=int, help="HTTP port that replaces the config file's")
    parser.add_argument(
        "--metrics-port", type=int, help="port of the metrics for Prometheus, on loopback (default: the HTTP port + 1)"
    )
    parser.add_argument("--warm", action="store_true", help="start the chat engine as soon as the graph is ready")
    parser.add_argument("--small", action="store_true", help="without the models that want 8 GiB of memory")
    parser.add_argument("--weights-only", action="store_true", help="fetch and verify the weights, then stop")
    parser.add_argument(
        "--offline", action="store_true", help="never use the network: the weights must be on this machine"
    )
    return parser


def _read_config(file: Path) -> dict[str, Any]:
    if not file.exists():
        profiles = ", ".join(sorted(f.stem for f in (ROOT / "configs").glob("*.yaml")))
        raise StartError(f"there is no config file {file}; the profiles are {profiles}")
    config: dict[str, Any] = yaml.safe_load(file.read_text("utf-8"))
    return config


def _check_port(host: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise StartError(
                f"{host}:{port} cannot be used ({error.strerror}); choose another port with PORT=..."
            ) from None


def _plans(config: dict[str, Any], *, small: bool) -> list[Plan]:
    """What a config file deploys here; what is too large is left out of it. Raises StartError."""
    from configs import CatalogError
    from launch.check.faults import plan_of

    gib = 0 if small else memory_gib()
    try:
        if left_out := leave_out_large(config, gib):
            why = "as you asked for small models" if small else f"because this machine has {gib:.1f} GiB of memory"
            console.print(f"left out, {why}: {', '.join(left_out)}")
        if (of_gpu := gpu_gib()) and (left_out := fit_gpu(config, of_gpu)):
            console.print(f"left out, because the GPU has {of_gpu:.1f} GiB of memory: {', '.join(left_out)}")
        return [plan_of(app["args"]) for app in config["applications"]]
    except CatalogError as error:
        raise StartError(str(error)) from None


def _models(plans: list[Plan]) -> list[Model]:
    return [model for plan in plans for model in plan.catalog.deployed()]


def _refuse(plans: list[Plan]) -> None:
    """Raises StartError if a profile cannot work here. A graph that is built is judged by its builder."""
    from launch.check.faults import Site, UnfitProfileError, refuse

    try:
        for plan in plans:
            refuse(plan, Site.of_process())
    except UnfitProfileError as error:
        raise StartError(str(error)) from None


def _fetch_weights(models: list[Model], *, offline: bool) -> None:
    from models.weights import store as weights

    for name in sorted({model.weights for model in models if model.weights}):
        with _step(f"weights {name}"):
            try:
                weights.ensure(name, offline=offline, may_lock=True)
            except weights.WeightsError as error:
                raise StartError(str(error)) from None


async def _demo_key(home: Path) -> str | None:
    """The new key of the organisation `demo`; None if it was made by an earlier start."""
    from state import open_state

    addresses = (os.environ.get(name) for name in ("PARLANCE_DATABASE_URL", "PARLANCE_REDIS_URL"))
    try:
        # Nobody else starts here, so the schema is brought up to date by the way, wherever it is.
        state = await open_state(home, *addresses, upgrade=True)
    except ValueError as error:
        raise StartError(str(error)) from None
    try:
        return await state.ensure_demo(home)
    finally:
        await state.close()


def _build(config: dict[str, Any]) -> list[Any]:
    """The applications of a config file, before anything of Ray runs. Raises StartError for a stanza at fault."""
    from autoscaling.deployment import DeploymentTableError
    from autoscaling.ray_internals.start import build_application
    from configs import CatalogError
    from launch.check.faults import UnfitProfileError
    from models.options import OptionsError

    try:
        return [build_application(app) for app in config["applications"]]
    except (CatalogError, DeploymentTableError, OptionsError, UnfitProfileError) as error:
        raise StartError(str(error)) from None


def _deploy(config: dict[str, Any], built: list[Any], http: dict[str, Any], metrics_port: int) -> None:
    import ray
    from ray import serve

    from autoscaling.ray_internals.logs import logging_config
    from autoscaling.ray_internals.replica import LOOPBACK_ADDRESS
    from autoscaling.ray_internals.start import hurried_controller, lean_node

    with lean_node():
        ray.init(
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            object_store_memory=512 * 1024 * 1024,
            _node_ip_address=LOOPBACK_ADDRESS,
            _metrics_export_port=metrics_port,
        )
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    with hurried_controller():
        logs = logging_config(os.environ)
        serve.start(proxy_location=config["proxy_location"], http_options=http, logging_config=logs)
        for app, application in zip(config["applications"], built, strict=True):
            serve.run(application, name=app["name"], route_prefix=app["route_prefix"])


def _stop_signal() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _shut_down() -> None:
    import ray.serve

    # Ray reports as an error that the controller is gone, which is what was wanted.
    noise = io.StringIO()
    with _step("stopping"), contextlib.redirect_stderr(noise), contextlib.redirect_stdout(noise):
        ray.serve.shutdown()
        ray.shutdown()


@contextlib.contextmanager
def _step(what: str) -> Iterator[None]:
    """Shows that something long goes on, and how long it took."""
    started = time.perf_counter()
    with console.status(f"{what} ..."):
        yield
    console.print(f"{what}: {time.perf_counter() - started:.1f} s")
