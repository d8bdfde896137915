"""What a flow knows of one request: the caller, its id, its timings, and the service it came to. No HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from autoscaling.engine import CallContext, Engine, Timings, owner_name
from contract.access import Caller
from contract.catalog import Model
from contract.errors import MODEL_NOT_FOUND
from deployments.ingress.service import Service

M = TypeVar("M", bound=Model)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One admitted request.

    Attributes:
        request_id: ours, never the client's: usage lines are unique by it.
        started_s: `time.perf_counter()` when the request came.
        timings: filled by the gate; the reply shows them in `Server-Timing`.
    """

    service: Service
    caller: Caller
    request_id: str
    started_s: float
    timings: Timings

    def offered(self, models: Mapping[str, M]) -> list[M]:
        """Those of `models` that are set up here and enabled for the caller's organisation."""
        return [model for model in models.values() if model.serving and self.caller.may_use(model.id)]

    def pick(self, models: Mapping[str, M], model_id: str | None, default: str | None = None) -> M:
        """The model that a request names, else `default`; the first one where neither is named.

        Raises MODEL_NOT_FOUND. Unknown, not set up, and not enabled look the same from outside.
        """
        offered, wanted = self.offered(models), default if model_id is None else model_id
        for model in offered:
            if wanted is None or model.id == wanted:
                return model
        names = ", ".join(f"`{model.id}`" for model in offered) or "none"
        missing = f"there is no model `{wanted[:100]}` here" if wanted else "no such model is set up here"
        if model_id is None and default is not None:
            missing = f"`model` is missing, and you cannot use the default, `{default}`, here"
        raise MODEL_NOT_FOUND(f"{missing}; your organisation can use: {names}", param="model")

    def engine(self, model: Model) -> Engine:
        """The engine that runs `model`."""
        return self.service.engine(model)

    @property
    def owner(self) -> str:
        """For whom engines work: the caller's organisation, whichever of its keys was used."""
        return owner_name(self.caller.org_id)

    @property
    def call(self) -> CallContext:
        """What goes with every call of an engine for this request."""
        return CallContext(self.owner, self.timings)
