"""The catalogue: every model that the API knows, each from its stanza in `configs/catalog/<noun>.toml`.

base.py             fields of every stanza, and the table of a profile
chat.py             LLMs, and their options for reasoning
encoders.py         embeddings, rerankers, decision scorers
speech.py           speech engines, and designers of their voices
transcription.py    speech to text

A stanza holds public facts, true wherever the model runs, and one `[<id>.serving.<profile>]` table per profile that
deploys it. The loader (`configs.load`) picks the table of the profile; `serving is None` means known, but not deployed.

The service cannot detect its operator and its country, so the `args` of a profile name both. Without a country it is
`UNKNOWN_COUNTRY`, and the start logs a warning.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Annotated

from pydantic import AfterValidator, StringConstraints

from contract.base import Frozen
from contract.catalog.base import Model, ModelId, Serving
from contract.catalog.chat import ChatModel, ThinkingOptions
from contract.catalog.encoders import DecisionModel, EmbeddingModel, RerankModel
from contract.catalog.speech import AudioFormat, SpeechModel, VoiceDesignModel
from contract.catalog.transcription import TranscriptionModel
from contract.decisions.questions import Preset
from contract.speech.voices import Voice, VoiceAlias
from contract.voice_design.traits import Traits

__all__ = [
    "CATALOG_TYPES",
    "COUNTRIES",
    "UNKNOWN_COUNTRY",
    "AudioFormat",
    "Catalog",
    "ChatModel",
    "Country",
    "DecisionModel",
    "EmbeddingModel",
    "Model",
    "Operator",
    "OperatorName",
    "RerankModel",
    "Serving",
    "SpeechModel",
    "ThinkingOptions",
    "TranscriptionModel",
    "VoiceDesignModel",
]


UNKNOWN_COUNTRY = "ZZ"
"""Code of no country: ISO 3166 reserves it for users."""

_CODES = """
AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT BV BW BY BZ
CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH ER ES ET FI FJ FK FM FO
FR GA GB GD GE GF GG GH GI GL GM GN GP GQ GR GS GT GU GW GY HK HM HN HR HT HU ID IE IL IM IN IO IQ IR IS IT JE
JM JO JP KE KG KH KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK ML MM MN MO
MP MQ MR MS MT MU MV MW MX MY MZ NA NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PM PN PR PS PT PW
PY QA RE RO RS RU RW SA SB SC SD SE SG SH SI SJ SK SL SM SN SO SR SS ST SV SX SY SZ TC TD TF TG TH TJ TK TL TM
TN TO TR TT TV TW TZ UA UG UM US UY UZ VA VC VE VG VI VN VU WF WS YE YT ZA ZM ZW
"""
COUNTRIES = frozenset(_CODES.split())
"""ISO 3166-1 alpha-2."""


def _check_country(code: str) -> str:
    if code not in COUNTRIES and code != UNKNOWN_COUNTRY:
        raise ValueError(
            f"`{code}` is not a country: it must be two capital letters of ISO 3166-1, such as `DE`, or "
            f"`{UNKNOWN_COUNTRY}` if the country is not known"
        )
    return code


Country = Annotated[str, AfterValidator(_check_country)]
OperatorName = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100)]


class Operator(Frozen):
    """Operator of the models of a catalogue.

    Attributes:
        name: name of the operator.
        country: country where the models run, ISO 3166-1 alpha-2, or `UNKNOWN_COUNTRY`.
    """

    name: OperatorName = "self-hosted"
    country: Country = UNKNOWN_COUNTRY


class Catalog(Frozen):
    """All models that the API knows, by kind and id, in the order of their files.

    It also holds their operator, presets by id, voices and aliases by slug, the sample sentence of each language, and
    the traits of designed voices.
    """

    profile: str
    operator: Operator = Operator()
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
        """Yields every model, set up or not."""
        for noun in CATALOG_TYPES:
            yield from getattr(self, noun).values()

    @property
    def spoken_languages(self) -> frozenset[str]:
        """ISO 639-1 codes of every language that at least one speech engine knows."""
        return frozenset(language for model in self.speech.values() for language in model.languages)

    def deployed(self) -> Iterator[Model]:
        """Returns the models that this profile runs."""
        return (model for model in self.models() if model.serving)

    def without(self, ids: Container[ModelId]) -> Catalog:
        """Returns a copy of the catalogue in which the models `ids` are known but not set up."""

        def left(models: dict[ModelId, Model]) -> dict[ModelId, Model]:
            return {
                id: model.model_copy(update={"serving": None}) if id in ids else model for id, model in models.items()
            }

        return self.model_copy(update={noun: left(getattr(self, noun)) for noun in CATALOG_TYPES})


CATALOG_TYPES: dict[str, type[Model]] = {
    t.noun: t
    for t in (ChatModel, EmbeddingModel, RerankModel, SpeechModel, TranscriptionModel, VoiceDesignModel, DecisionModel)
}
"""Noun to type of the stanzas in the file `configs/catalog/<noun>.toml`."""
