"""Hours of the week, in a time zone."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, Self
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator, model_validator

from contract.base import Frozen

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
WORKDAYS: tuple[Day, ...] = ("mon", "tue", "wed", "thu", "fri")
DAYS: tuple[Day, ...] = (*WORKDAYS, "sat", "sun")


class WarmHours(Frozen):
    """Hours in which one replica of an engine stays, with or without requests.

    Attributes:
        zone: time zone of the hours, an IANA name; summer time is applied.
        start, end: hours of the day, 0 to 24; `start` is included, `end` is not.
        days: days on which the hours apply.
    """

    zone: str
    start: int = Field(ge=0, le=23)
    end: int = Field(ge=1, le=24)
    days: tuple[Day, ...] = WORKDAYS

    @field_validator("zone")
    @classmethod
    def _is_known(cls, zone: str) -> str:
        try:
            ZoneInfo(zone)
        except (KeyError, ValueError, OSError):
            raise ValueError(f"`{zone}` is no time zone of this machine; one is `Europe/Berlin`") from None
        return zone

    @model_validator(mode="after")
    def _is_in_order(self) -> Self:
        if self.start >= self.end:
            raise ValueError(f"`start` is {self.start} and `end` is {self.end}; hours over midnight are two entries")
        return self

    def hold(self, now_s: float) -> bool:
        """Returns True if a Unix time, in seconds, is within the hours."""
        local = datetime.fromtimestamp(now_s, ZoneInfo(self.zone))
        return DAYS[local.weekday()] in self.days and self.start <= local.hour < self.end
