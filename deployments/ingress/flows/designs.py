"""Voices to order: drafts, adoption, suggestions.

prepare(context, request) -> model, spec    everything that can be refused before an `Idempotency-Key` is claimed
order(context, model, spec) -> Draft        pending; the work continues without the client
poll(context, id) -> Draft                  takes up the work on a draft of a dead process
find_to_adopt(context, id) -> Draft
adopt(context, draft, request) -> voice
discard(context, id) -> Draft               from any state; the voice goes too

Making something new needs a plan with voices; seeing and discarding what is there does not.
"""

from __future__ import annotations

import random

from contract.access import Caller
from contract.catalog import VoiceDesignModel
from contract.errors import NOT_IMPLEMENTED, QUOTA_EXCEEDED, UPSTREAM_ERROR, VOICE_NOT_IN_PLAN
from contract.voice_design.draft import VoiceSpec
from contract.voice_design.order import AdoptRequest, DesignOrder, SuggestRequest, voice_spec
from contract.voice_design.replies import DesignOptions, SuggestReply
from contract.voice_design.replies import options as options_of
from deployments.ingress.context import RequestContext
from state.drafts import Draft
from state.voices import OwnVoice, check_slug
from text.descriptions.suggest import suggest as suggest_traits


def options(context: RequestContext) -> DesignOptions:
    """Returns the options of orders, and if orders are taken. Raises NOT_IMPLEMENTED if no designer is known at all."""
    model, is_available = _designer(context)
    return options_of(context.service.catalog.traits, model, is_available)


def prepare(context: RequestContext, request: DesignOrder) -> tuple[VoiceDesignModel, VoiceSpec]:
    """The designer of an order, and its specification. Raises INVALID_REQUEST, VOICE_NOT_IN_PLAN, NOT_IMPLEMENTED."""
    model, is_available = _designer(context)
    spec = voice_spec(request, context.service.catalog.traits, model, random.Random())
    _require_plan(context.caller)
    if not is_available:
        raise _not_here()
    return model, spec


async def order(context: RequestContext, model: VoiceDesignModel, planned: VoiceSpec) -> Draft:
    """A new draft with its work begun.

    Raises VOICE_LIMIT_REACHED for a slug that is taken, UPSTREAM_ERROR where the designer cannot be started,
    TOO_MANY_PENDING and QUOTA_EXCEEDED.
    """
    service = context.service
    if planned.slug:
        check_slug(planned.slug, service.catalog.voices)
    await service.state.ledger.require_funds(context.caller, QUOTA_EXCEEDED)
    engine = context.engine(model)
    if engine.is_failing():
        engine.warm()  # Without an attempt nobody would notice that it can be started again.
        raise UPSTREAM_ERROR()
    draft = await service.state.drafts.order(
        context.caller,
        planned,
        model=model.id,
        line=model.billing_key,
        estimate_micro_eur=model.cost_micro_eur(synthesis_ms=round(model.expected_s * 1000)),
        request_id=context.exchange.request_id,
    )
    service.drafts.enqueue(draft.id)
    return draft


async def poll(context: RequestContext, draft_id: str) -> Draft:
    """A draft of the organisation. Raises NOT_FOUND."""
    draft = await context.service.state.drafts.find(context.caller.org_id, draft_id)
    if context.service.state.drafts.waits(draft):
        context.service.drafts.enqueue(draft.id)
    return draft


async def find_to_adopt(context: RequestContext, draft_id: str) -> Draft:
    """A draft of an organisation with voices in its plan. Raises NOT_FOUND, VOICE_NOT_IN_PLAN."""
    draft = await context.service.state.drafts.find(context.caller.org_id, draft_id)
    _require_plan(context.caller)
    return draft


async def adopt(context: RequestContext, draft: Draft, request: AdoptRequest) -> OwnVoice:
    """The voice that a ready draft becomes. Raises INVALID_REQUEST unless it is ready, VOICE_LIMIT_REACHED."""
    adoption = context.service.drafts.adoption(draft, request.slug, request.label)
    _, own = await context.service.state.drafts.adopt(draft.org_id, draft.id, adoption)
    return own


async def discard(context: RequestContext, draft_id: str) -> Draft:
    """The draft, discarded; the time that a designer had spent on it until then is billed. Raises NOT_FOUND."""
    service, org_id = context.service, context.caller.org_id
    draft = await service.state.drafts.discard(org_id, draft_id)
    await service.drafts.cancel(draft.id)
    return await service.state.drafts.find(org_id, draft_id)


def suggest(context: RequestContext, request: SuggestRequest) -> SuggestReply:
    """Traits from a description. Raises VOICE_NOT_IN_PLAN."""
    _require_plan(context.caller)
    return suggest_traits(request.text, context.service.catalog.traits)


def _designer(context: RequestContext) -> tuple[VoiceDesignModel, bool]:
    """The first designer that is set up and enabled, else the first that is known; and whether it takes orders."""
    known = context.service.catalog.voice_design
    offered = context.offered(known)
    for model in (*offered, *known.values()):
        return model, bool(offered)
    raise _not_here()


def _not_here() -> Exception:
    return NOT_IMPLEMENTED("this deployment does not design voices; check `available` in design-options beforehand")


def _require_plan(caller: Caller) -> None:
    if not caller.may_select_voices:
        raise VOICE_NOT_IN_PLAN(
            f"voice design needs voice selection, which plan `{caller.tariff.name}` does not include; plans from "
            "`starter` on include it"
        )
