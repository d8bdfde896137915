"""Options of stanzas: what an adapter declares is what it gets, and everything else is named before a load."""

import subprocess
import sys
from typing import Any

import pytest

import configs
import models
from contract.catalog import ChatModel, Model, Serving
from models import options
from models.options import OptionsError
from tests.models.refusals import changed

EMBEDDED = {model.deployment: model for model in configs.load("embedded").deployed()}
"""By deployment: two kinds of models may share an id."""
CHAT = EMBEDDED["chat-smollm2-135m-instruct"]


def refusal(model: Model) -> str:
    with pytest.raises(OptionsError) as caught:
        options.check(model)
    return str(caught.value)


def test_a_misspelt_option_of_any_adapter_is_refused() -> None:
    for model in EMBEDDED.values():
        assert model.serving
        said = refusal(changed(model, options={"enginee": 1} | model.serving.options))
        assert said.startswith(f"{model.noun}.toml [{model.id}.serving] `options.enginee`: there is no such option")


def test_the_refusal_lists_what_there_is() -> None:
    assert refusal(changed(CHAT, options={"enginee": {}})) == (
        "chat.toml [smollm2-135m-instruct.serving] `options.enginee`: there is no such option; "
        "there are `engine`, `engine_process`, `quick_steps`, `int8`, `chat_template`"
    )


def test_a_wrong_value_is_named_by_its_place() -> None:
    for deployment, said, place in (
        ("embeddings-all-minilm-l6-v2", {"dtype": "float61"}, "options.dtype"),
        ("rerank-all-minilm-l6-v2-cosine", {"pooling": "mean"}, "options.pooling"),
        ("decisions-decision-v2", {"images": "some"}, "options.images"),
        ("chat-smollm2-135m-instruct", {"chat_template": "../request.py"}, "options.chat_template"),
        ("chat-smollm2-135m-instruct", {"engine": {"max_num_seq": 16}}, "options.engine"),
        ("speech-qwen3-tts", {"voices": {}}, "options.voices"),
        ("speech-qwen3-tts", {"voices": {"x": {"styles": {"a": 1}, "speed": 0}}}, "options.voices.x.speed"),
    ):
        model = EMBEDDED[deployment]
        assert refusal(changed(model, options=said)).startswith(f"{model.noun}.toml [{model.id}.serving] `{place}`: ")


class Plain:
    def __init__(self, model: Model, path: None) -> None:
        self.model = model

    @staticmethod
    def stanza(**said: Any) -> ChatModel:
        serving = Serving(adapter=f"{__name__}:Plain", runtime="plain", options=said)
        return ChatModel(id="plain", owned_by="t", tier="default", context_window=1, serving=serving)


def test_an_adapter_that_declares_nothing_takes_no_options_which_is_checked_before_weights_are_looked_for() -> None:
    assert isinstance(models.load(Plain.stanza()), Plain)
    with pytest.raises(OptionsError, match=r"`options\.steps`: there is no such option$"):
        models.load(changed(Plain.stanza(steps=1), weights="there are none of this name"))


def test_a_check_loads_no_heavy_library() -> None:
    script = (
        "import configs, sys; from models import options\n"
        "for profile in configs.PROFILES:\n"
        "    for model in configs.load(profile).deployed(): options.check(model)\n"
        "print([name for name in ('torch', 'transformers', 'vllm', 'onnxruntime', 'ray') if name in sys.modules])"
    )
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert child.stdout.strip() == "[]"
