"""The end of an ingress replica, and its place among others."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from deployments.ingress import deployment

CLOSED = ("drafts", "listener", "console", "times", "state", "records", "spans")


@pytest.mark.parametrize("broken", [None, "drafts", "state"])
async def test_everything_is_closed_though_one_cannot_be(monkeypatch: pytest.MonkeyPatch, broken: str | None) -> None:
    closed: list[str] = []

    def closing(name: str) -> Any:
        async def close() -> None:
            closed.append(name)
            if name == broken:
                raise OSError

        return SimpleNamespace(close=close)

    monkeypatch.setattr(deployment, "hand_over_records", closing("records").close)
    task = asyncio.create_task(asyncio.Event().wait())
    service = SimpleNamespace(
        drafts=closing("drafts"),
        live=SimpleNamespace(listener=closing("listener")),
        console=closing("console"),
        state=closing("state"),
        observation=SimpleNamespace(tracer=SimpleNamespace(close=lambda: closed.append("spans"))),
    )
    replica = SimpleNamespace(
        service=service,
        _tasks=[task],
        _unregister_exit=lambda: closed.append("exit"),
        _share_times=closing("times").close,
    )
    kind: Any = deployment.Ingress
    await kind.func_or_class.__mro__[1].__del__(replica)
    assert closed == ["exit", *CLOSED]
    await asyncio.wait([task])
    assert task.cancelled()


def test_ingresses_are_those_that_serve_is_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([None, 1, 3])
    monkeypatch.setattr(deployment.serve, "get_replica_context", lambda: SimpleNamespace(world_size=next(sizes)))
    assert [deployment.ingresses() for _ in range(3)] == [1, 1, 3]
