"""What adapters name, held to what is really imported until an engine has answered once, and to what may be forked."""

import json
import shlex
import subprocess
import sys

import pytest

import configs
import models
from deployments.fork_server.plan import ENTER, OF_EVERY_REPLICA, commands
from tests.fork_server.node import ROOT, running
from tests.waiting import eventually

EMBEDDED = configs.load("embedded")

ONE_OF_EACH_ADAPTER = {
    "chat": "smollm2-135m-instruct",
    "decisions": "decision-v1",
    "speech": "supertonic-3",
    "transcription": "whisper-large-v3",
}

FEW = 40
"""Modules that need not be named: those of one architecture or another, which take some milliseconds each at most."""


def plan_of(profile: str, deployment: str) -> dict[str, object]:
    """What the fork server of a deployment is told."""
    command = shlex.split(commands(configs.load(profile).deployed())[deployment])
    assert command[1:4] == ["-I", "-S", str(ENTER)]
    return json.loads(command[4])


@pytest.fixture(scope="module")
def beside() -> dict[str, list[str]]:
    """What each engine imports beside what its adapter names."""
    words = [f"{noun}={model_id}" for noun, model_id in ONE_OF_EACH_ADAPTER.items()]
    command = [sys.executable, "-m", "tests.fork_server.load_child", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"noun"')]
    return {engine["noun"]: engine["beside"] for engine in found}


@pytest.mark.parametrize("noun", ONE_OF_EACH_ADAPTER)
def test_hardly_anything_is_imported_beside_what_is_named(beside: dict[str, list[str]], noun: str) -> None:
    assert len(beside[noun]) <= FEW, beside[noun]


@pytest.mark.parametrize("profile", configs.PROFILES)
def test_only_modules_of_others_are_named(profile: str) -> None:
    ours = {file.name.removesuffix(".py") for file in ROOT.iterdir()}
    for model in configs.load(profile).deployed():
        imports = models.imported_by(model)
        assert not imports or {name.partition(".")[0] for name in imports.modules}.isdisjoint(ours)


def test_all_engines_of_the_embedded_profile_share_a_server() -> None:
    found = commands(EMBEDDED.deployed())
    assert found.keys() == {model.deployment for model in EMBEDDED.deployed()}
    assert len(set(found.values())) == 1


def test_engines_beside_a_gpu_start_as_ever() -> None:
    catalog = configs.load("production")
    found = commands(catalog.deployed())
    assert found.keys() == {model.deployment for model in catalog.deployed() if not model.serving.on_gpu}
    assert "torch" not in plan_of("production", "speech-supertonic-3")["modules"]


def test_an_interpreter_of_its_own_has_a_server_of_its_own() -> None:
    found = commands(configs.load("twins").deployed())
    qwen = shlex.split(found["voice-design-qwen3-tts"])
    assert qwen[0] == str(ROOT / ".venv/qwen/bin/python")
    assert json.loads(qwen[4])["modules"][: len(OF_EVERY_REPLICA)] == list(OF_EVERY_REPLICA)
    assert "qwen_tts" in qwen[4]
    assert "qwen_tts" not in found["transcription-whisper-large-v3"]


def test_an_engine_that_compiles_or_has_processes_or_an_environment_starts_as_ever() -> None:
    chat = EMBEDDED.chat["smollm2-135m-instruct"]
    assert commands([chat])
    env = {"ray_actor_options": {"runtime_env": {"env_vars": {"A": "1"}}}}
    serving = chat.serving
    engine = {"engine": {**serving.options["engine"], "enforce_eager": False}}
    for changes in (
        {"deployment": env},
        {"options": serving.options | engine},
        {"options": serving.options | {"engine_process": True}},
    ):
        changed = chat.model_copy(update={"serving": serving.model_copy(update=changes)})
        assert not commands([changed])


def test_what_the_embedded_profile_names_can_be_forked() -> None:
    plan = plan_of("embedded", "chat-smollm2-135m-instruct") | {"quiet_s": 0}
    with running() as node:
        own = type(node)(node.folder, node.raylet, json.dumps(plan))
        own.start()
        own.await_server()
        assert "was not imported" not in own.log
        worker = own.start()
        assert {"vllm", "onnxruntime", "faster_whisper", "transformers"} < set(worker["modules"])
        assert worker["threads"] == 1
        assert sorted(worker["files"]) == ["0", "1", "2"]
        eventually(lambda: f"forked {worker['pid']}" in own.log, why=lambda: own.log)
