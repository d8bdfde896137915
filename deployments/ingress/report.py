"""What an ingress process reports beside single requests: its engines, what it holds, what was billed.

How long calls and starts took it remembers in the database, together with the others.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator, Mapping

from autoscaling.gate import Gate
from autoscaling.metrics import EXPORT_S, Metrics, Sample
from autoscaling.ray_internals.logs import flush_logs
from autoscaling.ray_internals.metrics import hand_over_records
from contract.errors import ApiError
from contract.telemetry import (
    BODY_BYTES,
    COST,
    ENGINE_STATE,
    FORK_SERVER,
    LEDGER_BACKLOG,
    LIVE_SESSIONS,
    LOOP_DELAY,
    REQUESTS,
    SLOTS,
    STREAMS,
    UNITS,
    WAITING,
    WAITING_ORGANISATIONS,
    EngineState,
)
from deployments.fork_server.footprint import memory_bytes
from deployments.ingress.context import Service
from state.billing.usage import COST as MONEY
from state.database.base import Database
from state.facts import revise

log = logging.getLogger(f"parlance.{__name__}")

LOOK_S = 1.0
"""Between two looks at how late the event loop is."""

REMEMBER_S = 60.0
"""Between two writings of how long calls and starts took."""


def gauges(service: Service) -> Iterator[Sample]:
    """What is so now. Engines at zero are among it."""
    for model in service.catalog.deployed():
        if not model.serving:
            continue
        view = service.engine(model).view()
        engine = model.deployment
        yield WAITING, (engine,), view.waiting
        yield WAITING_ORGANISATIONS, (engine,), len(view.lines)
        yield SLOTS, (engine, "used"), view.used
        yield SLOTS, (engine, "all"), view.slots
        for state in EngineState:
            yield ENGINE_STATE, (engine, state), float(state is view.state)
    yield REQUESTS, (), service.concurrency.requests
    yield STREAMS, (), service.state.rates.open_streams
    yield LIVE_SESSIONS, (), len(service.live)
    yield BODY_BYTES, (), service.concurrency.body_bytes.total
    yield LEDGER_BACKLOG, (), service.state.ledger.backlog
    yield FORK_SERVER, (), memory_bytes(sys.argv)


def take_bills(service: Service, metrics: Metrics) -> None:
    """Brings the counters of what was billed up to date with the ledger."""
    for (model, unit), amount in service.state.ledger.billed.items():
        series = (COST, (model,)) if unit == MONEY else (UNITS, (model, unit))
        metrics.totals[series] = amount


async def report_forever(service: Service) -> None:
    """Exports every EXPORT_S, and looks at the loop meanwhile. Runs until cancelled."""
    loop, metrics, looks = asyncio.get_running_loop(), service.metrics, 0
    while True:
        due_s = loop.time() + LOOK_S
        await asyncio.sleep(LOOK_S)
        metrics.observe(LOOP_DELAY, (), max(0.0, loop.time() - due_s))
        await hand_over_records()
        looks += 1
        if service.console:
            service.console.tick()
        if looks * LOOK_S >= EXPORT_S:
            looks = 0
            take_bills(service, metrics)
            metrics.export(gauges(service))
            flush_logs()


async def share_times(gates: Mapping[str, Gate], database: Database) -> None:
    """Hands on how long calls and starts of each engine took, and goes on from what all processes have seen."""
    sketches = {f"{kind} of {name}": sketch for name, gate in gates.items() for kind, sketch in gate.times.items()}
    unsaved = {name: sketch.unsaved for name, sketch in sketches.items()}
    try:
        texts = await revise(database, {name: sketch.merged for name, sketch in sketches.items()})
    except ApiError as error:
        log.warning("could not store how long engines take; trying again in %g s: %s", REMEMBER_S, error)
        return
    for name, text in texts.items():
        sketches[name].adopt(text, unsaved[name])


async def share_times_forever(gates: Mapping[str, Gate], database: Database) -> None:
    """Does so every REMEMBER_S. Runs until cancelled."""
    while True:
        await asyncio.sleep(REMEMBER_S)
        await share_times(gates, database)
