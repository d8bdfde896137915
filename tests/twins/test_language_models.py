"""The chat and decision models of production over their twins: true adapter, true arguments, on this CPU.

One child process brings all of them up, one after the other (`language_child.py`); the tests look at what it saw.
"""

from __future__ import annotations

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
CHATS = [model.id for model in CATALOG.chat.values() if model.serving]
DECISIONS = [model.id for model in CATALOG.decisions.values() if model.serving]
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
    return {facts["id"]: facts for facts in found}


@pytest.mark.parametrize("id", [*CHATS, *DECISIONS])
def test_it_comes_up_with_the_arguments_of_its_stanza(seen: dict[str, Any], id: str) -> None:
    facts = seen[id]
    assert "error" not in facts, facts["error"]
    model = CATALOG.chat.get(id) or CATALOG.decisions[id]
    assert model.serving
    assert facts["window"] == model.context_window
    assert facts["architecture"] == ARCHITECTURES[TWIN_OF[str(model.serving.weights)]]


@pytest.mark.parametrize("id", CHATS)
def test_it_answers_and_thinking_is_switched_in_the_prompt_and_tools_are_in_it(seen: dict[str, Any], id: str) -> None:
    assert seen[id]["prompt_tokens"] > 8
    tokens, most = seen[id]["completion_tokens"], 8
    assert 1 <= tokens <= most
    assert seen[id]["finish_reason"] == ("length" if tokens == most else "stop")
    without, thinks = seen[id]["thinking"]
    endings = MARKS[family(CATALOG.chat[id])]
    assert (without.endswith(endings[0]), thinks.endswith(endings[1])) == (True, True)
    assert "get_weather" in without
    assert "get_weather" in thinks


@pytest.mark.parametrize("id", CHATS)
def test_nothing_that_a_client_writes_is_a_control_token_in_its_template(seen: dict[str, Any], id: str) -> None:
    """In arguments of calls, however they are escaped, across parts, and with what the template puts behind a key."""
    for place, (harmless, most) in seen[id]["forged"].items():
        assert harmless == most, place


@pytest.mark.parametrize("id", CHATS)
def test_it_sees_what_the_catalogue_says(seen: dict[str, Any], id: str) -> None:
    images = seen[id]["images"]
    if not CATALOG.chat[id].vision:
        assert images.startswith("images_unsupported")
        return
    assert isinstance(images, dict), images
    assert images["prompt_tokens"][0] == images["prompt_tokens"][1] > seen[id]["prompt_tokens"]
    assert images["logprobs"][0] != images["logprobs"][1], "the colour makes a difference"


@pytest.mark.parametrize("id", CHATS)
def test_thoughts_and_calls_are_told_apart(seen: dict[str, Any], id: str) -> None:
    for wanted, found in zip(RECORDED[family(CATALOG.chat[id])], seen[id]["recorded"], strict=True):
        for way in ("whole", "streamed"):
            message, place = found[way], (wanted.name, way)
            calls = [(call["name"], json.loads(call["arguments"])) for call in message["calls"]]
            assert (message["content"] or None, message["reasoning"]) == (wanted.content, wanted.reasoning), place
            assert calls == [("get_weather", arguments) for arguments in wanted.calls], place
            assert message["finish_reason"] == ("tool_calls" if calls else "stop"), place


@pytest.mark.parametrize("id", DECISIONS)
def test_every_label_is_a_token_and_is_read_in_float32_and_images_are_seen(seen: dict[str, Any], id: str) -> None:
    assert seen[id]["labels"] == [3, 3, 2]
    assert seen[id]["head_dtype"] == "torch.float32"
    for reads in seen[id]["reads"]:
        assert [len(read) for read in reads] == [3, 3, 2]
        assert all(-100 < value <= 0 for read in reads for value in read)
    without, red, blue = seen[id]["reads"]
    assert without != red != blue
    tokens = seen[id]["input_tokens"]
    assert tokens[0] < tokens[1] == tokens[2]


def test_what_is_asked_on_a_gpu_can_be_asked(seen: dict[str, Any]) -> None:
    images = {id: ["image"] if CATALOG.chat[id].vision else [] for id in CHATS}
    asked = {id: ["text", "schema", "tool", "thoughts", *images[id]] for id in CHATS}
    assert {id: facts["asked"] for id, facts in seen.items()} == asked | {id: ["text", "image"] for id in DECISIONS}
