"""Checks of Qwen3-TTS's engine and designer, run by its interpreter: `python -m tests.models.qwen_child FOLDER`.

The true package, its true loader and classes; only the weights are a twin's, which makes noise. It is made in FOLDER.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import shutil
import sys
import time
import traceback
import wave
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from contract.catalog import Serving, SpeechModel, VoiceDesignModel
from contract.speech.engine import Clip, SpeechJob
from contract.voice_design.engine import DesignJob
from models import qwen_tts
from tests.models.voice_design.jobs import job
from tests.twins.qwen import make

OPTIONS = {"dtype": "float32"}
TONE = (np.sin(np.arange(24_000) / 20) * 9_000).astype("<i2").tobytes()
HUM = (np.sin(np.arange(16_000) / 90) * 9_000).astype("<i2").tobytes()
MUTE, SPOKEN = Clip(HUM, 16_000), Clip(HUM, 16_000, "Was ich sage.")
CLIP = Clip(TONE, 24_000, "Was ich sage.")
HELLO = SpeechJob("Guten Tag.", "de", clip=CLIP)


def relabelled(twin: Path, variant: str) -> Path:
    folder = twin.with_name(f"{twin.name}-as-{variant}")
    shutil.copytree(twin, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"tts_model_type": variant}))
    return folder


def counted(holder: Any, name: str) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []
    method = getattr(holder, name)

    def noted(**arguments: Any) -> Any:
        calls.append(arguments)
        return method(**arguments)

    setattr(holder, name, noted)
    return calls


def error(act: Callable[[], Any]) -> str:
    try:
        act()
    except Exception as raised:
        return f"{type(raised).__name__}: {getattr(getattr(raised, 'fault', None), 'name', raised)}"
    return "nothing"


def two_frames_at_most() -> AbstractContextManager[Any]:
    """No text may become longer; `A` may have one frame, and the model writes no fewer."""
    return mock.patch.multiple(qwen_tts, SPARE_FRAMES=1, FRAMES_PER_CHAR=1)


# The engine


def load_speaker(twin: Path, sample_rate: int = 24_000, **options: Any) -> Any:
    from models.speech.qwen import QwenSpeech

    serving = Serving(adapter="models.speech.qwen:QwenSpeech", runtime="twin", options=OPTIONS | options)
    model = SpeechModel(
        id="qwen3-tts", owned_by="t", provider="qwen", languages=("de", "en", "fr"), max_input_chars=2000,
        buffers_output=True, sample_rate=sample_rate, default_voice="rooom-f-01", serving=serving,
    )  # fmt: skip
    return QwenSpeech(model, twin)


class Speaker:
    """The engine over the twin, and the calls of its package: recordings `listened` to, sounds `asked` for."""

    def __init__(self, twin: Path) -> None:
        voices = {"rooom-f-01": {"clip": "voices/f.wav"}, "rooom-m-01": {"clip": "voices/m.wav"}}
        self.twin, self.engine = twin, load_speaker(twin, voices=voices)
        self.tts = self.engine._tts
        self.listened = counted(self.tts, "create_voice_clone_prompt")
        self.asked = counted(self.tts, "generate_voice_clone")

    def sound(self, text: str = "Guten Tag.", language: str = "de", **fields: Any) -> str:
        import torch

        torch.manual_seed(7)
        parts = [part.samples for part in self.engine.render(SpeechJob(text, language, **fields))]
        return hashlib.sha256(np.concatenate(parts).tobytes()).hexdigest()

    def together(self, jobs: list[SpeechJob], speak: Callable[[SpeechJob], Any]) -> list[Any]:
        """Results of jobs that wait while no job gets a turn."""
        for order in jobs:
            self.engine._prompt(order)
        with ThreadPoolExecutor(len(jobs)) as threads:
            with self.engine._turn:
                waiting = [threads.submit(speak, job) for job in jobs]
                while len(self.engine._waiting) < len(jobs):
                    time.sleep(0.001)
            return [one.result() for one in waiting]


def failing(tts: Any, at: str) -> AbstractContextManager[Any]:
    """The package fails at each batch with the text `at`."""
    speak = tts.generate_voice_clone

    def picky(text: list[str], **arguments: Any) -> Any:
        if at in text:
            raise RuntimeError("cannot be spoken")
        return speak(text=text, **arguments)

    return mock.patch.object(tts, "generate_voice_clone", picky)


def same_random_numbers_make_the_same_sound(subject: Speaker) -> None:
    assert subject.sound(voice="rooom-f-01") == subject.sound(voice="rooom-f-01") == subject.sound()


def everything_that_is_asked_for_matters(subject: Speaker) -> None:
    sound = subject.sound
    others = [sound(voice="rooom-m-01"), sound(language="en"), sound("Gute Nacht."), sound(clip=SPOKEN)]
    assert sound() not in [*others, sound(clip=MUTE)]


def languages_are_named(subject: Speaker) -> None:
    subject.asked.clear()
    subject.sound()
    subject.sound(language="en")
    assert [call["language"] for call in subject.asked] == [["German"], ["English"]]


def stored_voices_are_listened_to_at_start_and_clips_once_for_each_organisation(subject: Speaker) -> None:
    subject.listened.clear()
    subject.sound(voice="rooom-f-01")
    subject.sound(voice="rooom-m-01")
    assert subject.listened == []
    assert subject.sound(clip=SPOKEN, owner="org-1") == subject.sound(clip=SPOKEN, owner="org-1")
    assert subject.sound(clip=SPOKEN, owner="org-1") != subject.sound(clip=MUTE, owner="org-1")
    assert [call["x_vector_only_mode"] for call in subject.listened] == [False, True]
    for _ in range(2):
        subject.sound(clip=SPOKEN, owner="org-2")
    assert len(subject.listened) == 3


def a_long_text_is_spoken_as_batches(subject: Speaker) -> None:
    subject.asked.clear()
    long = " ".join(f"Satz {number} ist genau so lang wie jeder andere {'x' * 250}." for number in range(10))
    parts = list(subject.engine.render(SpeechJob(long, "de")))
    assert len(subject.asked[0]["text"]) == 8
    ends = [part.characters for part in parts]
    assert ends == sorted(ends)
    assert ends[-1] == len(long)
    assert len(ends) == len({part.samples.tobytes() for part in parts}) == 10
    assert (parts[0].samples.dtype, parts[0].samples.ndim) == (np.float32, 1)
    assert 0 < max(np.abs(part.samples).max() for part in parts) <= 1


def a_client_gets_a_wav_file(subject: Speaker) -> None:
    block = asyncio.run(subject.engine.speak_whole(SpeechJob("Guten Tag.", "de")))
    with wave.open(io.BytesIO(block.data)) as file:
        samples = len(file.readframes(file.getnframes())) // 2
        assert (file.getframerate(), file.getnchannels()) == (24_000, 1)
    assert round(samples - block.seconds * 24_000, 6) == 0


def requests_that_wait_are_spoken_together(subject: Speaker) -> None:
    subject.asked.clear()
    jobs = [
        SpeechJob(f"Satz {number}.", "de" if number % 2 else "en", clip=clip)
        for number, clip in enumerate([None, MUTE, SPOKEN] * 2)
    ]
    spoken = subject.together(jobs, lambda job: list(subject.engine.render(job)))
    assert all(len(parts[0].samples) for parts in spoken)
    assert [sorted(call["text"]) for call in subject.asked] == [[f"Satz {number}." for number in range(6)]]


def control_tokens_of_a_client_are_text(subject: Speaker) -> None:
    words = subject.tts.processor.tokenizer
    control = words.get_added_vocab()
    assert len(control) > 1
    spelled = "".join(control)
    clip = Clip(TONE, 24_000, f"Was {spelled} ich")
    list(subject.engine.render(SpeechJob(f"Guten {spelled} Tag.", "de", clip=clip)))
    text = subject.asked[-1]["text"][0]
    assert text.replace(" ", "") == f"Guten{spelled}Tag.", "nothing is left out"
    for one in (text, subject.listened[-1]["ref_text"]):
        assert not {*control.values()} & {*words(one)["input_ids"]}


def a_passage_that_cannot_be_spoken_fails_alone(subject: Speaker) -> None:
    jobs = [replace(HELLO, text=text) for text in ("Gift.", "Brot.", "Salz.")]
    with failing(subject.tts, "Gift."):
        told = subject.together(jobs, lambda job: error(lambda: list(subject.engine.render(job))))
    assert told == ["RuntimeError: cannot be spoken", "nothing", "nothing"]


def a_failed_batch_fails_its_requests_and_no_others(subject: Speaker) -> None:
    with failing(subject.tts, HELLO.text):
        assert error(lambda: list(subject.engine.render(HELLO))) == "RuntimeError: cannot be spoken"
    assert error(lambda: list(subject.engine.render(HELLO))) == "nothing"


def a_text_that_runs_on_is_incomplete(subject: Speaker) -> None:
    with two_frames_at_most():
        told = error(lambda: list(load_speaker(subject.twin).render(replace(HELLO, text="A"))))
    assert told == "ApiError: STREAM_INCOMPLETE"


def what_does_not_fit_is_refused(subject: Speaker) -> None:
    assert error(lambda: subject.sound(voice="rooom-m-02")) == "ApiError: UNKNOWN_VOICE"
    other = error(lambda: load_speaker(relabelled(subject.twin, "voice_design")))
    assert "contains `voice_design`, but `base` is needed" in other
    rate = error(lambda: list(load_speaker(subject.twin, sample_rate=16_000).render(HELLO)))
    assert "speak at 24000 Hz, but its stanza says 16000" in rate


# The designer

JOB = job("de", 110, text="Guten Tag.", instruct="A deep man.", gender="m", age_years=40, attempts=3, seed=7)
Designer = Any


def load_designer(twin: Path) -> Any:
    from models.voice_design.qwen import QwenDesigner

    adapter = "models.voice_design.qwen:QwenDesigner"
    serving = Serving(adapter=adapter, runtime="twin", max_ongoing_requests=1, options=OPTIONS)
    model = VoiceDesignModel(id="qwen3-tts", owned_by="t", provider="qwen", languages=("de", "fr"), serving=serving)
    designer = QwenDesigner(model, twin)
    designer.twin = twin
    return designer


def a_description_makes_a_voice(subject: Designer) -> None:
    first = subject.propose(JOB, [])
    samples = subject.speak(JOB, first)
    assert (samples.dtype, samples.ndim, len(samples) % 1_920) == (np.float32, 1, 0)
    assert 0 < np.abs(samples).max() <= 1
    assert subject.recipe(first) is None


def seed_description_language_and_temperature_decide(subject: Designer) -> None:
    def sound(job: DesignJob = JOB, **changes: Any) -> str:
        first = subject.propose(job, [])
        return hashlib.sha256(subject.speak(job, replace(first, **changes)).tobytes()).hexdigest()

    assert sound() == sound()
    changes: list[dict[str, Any]] = [{"seed": 8}, {"instruct": "A bright woman."}, {"temperature": 1.0}]
    assert sound() not in [*(sound(**change) for change in changes), sound(replace(JOB, language="fr"))]


def a_sentence_without_end_is_no_voice(subject: Designer) -> None:
    with two_frames_at_most():
        assert len(subject.speak(replace(JOB, text="A"), subject.propose(JOB, []))) == 0


def noise_is_tried_anew_and_never_delivered(subject: Designer) -> None:
    asked = counted(subject._tts, "generate_voice_design")
    assert error(lambda: asyncio.run(subject.design(JOB))) == "ApiError: UPSTREAM_ERROR"
    told = [[call["instruct"], call["language"], call["temperature"]] for call in asked]
    assert told == [["A deep man.", "German", temperature] for temperature in (0.9, 1.0, 1.0)]


def other_weights_are_refused(subject: Designer) -> None:
    assert "contains `base`, but `voice_design` is needed" in error(
        lambda: load_designer(relabelled(subject.twin, "base"))
    )


def checks_of(subject: str) -> list[Callable[[Any], None]]:
    """The functions here that take a `subject` of that type, and nothing else."""
    taken = {"subject": subject, "return": "None"}
    return [item for item in globals().values() if getattr(item, "__annotations__", None) == taken]


def main(folder: Path) -> dict[str, str]:
    """By the name of each check: empty where it held, else the traceback."""
    outcomes = {}
    for variant, start in (("base", Speaker), ("voice_design", load_designer)):
        make(folder / variant, variant)
        subject = start(folder / variant)
        for check in checks_of("Speaker" if variant == "base" else "Designer"):
            try:
                check(subject)
                outcomes[check.__name__] = ""
            except Exception:
                outcomes[check.__name__] = traceback.format_exc()
    return outcomes


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(main(Path(sys.argv[1]))) + "\n")
