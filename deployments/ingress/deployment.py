"""The Serve deployment of the ingress."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PositiveInt
from ray import serve
from ray.serve.handle import DeploymentHandle

from autoscaling.deployment import DRAIN_S
from autoscaling.engine import Engine, Timings
from autoscaling.exporter import RayInstruments
from autoscaling.gate import Gate
from autoscaling.metrics import EXPORT_S, Metrics
from autoscaling.observation import Observation
from autoscaling.ray_internals.logs import join_serve_logs, logging_config
from autoscaling.ray_internals.metrics import hand_over_records, record_later, skip_unchanged_reports
from autoscaling.ray_internals.replica import (
    bound_body_queue,
    call_at_shutdown,
    end_calls_to_lost_nodes,
    ignore_client_control_headers,
    prepare_port,
    send_token_as_metadata,
)
from autoscaling.ray_internals.sockets import bound_connections
from autoscaling.watch import StartWatch
from concurrency.background import attempted, supervised
from contract.catalog import Catalog
from contract.limits import REQUESTS_OF_PROCESS
from deployments.ingress.app import build_app
from deployments.ingress.console import Console
from deployments.ingress.console.console import SHARE_S
from deployments.ingress.context import Service
from deployments.ingress.front.concurrency import ConcurrencyLimits
from deployments.ingress.front.cors import listed_origins
from deployments.ingress.front.proxies import PUBLIC_VARIABLE, Proxies
from deployments.ingress.report import REMEMBER_S, export, look, share_times
from deployments.ingress.wire.addresses import public_address
from state import State, open_state
from state.billing.upkeep import run_at_exit
from state.billing.usage import last_billed_ms

log = logging.getLogger(f"parlance.{__name__}")

SPARE_REQUESTS = 500
"""Requests that Serve hands to a replica beyond those that it serves, and as many that may wait for that."""

M_MMAP_THRESHOLD = -3
MAPPED_BYTES = 128 * 1024
"""As glibc has it at first; left alone, it raises that to 32 MiB."""

DEREGISTER_S = 60
"""For HAProxy to stop sending requests here, and for the last bills."""


class IngressArgs(BaseModel):
    """`args.ingress` of a Serve config file.

    Attributes:
        replicas: ingress replicas; more than one needs PARLANCE_DATABASE_URL, PARLANCE_REDIS_URL, PARLANCE_BLOBS_URL.
        cpus: Ray resource of a replica.
        max_ongoing_requests: requests that a replica serves at a time; others get 503 `overloaded`.
        header_prefix: prefix of the service's own reply headers, e.g. `x-service-model-served`.
        warm: models that start with the graph, so that their first answer does not wait; they scale to zero as usual.
        resume_within_s: seconds that a starting ingress waits, not ready, for engines that were in use just before, so
            that after an upgrade no client meets a cold engine.
        public_url: URL at which clients reach this server, with the path that a proxy in front cuts off, e.g.
            `https://example.org/voice`; PARLANCE_PUBLIC_URL comes first. Signed addresses begin with it.
        allowed_origins: origins of web pages that may call, e.g. `https://app.example.org`; `["*"]` is all of them.
        voice_aliases: whether requests may use the names in `configs/catalog/voice_aliases.toml`, e.g. `alloy`.
        live: whether live sessions are offered; otherwise their routes are 404 `not_found`.
        console: whether `/console/` shows the graph and the last requests; otherwise no request is remembered.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    replicas: PositiveInt = 1
    cpus: float = 0.1
    max_ongoing_requests: PositiveInt = REQUESTS_OF_PROCESS
    warm: tuple[str, ...] = ()
    resume_within_s: float = Field(0, ge=0)
    header_prefix: str = Field("x-service-", pattern=r"^[a-z][a-z0-9-]*-$")
    public_url: Annotated[str, AfterValidator(public_address)] | None = None
    allowed_origins: Annotated[frozenset[str], AfterValidator(listed_origins)] = frozenset()
    voice_aliases: bool = False
    live: bool = True
    console: bool = True

    def reached_at(self) -> str | None:
        """The public address: of the environment, else of the config file. Raises ValueError for a malformed one."""
        configured = os.environ.get(PUBLIC_VARIABLE)
        return public_address(configured) if configured else self.public_url

    def deployment_options(self) -> dict[str, Any]:
        """Arguments of `Deployment.options` for the ingress."""
        return {
            "num_replicas": self.replicas,
            # More than are served: what is too much is told so by the app, in the form of every other error.
            "max_ongoing_requests": self.max_ongoing_requests + SPARE_REQUESTS,
            "max_queued_requests": SPARE_REQUESTS,
            # Longer than an engine's, whose streams go through here, by what HAProxy needs to know of it.
            "graceful_shutdown_timeout_s": DRAIN_S + DEREGISTER_S,
            "ray_actor_options": {"num_cpus": self.cpus},
            "logging_config": logging_config(os.environ),
        }


def ingresses() -> int:
    """Ingress replicas that Serve is to run, this one among them."""
    return serve.get_replica_context().world_size or 1


