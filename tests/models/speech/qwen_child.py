"""Checks of Qwen3-TTS's engine, run by its interpreter: `python -m tests.models.speech.qwen_child FOLDER`.

The true package, its true loader and classes; only the weights are a twin's. It is made in FOLDER.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import time
import wave
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from contract.catalog import Serving, SpeechModel
from contract.speech.engine import Clip, SpeechJob
from tests.models.qwen import checks_of, counted, error, relabelled, run_checks

TONE = (np.sin(np.arange(24_000) / 20) * 9_000).astype("<i2").tobytes()
HUM = (np.sin(np.arange(16_000) / 90) * 9_000).astype("<i2").tobytes()
MUTE, SPOKEN = Clip(HUM, 16_000), Clip(HUM, 16_000, "Was ich sage.")
CLIP = Clip(TONE, 24_000, "Was ich sage.")
HELLO = SpeechJob("Guten Tag.", "de", clip=CLIP)


def load(twin: Path, sample_rate: int = 24_000, **options: Any) -> Any:
    from models.speech.qwen import QwenSpeech

    serving = Serving(adapter="models.speech.qwen:QwenSpeech", runtime="twin", options={"dtype": "float32"} | options)
    model = SpeechModel(
        id="qwen3-tts", owned_by="t", provider="qwen", languages=("de", "en", "fr"), max_input_chars=2000,
        buffers_output=True, sample_rate=sample_rate, default_voice="rooom-f-01", serving=serving,
    )  # fmt: skip
    return QwenSpeech(model, twin)


class Subject:
    """The engine over the twin, and the calls of its package: recordings `listened` to, sounds `asked` for."""

    def __init__(self, twin: Path) -> None:
        voices = {"rooom-f-01": {"clip": "voices/f.wav"}, "rooom-m-01": {"clip": "voices/m.wav"}}
        self.twin, self.engine = twin, load(twin, voices=voices)
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
        for job in jobs:
            self.engine._prompt(job)
        with ThreadPoolExecutor(len(jobs)) as threads:
            with self.engine._turn:
                waiting = [threads.submit(speak, job) for job in jobs]
                while len(self.engine._waiting) < len(jobs):
                    time.sleep(0.001)
            return [one.result() for one in waiting]


def same_random_numbers_make_the_same_sound(subject: Subject) -> None:
    assert subject.sound(voice="rooom-f-01") == subject.sound(voice="rooom-f-01") == subject.sound()


def everything_that_is_asked_for_matters(subject: Subject) -> None:
    sound = subject.sound
    others = [sound(voice="rooom-m-01"), sound(language="en"), sound("Gute Nacht."), sound(clip=SPOKEN)]
    assert sound() not in [*others, sound(clip=MUTE)]


def languages_are_named(subject: Subject) -> None:
    subject.asked.clear()
    subject.sound()
    subject.sound(language="en")
    assert [call["language"] for call in subject.asked] == [["German"], ["English"]]


def stored_voices_are_listened_to_at_start_and_clips_once_for_each_organisation(subject: Subject) -> None:
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


def a_long_text_is_spoken_as_batches(subject: Subject) -> None:
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


def a_client_gets_a_wav_file(subject: Subject) -> None:
    block = asyncio.run(subject.engine.speak_whole(SpeechJob("Guten Tag.", "de")))
    with wave.open(io.BytesIO(block.data)) as file:
        samples = len(file.readframes(file.getnframes())) // 2
        assert (file.getframerate(), file.getnchannels()) == (24_000, 1)
    assert round(samples - block.seconds * 24_000, 6) == 0


def requests_that_wait_are_spoken_together(subject: Subject) -> None:
    subject.asked.clear()
    jobs = [
        SpeechJob(f"Satz {number}.", "de" if number % 2 else "en", clip=clip)
        for number, clip in enumerate([None, MUTE, SPOKEN] * 2)
    ]
    spoken = subject.together(jobs, lambda job: list(subject.engine.render(job)))
    assert all(len(parts[0].samples) for parts in spoken)
    assert [sorted(call["text"]) for call in subject.asked] == [[f"Satz {number}." for number in range(6)]]


def control_tokens_of_a_client_are_text(subject: Subject) -> None:
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


def a_passage_that_cannot_be_spoken_fails_alone(subject: Subject) -> None:
    speak = subject.tts.generate_voice_clone

    def picky(text: list[str], **arguments: Any) -> Any:
        if "Gift." in text:
            raise RuntimeError("cannot be spoken")
        return speak(text=text, **arguments)

    subject.tts.generate_voice_clone = picky
    jobs = [replace(HELLO, text=text) for text in ("Gift.", "Brot.", "Salz.")]
    told = subject.together(jobs, lambda job: error(lambda: list(subject.engine.render(job))))
    subject.tts.generate_voice_clone = speak
    assert told == ["RuntimeError: cannot be spoken", "nothing", "nothing"]


def a_failed_batch_fails_its_requests_and_no_others(subject: Subject) -> None:
    speak = subject.tts.generate_voice_clone

    def fail(**_: Any) -> None:
        raise RuntimeError("out of memory")

    subject.tts.generate_voice_clone = fail
    told = error(lambda: list(subject.engine.render(HELLO)))
    subject.tts.generate_voice_clone = speak
    assert told == "RuntimeError: out of memory"
    assert error(lambda: list(subject.engine.render(HELLO))) == "nothing"


def a_text_that_runs_on_is_incomplete(subject: Subject) -> None:
    """No text may become longer than two frames here; `A` may have one, and the model writes no fewer."""
    from models import qwen_tts

    limits = qwen_tts.SPARE_FRAMES, qwen_tts.FRAMES_PER_CHAR
    qwen_tts.SPARE_FRAMES, qwen_tts.FRAMES_PER_CHAR = 1, 1
    told = error(lambda: list(load(subject.twin).render(replace(HELLO, text="A"))))
    qwen_tts.SPARE_FRAMES, qwen_tts.FRAMES_PER_CHAR = limits
    assert told == "ApiError: STREAM_INCOMPLETE"


def what_does_not_fit_is_refused(subject: Subject) -> None:
    assert error(lambda: subject.sound(voice="rooom-m-02")) == "ApiError: UNKNOWN_VOICE"
    other = error(lambda: load(relabelled(subject.twin, "voice_design")))
    assert "contains `voice_design`, but `base` is needed" in other
    rate = error(lambda: list(load(subject.twin, sample_rate=16_000).render(HELLO)))
    assert "speak at 24000 Hz, but its stanza says 16000" in rate


CHECKS = checks_of(globals())

if __name__ == "__main__":
    run_checks("base", Subject, CHECKS)
