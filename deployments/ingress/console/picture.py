"""Graph as the console shows it: the view of one process, and the picture that all views make together.

    RollingMinute  what ended in the last minute, counted by engine and organisation
    ProcessView    engines and traffic as one process sees them
    merged         the picture of several of these
    StateHistory   in which states an engine was in the last hour

A picture of one process is made in the same way as that of ten.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autoscaling.engine import Engine, EngineView
from contract.console import Traffic
from contract.limits import CONSOLE_BANDS_S
from contract.telemetry import EngineState

MINUTE_S = 60.0

BUSY_S = 10.0
"""Seconds for which a band of `busy` lasts at least: an engine may take and free its last slot in turn."""

EVERYBODY = "everybody"
"""Beside the names of owners, for all of them together."""

RUNNING = (EngineState.READY, EngineState.BUSY)
FIRST_OF = (EngineState.STARTING, EngineState.FAILED, EngineState.COLD)
"""States of an engine without a replica that any process sees, in order of precedence."""

Fields = dict[str, Any]
Run = tuple[int, str]
"""A state of an engine, and since when, in milliseconds since 1970."""


class RollingMinute:
    """Calls that ended in the last minute, by names of engines and owners, and in all.

    Attributes:
        requests, errors: numbers of requests, and of those that failed by the server's fault.
    """

    def __init__(self) -> None:
        self.requests, self.errors = Counter[str](), Counter[str]()
        self._added: deque[tuple[float, Counter[str], Counter[str]]] = deque()

    def add(self, now_s: float, requests: Counter[str], errors: Counter[str]) -> None:
        """Counts these as ended now, and those no more that are older."""
        if requests:
            self.requests.update(requests)
            self.errors.update(errors)
            self._added.append((now_s, requests, errors))
        while self._added and self._added[0][0] <= now_s - MINUTE_S:
            _, *old = self._added.popleft()
            for total, lost in zip((self.requests, self.errors), old, strict=True):
                total.subtract(lost)
                for name in lost:
                    if not total[name]:
                        del total[name]


@dataclass(frozen=True)
class ProcessView:
    """View of one process. It crosses to others as JSON.

    Attributes:
        engines: fields of each, by name.
        traffic: requests and errors of the last minute, and calls that wait, by owner.
    """

    engines: Mapping[str, Fields]
    traffic: Mapping[str, Sequence[int]]


class Observer:
    """Looks at the engines of this process.

    Args:
        engines: by name.
        minute: requests that ended in the last minute.
    """

    def __init__(self, engines: Mapping[str, Engine], minute: RollingMinute) -> None:
        self._engines, self._minute = engines, minute
        self._loads: dict[str, tuple[float, int]] = {}
        """The last load of each engine, in seconds, and when it was first seen, in milliseconds since 1970."""

    def view(self, names: Iterable[str], now_ms: int) -> ProcessView:
        """The engines of these names now."""
        views = {name: self._engines[name].view() for name in names}
        waiting = Counter[str]()
        for view in views.values():
            if view.lines:
                waiting.update({str(owner): count for owner, count in view.lines.items()})
                waiting[EVERYBODY] += view.waiting
        requests, errors = self._minute.requests, self._minute.errors
        owners = [name for name in requests if name not in views] + [name for name in waiting if name not in requests]
        return ProcessView(
            {name: self._fields(name, view, now_ms) for name, view in views.items()},
            {owner: [requests[owner], errors[owner], waiting[owner]] for owner in owners},
        )

    def _fields(self, name: str, view: EngineView, now_ms: int) -> Fields:
        if (load_s := view.last_load_s) is not None and self._loads.get(name, (None, 0))[0] != load_s:
            self._loads[name] = (load_s, now_ms)
        load_s, loaded_ms = self._loads.get(name, (None, 0))
        return {
            "state": view.state.value,
            "used": view.used,
            "slots": view.slots,
            "waiting": view.waiting,
            "organisations": len(view.lines),
            "last_load_s": None if load_s is None else round(load_s, 2),
            "loaded_ms": loaded_ms,
            "expected_load_s": round(view.loads.quantile(0.5), 1),
            "requests_per_minute": self._minute.requests[name],
            "errors_per_minute": self._minute.errors[name],
        }


@dataclass(frozen=True)
class Picture:
    """Engines and traffic as all processes together see them."""

    engines: dict[str, Fields] = field(default_factory=dict)
    traffic: dict[str, tuple[int, ...]] = field(default_factory=dict)
    processes: int = 1

    def traffic_of(self, owner: str) -> Traffic:
        """Activity of the requests of an owner."""
        requests, errors, waiting = self.traffic.get(owner, (0, 0, 0))
        return {"requests_per_minute": requests, "errors_per_minute": errors, "waiting": waiting}


SUMS = ("used", "waiting", "requests_per_minute", "errors_per_minute")
MAXIMA = ("slots", "organisations", "expected_load_s")


def merged(views: Sequence[ProcessView]) -> Picture:
    """The picture that `views` make; the first is that of this process, and says which engines there are."""
    engines: dict[str, Fields] = {}
    for name in views[0].engines:
        seen = [view.engines[name] for view in views if name in view.engines]
        newest = max(seen, key=lambda fields: fields["loaded_ms"])
        fields = {field: sum(fields[field] for fields in seen) for field in SUMS}
        fields |= {field: max(fields[field] for fields in seen) for field in MAXIMA}
        fields["last_load_s"] = newest["last_load_s"]
        states = {fields["state"] for fields in seen}
        fields["state"] = seen[0]["state"] if len(states) == 1 and len(seen) == 1 else _state(states, fields)
        engines[name] = fields
    owners = {owner for view in views for owner in view.traffic}
    lines = {owner: [view.traffic.get(owner, (0, 0, 0)) for view in views] for owner in owners}
    traffic = {owner: tuple(map(sum, zip(*counts, strict=True))) for owner, counts in lines.items()}
    return Picture(engines, traffic, len(views))


def _state(states: set[str], fields: Fields) -> str:
    """The state of an engine that several processes see so: each knows only of the slots that its own calls hold."""
    if states.intersection(RUNNING):
        return (EngineState.BUSY if fields["used"] >= fields["slots"] else EngineState.READY).value
    return next(state.value for state in FIRST_OF if state in states)


class StateHistory:
    """In which states an engine was in the last hour.

    Attributes:
        runs: its states, the oldest first; the last one continues.
    """

    def __init__(self) -> None:
        self.runs: deque[Run] = deque()
        self._busy_ms = -math.inf

    def note(self, now_ms: int, state: str) -> bool:
        """Takes the state of now. Returns whether a run begins with it."""
        if state == EngineState.BUSY:
            self._busy_ms = now_ms
        elif state == EngineState.READY and now_ms - self._busy_ms < 1000 * BUSY_S:
            state = EngineState.BUSY.value
        while len(self.runs) > 1 and self.runs[1][0] <= now_ms - 1000 * CONSOLE_BANDS_S:
            self.runs.popleft()
        if self.runs and self.runs[-1][1] == state:
            return False
        self.runs.append((now_ms, state))
        return True

    def steady(self, state: str) -> str:
        """`state`, but of `ready` and `busy` what the last run has: else each call of a client would show."""
        return self.runs[-1][1] if self.runs and {state, self.runs[-1][1]} <= {*RUNNING} else state

    def adopt(self, earlier: Sequence[Run]) -> None:
        """Puts what others have noted before the first run."""
        since_ms = self.runs[0][0] if self.runs else math.inf
        runs = [(from_ms, state) for from_ms, state in earlier if from_ms < since_ms]
        if runs and self.runs and runs[-1][1] == self.runs[0][1]:
            self.runs.popleft()
        self.runs.extendleft(reversed(runs))
