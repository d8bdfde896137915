"""Without HTTP: the service that one process is, the exchange of a request, and the context that flows work with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, cast

from autoscaling.engine import CallContext, Engine, Timings, owner_name
from autoscaling.metrics import Metrics
from autoscaling.observation import Observation
from contract.access import Caller, Scope
from contract.body import Hold
from contract.catalog import Catalog, Model, SpeechModel
from contract.decisions.engine import Measurement
from contract.errors import MODEL_NOT_FOUND, Fault
from contract.ids import random_id
from contract.limits import EARLY_LEAVER_S, EARLY_LEAVERS, SAMPLE_IN_MEMORY_S, SAMPLES_IN_MEMORY
from contract.speech.voices import VoiceAlias
from contract.tracing import RequestNames
from contract.wires import OPENAI, ErrorShape
from deployments.ingress.console import Console
from deployments.ingress.draft_worker import DraftWorker
from deployments.ingress.front.concurrency import ConcurrencyLimits, Holder
from deployments.ingress.front.live import LiveSessions
from deployments.ingress.front.proxies import Proxies
from state import State
from state.accounts.authentication import TtlCache
from state.billing.reservation import OpenBill, Reservation
from state.rates import RateVerdict

M = TypeVar("M", bound=Model)


@dataclass(frozen=True)
class Service:
    """Catalogue, engines by deployment name, and state.

    Attributes:
        header_prefix: of the service's own reply headers.
        public_url: address at which clients reach this server, without a slash at its end; None: as each request says.
        proxies: trusted about the origin of a request.
        allowed_origins: origins of web pages that may call, `*` for all; empty: only those of this server.
        voice_aliases: other names that requests may use for voices.
        measurements: the last one that each decision model reported.
        concurrency, live: holdings of requests in this process, with their limits; live sessions.
        metrics: metrics of this process's requests and engines; `observation`, of single requests.
        played: samples of fixed voices, by their names in the store. They belong to all.
        recent_disconnects: organisations with clients that left whole answers lately; the next ones are counted.
        console: data of the console beside those of the database; None: there is no console.
    """

    catalog: Catalog
    engines: Mapping[str, Engine]
    state: State
    header_prefix: str = "x-service-"
    public_url: str | None = None
    proxies: Proxies = field(default_factory=Proxies)
    allowed_origins: frozenset[str] = frozenset()
    voice_aliases: Mapping[str, VoiceAlias] = field(default_factory=dict)
    measurements: dict[str, Measurement] = field(default_factory=dict)
    concurrency: ConcurrencyLimits = field(default_factory=ConcurrencyLimits)
    metrics: Metrics = field(default_factory=Metrics)
    observation: Observation = field(default_factory=Observation)
    played: TtlCache[str, bytes] = field(default_factory=lambda: TtlCache(SAMPLES_IN_MEMORY, SAMPLE_IN_MEMORY_S))
    recent_disconnects: TtlCache[int, bool] = field(default_factory=lambda: TtlCache(EARLY_LEAVERS, EARLY_LEAVER_S))
    live: LiveSessions = field(default_factory=LiveSessions)
    console: Console | None = None

    @cached_property
    def drafts(self) -> DraftWorker:
        """The work on drafts of voices in this process."""
        return DraftWorker(self.catalog, self.engines, self.state)

    @cached_property
    def speech_engines(self) -> Mapping[str, SpeechModel]:
        """Every speech engine that the catalogue knows, set up or not, by its name on the wire."""
        return {model.provider: model for model in self.catalog.speech.values()}

    @cached_property
    def spoken_languages(self) -> frozenset[str]:
        """ISO 639-1 codes of every language that at least one of them speaks."""
        return self.catalog.spoken_languages

    def engine(self, model: Model) -> Engine:
        """The engine that runs `model`: an `autoscaling.gate.Gate`, except in tests."""
        return self.engines[model.deployment]


@dataclass(slots=True)
class Exchange:
    """One request from the first byte to the last, and what it holds of the process until then.

    Attributes:
        shape: form of errors on the wire of this path.
        request_id: made here, never by the client: usage lines are unique by it.
        started_s: `time.perf_counter()` when the request came.
        timings: filled by the gate; the reply shows them in `Server-Timing`.
        rate, caller, scope: standing and holder of its key, and what the route demands of it; set by admission.
        resources: holdings that are given back when the request is over.
        holder: the holder of the limits that count, set by admission.
        model: the first one that was picked or billed.
        fault: fault with which the request has failed, also after its status had gone out.
        names: its ids elsewhere, if a client or this process traces or reports it.
        reservations: for its calls of engines, with what they have used.
    """

    service: Service
    shape: ErrorShape = OPENAI
    request_id: str = field(default_factory=lambda: f"req_{random_id()}")
    started_s: float = field(default_factory=time.perf_counter)
    timings: Timings = field(default_factory=Timings)
    rate: RateVerdict | None = None
    resources: ExitStack = field(default_factory=ExitStack)
    holder: Holder | None = None
    scope: Scope | None = None
    model: Model | None = None
    fault: Fault | None = None
    names: RequestNames | None = None
    caller: Caller | None = None
    reservations: list[Reservation] = field(default_factory=list)

    def begin_call(self, holder: Holder) -> None:
        """Counts the request among those of `holder` until it is over. Raises TOO_MUCH_AT_ONCE."""
        self.resources.enter_context(self.service.concurrency.call(holder))
        self.holder = holder

    def hold(self) -> Hold:
        """Takes bytes of the holder's limits until the request is over. Raises TOO_MUCH_AT_ONCE, OVERLOADED."""
        assert self.holder
        return self.resources.enter_context(self.service.concurrency.body(self.holder))

    def parts(self) -> dict[str, float]:
        """Times of its stages up to now, in seconds."""
        spent = self.timings
        gateway = max(0.0, time.perf_counter() - self.started_s - spent.queue - spent.load - spent.engine)
        return {"gateway": gateway, "queue": spent.queue, "load": spent.load, "engine": spent.engine}

    def replying(self, byte_count: int) -> AbstractContextManager[None]:
        """Counts bytes of the reply that are in memory."""
        return self.service.concurrency.reply(self.holder, byte_count) if self.holder else nullcontext()


