"""The browser, the server and its keys."""

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from contract.catalog import Catalog
from state import State, open_state
from tests.catalogs import behaving, chat
from tests.console.stage import Stage
from tests.console.tabs import WATCH, Tab, browser

OpenTab = Callable[..., Awaitable[Tab]]

CATALOG = behaving(obedient=chat("obedient"), other=chat("other"))


@pytest.fixture(scope="package")
async def chromium() -> AsyncIterator[Any]:
    async with browser() as chromium:
        yield chromium


@pytest.fixture
async def state(migrated: Path, tmp_path: Path) -> AsyncIterator[State]:
    shutil.copy(migrated, tmp_path)
    opened = await open_state(tmp_path)
    yield opened
    await opened.close()


@pytest.fixture
def catalog() -> Catalog:
    return CATALOG


@pytest.fixture
async def stage(catalog: Catalog, state: State) -> AsyncIterator[Stage]:
    stage = Stage(catalog, state)
    await stage.start()
    await stage.api.organisation("acme")
    yield stage
    await stage.stop()


@pytest.fixture
async def key(stage: Stage) -> str:
    return await stage.key()


@pytest.fixture
async def open_tab(chromium: Any, stage: Stage) -> AsyncIterator[OpenTab]:
    """Opens tabs: `theme` light or dark, `width` in pixels, `context` another tab's, to share its storage."""
    tabs: list[Tab] = []
    contexts: list[Any] = []

    async def open_tab(theme: str = "light", width: int = 1280, context: Any = None, **options: Any) -> Tab:
        if context is None:
            viewport = {"width": width, "height": 800}
            context = await chromium.new_context(color_scheme=theme, viewport=viewport, **options)
            context.set_default_timeout(15_000)
            await context.add_init_script(WATCH)
            contexts.append(context)
        tab = Tab(await context.new_page(), stage.url)
        tabs.append(tab)
        return tab

    yield open_tab
    faults = [fault for tab in tabs for fault in [*tab.faults, *(await tab.violations())]]
    for context in contexts:
        await context.close()
    assert faults == []


@pytest.fixture
async def tab(open_tab: OpenTab) -> Tab:
    return await open_tab()
