"""The Serve deployment of the ingress."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import Mapping, Sequence
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
from autoscaling.metrics import Metrics
from autoscaling.observation import Observation
from autoscaling.ray_internals.logs import join_serve_logs, logging_config
from autoscaling.ray_internals.metrics import hand_over_records, record_later, report_only_news
from autoscaling.ray_internals.replica import (
    bound_body_queue,
    bound_websockets,
    call_at_shutdown,
    ignore_client_control_headers,
    keep_replica_port_local,
    send_token_as_metadata,
)
from autoscaling.watch import StartWatch
from contract.catalog import Catalog
from contract.limits import REQUESTS_OF_PROCESS
from deployments.ingress.app import build_app
from deployments.ingress.console import Console
from deployments.ingress.context import Service
from deployments.ingress.front.concurrency import ConcurrencyLimits
from deployments.ingress.front.cors import listed_origins
from deployments.ingress.front.proxies import PUBLIC_VARIABLE, Proxies
from deployments.ingress.report import report_forever, share_times, share_times_forever
from deployments.ingress.wire.addresses import public_address
from state import State, open_state
from state.billing.upkeep import run_at_exit
from state.billing.usage import last_billed_ms

log = logging.getLogger(f"parlance.{__name__}")

SPARE_REQUESTS = 500
"""That Serve hands to a replica beyond those that it serves, and as many that may wait for that."""

DEREGISTER_S = 60
"""For HAProxy to stop sending requests here, and for the last bills."""


class IngressArgs(BaseModel):
    """`args.ingress` of a Serve config file.

    Attributes:
        replicas: ingress replicas; more than one needs PARLANCE_DATABASE_URL, PARLANCE_REDIS_URL, PARLANCE_BLOBS_URL.
        cpus: Ray resource of a replica.
        max_ongoing_requests: that a replica serves at one time; more are answered 503 `overloaded`.
        header_prefix: of the service's own reply headers, e.g. `x-service-model-served`.
        warm: models that are woken once the graph runs, so that their first answer does not wait. They sleep again when
            nobody asks.
        resume_within_s: seconds that a starting ingress waits for engines that were in use just before; it is not ready
            meanwhile, so that after an upgrade no client meets a cold engine. With 0 it does not wait.
        public_url: at which clients reach this server, with the path that a proxy in front cuts off, e.g.
            `https://example.org/voice`; PARLANCE_PUBLIC_URL comes first. Signed addresses begin with it.
        allowed_origins: of web pages that may call, e.g. `https://app.example.org`; `["*"]` is all of them.
        voice_aliases: whether requests may use the names in `configs/catalog/voice_aliases.toml`, e.g. `alloy`.
        console: whether `/console/` shows the graph and the last requests; without, nothing is remembered of them.
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


def gates(
    catalog: Catalog, app_name: str, handles: Mapping[str, DeploymentHandle], watch: StartWatch, metrics: Metrics
) -> dict[str, Gate]:
    """A gate before each engine, by deployment name."""
    return {
        model.deployment: Gate(
            model.deployment,
            app_name,
            model.serving,
            handles[model.deployment],
            watch,
            sharers=ingresses,
            metrics=metrics,
        )
        for model in catalog.deployed()
        if model.serving
    }


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

    They are those whose last bill is younger than their idle timeout, whichever graph on this database wrote it.
    """
    billed_ms = await state.database.run(last_billed_ms)
    now_ms = 1000 * state.clock()
    in_use = [
        model
        for model in catalog.deployed()
        if model.serving and now_ms - billed_ms.get(model.id, 0) < 1000 * model.serving.idle_s
    ]
    ready = (engines[model.deployment].ready(within_s, timings=Timings()) for model in in_use)
    for model, outcome in zip(in_use, await asyncio.gather(*ready, return_exceptions=True), strict=True):
        log.info("engine %s was in use: %s", model.deployment, "awake" if outcome is None else outcome)


def spare_collector() -> None:
    """What is here now stays, and most of what a request makes dies with it: looking for cycles seldom is enough."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def adapt_serve() -> None:
    """Changes what Serve does in this process, before any handle is made; each function says what and why."""
    join_serve_logs(os.environ)
    keep_replica_port_local()
    ignore_client_control_headers()
    bound_body_queue()
    bound_websockets()
    send_token_as_metadata()
    report_only_news()
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
        self._unregister_exit = run_at_exit(state.ledger.settle_open)
        app_name = serve.get_replica_context().app_name
        watch = StartWatch(app_name)
        metrics = Metrics(instruments := RayInstruments())
        engines = self._gates = gates(catalog, app_name, handles, watch, metrics)
        await share_times(engines, state.database)
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
        woken = [engines[model.deployment] for model in catalog.deployed() if model.id in args.warm]
        self._tasks = [
            asyncio.create_task(wake(woken, watch), name="wake"),
            asyncio.create_task(report_forever(self.service), name="report"),
            asyncio.create_task(share_times_forever(engines, state.database), name="share times"),
        ]
        call_at_shutdown(self.service.live.drain)
        if console := self.service.console:
            call_at_shutdown(console.feed.close)
            self._tasks.append(asyncio.create_task(console.share_forever(), name="console"))

    def __serve_build_asgi_app__(self) -> FastAPI:
        return build_app(self.service, has_console=self.service.console is not None)

    async def catalog(self) -> Catalog:
        """What this graph offers; `graph.connect` asks it."""
        return self.service.catalog

    async def __del__(self) -> None:
        for task in getattr(self, "_tasks", ()):
            task.cancel()
        if service := getattr(self, "service", None):
            self._unregister_exit()
            await service.drafts.close()
            await service.live.listener.close()
            if service.console:
                await service.console.close()
            await share_times(self._gates, service.state.database)
            await service.state.close()
            await hand_over_records()
            if tracer := service.observation.tracer:
                await asyncio.to_thread(tracer.close)
