"""Draws the pictures of the console in the docs: `python -m tests.console.pictures`, which needs a browser."""

import asyncio
import json
import math
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert

from contract.access import Scope
from contract.telemetry import EngineState
from state import open_state
from state.accounts import organisations
from state.database.tables import usage_lines
from tests.catalogs import embedded
from tests.console.stage import Stage
from tests.console.tabs import Tab, browser
from tests.docs.pages import ROOT

CHAT = "qwen2.5-coder-0.5b-instruct"
HOUR: dict[str, list[tuple[float, str]]] = {
    "chat": [(60, "cold"), (52, "starting"), (51, "ready"), (44, "busy"), (31, "ready"), (12, "busy")],
    "decisions": [(60, "cold"), (40, "starting"), (39, "ready")],
    "embeddings": [(60, "ready"), (22, "busy"), (19, "ready")],
    "rerank": [(60, "cold")],
    "speech": [(60, "ready"), (48, "cold"), (20, "starting"), (19, "busy"), (9, "ready")],
    "transcription": [(60, "cold"), (14, "starting"), (12, "failed"), (10, "starting"), (9, "ready")],
    "voice_design": [(60, "cold"), (0.1, "starting")],
}
"""Minutes ago, and the state that began then, by capability."""
DAYS = 30


async def play(stage: Stage) -> None:
    now_ms = time.time_ns() // 1_000_000
    past = {
        model.deployment: [(int(now_ms - ago * 60_000), state) for ago, state in HOUR[model.noun]]
        for model in stage.catalog.deployed()
    }
    stage.console.feed.adopt(past)
    for model in stage.catalog.deployed():
        state = EngineState(past[model.deployment][-1][1])
        slots = 0 if state in (EngineState.COLD, EngineState.STARTING) else 4
        engine = stage.engines[model.deployment]
        engine.show(state, slots=slots, used=slots if state is EngineState.BUSY else min(slots, 1), last_load_s=4.2)
    chat = stage.engines[f"chat-{CHAT}"]
    chat.show(waiting=3, lines={"org-1": 2, "org-2": 1}, last_load_s=3.1)
    chat.load_s, chat.behind = 0.6, 3
    await say(stage, "say hello")
    chat.load_s, chat.queue_s, chat.behind = 0, 0.2, 1
    for text in ("say one", "say two", "fail", "refuse", "hold 0.3", "say three"):
        await say(stage, text)
    body = {"model": "all-minilm-l6-v2", "input": ["one", "two"]}
    for _ in range(3):
        await stage.api.send("POST", "/v1/embeddings", json=body)
    await stage.service.state.database.run(bill)


async def say(stage: Stage, text: str) -> None:
    body = {"model": CHAT, "messages": [{"role": "user", "content": text}]}
    await stage.api.send("POST", "/v1/chat/completions", json=body)


def bill(connection: Connection) -> None:
    org_id = organisations.find(connection, "acme").id
    models = {CHAT: ("input_tokens", 9_000), "all-minilm-l6-v2": ("input_tokens", 2_500), "pico": ("characters", 4_000)}
    rows = []
    for day in range(DAYS):
        for place, (model, (unit, most)) in enumerate(models.items()):
            cost = int(most * (1.2 + math.sin(day / 3 + place)) * (0.4 if day % 7 in (5, 6) else 1))
            rows.append({
                "reservation_id": f"{day}-{model}", "at_ms": (int(time.time()) - day * 86_400) * 1000, "org_id": org_id,
                "user_id": None, "key_id": "demo", "request_id": "demo", "line": f"all:{model}", "model": model,
                "quantity": cost, "unit": "tokens", "cost_micro_eur": cost, "quantities": json.dumps({unit: cost}),
            })  # fmt: skip
    connection.execute(insert(usage_lines), rows)
    organisations.set_limit(connection, org_id, None, 2_000_000)


@asynccontextmanager
async def played() -> AsyncIterator[tuple[Stage, str]]:
    with tempfile.TemporaryDirectory() as home:
        state = await open_state(Path(home))
        stage = Stage(embedded(), state)
        await stage.start()
        await stage.api.organisation("acme")
        stage.api.everything = await stage.api.key(*Scope)
        await play(stage)
        yield stage, await stage.key()
        await stage.stop()
        await state.close()


async def look(chromium: Any, url: str, key: str, theme: str) -> Tab:
    viewport = {"width": 1280, "height": 1000}
    context = await chromium.new_context(color_scheme=theme, viewport=viewport, reduced_motion="reduce", locale="en-GB")
    tab = Tab(await context.new_page(), url)
    await tab.log_in(key)
    await tab.page.locator(".engine").first.wait_for()
    return tab


async def main() -> None:
    async with browser() as chromium, played() as (stage, key):
        for theme in ("light", "dark"):
            tab = await look(chromium, stage.url, key, theme)
            await tab.page.screenshot(path=ROOT / f"docs/images/console-{theme}.png")


if __name__ == "__main__":
    asyncio.run(main())
