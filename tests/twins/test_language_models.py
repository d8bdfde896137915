"""The chat and decision models of production over their twins: true adapter, true arguments, on this CPU.

One child process brings all of them up, one after the other (`language_child.py`); the tests look at what it saw.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import configs
from tests.twins.language_child import TWIN_OF, family
from tests.twins.recorded import RECORDED

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[2]
CATALOG = configs.load("production")
CHATS = [model for model in CATALOG.chat.values() if model.serving]
DECISIONS = [model for model in CATALOG.decisions.values() if model.serving]
ARCHITECTURES = {
    "gemma-4-unified": "Gemma4UnifiedForConditionalGeneration",
    "gemma-4-experts": "Gemma4ForConditionalGeneration",
    "qwen3.5": "Qwen3_5ForConditionalGeneration",
}
MARKS = {
    "gemma": ("<|turn>model\n<|channel>thought\n<channel|>", "<|turn>model\n"),
    "qwen": ("<|im_start|>assistant\n<think>\n\n</think>\n\n", "<|im_start|>assistant\n<think>\n"),
}
"""How a prompt ends without thoughts and with them, by family."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("twins")
    path = os.pathsep.join([str(ROOT / "tests/twins/stand_in"), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": path, "PARLANCE_HOME": str(folder), "VLLM_LOGGING_LEVEL": "ERROR"}
    command = [sys.executable, "-m", "tests.twins.language_child", folder]
    child = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr[-3000:]
    found = [json.loads(line) for line in child.stdout.splitlines() if line.startswith("{")]
    failed = [f"{facts['id']}: {facts['error']}" for facts in found if "error" in facts]
    assert not failed, "\n".join(failed)
    return {facts["id"]: facts for facts in found}


def test_each_comes_up_with_the_arguments_of_its_stanza(seen: dict[str, Any]) -> None:
    models = {model.id: model for model in (*CHATS, *DECISIONS)}
    architectures = {id: ARCHITECTURES[TWIN_OF[str(model.serving.weights)]] for id, model in models.items()}
    assert {id: facts["architecture"] for id, facts in seen.items()} == architectures
    assert {id: facts["window"] for id, facts in seen.items()} == {
        id: model.context_window for id, model in models.items()
    }


def test_each_answers_and_thinking_is_switched_in_the_prompt_and_tools_are_in_it(seen: dict[str, Any]) -> None:
    for model in CHATS:
        facts, most = seen[model.id], 8
        assert facts["prompt_tokens"] > 8, model.id
        assert 1 <= facts["completion_tokens"] <= most, model.id
        assert facts["finish_reason"] == ("length" if facts["completion_tokens"] == most else "stop"), model.id
        for prompt, ending in zip(facts["thinking"], MARKS[family(model)], strict=True):
            assert prompt.endswith(ending), model.id
            assert "get_weather" in prompt, model.id


def test_nothing_that_a_client_writes_is_a_control_token_in_its_template(seen: dict[str, Any]) -> None:
    """In arguments of calls, however they are escaped, across parts, and with what the template puts behind a key."""
    found = {(model.id, place): counts for model in CHATS for place, counts in seen[model.id]["forged"].items()}
    assert len(found) >= 3 * len(CHATS)
    assert not {where: counts for where, counts in found.items() if len(set(counts)) > 1}


def test_each_sees_what_the_catalogue_says(seen: dict[str, Any]) -> None:
    for model in CHATS:
        images = seen[model.id]["images"]
        if not model.vision:
            assert images.startswith("images_unsupported"), model.id
            continue
        assert isinstance(images, dict), (model.id, images)
        assert images["prompt_tokens"][0] == images["prompt_tokens"][1] > seen[model.id]["prompt_tokens"], model.id
        assert images["logprobs"][0] != images["logprobs"][1], f"the colour makes a difference for {model.id}"


def test_thoughts_and_calls_are_told_apart(seen: dict[str, Any]) -> None:
    for model in CHATS:
        for wanted, found in zip(RECORDED[family(model)], seen[model.id]["recorded"], strict=True):
            for way in ("whole", "streamed"):
                message, place = found[way], (model.id, wanted.name, way)
                calls = [(call["name"], json.loads(call["arguments"])) for call in message["calls"]]
                assert (message["content"] or None, message["reasoning"]) == (wanted.content, wanted.reasoning), place
                assert calls == [("get_weather", arguments) for arguments in wanted.calls], place
                assert message["finish_reason"] == ("tool_calls" if calls else "stop"), place


def test_every_label_is_a_token_and_is_read_in_float32_and_images_are_seen(seen: dict[str, Any]) -> None:
    for model in DECISIONS:
        facts = seen[model.id]
        assert (facts["labels"], facts["head_dtype"]) == ([3, 3, 2], "torch.float32"), model.id
        for reads in facts["reads"]:
            assert [len(read) for read in reads] == [3, 3, 2], model.id
            assert all(-100 < value <= 0 for read in reads for value in read), model.id
        without, red, blue = facts["reads"]
        assert without != red != blue, model.id
        tokens = facts["input_tokens"]
        assert tokens[0] < tokens[1] == tokens[2], model.id


def test_what_is_asked_on_a_gpu_can_be_asked(seen: dict[str, Any]) -> None:
    asked = {model.id: ["text", "schema", "tool", "thoughts"] + ["image"] * model.vision for model in CHATS}
    asked |= {model.id: ["text", "image"] for model in DECISIONS}
    assert {id: facts["asked"] for id, facts in seen.items()} == asked
