"""Forks for each engine: the fork imports what the adapter names, loads the engine, has it answer once, and prints
what it imported beside that.

python -m tests.fork_server.load_child chat=smollm2-135m-instruct speech=supertonic-3
"""

import asyncio
import importlib
import io
import json
import os
import sys
import wave
from pathlib import Path
from typing import Any

import configs
import models
from contract.catalog import Model
from contract.chat.engine import ChatJob
from contract.chat.request import ChatRequest
from contract.decisions.engine import DecisionJob
from contract.decisions.questions import BinaryQuestion
from contract.embeddings import EmbeddingsJob
from contract.rerank import RerankJob
from contract.speech.engine import SpeechJob
from contract.transcription.engine import TranscriptionJob
from deployments.fork_server.plan import OF_EVERY_REPLICA

OURS = {file.name.removesuffix(".py") for file in Path(__file__).parents[2].iterdir()}
QUESTION = BinaryQuestion(type="binary", instructions="Is it good?", true_description="good", false_description="bad")


def silence(seconds: int = 2) -> bytes:
    """A WAV file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, 16_000, 0, "NONE", ""))
        sound.writeframes(bytes(2 * 16_000 * seconds))
    return file.getvalue()


async def answer(noun: str, engine: Any) -> Any:
    """One answer of each kind."""
    match noun:
        case "chat":
            body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
            return await engine.complete(ChatJob(ChatRequest.model_validate(body)))
        case "decisions":
            return await engine.read_job(DecisionJob("Good.", (QUESTION,)), 1.0)
        case "embeddings":
            return await engine.embed(EmbeddingsJob(("Hi",)))
        case "rerank":
            return await engine.rerank(RerankJob("Hi", ("there",)))
        case "speech":
            return await engine.speak_whole(SpeechJob("Hi.", "en"))
        case "transcription":
            return [part async for part in engine.transcribe(TranscriptionJob(silence(), words=True))]
    raise ValueError(noun)


def beside(model: Model) -> list[str]:
    """Modules of others that are imported until `model` has answered once, and that its adapter does not name."""
    imports = models.imported_by(model)
    assert imports is not None
    os.environ.update(imports.environment)
    for name in imports.modules:
        importlib.import_module(name)
    before = set(sys.modules)
    engine = models.load(model)
    assert asyncio.run(answer(model.noun, engine))
    own = sys.stdlib_module_names | OURS
    return [name for name in sys.modules if name not in before and name.partition(".")[0] not in own]


def main() -> None:
    """Entry point."""
    for name in OF_EVERY_REPLICA:
        importlib.import_module(name)
    catalog = configs.load("embedded")
    for noun, model_id in (word.split("=") for word in sys.argv[1:]):
        if os.fork():
            assert os.wait()[1] == 0, noun
            continue
        found = {"noun": noun, "beside": beside(getattr(catalog, noun)[model_id])}
        sys.stdout.write(f"\n{json.dumps(found)}\n")  # behind what libraries have printed
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
