"""Last in its folder: the engine that all tests of it share ends."""

import asyncio

import pytest

from contract.errors import ApiError
from models.chat import VllmChat
from tests.models.chat.smollm2.asking import ask, batches
from tests.models.refusals import refused
from tests.waiting import until


async def test_z_the_death_of_the_engine_reaches_everyone(chat: VllmChat) -> None:
    waiting = [asyncio.ensure_future(chat.complete(ask("Count.", max_tokens=400))) for _ in range(2)]
    streaming = asyncio.ensure_future(batches(chat, ask("Count.", max_tokens=400)))
    await until(lambda: chat.unfinished == 3)

    def die() -> None:
        raise RuntimeError("out of memory")

    chat.engine.engine_core._command(die)
    for result in await asyncio.gather(*waiting, streaming, return_exceptions=True):
        assert isinstance(result, ApiError)
        assert result.fault.status == 502
        assert "memory" not in result.message
    with pytest.raises(Exception, match=r"EngineCore|engine"):
        await chat.check_health()
    with refused(502):
        await chat.complete(ask())
