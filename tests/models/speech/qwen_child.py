"""What `test_qwen` looks at, run by the interpreter of Qwen3-TTS: `python -m ... FOLDER`, JSON at the end.

The true package, its true loader and classes; only the weights are a twin's. It is made in FOLDER.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import time
import wave
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from contract.catalog import Serving, SpeechModel
from contract.speech.engine import Clip, SpeechJob
from tests.models.qwen import counted, error, relabelled, report

TONE = (np.sin(np.arange(24_000) / 20) * 9_000).astype("<i2").tobytes()
HUM = (np.sin(np.arange(16_000) / 90) * 9_000).astype("<i2").tobytes()


def look(twin: Path) -> dict[str, Any]:
    """Everything that the engine does with recordings."""
    import torch

    engine = load(twin, voices={"rooom-f-01": {"clip": "voices/f.wav"}, "rooom-m-01": {"clip": "voices/m.wav"}})
    listened = counted(engine._tts, "create_voice_clone_prompt")
    asked = counted(engine._tts, "generate_voice_clone")

    def sound(text: str = "Guten Tag.", language: str = "de", **fields: Any) -> str:
        torch.manual_seed(7)
        parts = [part.samples for part in engine.render(SpeechJob(text, language, **fields))]
        return hashlib.sha256(np.concatenate(parts).tobytes()).hexdigest()

    found: dict[str, Any] = {"stored": sound(voice="rooom-f-01"), "stored_again": sound(voice="rooom-f-01")}
    found["default"], found["other_voice"] = sound(), sound(voice="rooom-m-01")
    found["other_language"], found["other_text"] = sound(language="en"), sound("Gute Nacht.")
    found["languages"] = [call["language"] for call in asked]
    found["listened_for_stored"] = len(listened)
    clip = Clip(HUM, 16_000, "Was ich sage.")
    found["clip"], found["clip_again"] = sound(clip=clip), sound(clip=clip)
    found["clip_without_words"] = sound(clip=Clip(HUM, 16_000))
    found["listened_for_clips"] = [call["x_vector_only_mode"] for call in listened]
    sound(clip=clip, owner="org-2")
    sound(clip=clip, owner="org-2")
    found["listened_for_another"] = len(listened) - len(found["listened_for_clips"])
    found["controls"] = controls(engine, asked, listened)
    asked.clear()
    long = " ".join(f"Satz {number} ist genau so lang wie jeder andere {'x' * 250}." for number in range(10))
    parts = list(engine.render(SpeechJob(long, "de")))
    found["batches"] = [len(call["text"]) for call in asked]
    found["parts"] = {"ends": [part.characters for part in parts], "length": len(long)}
    found["types"] = [
        str(parts[0].samples.dtype),
        parts[0].samples.ndim,
        float(max(np.abs(p.samples).max() for p in parts)),
    ]
    found["distinct"] = len({part.samples.tobytes() for part in parts})
    found["wav"] = whole_file(engine)
    found["together"] = together(engine, asked)
    found["poisoned"] = poisoned(engine)
    found["after_a_failure"] = after_a_failure(engine)
    found["errors"] = {
        "runs_on": error(lambda: runs_on(twin)),
        "unknown_voice": error(lambda: sound(voice="rooom-m-02")),
        "other_variant": error(lambda: load(relabelled(twin, "voice_design"))),
        "other_rate": error(lambda: list(load(twin, sample_rate=16_000).render(HELLO_CLIP))),
    }
    engine.close()
    return found


HELLO_CLIP = SpeechJob("Guten Tag.", "de", clip=Clip(TONE, 24_000, "Was ich sage."))
SHORT = SpeechJob("A", "de", clip=Clip(TONE, 24_000, "Was ich sage."))
"""May have one frame, and the model writes no fewer."""


def runs_on(twin: Path) -> None:
    """Speaks where no text may become longer than two frames."""
    from models import qwen_tts

    limits = qwen_tts.SPARE_FRAMES, qwen_tts.FRAMES_PER_CHAR
    qwen_tts.SPARE_FRAMES, qwen_tts.FRAMES_PER_CHAR = 1, 1
    try:
        list(load(twin).render(SHORT))
    finally:
        qwen_tts.SPARE_FRAMES, qwen_tts.FRAMES_PER_CHAR = limits


def load(twin: Path, sample_rate: int = 24_000, **options: Any) -> Any:
    """The true adapter."""
    from models.speech.qwen import QwenSpeech

    serving = Serving(adapter="models.speech.qwen:QwenSpeech", runtime="twin", options={"dtype": "float32"} | options)
    model = SpeechModel(
        id="qwen3-tts",
        owned_by="t",
        provider="qwen",
        languages=("de", "en", "fr"),
        max_input_chars=2000,
        buffers_output=True,
        sample_rate=sample_rate,
        default_voice="rooom-f-01",
        serving=serving,
    )
    return QwenSpeech(model, twin)


def together(engine: Any, asked: list[dict[str, Any]]) -> dict[str, Any]:
    """Six requests at once, while nobody gets a turn."""
    asked.clear()
    clips = [None, Clip(HUM, 16_000), Clip(HUM, 16_000, "Was ich sage.")] * 2
    wanted = [
        SpeechJob(f"Satz {number}.", "de" if number % 2 else "en", clip=clip) for number, clip in enumerate(clips)
    ]
    for utterance in wanted:
        engine._prompt(utterance)
    with ThreadPoolExecutor(6) as threads:
        with engine._turn:
            sounds = [threads.submit(list, engine.render(utterance)) for utterance in wanted]
            while len(engine._waiting) < 6:
                time.sleep(0.001)
        lengths = [len(sound.result()[0].samples) for sound in sounds]
    return {"texts": [sorted(call["text"]) for call in asked], "spoken": all(lengths)}


def controls(engine: Any, asked: list[dict[str, Any]], listened: list[dict[str, Any]]) -> dict[str, Any]:
    """Control tokens in what the package is given of texts that spell all of them, and how such a text is spelled."""
    words = engine._tts.processor.tokenizer
    spelled = "".join(words.get_added_vocab())
    list(engine.render(SpeechJob(f"Guten {spelled} Tag.", "de", clip=Clip(TONE, 24_000, f"Was {spelled} ich"))))
    given = {"text": asked[-1]["text"][0], "transcript": listened[-1]["ref_text"]}
    control = set(words.get_added_vocab().values())
    return {name: sum(id in control for id in words(text)["input_ids"]) for name, text in given.items()} | {
        "spelled": len(words.get_added_vocab()),
        "letters": given["text"].replace(" ", "") == f"Guten{spelled}Tag.",
    }


def poisoned(engine: Any) -> list[str]:
    """What three requests hear that are spoken together, one of which the package cannot speak."""
    speak = engine._tts.generate_voice_clone

    def picky(text: list[str], **arguments: Any) -> Any:
        if "Gift." in text:
            raise RuntimeError("cannot be spoken")
        return speak(text=text, **arguments)

    engine._tts.generate_voice_clone = picky
    wanted = [SpeechJob(text, "de", clip=Clip(TONE, 24_000, "Was ich sage.")) for text in ("Gift.", "Brot.", "Salz.")]
    engine._prompt(wanted[0])
    with ThreadPoolExecutor(3) as threads:
        with engine._turn:
            told = [threads.submit(error, lambda job=job: list(engine.render(job))) for job in wanted]
            while len(engine._waiting) < 3:
                time.sleep(0.001)
        heard = [one.result() for one in told]
    engine._tts.generate_voice_clone = speak
    return heard


def after_a_failure(engine: Any) -> list[str]:
    """What a request hears whose batch fails, and the one after it."""
    speak = engine._tts.generate_voice_clone

    def fail(**_: Any) -> None:
        raise RuntimeError("out of memory")

    engine._tts.generate_voice_clone = fail
    told = [error(lambda: list(engine.render(HELLO_CLIP)))]
    engine._tts.generate_voice_clone = speak
    return [*told, error(lambda: list(engine.render(HELLO_CLIP)))]


def whole_file(engine: Any) -> dict[str, Any]:
    """Header of the file that a client gets."""
    block = asyncio.run(engine.speak_whole(SpeechJob("Guten Tag.", "de")))
    with wave.open(io.BytesIO(block.data)) as file:
        samples = len(file.readframes(file.getnframes())) // 2
        rest = round(samples - block.seconds * 24_000, 6)
        return {"rate": file.getframerate(), "channels": file.getnchannels(), "rest": rest}


if __name__ == "__main__":
    report("base", look)
