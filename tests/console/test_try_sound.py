"""The playground's panels of sound: voices side by side, words that light up, uploads, voices to order."""

import re
from pathlib import Path

import pytest

from tests.console.conftest import OpenTab
from tests.console.engines import catalog, tone
from tests.console.panels import HOSTILE, Panel
from tests.console.tabs import Tab

__all__ = ["catalog"]
# A tone in the place of the microphone, through the browser's own recorder.
MICROPHONE = """
navigator.mediaDevices.getUserMedia = async () => {
  const context = new AudioContext(), source = context.createOscillator(), end = context.createMediaStreamDestination();
  source.connect(end);
  source.start();
  return end.stream;
};
"""
DURATION = (
    "audio => audio.readyState ? audio.duration : new Promise(r => audio.onloadedmetadata = () => r(audio.duration))"
)


def recording(folder: Path, name: str = "talk.wav", seconds: float = 1.0) -> Path:
    file = folder / name
    file.write_bytes(tone(seconds))
    return file


async def test_a_text_is_spoken_by_several_engines_side_by_side(tab: Tab, key: str) -> None:
    panel = await Panel.open(tab, key, "speech")
    await panel.root.get_by_label("cosyvoice-3", exact=True).check()
    await panel.root.get_by_label("Voice of supertonic-3").select_option(index=1)
    await panel.run("2 of 2 spoken.")
    cards = panel.output.locator(".spoken")
    for index in range(2):
        card = cards.nth(index)
        assert await card.locator("audio").evaluate(DURATION) == pytest.approx(0.5, abs=0.01)
        assert len(await card.locator("path.wave").get_attribute("d") or "") > 1000
        await panel.expect(card).to_contain_text("first sound after")
    await cards.first.locator("summary", has_text="As a table").click()
    await panel.expect(cards.first.locator("tbody tr")).to_have_count(10)


async def test_an_engine_that_fails_says_so_in_its_place_and_the_others_speak(tab: Tab, key: str) -> None:
    panel = await Panel.open(tab, key, "speech")
    await panel.run("0 of 1 spoken.", input="I am busy now")
    await panel.expect(panel.output.locator(".spoken .error")).to_contain_text("Try again in")
    await panel.root.get_by_label("supertonic-3", exact=True).uncheck()
    await panel.run("Choose at least one engine.")


async def test_words_light_up_as_the_recording_plays(tab: Tab, key: str, tmp_path: Path) -> None:
    panel = await Panel.open(tab, key, "transcription")
    await panel.field("model").select_option("whisper-large-v3")
    await panel.field("file").set_input_files(recording(tmp_path))
    await panel.run(re.compile(r"Transcribed: 3 words"))
    lit = panel.output.locator(".lit")
    for seconds, word in ((0.1, "a"), (0.5, "real"), (0.9, "sound")):
        await panel.output.locator("audio").evaluate("(audio, to) => (audio.currentTime = to)", seconds)
        await panel.expect(lit).to_have_text(word)
    await panel.output.locator(".word").first.click()
    await panel.expect(lit).to_have_text("a")
    await panel.output.locator("summary", has_text="Times as a table").click()
    await panel.expect(panel.output.locator("tbody tr").last).to_contain_text("sound0.671.00")


async def test_a_large_file_goes_under_a_ticket_with_progress(tab: Tab, key: str, tmp_path: Path) -> None:
    panel = await Panel.open(tab, key, "transcription")
    seen: list[str] = []
    tab.page.on("request", lambda request: seen.append(f"{request.method} {request.url.partition('?')[0]}"))
    await panel.field("file").set_input_files(recording(tmp_path, seconds=160))
    await panel.root.locator("button[type=submit]").click()
    await panel.expect(panel.output.locator("progress")).to_be_visible()
    await panel.says("Transcribed: 3 words")
    ways = [way.replace(tab.url, "") for way in seen if not way.startswith("GET")]
    assert [re.sub("upl_.*", "", way) for way in ways] == [
        "POST /v1/audio/uploads", "PUT /files/uploads/", "POST /v1/audio/transcriptions",
    ]  # fmt: skip


async def test_an_upload_that_is_refused_shows_the_servers_sentence(tab: Tab, key: str, tmp_path: Path) -> None:
    error = {"message": "the address is no longer valid", "code": "upload_expired"}
    await tab.page.route("**/files/uploads/**", lambda route: route.fulfill(status=403, json={"error": error}))
    panel = await Panel.open(tab, key, "transcription")
    await panel.field("file").set_input_files(recording(tmp_path))
    await panel.field("ticket").check()
    await panel.run("It failed: the address is no longer valid")
    await panel.expect(panel.root.locator(".error")).to_contain_text("upload_expired")


async def test_what_the_microphone_hears_is_written_down(open_tab: OpenTab, key: str) -> None:
    tab = await open_tab()
    await tab.page.add_init_script(MICROPHONE)
    panel = await Panel.open(tab, key, "transcription")
    await panel.press("Record")
    await panel.press("Stop recording")
    await panel.expect(panel.root.get_by_text("Recorded.")).to_be_visible()
    await panel.run("Transcribed: 3 words")
    assert await panel.output.locator("audio").count() == 1


async def test_a_refused_microphone_is_told_in_words(tab: Tab, key: str) -> None:
    panel = await Panel.open(tab, key, "transcription")
    await panel.press("Record")
    await panel.expect(panel.root.get_by_text(re.compile("choose a file", re.IGNORECASE)).last).to_be_visible()
    await panel.run("Choose a file, or record something.")


async def test_the_name_of_a_file_is_text(tab: Tab, key: str, tmp_path: Path) -> None:
    panel = await Panel.open(tab, key, "transcription")
    name = HOSTILE.replace("/", "") + ".wav"
    await panel.field("file").set_input_files(recording(tmp_path, name))
    await panel.expect(panel.root.get_by_text("<img src=x").first).to_contain_text("[U+202E]")
    await panel.run("Transcribed: 3 words")
    assert await panel.markup() == 0
    assert "recording.wav" in await panel.call_to_copy("curl")


async def test_a_voice_is_ordered_heard_and_adopted(tab: Tab, key: str) -> None:
    panel = await Panel.open(tab, key, "design")
    await panel.press("Fill in from the description")
    await panel.says("Heard: male")
    await panel.expect(panel.field("gender")).to_have_value("m")
    await panel.open_more()
    await panel.run(re.compile(r"The draft is ready: \d+ Hz, in the band"), target_hz="120", label="Grandfather")
    draft = panel.output.locator(".draft")
    drawing = draft.get_by_role("img")
    label = await drawing.get_attribute("aria-label") or ""
    assert re.search(r"Pitch: ordered \d+ to \d+ Hz, measured 120.0 Hz, in the band, after 1 of \d+ attempts", label)
    await draft.locator("summary").click()
    await panel.expect(draft.locator("tbody")).to_contain_text("upper quartile125.0 Hz")
    assert await draft.locator("audio").evaluate(DURATION) > 0.4
    await draft.get_by_role("button", name="Adopt").click()
    await panel.says("Adopted.")
    await panel.expect(draft).to_contain_text("voice grandfather")
    await panel.press("Earlier drafts")
    await panel.says("1 draft.")
    await draft.get_by_role("button", name="Discard").click()
    await panel.says("Discarded.")
