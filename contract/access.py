"""Who may do what: scopes, plans, and the caller behind a key."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from typing_extensions import TypedDict

from contract.errors import MISSING_SCOPE


class Scope(StrEnum):
    """What a key can be allowed to do. `GET /me` lists all of them."""

    CHAT = "chat"
    EMBEDDINGS = "embeddings"
    RERANK = "rerank"
    SPEECH = "speech"
    TRANSCRIBE = "transcribe"
    DECISIONS = "decisions"
    MCP = "mcp"
    CONSOLE_OPERATE = "console:operate"


OPERATORS = frozenset({Scope.CONSOLE_OPERATE})
"""What shows the traffic of all organisations. `all` does not name it: a key has it where it was named itself."""


@dataclass(frozen=True, slots=True)
class Tariff:
    """What an organisation pays for; the wire and the command line call it its plan.

    Attributes:
        requests_per_minute: of each key.
        concurrent_streams: open streams of each key at one time.
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


@dataclass(frozen=True, slots=True)
class Caller:
    """The organisation, user and key behind a request.

    Attributes:
        key_id: public id of the key, safe to log.
        user: name of the user the key belongs to, None for a key of the whole organisation.
        models: ids the organisation may use, None for all that are set up.
        decision_model: the organisation's default decision model, None for the service's.
        expires_at: when the key ends, in seconds since 1970; None: never.
        org_limited, user_limited: whether a spend limit is set, so that unlimited callers skip the reservation.
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
    org_limited: bool = field(default=False, compare=False)
    user_limited: bool = field(default=False, compare=False)

    def require(self, scope: Scope) -> None:
        """Raises MISSING_SCOPE if the key was not given `scope`."""
        if scope not in self.scopes:
            raise MISSING_SCOPE(f"this key does not have the scope `{scope}`; create a key that has it")

    def may_use(self, model_id: str) -> bool:
        return self.models is None or model_id in self.models

    @property
    def may_select_voices(self) -> bool:
        """Whether the plan includes voices (`starter` and above), or an entitlement does."""
        return self.tariff.voices or VOICES in self.entitlements


class GrantedScope(TypedDict):
    """A scope, and whether the key has it."""

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
    """A budget renews each month: what is spent from `since` and before `until` counts together.

    Attributes:
        time_zone: whose months these are.
        since, until: the first moments of this month and of the next, UTC.
    """

    every: Literal["month"]
    time_zone: str
    since: str
    until: str


class SpendObject(TypedDict):
    """Money in micro-EUR: the limit (null for none), what was billed, what is held, and what the limit leaves.

    Of what is held, servers hold a part in advance: for short requests, under way or yet to come. It is at most a
    sixteenth for each of them of what the limit leaves, and none near the limit. Where the budget renews, what was
    billed is that of this month; `renewal` is null for a limit for good.
    """

    limit_micro_eur: int | None
    spent_micro_eur: int
    held_micro_eur: int
    in_advance_micro_eur: int
    left_micro_eur: int | None
    renewal: Renewal | None


class Spend(TypedDict):
    """Spend of the organisation, and of the user where the key has one."""

    organisation: SpendObject
    user: SpendObject | None


class AccountDetails(TypedDict):
    """What is kept of a caller."""

    organisation: OrganisationObject
    user: str | None
    key_id: str
    key_expires_at: str | None
    limits: KeyLimits
    spend: Spend


class MeReply(AccountDetails):
    """What a key may do."""

    object: Literal["me"]
    scopes: list[GrantedScope]
