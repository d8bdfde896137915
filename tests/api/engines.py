"""What the chat model of an app under test answers from now on: a script of the test's, or one error."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from autoscaling.engine import CallContext
from contract.errors import ApiError
from tests.api.conftest import Api, LocalEngine
from tests.scripted import Script, ScriptedChat

CHAT = "chat-obedient"


def scripted(api: Api, script: Script) -> ScriptedChat:
    """Has the chat model answer `script`."""
    engine = api.engine(CHAT)
    made = engine.adapter = ScriptedChat(script)
    return made


def refusing(api: Api, error: ApiError) -> None:
    """Has the chat model answer with `error`."""
    api.replace_engines(Refusing(error), CHAT)


class Refusing(LocalEngine):
    """Raises one error, whole or before the first event."""

    def __init__(self, error: ApiError) -> None:
        self.error = error

    async def call(self, method: Any, job: Any, *, context: CallContext) -> Any:
        raise self.error

    async def stream(self, method: Any, job: Any, *, context: CallContext) -> AsyncGenerator[Any, None]:
        raise self.error
        yield
