"""Headers that say which model answered, which one was asked for where that is another, and what it did not read."""

from __future__ import annotations

from collections.abc import Sequence

from contract.catalog import Model, SpeechModel
from deployments.ingress.context import RequestContext

MOST_PLACES = 64
"""In a header: proxies refuse long ones."""


def served_by(
    context: RequestContext, model: Model, requested: str | None, language: str | None = None
) -> dict[str, str]:
    """What ran, and `requested` where that is not literally it. `language` is that of a text that was spoken."""
    ran = model.runtime_for(language) if isinstance(model, SpeechModel) and language else model.runtime
    prefix = context.service.header_prefix
    headers = {f"{prefix}model-served": ran}
    if requested and requested != ran:
        headers[f"{prefix}model-requested"] = _header_safe(requested)
    return headers


def input_cut(context: RequestContext, tokens: int) -> dict[str, str]:
    """Says that `tokens` were cut from the top of an input that was too long; nothing where none were."""
    return {f"{context.service.header_prefix}input-cut": str(tokens)} if tokens else {}


def ignored(context: RequestContext, places: Sequence[str]) -> dict[str, str]:
    """Says which parts of a body the model was not told of; nothing where there are none. `...` stands for more."""
    told = [*places[:MOST_PLACES], "..."] if len(places) > MOST_PLACES else places
    return {f"{context.service.header_prefix}ignored": ", ".join(told)} if told else {}


def _header_safe(text: str) -> str:
    """A client's text as a header value: one line of ASCII, not endless."""
    return "".join(char if " " <= char <= "~" else "?" for char in text)[:200]
