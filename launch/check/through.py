"""Decision models that read through a chat model: whether the two stanzas agree. Nothing in either may be ignored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from autoscaling.deployment import DeploymentTableError
from contract.catalog import DecisionModel, Model, Serving
from launch.check.cost import replica_of
from models import options

if TYPE_CHECKING:
    from launch.check.faults import Plan
    from launch.check.site import Site

THROUGH = "models.decisions:ThroughScorer"


def faults(plan: Plan, site: Site) -> Iterator[str]:
    """Every reason why a model cannot read through another one, one sentence each."""
    for model in plan.catalog.deployed():
        serving = model.serving
        assert serving
        if serving.reads_through is None:
            if _reads_through(model):
                yield f"{_key(model, 'reads_through')}: `{serving.adapter}` needs the id of a chat model"
        elif not isinstance(model, DecisionModel):
            yield f"{_key(model, 'reads_through')}: only decision models read through another model"
        else:
            yield from _own(model, serving)
            yield from _pair(plan, model, serving, serving.reads_through)


def _reads_through(model: Model) -> bool:
    try:
        return bool(getattr(options.adapter_of(model), "reads_through", False))
    except options.OptionsError:
        return False  # it does not exist, which is said elsewhere


def _own(model: DecisionModel, serving: Serving) -> Iterator[str]:
    """What its stanza may not say."""
    if not _reads_through(model):
        yield f"{_key(model, 'adapter')}: `{serving.adapter}` reads through no chat model; `{THROUGH}` does"
    if serving.threads is not None:
        yield f"{_key(model, 'threads')}: it computes nothing here; the threads are the chat model's"
    try:
        gpus = replica_of(model).gpus
    except DeploymentTableError:
        return  # said elsewhere
    if gpus:
        yield f"{_key(model, 'deployment')}: it takes {gpus:g} GPU and would use none; the chat model has its own"


def _pair(plan: Plan, model: DecisionModel, serving: Serving, id: str) -> Iterator[str]:
    """What both stanzas say."""
    chats = plan.catalog.chat
    through = chats.get(id)
    if through is None or through.serving is None:
        known = ", ".join(f"`{chat.id}`" for chat in chats.values() if chat.serving) or "none"
        profile = plan.catalog.profile
        yield f"{_key(model, 'reads_through')}: the profile `{profile}` sets up no chat model `{id}`; there are {known}"
        return
    theirs = through.serving
    if serving.weights != theirs.weights:
        yield f"{_key(model, 'weights')}: `{id}` loads `{theirs.weights}`, not `{serving.weights}`"
    if serving.when_busy != theirs.when_busy:
        yield (
            f"{_key(model, 'when_busy')}: it is `{serving.when_busy}`; that of `{id}`, whose streams it takes, is "
            f"`{theirs.when_busy}`"
        )
    if model.context_window > through.context_window:
        yield (
            f"decisions.toml [{model.id}] `context_window`: {model.context_window} tokens do not fit `{id}`, which has "
            f"{through.context_window}"
        )
    if not _has_float32_head(theirs):
        yield (
            f"{_key(through, 'options.engine')}: `{model.id}` is read through it, so it needs "
            '`hf_overrides = { head_dtype = "float32" }`'
        )


def _has_float32_head(serving: Serving) -> bool:
    overrides = serving.options.get("engine", {}).get("hf_overrides", {})
    return isinstance(overrides, dict) and overrides.get("head_dtype") == "float32"


def _key(model: Model, key: str) -> str:
    return f"{model.noun}.toml [{model.id}.serving] `{key}`"
