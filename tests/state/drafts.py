"""Drafts of one organisation, as the tests of orders, of work and of ends have them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import select

from contract.access import Caller
from contract.limits import DRAFT_S
from contract.speech.voices import Voice
from contract.voice_design.draft import DraftEvent, VoiceSpec
from state.blobs.base import Blobs
from state.database.base import Database
from state.database.tables import drafts, reservations
from state.drafts import Adoption, DesignedVoice, Draft, DraftClaim, Drafts
from state.voices import OwnVoice, Voices, check_slug, insert_voice
from tests.state.books import fault_of, make_caller, money, rows
from tests.waiting import ManualClock

HOLD = 60
COST = 15

PLAN = VoiceSpec(
    gender="f",
    age_years=34,
    language="de",
    traits={"timbre": "warm"},
    speed=1.0,
    instruct="Ruhig, \"nah\" – 'ß'.",
    label="Änne",
    slug=None,
    target_hz=200,
    band_hz=(190.5, 210.5),
    auto_adopt=False,
    seed=7,
)
ADOPTION = Adoption("qwen", ("M1", "de-thorsten"))


def made(claim: DraftClaim) -> DesignedVoice:
    return DesignedVoice(
        clip_blob=f"{claim.folder}/clip.wav",
        sample_blob=f"{claim.folder}/sample.mp3",
        transcript="Guten Tag.",
        recipe="{}",
        runtime="kokoro-82m",
        f0_hz=200.5,
        p25_hz=190.0,
        p75_hz=210.0,
        voiced_windows=90,
        in_band=True,
        attempts_used=2,
        seconds=1.5,
        synthesis_ms=1500,
    )


@dataclass
class Workshop:
    """The drafts of `caller`, by a clock that stands.

    Attributes:
        store: what is tested; by default one that goes by `clock`.
    """

    database: Database
    blobs: Blobs
    caller: Caller
    clock: ManualClock = field(default_factory=ManualClock)
    store: Drafts = field(init=False)

    def __post_init__(self) -> None:
        self.store = Drafts(self.database, self.blobs, self.clock)

    async def of_another(self, limit: int | None = None, org: str = "other") -> Workshop:
        return replace(self, caller=await make_caller(self.database, limit, org=org))

    async def order(self, **spec: Any) -> Draft:
        return await self.store.order(
            self.caller,
            replace(PLAN, **spec),
            model="m",
            line="voice-design:m",
            estimate_micro_eur=HOLD,
            request_id="req-1",
        )

    async def claim(self, **spec: Any) -> DraftClaim:
        claim = await self.store.claim((await self.order(**spec)).id)
        assert claim is not None
        return claim

    async def finish(self, claim: DraftClaim, *, has_bytes: bool = False) -> Draft | None:
        voice = made(claim)
        for name in (voice.clip_blob, voice.sample_blob) if has_bytes else ():
            await self.blobs.put(name, name.encode())
        return await self.store.finish(claim, voice, COST)

    async def ready(self, *, has_bytes: bool = False, **spec: Any) -> Draft:
        draft = await self.finish(await self.claim(**spec), has_bytes=has_bytes)
        assert draft is not None
        return draft

    async def in_state(self, state: str) -> Draft:
        match state:
            case "pending":
                return (await self.claim()).draft
            case "failed":
                claim = await self.claim()
                await self.store.fail(claim, "x")
                return claim.draft
        draft = await self.ready()
        if state == "adopted":
            await self.adopt(draft)
        if state == "discarded":
            await self.discard(draft)
        return draft

    async def meet(self, draft: Draft, event: DraftEvent) -> None:
        """Lets the event happen to a draft in whatever state."""
        query = select(drafts.c.worker).where(drafts.c.id == draft.id)
        worker: str | None = await self.database.run(lambda connection: connection.execute(query).scalar_one())
        claim = DraftClaim(draft, worker or "nobody")
        match event:
            case "finish":
                await self.finish(claim)
            case "fail":
                await self.store.fail(claim, "x")
            case "expire":
                self.clock.now_s += DRAFT_S
                await self.store.expire()
            case "adopt" if (await self.find(draft)).state == "ready":
                await self.adopt(draft)
            case "adopt":
                assert await fault_of(self.adopt(draft)) == "INVALID_REQUEST"
            case "discard":
                await self.discard(draft)

    async def adopt(self, draft: Draft, **wish: Any) -> tuple[Draft, OwnVoice]:
        return await self.store.adopt(self.caller.org_id, draft.id, replace(ADOPTION, **wish))

    async def discard(self, draft: Draft) -> Draft:
        return await self.store.discard(self.caller.org_id, draft.id)

    async def find(self, draft: Draft) -> Draft:
        return await self.store.find(self.caller.org_id, draft.id)

    async def list(self) -> list[Draft]:
        return await self.store.of(self.caller.org_id)

    async def voices(self) -> list[OwnVoice]:
        return await Voices(self.database).of(self.caller.org_id)

    async def has_bytes(self, draft: Draft) -> list[bool]:
        assert draft.designed is not None
        return [await self.blobs.exists(name) for name in (draft.designed.clip_blob, draft.designed.sample_blob)]

    async def money(self) -> tuple[int, int]:
        """(spent, held) micro-EUR."""
        return await money(self.database, self.caller)

    async def rows(self) -> int:
        return await rows(self.database, drafts)

    async def held_s(self) -> list[int]:
        query = select(reservations.c.lease_until - reservations.c.created_at).where(reservations.c.state == "held")
        return await self.database.run(lambda connection: list(connection.execute(query).scalars()))


async def add_voice(
    database: Database,
    org_id: int,
    voice: Voice,
    *,
    clip_blob: str,
    sample_blob: str,
    transcript: str = "x",
    taken: Iterable[str] = (),
) -> OwnVoice:
    check_slug(voice.slug, taken)
    own_voice = OwnVoice(voice, clip_blob, sample_blob, transcript, 7)
    await database.run(lambda connection: insert_voice(connection, org_id, own_voice), row=org_id)
    return own_voice
