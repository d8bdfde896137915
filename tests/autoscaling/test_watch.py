"""What Serve's status says of a cold engine."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ray.serve.exceptions import RayServeException

from autoscaling.watch import Start, StartWatch
from deployments.ingress.deployment import wake

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


def deployed(state: str) -> SimpleNamespace:
    return SimpleNamespace(applications={"parlance": SimpleNamespace(status=state, deployments={})})


@pytest.mark.parametrize("end", ["RUNNING", "DEPLOY_FAILED", "UNHEALTHY"])
async def test_waits_until_the_application_is_deployed(end: str) -> None:
    answers = iter([SimpleNamespace(applications={}), deployed("DEPLOYING"), deployed(end)])
    asked = []

    async def sleep(seconds: float) -> None:
        asked.append(seconds)

    await StartWatch("parlance", ask=lambda: next(answers)).until_deployed(sleep)
    assert len(asked) == 2


async def test_engines_are_woken_once_the_application_is_deployed() -> None:
    engine = SimpleNamespace(woken=0)
    engine.warm = lambda: setattr(engine, "woken", engine.woken + 1)
    await wake([engine], StartWatch("parlance", ask=lambda: deployed("RUNNING")))
    assert engine.woken == 1


async def test_a_controller_that_is_gone_wakes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def ask() -> None:
        raise RayServeException("a secret of the inside")

    await wake([SimpleNamespace()], StartWatch("parlance", ask=ask))
    assert [record.getMessage() for record in caplog.records] == ["no engine was woken: RayServeException"]


async def test_where_nothing_is_to_be_woken_serve_is_not_asked() -> None:
    await wake([], StartWatch("parlance", ask=lambda: pytest.fail("Serve was asked")))
