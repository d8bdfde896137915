"""Types of the catalogue: what a stanza of `configs/catalog/*.toml` may say. Spec 2 (Model) and 8.

A stanza holds public facts, true wherever the model runs, and one `[<id>.serving.<profile>]` table per profile that
sets it up. The loader (`configs.load`) picks the profile's table; `serving is None` means known, but not set up here.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from contract.base import Frozen
from contract.chat.thinking import Thinking
from contract.decisions.presets import Preset
from contract.place import Place
from contract.speech.voices import SpokenBy, Voice, VoiceAlias
from contract.transcription.languages import LANGUAGES
from contract.voice_design.traits import Traits

ModelId = str
"""Id that requests name, e.g. `gemma-4-12b`."""

AudioFormat = Literal["wav", "flac", "ogg", "mp3", "opus", "aac"]
"""What `response_format` may name. No engine answers with `ogg`: spec 4 gives another format for it everywhere."""

MILLION = 1_000_000


class Elsewhere(Frozen):
    """What runs for the languages that `runtime` of a serving table does not speak, and its licence."""

    runtime: str
    license: str | None = None


class Serving(Frozen):
    """How one profile runs one model: the adapter, its size, and its manners when cold or busy (design section 3).

    Attributes:
        adapter: `module:Class`, loaded in the replica.
        runtime: what truly runs, for `x-service-model-served` and `runtime` in `/models`.
        license: of what truly runs, where that is not the model itself.
        via: how a decision model is read, where that is not as the stanza says.
        languages: ISO 639-1 codes that `runtime` speaks, where `elsewhere` speaks the others.
        elsewhere: what runs for all other languages; None where `runtime` speaks them all.
        weights: name in the weights manifest, or None if the adapter needs none.
        options: handed to the adapter as they are (engine arguments).
        max_ongoing_requests: streams of one replica; the limit is strict and counts over all ingress replicas.
        when_cold: `refuse` answers 503 and leaves one warm call, `wait` holds the request up to `wait_s`.
        when_busy: `refuse` answers 429 at once, `queue` lets `max_queued` requests of each ingress replica wait.
        deadline_s: seconds for the whole call (a stream: for its first item), then 504.
        idle_s: seconds without a request before the last replica goes.
        load_s: expected seconds of a cold start, until one has been measured.
        threads: CPU threads of the model; None leaves it to the library.
        reads_through: id of the chat model whose replicas a decision model is read through; None for an engine of its
            own.
        deployment: Serve's deployment options under Serve's names, e.g. `autoscaling_config`, `ray_actor_options` and
            `placement_group_bundles`. Ray checks them when the graph starts.
    """

    adapter: str = Field(pattern=r"^\w+(\.\w+)+:\w+$")
    runtime: str
    license: str | None = None
    via: str | None = None
    languages: tuple[str, ...] = ()
    elsewhere: Elsewhere | None = None
    weights: str | None = None
    options: dict[str, Any] = {}
    max_ongoing_requests: PositiveInt = 16
    when_cold: Literal["refuse", "wait"] = "wait"
    wait_s: PositiveFloat = 240
    when_busy: Literal["refuse", "queue"] = "queue"
    max_queued: PositiveInt = 256
    deadline_s: PositiveFloat = 300
    idle_s: PositiveFloat = 300
    load_s: PositiveFloat = 30
    threads: PositiveInt | None = None
    reads_through: ModelId | None = None
    deployment: dict[str, Any] = {}

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
        created: Unix time the model entered the catalogue.
        price: micro-EUR per million of each unit that the request consumes.
    """

    kind: ClassVar[str]
    noun: ClassVar[str]
    is_listed: ClassVar[bool] = True

    id: ModelId
    owned_by: str
    created: int = 1_790_000_000
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
    def line(self) -> str:
        """What a usage line calls it, e.g. `chat:gemma-4-12b`."""
        return f"{self.noun.replace('_', '-')}:{self.id}"

    @property
    def runtime(self) -> str:
        """What truly runs here. Only of models that are set up."""
        assert self.serving is not None, f"{self.id} is not set up"
        return self.serving.runtime

    def runtime_for(self, language: str) -> str:
        """What truly speaks `language` here. Only of models that are set up."""
        if self.serving and self.serving.elsewhere and language not in self.serving.languages:
            return self.serving.elsewhere.runtime
        return self.runtime

    @property
    def runtime_license(self) -> str | None:
        """Licence of what truly runs here, of the model itself where it is not set up; None if it is not known."""
        return (self.serving.license if self.serving else None) or self.license

    def cost_micro_eur(self, **quantities: int) -> int:
        """Price of `quantities` by unit, rounded up to a whole micro-EUR."""
        total = sum(self.price.get(unit, 0) * n for unit, n in quantities.items())
        return -(-total // MILLION)


class FillIn(Frozen):
    """Control tokens around the two texts between which a model writes a third."""

    before: str
    between: str
    after: str


class ChatModel(Model):
    """An LLM. `context_window` is in tokens, prompt and answer together.

    `fill_in` is for models that were made to fill a gap: POST /completions takes a `suffix` then.
    `thinking` says how it is told to think; None where it does not, or cannot be told. A price `cached_input_tokens` is
    for tokens of the prompt that an earlier request had left in the cache; without one they cost what the others cost.
    """

    kind = "chat"
    noun = "chat"

    tier: Literal["default", "balanced", "reasoning", "vision", "premium"]
    context_window: PositiveInt
    vision: bool = False
    reasoning_parser: str | None = None
    tool_parser: str | None = None
    thinking: Thinking | None = None
    fill_in: FillIn | None = None

    @model_validator(mode="after")
    def _agrees(self) -> ChatModel:
        if self.price.get("cached_input_tokens", 0) > self.price.get("input_tokens", 0):
            raise ValueError(
                "`cached_input_tokens` must not cost more than `input_tokens`, the price that reservations use"
            )
        if self.thinking and self.thinking.budgets and not self.reasoning_parser:
            raise ValueError("`thinking.budgets` needs a `reasoning_parser`, which recognises the end of the reasoning")
        return self


InputType = Literal["query", "document", "code", "classification", "clustering"]
"""What a text is for that becomes a vector."""


class EmbeddingModel(Model):
    """Turns texts into vectors.

    Attributes:
        dimensions: of a full vector; `matryoshka` models offer fewer too.
        context_window: of one text, in tokens.
        prompts: read before a text, by what it is for; empty for models that were trained without.
    """

    kind = "embedding"
    noun = "embeddings"

    dimensions: PositiveInt
    context_window: PositiveInt
    matryoshka: bool = False
    prompts: dict[InputType, str] = {}


class RerankModel(Model):
    """Scores documents against a query. `context_window` is of one query and one document, in tokens."""

    kind = "rerank"
    noun = "rerank"

    context_window: PositiveInt


class SpeechModel(Model):
    """A text-to-speech engine: what it can do, so that no rule asks for its name. Spec 4 (POST /audio/speech).

    Attributes:
        provider: its name on the wire.
        languages: ISO 639-1. Engines that `obeys_language` refuse others; the rest follow the text.
        max_input_chars: code points of `input`.
        formats: what it can answer with; the first is what a request without one, or with another one, gets.
        sample_rate: of what it makes, in Hz; mono.
        tags: marks inside the text that it acts on, e.g. `<breath>`.
        spans: names of marks that enclose text, e.g. `laughter` for `<laughter>...</laughter>`.
        has_style, has_speed, has_cloning: whether `emotion`, `speed` and a reference clip mean something to it.
        in_one_piece: nothing is delivered before all of it is made, and nothing half ever is.
        watermark: whether its sound carries an inaudible watermark.
        default_voice: slug that speaks when none is requested, None for the engine's own.
        system_voices: slug that speaks for `default-de` and `default-en`, where it is not `default_voice`.
        default_since: first day as the default engine. Of all days that are not in the future, the newest decides.
        takeover_order: place among the engines that speak for the default one where it lacks a language: the first
            that knows the language, else the last.
        speaks_for_clips: speaks where a request brings a clip and names no engine.
        language_fault: row of the error table that refuses a language it lacks.
        voice_fault: row of the error table that refuses a voice of another engine.
        sentences: what samples say, in languages that `sentences.toml` lacks.
    """

    kind = "tts"
    noun = "speech"

    provider: str
    languages: tuple[str, ...]
    obeys_language: bool = False
    max_input_chars: PositiveInt
    formats: tuple[AudioFormat, ...] = ("wav",)
    sample_rate: PositiveInt = 24_000
    tags: tuple[str, ...] = ()
    spans: tuple[str, ...] = ()
    has_style: bool = False
    has_speed: bool = False
    has_cloning: bool = False
    in_one_piece: bool = False
    watermark: bool = False
    default_voice: str | None = None
    system_voices: dict[str, str] = {}
    default_since: date | None = None
    takeover_order: int | None = None
    speaks_for_clips: bool = False
    language_fault: Literal["LANGUAGE_NOT_SUPPORTED", "LANGUAGE_UNPROCESSABLE"] = "LANGUAGE_NOT_SUPPORTED"
    voice_fault: Literal["VOICE_PROVIDER_MISMATCH", "UNKNOWN_VOICE"] = "VOICE_PROVIDER_MISMATCH"
    sentences: dict[str, str] = {}

    def has_voice(self, slug: str) -> bool:
        """Whether a fixed voice has a sound here: its stanza lists it, or lists none because the weights bring them."""
        listed = self.serving.options.get("voices") if self.serving else ()
        return listed is None or slug in listed

    @property
    def runtimes(self) -> list[SpokenBy]:
        """What speaks which of its languages; empty where there is only one, or it is not set up."""
        if self.serving is None or self.serving.elsewhere is None:
            return []
        own = [code for code in self.languages if code in self.serving.languages]
        others = [code for code in self.languages if code not in self.serving.languages]
        return [
            {"runtime": self.runtime, "license": self.runtime_license, "languages": own},
            {
                "runtime": self.serving.elsewhere.runtime,
                "license": self.serving.elsewhere.license,
                "languages": others,
            },
        ]


class VoiceDesignModel(Model):
    """Makes voices from descriptions. Spec 2 (Voice design) and 4. `/models` does not name it: design-options does.

    Attributes:
        provider: of the speech engine that speaks adopted voices.
        languages: ISO 639-1 codes in which a voice may be designed: its sample sentence is in one of them.
        max_attempts: sentences that are spoken and measured for one draft, at most.
        expected_s: of synthesis for one draft, at most; so much is reserved from a budget.
    """

    kind = "voice_design"
    noun = "voice_design"
    is_listed = False

    provider: str
    languages: tuple[str, ...]
    max_attempts: PositiveInt = 5
    expected_s: PositiveFloat = 60


class TranscriptionModel(Model):
    """A speech-to-text model: what it can do, so that no rule asks for its name. Spec 4 (POST /audio/transcriptions).

    Attributes:
        is_default: listens where a request names no model, or one that is unknown.
        formats: what `response_format` may be.
        reports_language: detects the language where none is named, and says which.
        is_detailed: its segments carry Whisper's figures and are always there, both granularities are possible, and
            `duration` ends with the last segment.
        takes_prompt: reads `prompt`.
        obeys_language: refuses a language that it does not know; others take any code, and give it back as it was sent.
        formats_text: whether `format_text` is possible.
        formatter: chat model of the structuring pass, where it is set up; else rules do it.
        answer_s: seconds from the request to the answer, then 504.
        computed_s: where less than this was spent on the recording itself by then, it is 503 instead.
    """

    kind = "stt"
    noun = "transcription"

    is_default: bool = False
    formats: tuple[str, ...] = ("json", "text", "verbose_json")
    reports_language: bool = False
    is_detailed: bool = False
    takes_prompt: bool = False
    obeys_language: bool = False
    formats_text: bool = False
    formatter: ModelId | None = None
    answer_s: PositiveFloat = 270
    computed_s: float = 0

    @cached_property
    def languages(self) -> frozenset[str]:
        """Codes that what runs here can be told."""
        return frozenset(LANGUAGES) - frozenset(self._option("lacks_languages", ()))

    @property
    def times_words(self) -> bool:
        """Whether what runs here knows when each word is said."""
        return "word" in self._option("times", ("segment", "word"))

    @property
    def takes_terms(self) -> bool:
        """Whether what runs here can be told terms."""
        return bool(self._option("takes_terms", True))

    def _option(self, name: str, default: Any) -> Any:
        return self.serving.options.get(name, default) if self.serving else default


class DecisionModel(Model):
    """A decision scorer. `/models` does not name it: GET /decisions/models does.

    Attributes:
        via: named in every answer: how it is read.
        context_window: of the state and one question, in tokens.
    """

    kind = "decision"
    noun = "decisions"
    is_listed = False

    via: str
    context_window: PositiveInt

    @property
    def runtime_via(self) -> str:
        """How what runs here is read."""
        return (self.serving.via if self.serving else None) or self.via

    @property
    def reads_images(self) -> bool:
        """Whether the runtime of this profile sees."""
        return bool(self.serving and self.serving.options.get("images"))


EncoderModel = EmbeddingModel | RerankModel | DecisionModel
"""What may be read by a network that turns texts into vectors: all have a `context_window`."""


class Catalog(Frozen):
    """All models that the API knows, by kind and id, in the order of their files.

    `place` says where they run. Beside them come presets by id, voices by slug, what stands for other names of voices,
    the sentence of samples by language, and traits of voices to design.
    """

    profile: str
    place: Place = Place()
    chat: dict[ModelId, ChatModel] = {}
    embeddings: dict[ModelId, EmbeddingModel] = {}
    rerank: dict[ModelId, RerankModel] = {}
    speech: dict[ModelId, SpeechModel] = {}
    transcription: dict[ModelId, TranscriptionModel] = {}
    voice_design: dict[ModelId, VoiceDesignModel] = {}
    decisions: dict[ModelId, DecisionModel] = {}
    presets: dict[str, Preset] = {}
    voices: dict[str, Voice] = {}
    voice_aliases: dict[str, VoiceAlias] = {}
    sentences: dict[str, str] = {}
    traits: Traits = Traits()

    def models(self) -> Iterator[Model]:
        """Every model, set up or not."""
        for noun in CATALOG_TYPES:
            yield from getattr(self, noun).values()

    @property
    def spoken_languages(self) -> frozenset[str]:
        """ISO 639-1 codes of every language that at least one speech engine knows."""
        return frozenset(language for model in self.speech.values() for language in model.languages)

    def read_through(self, model: Model) -> ChatModel | None:
        """The chat model whose replicas read for `model`; None where it has an engine of its own."""
        id = model.serving.reads_through if model.serving else None
        return self.chat.get(id) if id is not None else None

    def set_up(self) -> Iterator[Model]:
        """The models that this profile runs."""
        return (model for model in self.models() if model.serving)


CATALOG_TYPES: dict[str, type[Model]] = {
    t.noun: t
    for t in (
        ChatModel,
        EmbeddingModel,
        RerankModel,
        SpeechModel,
        TranscriptionModel,
        VoiceDesignModel,
        DecisionModel,
    )
}
"""Noun to type: the file `configs/catalog/<noun>.toml` holds stanzas of this type."""
