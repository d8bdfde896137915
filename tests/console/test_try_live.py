"""Live transcription in the playground: a person speaks, and reads what was heard and what became of each second."""

import re
import wave
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.access import Scope
from deployments.ingress.routes import realtime
from tests.api.live import ScriptedTranscriber
from tests.console.conftest import OpenTab
from tests.console.engines import catalog
from tests.console.panels import HOSTILE, Panel
from tests.console.stage import Stage
from tests.console.tabs import Tab, browser
from tests.models.hearing import spoken

__all__ = ["catalog"]
RATE = 16_000
SENTENCE = "The train to the coast leaves from platform nine."

# Remembers what the page was given, so that a test can see whether the microphone is off.
TRACKS = """
const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
window.tracks = [];
navigator.mediaDevices.getUserMedia = async (wanted) => {
  const stream = await open(wanted);
  window.tracks.push(...stream.getTracks());
  return stream;
};
"""
LIVE_TRACKS = "window.tracks.filter(({ readyState }) => readyState === 'live').length"


@pytest.fixture(scope="module")
def microphone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the browser's microphone hears, again and again: a second of silence, a sentence, two seconds of silence."""
    silence = np.zeros(RATE, np.float32)
    sound = np.concatenate([silence, spoken(SENTENCE, "en", RATE), silence, silence])
    file = tmp_path_factory.mktemp("microphone") / "sentence.wav"
    with wave.open(str(file), "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(RATE)
        written.writeframes((sound * 32_767).astype("<i2").tobytes())
    return file


@pytest.fixture(scope="module")
async def chromium(microphone: Path) -> AsyncIterator[Any]:
    flags = ("--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream")
    async with browser(*flags, f"--use-file-for-fake-audio-capture={microphone}") as chromium:
        yield chromium


async def words(seconds: float) -> str:
    return " ".join([f"word{number}" for number in range(int(seconds * 2))] + [HOSTILE])


@pytest.fixture
async def transcriber(stage: Stage) -> AsyncIterator[ScriptedTranscriber]:
    transcriber = ScriptedTranscriber(words)
    for model in stage.catalog.transcription.values():
        engine: Any = stage.engines[model.deployment]
        engine.adapter = transcriber
    yield transcriber
    await stage.service.live.listener.close()


async def listening(tab: Tab, key: str) -> Panel:
    await tab.page.add_init_script(TRACKS)
    panel = await Panel.open(tab, key, "transcription")
    await panel.press("Speak")
    await panel.says("Listening")
    return panel


async def test_one_speaks_reads_and_stops(open_tab: OpenTab, key: str, transcriber: ScriptedTranscriber) -> None:
    panel = await listening(await open_tab(theme="dark"), key)
    text, seconds = panel.output.get_by_role("log"), panel.output.locator(".muted")
    await panel.expect(text).to_contain_text("word0 word1", timeout=15_000)
    early = len(await text.inner_text())
    await panel.expect(seconds).to_have_text(
        re.compile(r"^Heard [1-9]\d*\.\d s, silence \d+\.\d s, unheard 0\.0 s\.$"), timeout=15_000
    )
    assert len(await text.inner_text()) > early
    assert await panel.tab.barriers() == []
    assert await panel.page.evaluate(LIVE_TRACKS) == 1
    await panel.press("Stop")
    await panel.says(re.compile(r"Heard: \d+\.\d s of speech, about €0\.\d+\."))
    assert await panel.page.evaluate(LIVE_TRACKS) == 0
    assert await panel.markup() == 0
    await panel.expect(text).to_contain_text("<img src=x onerror=alert(1)>")


async def test_it_ends_with_the_key_and_by_keyboard(tab: Tab, key: str, transcriber: ScriptedTranscriber) -> None:
    panel = await listening(tab, key)
    await panel.root.get_by_role("button", name="Speak").focus()
    await tab.page.keyboard.press("Tab")
    await tab.page.keyboard.press("Enter")
    await panel.says("Heard:")
    await tab.page.keyboard.press("Shift+Tab")
    await panel.press("Speak")
    await panel.says("Listening")
    await tab.page.get_by_role("button", name="Log out").click()
    await tab.page.wait_for_function(f"({LIVE_TRACKS}) === 0")


async def test_a_key_that_may_not_is_told_before_the_microphone_opens(tab: Tab, stage: Stage) -> None:
    await tab.page.add_init_script(TRACKS)
    panel = await Panel.open(tab, await stage.key(Scope.CHAT), "transcription")
    await panel.press("Speak")
    await panel.says("It failed: ")
    await panel.expect(panel.root.locator(".error")).to_contain_text("403")
    assert await tab.page.evaluate("window.tracks.length") == 0


async def test_a_budget_that_ends_amid_a_session_closes_it(
    tab: Tab, stage: Stage, key: str, transcriber: ScriptedTranscriber
) -> None:
    await stage.api.limit(1)  # enough to open one, and not for the first minute
    await tab.page.add_init_script(TRACKS)
    panel = await Panel.open(tab, key, "transcription")
    await panel.press("Speak")
    await panel.says("It failed: ")
    await panel.expect(panel.root.locator(".error")).to_contain_text("org_spend_limit")
    assert await tab.page.evaluate(LIVE_TRACKS) == 0


async def test_a_microphone_that_is_denied_is_told_in_words(tab: Tab, key: str) -> None:
    await tab.page.add_init_script(
        "navigator.mediaDevices.getUserMedia = async () => { throw new DOMException('', 'NotAllowedError'); };"
    )
    panel = await Panel.open(tab, key, "transcription")
    await panel.press("Speak")
    await panel.says("The browser did not allow the microphone.")


async def test_a_session_that_is_not_opened_is_told(tab: Tab, key: str, stage: Stage) -> None:
    stage.service.live.most = 0
    panel = await Panel.open(tab, key, "transcription")
    await panel.press("Speak")
    await panel.says("It failed: The session was refused or broke off (1006).")
    tab.faults.clear()  # the browser's own line about the upgrade


async def test_a_server_that_goes_says_when_it_ends_the_session(
    tab: Tab, stage: Stage, key: str, transcriber: ScriptedTranscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(realtime, "DRAIN_S", 1)
    panel = await listening(tab, key)
    stage.service.live.drain()
    await panel.says("The server ends the session in 1 s.")
    await panel.says("Heard:")
    assert await tab.page.evaluate(LIVE_TRACKS) == 0