async def wake(engines: Sequence[Engine], watch: StartWatch) -> None:
    """Wakes `engines` once the graph is deployed: not before, because loading takes the processor that the start needs.

    An engine that cannot be started is one line in the log, from its gate.
    """
    if not engines:
        return
    await watch.until_deployed()
    for engine in engines:
        engine.warm()


async def resume(catalog: Catalog, engines: Mapping[str, Engine], state: State, within_s: float) -> None:
    """Wakes the engines that would be awake if this graph had been here before, and waits for them, at most `within_s`.

    They are those with a last bill younger than their idle timeout, whichever graph on this database wrote it.
    """
    billed_ms = await state.database.run(last_billed_ms)
    now_ms = 1000 * state.clock()
    in_use = [model for model in catalog.deployed() if now_ms - billed_ms.get(model.id, 0) < 1000 * model.setup.idle_s]
    ready = (engines[model.deployment].ready(within_s, timings=Timings()) for model in in_use)
    for model, outcome in zip(in_use, await asyncio.gather(*ready, return_exceptions=True), strict=True):
        log.info("engine %s was in use: %s", model.deployment, "awake" if outcome is None else outcome)


def spare_collector() -> None:
    """Freezes existing objects: most of what a request makes dies with it, so cycles are looked for seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def return_long_buffers() -> None:
    """Returns long buffers of clients to the system once they are free. Kept, they leave holes too short for others."""
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)


def adapt_serve() -> None:
    """Changes what Serve does in this process, before any handle is made; each function says what and why."""
    join_serve_logs(os.environ)
    prepare_port()
    ignore_client_control_headers()
    bound_body_queue()
    bound_connections()
    send_token_as_metadata()
    end_calls_to_lost_nodes()
    skip_unchanged_reports()
    record_later()


@serve.deployment(name="ingress")
@serve.ingress()
class Ingress:
    """Opens the state, puts a gate before every engine, and serves the HTTP app over both."""

    async def __init__(self, args: IngressArgs, catalog: Catalog, handles: dict[str, DeploymentHandle]) -> None:  # type: ignore[misc]  # Serve awaits it
        adapt_serve()
        public_url = args.reached_at()
        addresses = (os.environ.get(f"PARLANCE_{store}_URL") for store in ("DATABASE", "REDIS", "BLOBS"))
        state = await open_state(Path(os.environ.get("PARLANCE_HOME", "var")), *addresses, replicas=args.replicas)
        self._unregister_exit = run_at_exit(state.ledger.close)
        app_name = serve.get_replica_context().app_name
        watch = StartWatch(app_name)
        metrics = Metrics(instruments := RayInstruments())
        engines = {
            (name := model.deployment): Gate(name, app_name, model.setup, handles[name], watch, ingresses, metrics)
            for model in catalog.deployed()
        }
        self._share_times = partial(share_times, engines, state.database)
        self._has_live = args.live
        self.service = Service(
            catalog,
            engines,
            state,
            args.header_prefix,
            public_url,
            Proxies.of_environment(os.environ),
            args.allowed_origins,
            catalog.voice_aliases if args.voice_aliases else {},
            concurrency=ConcurrencyLimits(args.max_ongoing_requests),
            metrics=metrics,
            observation=Observation.of_environment(os.environ, "ingress", instruments),
            console=Console(catalog, engines, state.console) if args.console else None,
        )
        if args.resume_within_s:
            await resume(catalog, engines, state, args.resume_within_s)
        self.service.drafts.start()
        spare_collector()
        return_long_buffers()
        woken = [engines[model.deployment] for model in catalog.deployed() if model.id in args.warm]
        self._tasks = [
            supervised("wake engines", partial(wake, woken, watch)),
            supervised("look at the event loop", partial(look, self.service), every_s=0),
            supervised("export metrics", partial(export, self.service), every_s=EXPORT_S),
            supervised("share times", self._share_times, every_s=REMEMBER_S, at_once=True),
        ]
        call_at_shutdown(self.service.live.drain)
        if console := self.service.console:
            call_at_shutdown(console.feed.close)
            self._tasks.append(supervised("share the console", console.share, every_s=SHARE_S, at_once=True))

    def __serve_build_asgi_app__(self) -> FastAPI:
        return build_app(self.service, has_console=self.service.console is not None, has_live=self._has_live)

    async def catalog(self) -> Catalog:
        """Returns the catalogue of this graph, for `graph.connect`."""
        return self.service.catalog

    async def __del__(self) -> None:
        for task in getattr(self, "_tasks", ()):
            task.cancel()
        if service := getattr(self, "service", None):
            self._unregister_exit()
            steps = {
                "give drafts back": service.drafts.close,
                "end the listener": service.live.listener.close,
                "leave the console": service.console.close if service.console else None,
                "share times": self._share_times,
                "close the state": service.state.close,
                "hand records over": hand_over_records,
                "export spans": partial(asyncio.to_thread, tracer.close)
                if (tracer := service.observation.tracer)
                else None,
            }
            for name, step in steps.items():
                if step:  # none of them keeps the others from being done
                    await attempted(name, step)
