"""What a stanza of every kind may say: public facts, and how a profile runs the model.

With the prices stands what a job may cost before its engine has counted: at most, which a spend limit is held against,
and likely.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from contract.base import Frozen
from contract.hours import WarmHours

ModelId = str
"""The id that requests name, e.g. `gemma-4-12b`."""

MILLION = 1_000_000

PART_TOKENS = 16
"""Control tokens around one message or text."""
TEMPLATE_TOKENS = 512
"""Tokens of a chat template's own words."""
BYTES_PER_TOKEN = 4
"""Bytes of UTF-8 per token, in ordinary text of any language."""
IMAGE_TOKENS = 256
"""Tokens of a small picture for a model that sees."""


class SpeechRuntime(Frozen):
    """A runtime that speaks, its licence, and in plain words what that sounds like."""

    runtime: str
    license: str | None = None
    description: str | None = None


class DefaultSpeechRuntime(SpeechRuntime):
    """One that speaks some languages, ISO 639-1, better than the voices that a request may name."""

    languages: tuple[str, ...]


class Serving(Frozen):
    """How one profile runs one model: the adapter, its size, and what it does when cold or busy (docs/concepts.md).

    Attributes:
        adapter: `module:Class`, loaded in the replica.
        runtime: name of what truly runs, for `x-service-model-served` and `runtime` in `/models`.
        license: licence of what truly runs, where that is not the model itself.
        description: what `runtime` sounds like, in plain words, where the stanza of the model cannot know it.
        via: how a decision model is read, where the stanza says otherwise.
        languages: ISO 639-1 codes that `runtime` speaks, where `fallback` speaks the others.
        fallback: the runtime for all other languages; None where `runtime` speaks them all.
        by_default: the runtime that speaks its languages where a request names no voice; None where the others do.
        weights: name in the manifest of weights, None if the adapter needs none.
        options: handed to the adapter as they are (engine arguments).
        max_ongoing_requests: streams of one replica; the limit is strict and counts over all ingress replicas.
        when_cold: `refuse` answers 503 and leaves one warm call, `wait` holds the request up to `wait_s`.
        wait_s: seconds that a request waits at most for an engine that starts.
        when_busy: `refuse` answers 429 at once, `queue` lets `max_queued` requests of each ingress replica wait.
        max_queued: requests that may wait for a slot.
        deadline_s: seconds until the whole answer, time in the queue included; in a stream, until its first event, and
            from each event to the next. Then 504.
        target_wait_s: seconds; where a call would wait longer for a slot, a replica is added.
        idle_s: seconds without a request after which the last replica stops, until gaps between requests were learned.
            Then the price of a cold hit: so many seconds of an idle replica.
        idle_least_s: the least that is learned.
        idle_most_s: the most; `idle_s` where it is not set.
        warm: hours in which one replica stays.
        load_s: expected seconds of a cold start, until one has been measured.
        context_window: tokens of prompt and answer together, where memory bounds it below what the model knows.
        machine_gib: `make serve` leaves the model out on a machine with less memory; None where any will do.
        gpu_gib: what a replica takes of a GPU. `make serve` sets up the models that fit together, smallest first.
        threads: CPU threads of the model; None leaves it to the library.
        deployment: Serve's deployment options under Serve's names, e.g. `autoscaling_config`, `ray_actor_options` and
            `placement_group_bundles`. Ray checks them when the graph starts.
    """

    adapter: str = Field(pattern=r"^\w+(\.\w+)+:\w+$")
    runtime: str
    license: str | None = None
    description: str | None = None
    via: str | None = None
    languages: tuple[str, ...] = ()
    fallback: SpeechRuntime | None = None
    by_default: DefaultSpeechRuntime | None = None
    weights: str | None = None
    options: dict[str, Any] = {}
    max_ongoing_requests: PositiveInt = 16
    when_cold: Literal["refuse", "wait"] = "wait"
    wait_s: PositiveFloat = 240
    when_busy: Literal["refuse", "queue"] = "queue"
    max_queued: PositiveInt = 256
    deadline_s: PositiveFloat = 300
    target_wait_s: PositiveFloat = 10
    idle_s: PositiveFloat = 300
    idle_least_s: PositiveFloat = 30
    idle_most_s: PositiveFloat | None = None
    warm: tuple[WarmHours, ...] = ()
    load_s: PositiveFloat = 30
    context_window: PositiveInt | None = None
    machine_gib: PositiveFloat | None = None
    gpu_gib: PositiveFloat | None = None
    threads: PositiveInt | None = None
    deployment: dict[str, Any] = {}

    @model_validator(mode="after")
    def _idle_times_are_in_order(self) -> Self:
        if (most_s := self.idle_most_s or self.idle_s) < self.idle_least_s and "idle_least_s" in self.model_fields_set:
            raise ValueError(
                f"`idle_least_s` is {self.idle_least_s:g}, but the most that an engine stays is {most_s:g} s"
            )
        return self

    @property
    def on_gpu(self) -> bool:
        """Whether a replica gets a GPU, itself or in a bundle of its placement group."""
        bundles = self.deployment.get("placement_group_bundles", [])
        gpus = [self.deployment.get("ray_actor_options", {}).get("num_gpus"), *(b.get("GPU") for b in bundles)]
        return any(gpus)


