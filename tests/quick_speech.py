"""The embedded speech engines with a synthesiser that takes milliseconds, for tests that need no real voice."""

from __future__ import annotations

from contract.catalog import SpeechModel


def quick(model: SpeechModel) -> SpeechModel:
    """`model` with the manners of its stanza, but espeak-ng speaks all of its languages."""
    assert model.serving
    assert model.serving.elsewhere
    change = {
        "adapter": "models.speech.espeak:Espeak",
        "runtime": model.serving.elsewhere.runtime,
        "license": model.serving.elsewhere.license,
        "languages": (),
        "elsewhere": None,
        "weights": None,
        "options": {"voices": {slug: voice["espeak"] for slug, voice in model.serving.options["voices"].items()}},
    }
    return model.model_copy(update={"serving": model.serving.model_copy(update=change)})
