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
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from rich.console import Console

from contract import VERSION
from contract.base import ProfileError
from contract.catalog import Model
from launch.environment import ROOT, StartError, free_port, make_run_folder, prepare_environment
from launch.selection import fit_gpu, gpu_gib, leave_out_large, memory_gib, wake_chat, woken
from launch.welcome import say_ready

if TYPE_CHECKING:
    from launch.check.faults import Plan

FETCH_NICENESS = 19

console = Console(file=sys.stderr, highlight=False, soft_wrap=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Starts, says how to use what runs, and stops all of it on Ctrl-C."""
    args = command_line().parse_args(arguments)
    try:
        if not args.config.exists():
            profiles = ", ".join(sorted(file.stem for file in (ROOT / "configs").glob("*.yaml")))
            raise StartError(f"there is no config file {args.config}; the profiles are {profiles}")
        config: dict[str, Any] = yaml.safe_load(args.config.read_text("utf-8"))
        home = Path(os.environ.get("PARLANCE_HOME", "var")).resolve()
        os.environ["PARLANCE_HOME"] = str(home)
        if args.weights_only:
            from launch.check.faults import Site, refuse

            plans = _plans(config, small=args.small)
            for plan in plans:  # a graph that is built is judged by its builder
                refuse(plan, Site.of_process())
            _fetch_weights(_models(plans), offline=args.offline)
            return
        http = config["http_options"] | ({"port": args.port} if args.port else {})
        _check_port(http["host"], http["port"])
        metrics_port = args.metrics_port or free_port(http["port"] + 1)
        prepare_environment(home, make_run_folder(home))
        from autoscaling.ray_internals.start import build_application

        models = _models(_plans(config, small=args.small))
        if args.warm:
            wake_chat(config, models)
        built = [build_application(app) for app in config["applications"]]
        later = [] if args.offline else _left_for_later(config, models)
        _fetch_weights([model for model in models if model.weights not in later], offline=args.offline)
        serve_until_stopped(config, built, models, http, home, metrics_port, later)
    except (StartError, ProfileError) as error:
        sys.exit(f"parlance: {error}")


def serve_until_stopped(
    config: dict[str, Any],
    built: list[Any],
    models: list[Model],
    http: dict[str, Any],
    home: Path,
    metrics_port: int,
    later: list[str],
) -> None:
    """Blocks until SIGINT or SIGTERM. The weights `later` are fetched once the graph is ready. Raises StartError."""
    os.umask(0o077)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    key = asyncio.run(_demo_key(home))
    with _step("starting the graph"):
        _deploy(config, built, http, metrics_port, models)
    try:
        host = "127.0.0.1" if http["host"] == "0.0.0.0" else http["host"]  # nobody can call all addresses
        metrics_url = f"http://127.0.0.1:{metrics_port}/metrics"
        say_ready(console, f"http://{host}:{http['port']}", metrics_url, home, key, models, woken(config))
        with _fetching(later):
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
    add, default = parser.add_argument, ROOT / "configs/embedded.yaml"
    add("--version", action="version", version=f"Parlance {VERSION}")
    add("config", nargs="?", type=Path, default=default, help="Serve config file (default: embedded)")
    add("--port", type=int, help="HTTP port that replaces the config file's")
    about = "port of the metrics for Prometheus, on loopback (default: the HTTP port + 1)"
    add("--metrics-port", type=int, help=about)
    add("--warm", action="store_true", help="start the chat engine as soon as the graph is ready")
    add("--small", action="store_true", help="without the models that want 8 GiB of memory")
    add("--weights-only", action="store_true", help="fetch and verify the weights, then stop")
    add("--offline", action="store_true", help="never use the network: the weights must be on this machine")
    return parser


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
    """The plans of a config file for this machine: models that are too large are left out of it."""
    from launch.check.faults import plan_of

    gib = 0 if small else memory_gib()
    if left_out := leave_out_large(config, gib):
        why = "as you asked for small models" if small else f"because this machine has {gib:.1f} GiB of memory"
        console.print(f"left out, {why}: {', '.join(left_out)}")
    if (of_gpu := gpu_gib()) and (left_out := fit_gpu(config, of_gpu)):
        console.print(f"left out, because the GPU has {of_gpu:.1f} GiB of memory: {', '.join(left_out)}")
    return [plan_of(app["args"]) for app in config["applications"]]


def _models(plans: list[Plan]) -> list[Model]:
    return [model for plan in plans for model in plan.catalog.deployed()]


def _fetch_weights(models: list[Model], *, offline: bool) -> None:
    from models.weights import store

    for name in sorted({model.weights for model in models if model.weights}):
        with _step(f"weights {name}"):
            store.ensure(name, offline=offline, may_lock=True)


def _left_for_later(config: dict[str, Any], models: list[Model]) -> list[str]:
    """Returns the names of weights that are not on this machine and that no engine woken at the start needs."""
    from models.weights import store

    first = {model.weights for model in models if model.id in woken(config)}
    names = dict.fromkeys(model.weights for model in models if model.weights and model.weights not in first)
    return [name for name in names if not store.is_stored(name)]


@contextlib.contextmanager
def _fetching(names: list[str]) -> Iterator[None]:
    """Fetches weights while the block runs: when the processor is idle, and at a low priority.

    An engine that is called before that fetches its own.
    """
    if not names:
        yield
        return
    console.print(f"Fetching what the other engines need: {', '.join(names)}")
    fetch = ["-m", "launch", "weights", "fetch", "--when-idle"]
    command = ["nice", "-n", str(FETCH_NICENESS), sys.executable, *fetch, *names]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True)
    with contextlib.suppress(OSError):  # where the kernel shares out the cores by session, that counts in place of it
        Path(f"/proc/{child.pid}/autogroup").write_text(str(FETCH_NICENESS))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        child.wait()


async def _demo_key(home: Path) -> str | None:
    """The new key of the organisation `demo`; None if it was made by an earlier start."""
    from state import open_state

    addresses = (os.environ.get(name) for name in ("PARLANCE_DATABASE_URL", "PARLANCE_REDIS_URL"))
    try:
        # Nobody else starts here, so the schema is brought up to date by the way, wherever it is.
        state = await open_state(home, *addresses, upgrade=True)
    except (ValueError, OSError) as error:
        raise StartError(str(error)) from None
    try:
        return await state.ensure_demo(home)
    finally:
        await state.close()


def _deploy(
    config: dict[str, Any], built: list[Any], http: dict[str, Any], metrics_port: int, models: list[Model]
) -> None:
    import ray
    from ray import serve

    from autoscaling.ray_internals.logs import logging_config
    from autoscaling.ray_internals.replica import LOOPBACK_ADDRESS
    from autoscaling.ray_internals.start import hurried_controller, minimal_node, own_node
    from deployments.fork_server.ahead import start_server

    with minimal_node():
        ray.init(
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            object_store_memory=512 * 1024 * 1024,
            _node_ip_address=LOOPBACK_ADDRESS,
            _metrics_export_port=metrics_port,
        )
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    for args in (app["args"] for app in config["applications"]):
        if (first := args.get("ingress", {}).get("warm")) and args.get("fork_server", True):
            start_server(models, first[0], own_node())
    with hurried_controller():
        logs = logging_config(os.environ)
        serve.start(proxy_location=config["proxy_location"], http_options=http, logging_config=logs)
        for app, application in zip(config["applications"], built, strict=True):
            serve.run(application, name=app["name"], route_prefix=app["route_prefix"])


def _shut_down() -> None:
    import ray.serve

    # Ray reports as an error that the controller is gone, which is what was wanted.
    noise = io.StringIO()
    with _step("stopping"), contextlib.redirect_stderr(noise), contextlib.redirect_stdout(noise):
        ray.serve.shutdown()
        ray.shutdown()


@contextlib.contextmanager
def _step(what: str) -> Iterator[None]:
    """Shows the name of a long step while it lasts, and the seconds that it took."""
    started = time.perf_counter()
    with console.status(f"{what} ..."):
        yield
    console.print(f"{what}: {time.perf_counter() - started:.1f} s")
