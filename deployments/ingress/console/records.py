"""Records of the last requests of each organisation: times, counts and names, never contents.

A request that has ended leaves a row of references (`FinishedRequest`). Once a second these become records, outside of
any request; readers of records do that first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from sys import intern
from typing import Any, NamedTuple

from autoscaling.engine import Timings
from contract.access import Caller
from contract.console import RecordQuery, RequestRecord, RequestSpan
from contract.limits import CONSOLE_RECORDS, CONSOLE_RECORDS_OF_PROCESS, CONSOLE_SPANS
from contract.telemetry import Outcome
from contract.tracing import Loading, Stage
from state.billing.reservation import Reservation

NAMES = {Stage.SETTLE.value: "gateway"}
"""Names of stages where they differ from their own."""

FIELDS_OF_STAGE = 4

WORDS = {word: word.value for word in (*Stage, *Outcome)}
"""Plain strings: the garbage collector need not look at a tuple of these."""


Row = Sequence[Any]
"""A record as it is stored: a plain tuple, which the garbage collector need not look at, or a list of JSON."""


class FinishedRequest(NamedTuple):
    """A request that is over.

    Attributes:
        bills: its reservations.
        duration_s: from its first byte to the last of its reply.
        at_s: time of its end, by `time.time()`.
    """

    request_id: str
    caller: Caller
    method: str
    route: str
    model: str | None
    status: int
    outcome: Outcome
    code: str | None
    timings: Timings
    bills: Sequence[Reservation]
    duration_s: float
    at_s: float


class Record(NamedTuple):
    """Record of a request. Nothing is rounded or written out before it is read.

    Attributes:
        ended_s: time of its end, in seconds since 1970.
        queue_s, load_s, engine_s: times of its stages, beside that of the ingress.
        stages: name, engine, `time.perf_counter()` of its start and a replica's report on its load, of each in a row.
    """

    request_id: str
    ended_s: float
    method: str
    route: str
    model: str | None
    engine: str | None
    status: int
    outcome: str
    code: str | None
    duration_s: float
    waited_behind: int
    queue_s: float
    load_s: float
    engine_s: float
    cost_micro_eur: int | None
    user: str | None
    user_id: int | None
    key_id: str
    stages: tuple[Any, ...]

    @classmethod
    def of(cls, ended: FinishedRequest) -> Record:
        """The record of a request."""
        caller, timings = ended.caller, ended.timings
        stages, engine = timings.stages or [], ""
        flat: list[Any] = []
        if len(stages) > CONSOLE_SPANS:
            stages = [*stages[: CONSOLE_SPANS - 1], stages[-1]]
        for entry in stages:
            engine = engine or entry.engine
            flat += (WORDS[entry.stage], entry.engine, entry.began_s, astuple(entry.loading) if entry.loading else ())
        return cls(
            ended.request_id,
            ended.at_s,
            ended.method,
            intern(ended.route),
            ended.model,
            engine or None,
            ended.status,
            WORDS[ended.outcome],
            ended.code,
            ended.duration_s,
            timings.waited_behind,
            timings.queue,
            timings.load,
            timings.engine,
            _cost(ended.bills) if ended.bills else None,
            caller.user,
            caller.user_id,
            caller.key_id,
            tuple(flat),
        )

    def shown(self) -> RequestRecord:
        """Form of the record for a client."""
        spans, duration_ms = list(self._spans()), _ms(self.duration_s)
        admission_ms = min(spans[0]["to_ms"], duration_ms) if spans else duration_ms
        queue_ms, load_ms, engine_ms = _ms(self.queue_s), _ms(self.load_s), _ms(self.engine_s)
        return {
            "request_id": self.request_id,
            "time_ms": round(1000 * (self.ended_s - self.duration_s)),
            "method": self.method,
            "route": self.route,
            "model": self.model,
            "engine": self.engine,
            "status": self.status,
            "outcome": self.outcome,
            "code": self.code,
            "duration_ms": duration_ms,
            "waited_behind": self.waited_behind,
            "parts": {
                "admission": admission_ms,
                "queue": queue_ms,
                "load": load_ms,
                "engine": engine_ms,
                "gateway": max(0.0, round(duration_ms - admission_ms - queue_ms - load_ms - engine_ms, 2)),
            },
            "spans": spans,
            "cost_micro_eur": self.cost_micro_eur,
            "user": self.user,
            "key_id": self.key_id,
        }

    def _spans(self) -> Iterator[RequestSpan]:
        """Its stages; the first begins when the request does."""
        stages: Any = [
            self.stages[start : start + FIELDS_OF_STAGE] for start in range(0, len(self.stages), FIELDS_OF_STAGE)
        ]
        began_s = stages[0][2] if stages else 0.0
        ends_s = [stage[2] for stage in stages[1:]] + [began_s + self.duration_s]
        for (name, engine, from_s, loading), to_s in zip(stages, ends_s, strict=False):
            yield {
                "name": NAMES.get(name, name),
                "engine": engine or None,
                "from_ms": _ms(from_s - began_s),
                "to_ms": _ms(to_s - began_s),
                "phases": [
                    {"name": phase, "from_ms": _ms(begin_s - began_s), "to_ms": _ms(end_s - began_s)}
                    for phase, begin_s, end_s in (Loading(*loading).phases(from_s, to_s) if loading else ())
                ],
            }


MODEL, OUTCOME, USER_ID = (Record._fields.index(name) for name in ("model", "outcome", "user_id"))


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 2)


def _cost(bills: Sequence[Reservation]) -> int | None:
    """Amount that was charged, as far as it is certain; None if nothing was to be billed."""
    ends = [bill.end for bill in bills if bill.end and bill.end.done() and not bill.end.cancelled()]
    charges = [end.result() for end in ends if end.exception() is None]
    return sum(charges) if charges else None


class Records:
    """The last requests of each organisation in this process, bounded for each and for all together.

    Args:
        most: of an organisation.
        most_of_all: of all of them; the organisation that has most loses its oldest.
    """

    def __init__(self, most: int = CONSOLE_RECORDS, most_of_all: int = CONSOLE_RECORDS_OF_PROCESS) -> None:
        self._most, self._most_of_all = most, most_of_all
        self._lines: dict[int, deque[Row]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def add(self, records: Mapping[int, Iterable[Record]]) -> None:
        """Remembers requests of organisations, the one that ended last at the end."""
        for org_id, line in records.items():
            self._lines.setdefault(org_id, deque(maxlen=self._most)).extend(map(tuple, line))
        surplus = len(self) - self._most_of_all
        while surplus > 0:
            longest = max(self._lines.values(), key=len)
            lost = min(surplus, max(1, len(longest) // 2))
            for _ in range(lost):
                longest.popleft()
            surplus -= lost

    def newest_first(self, org_id: int) -> Iterator[Row]:
        """Those of an organisation."""
        return reversed(self._lines.get(org_id, deque()))

    def find(self, org_id: int, request_id: str) -> Row | None:
        """Returns the record of one request of an organisation."""
        return next((row for row in self.newest_first(org_id) if row[0] == request_id), None)


class RecordPage:
    """The page that a caller asks for, while rows come, the newest first. A user's key sees its user's requests.

    Attributes:
        records: records of the page.
        next_cursor: start of the next page; None on the last one.
    """

    def __init__(self, query: RecordQuery, caller: Caller) -> None:
        self.records: list[Record] = []
        self.next_cursor: str | None = None
        self._query, self._user_id = query, caller.user_id
        self._has_begun = query.before is None

    def take(self, rows: Iterable[Row]) -> bool:
        """Takes those that fit. Returns whether the page is full, and it is known whether there are more."""
        query, user_id = self._query, self._user_id
        for row in rows:
            if not self._has_begun:
                self._has_begun = row[0] == query.before
                continue
            is_seen = user_id is None or row[USER_ID] == user_id
            if is_seen and query.model in (None, row[MODEL]) and query.outcome in (None, row[OUTCOME]):
                if len(self.records) == query.limit:
                    self.next_cursor = self.records[-1].request_id
                    return True
                self.records.append(Record._make(row))
        return False
