"""Access of a key: its scopes, its plan, and the caller behind it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple

from typing_extensions import TypedDict

from contract.errors import MISSING_SCOPE


class Scope(StrEnum):
    """Permission of a key. `GET /me` lists all of them."""

    CHAT = "chat"
    EMBEDDINGS = "embeddings"
    RERANK = "rerank"
    SPEECH = "speech"
    TRANSCRIBE = "transcribe"
    DECISIONS = "decisions"
    MCP = "mcp"
    CONSOLE_OPERATE = "console:operate"


OPERATORS = frozenset({Scope.CONSOLE_OPERATE})
"""Scopes that show the traffic of all organisations. `all` does not include them: a key must name each."""


@dataclass(frozen=True, slots=True)
class Tariff:
    """Tariff that an organisation pays for; the wire and the command line call it its plan.

    Attributes:
        requests_per_minute: limit of each key.
        concurrent_streams: streams that each key may hold open at one time.
        voices: whether voice selection and voice design are included.
    """

    name: str
    requests_per_minute: int
    concurrent_streams: int
    voices: bool


TARIFFS = {
    tariff.name: tariff
    for tariff in (
        Tariff("free", 20, 4, voices=False),
        Tariff("starter", 100, 20, voices=True),
        Tariff("standard", 100, 20, voices=True),
        Tariff("pro", 1000, 50, voices=True),
        Tariff("enterprise", 1000, 200, voices=True),
    )
}

VOICES = "voices"
"""The one entitlement: voice selection on a plan that does not include it."""


class RateOwner(NamedTuple):
    """Holder of two limits: requests a minute, and streams that are open at one time."""

    name: str
    requests_per_minute: int
    concurrent_streams: int


@dataclass(frozen=True, slots=True)
class Caller:
    """The organisation, user and key behind a request.

    Attributes:
        key_id: public id of the key, safe to log.
        user: name of the user that the key belongs to; None for a key of the whole organisation.
        models: ids that the organisation may use; None for all that are set up.
        decision_model: default decision model of the organisation; None for that of the service.
        expires_at: end of the key, in seconds since 1970; None for a key without an end.
        derived: owners of limits below the key, for a credential that the key issued; the credential itself first.
        org_limited, user_limited: whether a spend limit is set; callers without one skip the reservation.
    """

    org_id: int
    org: str
    key_id: str
    tariff: Tariff
    scopes: frozenset[Scope]
    user_id: int | None = None
    user: str | None = None
    entitlements: frozenset[str] = frozenset()
    models: frozenset[str] | None = None
    decision_model: str | None = None
    expires_at: int | None = None
    derived: tuple[RateOwner, ...] = ()
    org_limited: bool = field(default=False, compare=False)
    user_limited: bool = field(default=False, compare=False)

    def require(self, scope: Scope) -> None:
        """Raises MISSING_SCOPE if the key does not have `scope`."""
        if scope not in self.scopes:
            raise MISSING_SCOPE(f"this key does not have the scope `{scope}`; create a key that has it")

    @property
    def rate_owners(self) -> tuple[RateOwner, ...]:
        """Owners of the limits of a request, the narrowest first: each must allow it."""
        tariff = self.tariff
        return (*self.derived, RateOwner(self.key_id, tariff.requests_per_minute, tariff.concurrent_streams))

    def may_use(self, model_id: str) -> bool:
        return self.models is None or model_id in self.models

    @property
    def may_select_voices(self) -> bool:
        """True if the plan (`starter` and above) or an entitlement includes voices."""
        return self.tariff.voices or VOICES in self.entitlements


class GrantedScope(TypedDict):
    """Scope, and whether the key has it."""

    scope: str
    granted: bool


class OrganisationObject(TypedDict):
    """The caller's organisation; `models` are those enabled for it, null for all."""

    name: str
    plan: str
    entitlements: list[str]
    models: list[str] | None
    decision_model: str | None


class KeyLimits(TypedDict):
    """Limits of each key of the organisation."""

    requests_per_minute: int
    concurrent_streams: int


class Renewal(TypedDict):
    """Monthly renewal of a budget: spending from `since` to before `until` counts together.

    Attributes:
        time_zone: time zone in which months begin.
        since, until: first moments of this month and of the next, in UTC.
    """

    every: Literal["month"]
    time_zone: str
    since: str
    until: str


class SpendObject(TypedDict):
    """Money in micro-EUR: the limit (null for none), the billed amount, the reserved amount and the remainder.

    Servers reserve a part of `held_micro_eur` in advance, for short requests that are under way or yet to come: each
    server at most a sixteenth of the remainder, and nothing near the limit. Where the budget renews, the billed amount
    is that of this month; `renewal` is null where it does not.
    """

    limit_micro_eur: int | None
    spent_micro_eur: int
    held_micro_eur: int
    in_advance_micro_eur: int
    left_micro_eur: int | None
    renewal: Renewal | None


class Spend(TypedDict):
    """Spending of the organisation, and of the user where the key has one."""

    organisation: SpendObject
    user: SpendObject | None


class AccountDetails(TypedDict):
    """Stored facts about a caller."""

    organisation: OrganisationObject
    user: str | None
    key_id: str
    key_expires_at: str | None
    limits: KeyLimits
    spend: Spend


class MeReply(AccountDetails):
    """Scopes and limits of a key, with its organisation and user."""

    object: Literal["me"]
    scopes: list[GrantedScope]