class Model(Frozen):
    """Public facts that every kind shares. Subclasses add what only their kind has.

    Attributes:
        kind: value of `kind` in `/models`; says which endpoint addresses the model.
        noun: capability name, the same in every folder; deployment names start with it.
        is_listed: whether `/models` names it.
        created: Unix time at which the models entered the catalogue.
        owned_by: who made the model, as OpenAI's list has it.
        display_name: for people.
        description: one line, for people.
        license: SPDX name of the model's licence.
        price: micro-EUR per million of each unit that the request consumes.
    """

    kind: ClassVar[str]
    noun: ClassVar[str]
    is_listed: ClassVar[bool] = True
    created: ClassVar[int] = 1_790_000_000

    id: ModelId
    owned_by: str
    display_name: str | None = None
    description: str | None = None
    license: str | None = None
    price: dict[str, int] = {}
    serving: Serving | None = None

    @property
    def deployment(self) -> str:
        """Public, stable name of the deployment that runs this model, e.g. `chat-gemma-4-12b`."""
        return f"{self.noun.replace('_', '-')}-{self.id}"

    @property
    def billing_key(self) -> str:
        """The name of the model in usage lines, e.g. `chat:gemma-4-12b`."""
        return f"{self.noun.replace('_', '-')}:{self.id}"

    @property
    def runtime(self) -> str:
        """The name of what truly runs here. The model must be deployed."""
        assert self.serving is not None, f"{self.id} is not deployed"
        return self.serving.runtime

    def speaker_of(self, language: str, *, has_voice: bool = True) -> SpeechRuntime:
        """What truly speaks `language` here, by a voice or where none is named. The model must be deployed."""
        assert self.serving is not None, f"{self.id} is not deployed"
        default, fallback = self.serving.by_default, self.serving.fallback
        if default and not has_voice and language in default.languages:
            return default
        if fallback and language not in self.serving.languages:
            return fallback
        return SpeechRuntime(runtime=self.runtime, license=self.runtime_license, description=self.serving.description)

    @property
    def runtime_license(self) -> str | None:
        """Licence of what truly runs here, or of the model itself where it is not deployed; None if it is unknown."""
        return (self.serving.license if self.serving else None) or self.license

    @property
    def weights(self) -> str | None:
        """The name of its weights in the manifest; None where it needs none, or is not deployed."""
        return self.serving.weights if self.serving else None

    def cost_micro_eur(self, **quantities: int) -> int:
        """Price of `quantities` by unit, rounded up to a whole micro-EUR."""
        price, total = self.price, 0
        for (
            unit,
            quantity,
        ) in quantities.items():  # for each event of a stream: a generator would be called for each unit
            total += price.get(unit, 0) * quantity
        return -(-total // MILLION)


def utf8_bytes(texts: Iterable[str]) -> int:
    """Bytes of `texts` together."""
    joined = "".join(texts)
    return len(joined) if joined.isascii() else len(joined.encode())


def most_tokens(text_bytes: int, parts: int) -> int:
    """An upper bound of the tokens of a text whose tokenizer is elsewhere: no token is shorter than a byte of UTF-8.

    `parts` are messages or texts, each of which brings a few control tokens; a chat template adds some of its own.
    """
    return text_bytes + PART_TOKENS * parts + TEMPLATE_TOKENS


def likely_tokens(texts: Iterable[str]) -> int:
    """About as many tokens as `texts` have: what a client owes that leaves before its engine has counted."""
    return -(-utf8_bytes(texts) // BYTES_PER_TOKEN)
