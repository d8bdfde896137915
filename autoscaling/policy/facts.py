"""Input and output of the policy. Plain data, without Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from contract.hours import WarmHours


@dataclass(frozen=True, slots=True)
class Terms:
    """Settings of an operator for one engine. Times in seconds.

    Attributes:
        slots: calls that one replica works on at once.
        least, most: replicas; `least` is 0 where the engine may be cold.
        target_wait_s: a predicted wait beyond it brings a replica more.
        load_s: duration of a start, until one was measured.
        idle_s: the price of a cold hit, as seconds of one idle replica; and the idle timeout until gaps were learned.
        idle_least_s, idle_most_s: bounds of the idle timeout that is learned.
        places: calls that may wait; None: as many as come.
        needs: amounts of resources that a replica takes, by their names in Ray, e.g. `GPU`; engines share them.
        warm: hours in which one replica stays.
    """

    slots: int = 16
    least: int = 0
    most: int = 1
    target_wait_s: float = 10.0
    load_s: float = 30.0
    idle_s: float = 300.0
    idle_least_s: float = 30.0
    idle_most_s: float = 300.0
    places: int | None = None
    needs: Mapping[str, float] = field(default_factory=dict)
    warm: tuple[WarmHours, ...] = ()

    def written(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "warm": [hours.model_dump() for hours in self.warm]}

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> Terms:
        """Reads what was `written`."""
        return cls(**{**table, "warm": tuple(WarmHours(**hours) for hours in table.get("warm", ()))})


@dataclass(frozen=True, slots=True)
class Facts:
    """One engine at one moment.

    Attributes:
        running: replicas that take calls.
        target: replicas that were asked for; those above `running` are starting.
        calls: number of calls that wait or are at work.
        ended: calls that ended since the last look; they may be counted in `calls` no more.
        worked_s: seconds of slots that those took, together.
        load_s: duration of the newest start, from the decision until it ran; None: nothing new.
    """

    running: int = 0
    target: int = 0
    calls: float = 0.0
    ended: int = 0
    worked_s: float = 0.0
    load_s: float | None = None


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    """Target of an engine, with the reason in a few words for a log."""

    replicas: int
    why: str
