"""Reports of an ingress process beside single requests: its engines, what it holds, what was billed.

How long calls and starts took it remembers in the database, together with the others.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping

from autoscaling.gate import Gate
from autoscaling.metrics import Metrics, Sample
from autoscaling.ray_internals.logs import flush_logs
from autoscaling.ray_internals.metrics import hand_over_records
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

LOOK_S = 1.0
"""Between two looks at how late the event loop is."""

REMEMBER_S = 60.0
"""Between two writings of how long calls and starts took."""


def gauges(service: Service) -> Iterator[Sample]:
    """Returns the current values, also of engines at zero."""
    for model in service.catalog.deployed():
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


async def look(service: Service) -> None:
    """Looks at the event loop for LOOK_S, and hands over what was recorded meanwhile."""
    loop = asyncio.get_running_loop()
    due_s = loop.time() + LOOK_S
    await asyncio.sleep(LOOK_S)
    service.metrics.observe(LOOP_DELAY, (), max(0.0, loop.time() - due_s))
    await hand_over_records()
    if service.console:
        service.console.feed.tick()


async def export(service: Service) -> None:
    """Exports metrics, and writes the logs out."""
    take_bills(service, service.metrics)
    service.metrics.export(gauges(service))
    flush_logs()


async def share_times(gates: Mapping[str, Gate], database: Database) -> None:
    """Stores how long calls and starts of each engine took, and takes what all processes have seen.

    Raises what the database does; nothing is lost then.
    """
    times = {f"{kind} of {name}": durations for name, gate in gates.items() for kind, durations in gate.times.items()}
    unsaved = {name: durations.unsaved for name, durations in times.items()}
    texts = await revise(database, {name: durations.merged for name, durations in times.items()})
    for name, text in texts.items():
        times[name].adopt(text, unsaved[name])
