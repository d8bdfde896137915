"""Voices: stanzas of `configs/catalog/voices.toml`, and the right to choose a voice."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container
from itertools import chain, count
from typing import Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from contract.access import VOICES, Caller
from contract.base import Frozen
from contract.errors import INVALID_REQUEST, VOICE_NOT_IN_PLAN

SYSTEM_VOICES = {"default-de": "de", "default-en": "en"}
"""Names of the default engine's own voice, each with its language."""

SAMPLE_ADDRESS_S = 3600
"""Seconds for which a signed address of a sample is valid."""


SLUG_PATTERN = re.compile(r"[a-z0-9](-?[a-z0-9])*", re.ASCII)
SLUG_CHARS = (2, 40)
"""Shortest and longest slug of an organisation's voice, in characters."""


def checked_slug(slug: str) -> str:
    """Returns `slug` unchanged. Raises INVALID_REQUEST if it is not a valid slug for a voice of an organisation."""
    low, high = SLUG_CHARS
    if not low <= len(slug) <= high or not SLUG_PATTERN.fullmatch(slug):
        raise INVALID_REQUEST(
            f"`slug` {slug[:high]!r} must be {low} to {high} lower-case letters and digits, with single hyphens "
            "between them",
            param="slug",
        )
    return slug


class Voice(Frozen):
    """A voice that requests may name.

    Attributes:
        slug: value of `voice` in requests.
        provider: provider of the one engine that speaks it.
        origin: `designed` (from a description, fictional), `preset` (the provider's own), `cloned` (from a recording).
        scope: `platform` for all organisations, `org` for the one that it was made for.
        from_plan: whether it requires voice selection; fixed voices of an engine are free to choose.
        status, status_note: `preliminary` if sound and slug may still change, and an explanation.
    """

    slug: str
    provider: str
    label: str
    origin: Literal["designed", "preset", "cloned"]
    gender: Literal["m", "f"]
    age_group: str
    primary_language: str
    description: str | None = None
    scope: Literal["platform", "org"] = "platform"
    from_plan: bool = False
    status: Literal["preliminary"] | None = None
    status_note: str | None = None

    def selectable(self, caller: Caller) -> bool:
        return not self.from_plan or caller.may_select_voices

    def require(self, caller: Caller) -> None:
        """Raises VOICE_NOT_IN_PLAN."""
        if not self.selectable(caller):
            raise VOICE_NOT_IN_PLAN(
                f"voice `{self.slug}` needs voice selection, which plan `{caller.tariff.name}` does not include; "
                f"plans from `starter` on include it",
                param="voice",
            )


class VoiceAlias(Frozen):
    """Name of a voice of another provider, and the voices that replace it if the profile turns aliases on.

    Attributes:
        voices: slugs; the first with an engine that is set up speaks.
        language: language of requests that name none: ISO 639-1 or `auto`; None for the usual default.
    """

    voices: tuple[str, ...] = Field(min_length=1)
    language: str | None = None


class SpokenBy(TypedDict):
    """Runtime that speaks some languages here, ISO 639-1 codes, with its licence and a description of its sound."""

    runtime: str
    license: str | None
    description: str | None
    languages: list[str]


class VoiceObject(TypedDict):
    """A voice; `samples` by language for the platform's, a signed `sample_url` for the organisation's own.

    `runtime` speaks its primary language; `runtimes` lists runtimes by language, if there are several.
    """

    object: Literal["voice"]
    slug: str
    label: str
    origin: Literal["designed", "preset", "cloned"]
    gender: Literal["m", "f"]
    age_group: str
    description: NotRequired[str]
    primary_language: str
    languages: list[str]
    samples: NotRequired[dict[str, str]]
    scope: Literal["platform", "org"]
    sample_url: str | None
    provider: str
    model: str
    runtime: str | None
    runtimes: NotRequired[list[SpokenBy]]
    selectable: bool
    available: bool
    status: NotRequired[Literal["preliminary"]]
    status_note: NotRequired[str]


class VoiceAccess(TypedDict):
    """Right of the organisation to choose catalogue voices, and its source."""

    selectable: bool
    via: Literal["tier", "entitlement"]
    tier: str
    hint: str | None


class VoiceList(TypedDict):
    """Every voice that the organisation can see; `languages` are those of the engine of the catalogue voices.

    `aliases` are other names that requests may use, each with its slug.
    """

    object: Literal["list"]
    data: list[VoiceObject]
    languages: list[str]
    languages_by_provider: dict[str, list[str]]
    aliases: dict[str, str]
    access: VoiceAccess


def access(caller: Caller) -> VoiceAccess:
    """Returns the `access` object of the voice list."""
    entitled = VOICES in caller.entitlements and not caller.tariff.voices
    hint = None if caller.may_select_voices else "voice selection begins with plan `starter`"
    return {
        "selectable": caller.may_select_voices,
        "via": "entitlement" if entitled else "tier",
        "tier": caller.tariff.name,
        "hint": hint,
    }


OTHERS = re.compile(r"[^a-z0-9]+")


def free_slug(label: str, otherwise: str, in_use: Container[str]) -> str:
    """Returns `label` as a slug, with a number if it is taken, or `otherwise` for labels in another script."""
    plain = unicodedata.normalize("NFKD", label.casefold()).encode("ascii", "ignore").decode()
    low, high = 2, 34  # characters of a slug before its number
    base = OTHERS.sub("-", plain).strip("-")[:high].strip("-")
    base = base if len(base) >= low else otherwise
    return next(slug for slug in chain((base,), (f"{base}-{n}" for n in count(2))) if slug not in in_use)
