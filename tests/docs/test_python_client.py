"""Every handle of docs/python-client.md, over engines that obey in this process. Its first block wants a graph."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

import models
from deployments.client import Connection, connection
from tests.catalogs import embedded
from tests.docs.pages import ROOT, marked, rows

PAGE = ROOT / "docs/python-client.md"


class Response:
    """What a handle returns: an answer that is waited for."""

    def __init__(self, work: Any) -> None:
        self._work = work

    def result(self) -> Any:
        return asyncio.run(self._work)

    def __iter__(self) -> Iterator[Any]:
        return iter(asyncio.run(_all(self._work)))


class Method:
    """A method of the engine, as a handle offers it."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def remote(self, job: Any) -> Response:
        return Response(self._call(job))


class Handle:
    """Serve's `DeploymentHandle`, as far as the client uses it."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter

    def options(self, *, stream: bool) -> Handle:
        assert stream
        return self

    def __getattr__(self, name: str) -> Method:
        return Method(getattr(self._adapter, name))


async def _all(stream: AsyncGenerator[Any, None]) -> list[Any]:
    return [item async for item in stream]


@pytest.fixture
def g() -> Connection:
    catalog = embedded()
    adapters = {model.deployment: models.load(model) for model in catalog.set_up()}
    return connection(catalog, lambda deployment: Handle(adapters[deployment]))  # type: ignore[return-value]


def test_every_handle_answers(g: Connection, capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {"g": g}
    exec(compile(marked(PAGE, "run with handles"), PAGE.name, "exec"), namespace)
    assert namespace["recording"]
    assert namespace["answer"]["value"] is not None
    assert "Good" in capsys.readouterr().out


def test_every_handle_is_on_the_page(g: Connection) -> None:
    told = {row[0]: re.findall(r"\w+", row[1]) for row in rows(PAGE, "handle", "calls")}
    kinds = {
        name: next(iter(getattr(g, name).values())) for name in Connection.__dataclass_fields__ if name != "catalog"
    }
    assert told == {
        f"g.{name}[id]": [
            call for call in vars(type(handle)) if not call.startswith("_") and callable(vars(type(handle))[call])
        ]
        for name, handle in kinds.items()
    }