def exchange_of(scope: Mapping[str, Any]) -> Exchange:
    """The exchange that the middleware opened for the request or websocket with this ASGI scope."""
    return cast(Exchange, scope["exchange"])


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One admitted request. `timings` are those of its exchange, or of a part of its work that is not shown there."""

    exchange: Exchange
    caller: Caller
    timings: Timings

    @property
    def service(self) -> Service:
        """The service that this process is."""
        return self.exchange.service

    def offered(self, models: Mapping[str, M]) -> list[M]:
        """Those of `models` that are set up here and enabled for the caller's organisation."""
        return [model for model in models.values() if model.serving and self.caller.may_use(model.id)]

    def pick(self, models: Mapping[str, M], model_id: str | None, default: str | None = None) -> M:
        """The model that a request names, else `default`; the first one where neither is named.

        Raises MODEL_NOT_FOUND. Unknown, not set up, and not enabled look the same from outside.
        """
        offered = self.offered(models)
        wanted = default if model_id is None else model_id
        for model in offered:
            if wanted is None or model.id == wanted:
                self.exchange.model = self.exchange.model or model
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
        """Context of every call of an engine for this request."""
        return CallContext(self.owner, self.timings, self.exchange.names)

    @contextmanager
    def memory_for(self, reply_bytes: int) -> Iterator[None]:
        """Memory for a long reply, taken before an engine is asked. Raises TOO_MUCH_AT_ONCE, OVERLOADED."""
        with self.service.concurrency.body(self.caller) as hold:
            hold(reply_bytes)
            yield

    async def bill(
        self,
        model: Model,
        estimate: Mapping[str, int],
        unit: str = "tokens",
        *,
        begun: Callable[[], Mapping[str, int]] = dict,
        is_stream: bool = False,
    ) -> OpenBill:
        """The bill around one engine call, which reserves the price of `estimate`, an upper bound by unit.

            async with await context.bill(model, {"input_tokens": 900, "output_tokens": 1024}) as bill:
                ...
                await bill.progress(input_tokens=12, output_tokens=40)      # streams: tops up when needed

        Leaving the block settles what `progress` last said: also when the client went away, and when this server has to
        stop. A client that went away before anything was counted pays what the engine had `begun`, if the call had gone
        out to it. What fails by our fault before it is settled costs nothing, except what a time limit took from a
        stream, or from an answer that was counted. So a whole answer is settled last: a flow that asks for one is given
        `render`, which makes the reply.

        Raises ORG_SPEND_LIMIT or USER_SPEND_LIMIT, STATE_UNAVAILABLE.
        """
        self.exchange.model = self.exchange.model or model
        state = self.service.state
        cost = model.cost_micro_eur(**estimate)
        request_id = self.exchange.request_id
        reservation = await state.ledger.reserve(
            self.caller, line=model.billing_key, model=model.id, estimate_micro_eur=cost, request_id=request_id
        )
        reservation.waited_s = self.timings.waited
        self.exchange.reservations.append(reservation)

        def owed() -> Mapping[str, int]:
            return begun() if self.timings.was_sent else {}

        return OpenBill(reservation, model, cost, unit, state.accounts.current, owed, is_stream=is_stream)
