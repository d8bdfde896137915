"""An hour of changes leaves the page as small as it was."""

import asyncio
import time
from typing import Any

import pytest

from contract.access import Scope
from contract.catalog import Catalog
from contract.limits import CONSOLE_BANDS_S, CONSOLE_LOOK_S
from contract.telemetry import EngineState
from deployments.ingress.console.console import Feed
from deployments.ingress.console.picture import Fields, Picture
from tests.console.conftest import CATALOG
from tests.console.stage import Stage
from tests.console.tabs import Tab
from tests.waiting import until

CHANGES = round(CONSOLE_BANDS_S / CONSOLE_LOOK_S)
"""Of an hour in which each look sees something new."""
MOST_GROWTH = 30_000_000
SLICES = 181
"""Of the band of an engine: twenty seconds each, an hour and what has begun."""
LOOKS_A_STATE = 101
"""Each state lasts for about a slice of a band, which then has as many runs as it can have."""
PAUSE_S = 0.0005
"""For the server to write each change as an event of its own."""


JOINED = CHANGES // 10
"""Changes that may come together with others, where the server is slow."""
TAKEN = """async (most) => {
  const { feed } = await import("./events.js");
  let changes = 0;
  await new Promise((resolve) => feed.addEventListener("change", () => (changes += 1) === most && resolve()));
}"""


@pytest.fixture
def catalog() -> Catalog:
    return CATALOG.model_copy(update={"speech": {}, "decisions": {}})


class Busy:
    """What a feed looks at: one engine after the other is in another state, and the clock is as fast as the looks."""

    def __init__(self, stage: Stage) -> None:
        self._names = list(stage.engines)
        self._engines: dict[str, Fields] = {name: self._fields(0) for name in self._names}
        self._now_ms = time.time_ns() // 1_000_000
        self.looks, self.most = 0, 0
        about = {name: {"capability": "chat", "models": [name]} for name in self._names}
        stage.console.feed = Feed(self._look, about, self._sleep, lambda: self._now_ms)

    @staticmethod
    def _fields(turn: int) -> Fields:
        states = list(EngineState)
        return {
            "state": states[turn // LOOKS_A_STATE % len(states)].value,
            "used": turn % 3,
            "slots": 2,
            "waiting": turn % 10,
            "organisations": 1,
            "last_load_s": turn % 7 / 2,
            "expected_load_s": 3.0,
            "requests_per_minute": turn,
            "errors_per_minute": turn % 2,
        }

    def _look(self) -> Picture:
        self.looks += 1
        name = self._names[self.looks % len(self._names)]
        self._engines = self._engines | {name: self._fields(self.looks)}
        return Picture(self._engines)

    async def _sleep(self, seconds: float) -> None:
        await until(lambda: self.looks < self.most)
        await asyncio.sleep(PAUSE_S)
        self._now_ms += round(1000 * seconds)


async def counted(tab: Tab, client: Any) -> dict[str, float]:
    await client.send("HeapProfiler.collectGarbage")
    metrics = (await client.send("Performance.getMetrics"))["metrics"]
    elements = await tab.page.evaluate("document.querySelectorAll('*').length")
    return {metric["name"]: metric["value"] for metric in metrics} | {"elements": elements}


async def test_an_hour_open_grows_little(tab: Tab, stage: Stage) -> None:
    graph = Busy(stage)
    await tab.log_in(await stage.key(*Scope))  # counts of calls are for operators
    await tab.page.locator(".engine").first.wait_for()
    client = await tab.page.context.new_cdp_session(tab.page)
    await client.send("Performance.enable")
    before = await counted(tab, client)
    graph.most = graph.looks + CHANGES
    await tab.page.evaluate(TAKEN, CHANGES - JOINED)
    after = await counted(tab, client)
    assert after["JSHeapUsedSize"] - before["JSHeapUsedSize"] < MOST_GROWTH
    assert 0 < after["elements"] - before["elements"] <= SLICES * len(stage.engines)
    assert after["JSEventListeners"] <= before["JSEventListeners"] + 1  # that of TAKEN
