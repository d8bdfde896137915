"""What holds for every panel: access for all, calls that work when copied, nothing lost, no key shown."""

import asyncio
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.console.conftest import OpenTab
from tests.console.engines import catalog, tone
from tests.console.panels import HOSTILE, PANELS, Panel
from tests.console.tabs import Tab
from tests.docs.pages import ROOT

__all__ = ["catalog"]
SAYS = {
    "chat": "Answered", "speech": "1 of 1 spoken", "transcription": "Transcribed", "design": "The draft is ready",
    "decisions": "Most likely", "embeddings": "6 texts", "rerank": "4 documents", "documentation": "5 sections",
}  # fmt: skip


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    file = tmp_path / "talk of today's.wav"
    file.write_bytes(tone(1))
    return file


async def used(panel: Panel, sound: Path) -> None:
    if panel.name == "transcription":
        await panel.field("file").set_input_files(sound)
    if panel.name == "chat":
        await panel.field("logprobs").check()
    await panel.run(SAYS[panel.name])


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 1280), ("light", 360), ("dark", 360)])
async def test_nothing_bars_anybody(open_tab: OpenTab, key: str, sound: Path, theme: str, width: int) -> None:
    panel = await Panel.open(await open_tab(theme=theme, width=width), key, PANELS[0])
    for name in PANELS:
        panel = await panel.go(name)
        await used(panel, sound)
        for part in await panel.root.locator("details").all():
            await part.evaluate("details => (details.open = true)")
        assert await panel.tab.barriers() == [], name
        assert await panel.tab.overflow() == [], name


async def run(folder: Path, key: str, *command: str) -> str:
    environment = os.environ | {"PARLANCE_KEY": key, "PYTHONPATH": str(ROOT)}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


ANSWERS = {
    "chat": "rivers", "transcription": "a real sound", "design": "pending", "decisions": "billing",
    "embeddings": "embedding|^6 ", "rerank": "index", "documentation": "budget",
}  # fmt: skip
"""What is in the answer of each panel's call; speech is a file."""


PROGRAMS = {"curl": ("bash", "-c"), "Python": (sys.executable, "-c")}
if NODE := shutil.which("node"):
    PROGRAMS["JavaScript"] = (NODE, "--input-type=module", "-e")


@pytest.mark.parametrize("name", PANELS)
async def test_a_copied_call_works(tab: Tab, key: str, sound: Path, tmp_path: Path, name: str) -> None:
    panel = await Panel.open(tab, key, name)
    if name == "transcription":
        await panel.field("file").set_input_files(sound)
    if name == "speech":
        await panel.root.get_by_label("Voice of supertonic-3").select_option(index=1)
    for language, program in PROGRAMS.items():
        text = await panel.call_to_copy(language)
        assert key not in text
        printed = await run(tmp_path, key, *program, text)
        if name == "speech":
            assert (tmp_path / "speech.wav").read_bytes().startswith(b"RIFF")
            (tmp_path / "speech.wav").unlink()
        else:
            assert re.search(ANSWERS[name], printed), printed


async def test_the_calls_of_a_ticket_work(tab: Tab, key: str, sound: Path, tmp_path: Path) -> None:
    panel = await Panel.open(tab, key, "transcription")
    await panel.field("file").set_input_files(sound)
    await panel.field("ticket").check()
    for language, program in PROGRAMS.items():
        if language != "curl" or shutil.which("jq"):
            assert "a real sound" in await run(tmp_path, key, *program, await panel.call_to_copy(language))


async def test_the_call_can_be_copied_and_never_holds_the_key(tab: Tab, key: str) -> None:
    await tab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    panel = await Panel.open(tab, key, "rerank")
    shown = await panel.call_to_copy("JavaScript")
    await panel.press("Copy")
    await panel.expect(panel.root.get_by_text("Copied.")).to_be_visible()
    assert await tab.page.evaluate("navigator.clipboard.readText()") == shown
    assert key not in await tab.page.content()


async def test_what_stands_in_a_panel_survives_another_and_not_another_key(tab: Tab, key: str) -> None:
    panel = await Panel.open(tab, key, "rerank")
    await panel.run("2 documents", query="of mine", documents="a\nbb")
    other = await panel.go("decisions")
    await other.page.goto(f"{tab.url}/console/#usage")
    await other.page.goto(f"{tab.url}/console/#try/rerank")
    await panel.expect(panel.field("query")).to_have_value("of mine")
    await panel.says("2 documents")
    await tab.page.get_by_role("button", name="Log out").click()
    await tab.page.get_by_label("Key", exact=True).fill(key)
    await tab.page.keyboard.press("Enter")
    await panel.shown()
    await panel.expect(panel.field("query")).not_to_have_value("of mine")


async def test_a_panel_is_used_with_the_keyboard_alone(tab: Tab, key: str) -> None:
    panel = await Panel.open(tab, key, "rerank")
    await panel.field("query").focus()
    await tab.page.keyboard.press("Enter")
    await panel.says("4 documents sorted")
    for _ in range(12):
        await tab.page.keyboard.press("Tab")
        if await panel.output.locator(":focus").count():
            break
    await panel.expect(panel.output.locator(":focus")).to_have_attribute("aria-label", "Documents, best first")


def renamed(content: Any) -> Any:
    """The same reply, in which every name and label is hostile."""
    match content:
        case list():
            return [renamed(item) for item in content]
        case dict():
            return {
                name: f"{value} {HOSTILE}"
                if name in ("id", "label", "name") and isinstance(value, str)
                else renamed(value)
                for name, value in content.items()
            }
    return content


async def test_ids_of_models_labels_of_voices_and_what_errors_quote_are_text(tab: Tab, key: str) -> None:
    async def rename(route: Any) -> None:
        reply = await route.fetch()
        await route.fulfill(response=reply, json=renamed(await reply.json()))

    await tab.page.route(re.compile(r"/v1/(models|audio/voices)$"), rename)
    panel = await Panel.open(tab, key, "chat")
    await panel.expect(panel.root.locator("option", has_text="<img src=x onerror=alert(1)>").first).to_be_attached()
    await panel.run("there is no model `", user="Hello")
    await panel.expect(panel.root.get_by_text("<img src=x onerror=alert(1)>").last).to_be_visible()
    assert await panel.markup() == 0
    panel = await panel.go("speech")
    await panel.expect(panel.root.locator("option, .voice", has_text="<img src=x").first).to_be_attached()
    assert await panel.markup() == 0
