"""Voice design: what can be ordered, orders, drafts, adoption, suggestions."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import JSONResponse, Response

from contract.access import Scope
from contract.catalog import VoiceDesignModel
from contract.speech.voices import VoiceObject
from contract.voice_design.draft import VoiceSpec
from contract.voice_design.order import AdoptRequest, DesignOrder, SuggestRequest
from contract.voice_design.replies import DesignOptions, Measurements, SuggestReply, VoiceDesignList, VoiceDesignObject
from deployments.ingress.flows import designs
from deployments.ingress.front.admission import Admitted, AnyKey, admit
from deployments.ingress.wire.addresses import own_entry, signed_address
from deployments.ingress.wire.idempotency import ACCEPTS_KEY, once
from deployments.ingress.wire.openapi import documented
from state.drafts import DesignedVoice, Draft
from state.voices import OwnVoice

router = APIRouter(tags=["voice design"])

Designing = Annotated[Admitted, Depends(admit(Scope.SPEECH))]

DRAFTS = "/audio/voices/designs"

PLAYABLE = ("ready", "adopted")
"""States in which there is a sample."""


@router.get("/audio/voices/design-options", openapi_extra=documented(None, DesignOptions))
async def get_options(admitted: AnyKey) -> Response:
    """Say what may be ordered, the limits, and whether orders are taken."""
    return JSONResponse(designs.options(admitted.context))


@router.post(
    DRAFTS, status_code=202, openapi_extra=documented(DesignOrder, VoiceDesignObject, status=202, **ACCEPTS_KEY)
)
async def order(admitted: Designing) -> Response:
    """Order a voice. The draft is `pending`; poll it every few seconds."""
    request = await admitted.body(DesignOrder)
    model, spec = designs.prepare(admitted.context, request)
    return await once(admitted, partial(_order, admitted, model, spec))


async def _order(admitted: Admitted, model: VoiceDesignModel, spec: VoiceSpec) -> Response:
    return JSONResponse(await _object(admitted, await designs.order(admitted.context, model, spec), None), 202)


@router.get(DRAFTS, openapi_extra=documented(None, VoiceDesignList))
async def list_drafts(admitted: Designing) -> Response:
    """List the drafts of your organisation, the newest first."""
    state, org_id = admitted.context.service.state, admitted.context.caller.org_id
    drafts = await state.drafts.of(org_id)
    voices = {own.voice.slug: own for own in await state.voices.of(org_id)}
    data = [await _object(admitted, draft, voices.get(draft.voice_slug or "")) for draft in drafts]
    return JSONResponse(VoiceDesignList(object="list", data=data))


@router.post(f"{DRAFTS}/suggest", openapi_extra=documented(SuggestRequest, SuggestReply))
async def suggest(admitted: Designing) -> Response:
    """Suggest traits for an order from a description in German or English. Nothing is designed and nothing billed."""
    return JSONResponse(designs.suggest(admitted.context, await admitted.body(SuggestRequest)))


@router.get(f"{DRAFTS}/{{design_id}}", openapi_extra=documented(None, VoiceDesignObject))
async def get_draft(admitted: Designing, design_id: str) -> Response:
    """Say how far a draft is."""
    draft = await designs.poll(admitted.context, design_id)
    own = await admitted.context.service.state.voices.find(draft.org_id, draft.voice_slug) if draft.voice_slug else None
    return JSONResponse(await _object(admitted, draft, own))


@router.post(
    f"{DRAFTS}/{{design_id}}/adopt", openapi_extra=documented(AdoptRequest, VoiceObject, optional=True, **ACCEPTS_KEY)
)
async def adopt(admitted: Designing, design_id: str) -> Response:
    """Make a ready draft a voice of your organisation."""
    request = await admitted.body(AdoptRequest, optional=True)
    draft = await designs.find_to_adopt(admitted.context, design_id)
    return await once(admitted, partial(_adopt, admitted, draft, request))


async def _adopt(admitted: Admitted, draft: Draft, request: AdoptRequest) -> Response:
    return JSONResponse(await own_entry(admitted, await designs.adopt(admitted.context, draft, request)))


@router.delete(f"{DRAFTS}/{{design_id}}", openapi_extra=documented(None, VoiceDesignObject))
async def discard(admitted: Designing, design_id: str) -> Response:
    """Discard a draft with its clip, and the voice that it was adopted as."""
    return JSONResponse(await _object(admitted, await designs.discard(admitted.context, design_id), None))


async def _object(admitted: Admitted, draft: Draft, own: OwnVoice | None) -> VoiceDesignObject:
    spec, designed = draft.spec, draft.designed
    playable = designed if draft.state in PLAYABLE else None
    body: VoiceDesignObject = {
        "object": "voice_design",
        "id": draft.id,
        "status": draft.state,
        "scope": "org",
        "created_at": draft.created_at,
        "language": spec.language,
        "gender": spec.gender,
        "age_years": spec.age_years,
        "traits": spec.traits,
        "label": spec.label,
        "instruct": spec.instruct,
        "target_hz": spec.target_hz,
        "band_hz": list(spec.band_hz),
        "auto_adopt": spec.auto_adopt,
        "measurements": _measurements(designed),
        "sample_url": await signed_address(admitted, playable.sample_blob) if playable else None,
        "cost_micro_eur": draft.cost_micro_eur,
        "voice_slug": draft.voice_slug,
        "voice": await own_entry(admitted, own) if own else None,
        "error": draft.error,
    }
    if designed:
        body["duration_ms"] = designed.synthesis_ms
    return body


def _measurements(designed: DesignedVoice | None) -> Measurements:
    if designed is None:
        return {"f0_hz": None, "in_band": None, "attempts_used": None, "seconds": None}
    return {
        "f0_hz": round(designed.f0_hz, 1),
        "in_band": designed.in_band,
        "attempts_used": designed.attempts_used,
        "seconds": round(designed.seconds, 3),
        "p25_hz": round(designed.p25_hz, 1),
        "p75_hz": round(designed.p75_hz, 1),
        "voiced_windows": designed.voiced_windows,
    }
