"""What Serve's status says of a cold engine."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from autoscaling.watch import Start, StartWatch

pytestmark = pytest.mark.anyio


def status(state: str, **replicas: int) -> SimpleNamespace:
    deployment = SimpleNamespace(status=state, replica_states=replicas)
    return SimpleNamespace(applications={"parlance": SimpleNamespace(deployments={"engine": deployment})})


@pytest.mark.parametrize(
    ("answer", "start"),
    [
        (status("HEALTHY"), Start.COLD),
        (status("UPSCALING", STARTING=1), Start.STARTING),
        (status("UNHEALTHY"), Start.FAILED),
        (status("DEPLOY_FAILED", STARTING=1), Start.FAILED),
        (SimpleNamespace(applications={}), Start.COLD),
    ],
)
async def test_status_is_read(answer: SimpleNamespace, start: Start) -> None:
    watch = StartWatch("parlance", ask=lambda: answer)
    await watch.refresh()
    assert watch["engine"] is start


async def test_waits_until_the_start_fails() -> None:
    answers = iter([status("UPSCALING", STARTING=1), status("UPSCALING", STARTING=1), status("UNHEALTHY")])
    asked = []

    async def sleep(seconds: float) -> None:
        asked.append(seconds)

    await StartWatch("parlance", ask=lambda: next(answers)).until_failed("engine", sleep)
    assert len(asked) == 2
