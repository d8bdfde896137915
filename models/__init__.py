"""Models: weights are loaded and inference runs here, without Ray and without HTTP.

    weights/                        where weights come from; pinned, verified, never run as code
    options.py                      options of adapters in stanzas
    cpu.py                          the floating-point type that suits a processor, and threads beside the steps
    stepping.py                     engines that block, advanced in threads; whether they hang
    provider.py                     engines behind a provider's HTTP API
    llm/                            vLLM, started from a small spec by chat, decisions and transcription
    espeak/  kokoro/  pico.py       synthesizers on a CPU, for engines that speak and designers of voices
    qwen_tts.py                     Qwen3-TTS's package, for both as well
    chat/  decisions/               language models
    embeddings.py  rerank.py        encoders; both stand on encoders.py, tokenizer.py and batching.py
    short_encoder.py                the layers of BERT in few operators, on a CPU
    speech/  transcription/         text to speech, and speech to text
    voice_design/                   new voices from descriptions

Every adapter is `Class(model, path)`: its stanza of the catalogue and the folder of its weights. It satisfies the
protocol of its capability in `contract`, and has `check_health()` and `close()`. A notebook needs no more than
`models.load(catalog.embeddings["bge-m3"])`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from contract.catalog import Model
from models import options
from models.cpu import trim_heap


@dataclass(frozen=True, slots=True)
class Imports:
    """Modules that an adapter imports until it has answered once: another process may import them beforehand.

    They are modules of installed packages, in the order of their imports, and none of this project. They must be safe
    to fork: no thread stays, no file is open, no GPU is touched. tests/fork_server holds each list to what is really
    imported. Variables of `environment` are for the modules to read; what the operator has set stays as it is.
    """

    modules: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    def __add__(self, other: Imports) -> Imports:
        return Imports((*self.modules, *other.modules), self.environment | other.environment)


NOTHING = Imports()

ONNX = Imports(("onnxruntime",), {"ORT_DISABLE_TELEMETRY": "1"})
"""Without the variable, the import starts a thread and a database that report to the maker."""

SOUND = Imports(("numpy", "av", "soxr"))
"""Modules that `audio` imports, which knows no models."""

WATERMARK = Imports(("torch",))
"""Modules that `audio.watermark` imports."""


def load(model: Model) -> Any:
    """The adapter of `model` with its weights loaded: seconds to minutes. Raises WeightsError, OptionsError."""
    from models.weights import store

    options.check(model)  # before gigabytes are fetched
    adapter = options.adapter_of(model)
    for variable, value in (imported_by(model) or NOTHING).environment.items():
        os.environ.setdefault(variable, value)
    name = model.serving.weights if model.serving else None
    loaded = adapter(model, store.ensure(name) if name else None)
    trim_heap()  # of what loading has freed
    return loaded


def imported_by(model: Model) -> Imports | None:
    """Returns what the adapter of `model` imports while it loads: its `imports`, a value, or a function of the model.

    None where no process that has imported it beforehand can become its replica. Raises OptionsError.
    """
    imports = getattr(options.adapter_of(model), "imports", NOTHING)
    return imports(model) if callable(imports) else imports
