"""One engine with the embedded weights for all tests of this folder."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from contract.catalog.chat import FillInMiddle
from models.chat import VllmChat
from models.weights import store as weights
from tests.models.chat.engines import stanza
from tests.models.chat.smollm2.asking import WINDOW

FILL_IN = FillInMiddle(before="<repo_name>", between="<file_sep>", after="<filename>")
"""Control tokens that the model has. It was not made to fill gaps: only what it reads is of interest."""
ENGINE = {"kv_cache_memory_bytes": 1 << 28, "max_num_batched_tokens": 64}
"""It reads 64 tokens at one time: longer prompts come in pieces."""


@pytest.fixture(scope="session")
def smollm2() -> Path:
    return weights.ensure("smollm2-135m-instruct")


@pytest.fixture(scope="package")
async def chat(anyio_backend: str, smollm2: Path) -> AsyncIterator[VllmChat]:
    model = stanza(
        "small", WINDOW, ENGINE, template="smollm2.jinja", tier="default", tool_parser="hermes", fill_in=FILL_IN
    )
    engine = VllmChat(model, smollm2)
    yield engine
    engine.close()


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.chat.adapter.COUNT_S", 0.02)


@pytest.fixture(scope="session")
def tokenizer(smollm2: Path) -> Any:
    import transformers

    return transformers.AutoTokenizer.from_pretrained(smollm2)
