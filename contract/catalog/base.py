"""Fields of every stanza: public facts about a model, and the settings by which a profile runs it.

The module also estimates the tokens of a job before its engine has counted them: an upper bound, which is reserved from
a budget, and a likely number.
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
"""Tokens of the words of a chat template itself."""
BYTES_PER_TOKEN = 4
"""Bytes of UTF-8 per token, in ordinary text of any language."""
IMAGE_TOKENS = 256
"""Tokens of a small image for a model with vision."""


class SpeechRuntime(Frozen):
    """Runtime that speaks, its licence, and a plain description of its sound."""

    runtime: str
    license: str | None = None
    description: str | None = None


class DefaultSpeechRuntime(SpeechRuntime):
    """Speech runtime that speaks some languages, ISO 639-1, better than the voices that a request may name."""

    languages: tuple[str, ...]


class Serving(Frozen):
    """Settings by which one profile runs one model: adapter, size, and behaviour when cold or busy (docs/concepts.md).

    Attributes:
        adapter: `module:Class`, loaded in the replica.
        runtime: name of what truly runs, for `x-service-model-served` and `runtime` in `/models`.
        license: licence of what truly runs, where that is not the model itself.
        description: plain description of the sound of `runtime`, where the stanza of the model cannot know it.
        via: method by which a decision model is read, where it is not that of the stanza.
        languages: ISO 639-1 codes that `runtime` speaks, where `fallback` speaks the others.
        fallback: the runtime for all other languages; None where `runtime` speaks them all.
        by_default: the runtime that speaks its languages where a request names no voice; None where the others do.
        weights: name in the manifest of weights; None if the adapter needs none.
        options: engine arguments, passed to the adapter unchanged.
        max_ongoing_requests: requests of one replica at a time; the limit is strict, over all ingress replicas.
        when_cold: `refuse` answers 503 and leaves one warm call, `wait` holds the request up to `wait_s`.
        wait_s: the most seconds that a request waits for an engine to start.
        when_busy: `refuse` answers 429 at once, `queue` lets `max_queued` requests of each ingress replica wait.
        max_queued: requests that may wait for a slot.
        deadline_s: seconds until the whole answer, time in the queue included; in a stream, until its first event, and
            from each event to the next. Then 504.
        target_wait_s: wait for a slot, in seconds, above which a replica is added.
        idle_s: seconds without a request after which the last replica stops, until gaps between requests were learned.
            After that it is the price of a cold hit, in seconds of an idle replica. A language model on a CPU frees its
            cache after half of this time.
        idle_least_s: the shortest idle timeout that is learned.
        idle_most_s: the longest; `idle_s` where it is not set.
        warm: hours in which one replica stays.
        load_s: expected seconds of a cold start, until one has been measured.
        context_window: tokens of prompt and answer together, where memory allows fewer than the model supports.
        machine_gib: memory below which `make serve` leaves the model out on a machine; None for no minimum.
        gpu_gib: GPU memory of a replica. `make serve` sets up the models that fit together, smallest first.
        threads: CPU threads of the model; None leaves the number to the library.
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
        """True if a replica gets a GPU, itself or in a bundle of its placement group."""
        bundles = self.deployment.get("placement_group_bundles", [])
        gpus = [self.deployment.get("ray_actor_options", {}).get("num_gpus"), *(b.get("GPU") for b in bundles)]
        return any(gpus)


class Model(Frozen):
    """Public facts that every kind shares. Subclasses add what only their kind has.

    Attributes:
        kind: value of `kind` in `/models`, which selects the endpoint of the model.
        noun: name of the capability, the same in every folder; deployment names start with it.
        is_listed: whether `/models` names it.
        created: Unix time at which the models entered the catalogue.
        owned_by: maker of the model, as in OpenAI's list.
        display_name: name for people.
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
        """Name of the model in usage lines, e.g. `chat:gemma-4-12b`."""
        return f"{self.noun.replace('_', '-')}:{self.id}"

    @property
    def setup(self) -> Serving:
        """Table of the profile. The model must be set up."""
        assert self.serving is not None, f"{self.id} is not set up"
        return self.serving

    @property
    def runtime(self) -> str:
        """Name of what truly runs here. The model must be set up."""
        return self.setup.runtime

    def speaker_of(self, language: str, *, has_voice: bool = True) -> SpeechRuntime:
        """Returns the runtime that speaks `language` here, with a voice or without one. The model must be set up."""
        default, fallback = self.setup.by_default, self.setup.fallback
        if default and not has_voice and language in default.languages:
            return default
        if fallback and language not in self.setup.languages:
            return fallback
        return SpeechRuntime(runtime=self.runtime, license=self.runtime_license, description=self.setup.description)

    @property
    def runtime_license(self) -> str | None:
        """Licence of what truly runs here, or of the model itself where it is not deployed; None if it is unknown."""
        return (self.serving.license if self.serving else None) or self.license

    @property
    def weights(self) -> str | None:
        """Name of the weights in the manifest; None if the model needs none, or is not deployed."""
        return self.serving.weights if self.serving else None

    def cost_micro_eur(self, **quantities: int) -> int:
        """Returns the price of `quantities` by unit, rounded up to a whole micro-EUR."""
        price, total = self.price, 0
        # Runs for each event of a stream, so it avoids a generator, which costs a call for each unit.
        for unit, quantity in quantities.items():
            total += price.get(unit, 0) * quantity
        return -(-total // MILLION)


def utf8_bytes(texts: Iterable[str]) -> int:
    """Returns the bytes of `texts` together, in UTF-8."""
    joined = "".join(texts)
    return len(joined) if joined.isascii() else len(joined.encode())


def most_tokens(text_bytes: int, parts: int) -> int:
    """Returns an upper bound of the tokens of a text, without its tokenizer: no token is shorter than a byte of UTF-8.

    `parts` is the number of messages or texts. Each adds a few control tokens, and a chat template adds more.
    """
    return text_bytes + PART_TOKENS * parts + TEMPLATE_TOKENS


def likely_tokens(texts: Iterable[str]) -> int:
    """Returns an estimate of the tokens of `texts`, billed if the client leaves before the engine has counted them."""
    return -(-utf8_bytes(texts) // BYTES_PER_TOKEN)
