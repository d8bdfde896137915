"""Whisper by CTranslate2, on a CPU, or on a GPU where the stanza requests one.

    recording -> blocks of minutes -> windows of 30 s with speech -> batches of them -> passages

Owners take turns batch by batch, so a voice note waits for a batch of a long recording and not for its end. Whisper's
own time stamps are not used, since a batch loses what follows the last of them; times come from aligned words.

Nothing is invented: sound without speech never reaches the model, and a window with an improbable text or a loop is
transcribed once more, alone, at rising temperatures. Text that is still a loop, or far from probable, is left out.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field

from concurrency.semaphore import FairSemaphore
from contract.base import Frozen
from contract.catalog import TranscriptionModel
from contract.transcription.engine import Segment, TimedWord, TranscriptionJob, TranscriptUpdate
from models import ONNX, Imports
from models.options import read
from models.stepping import Stepper, ThreadedAdapter
from models.transcription import whisper
from models.transcription.adapter import SAMPLE_RATE, Recording, TranscriptionAdapter
from models.transcription.voice_activity import Block, Window, blocks, rest, spoken
from models.weights.files import need_folder

TEMPERATURES = (0.0, 0.4, 0.8)
"""Temperatures at which a doubtful window is transcribed again, until its text is plausible."""

SAMPLES = 2
"""Texts that are sampled at a temperature; the likeliest is used."""

RESTS = 8
"""Times that the rest of a window is transcribed if Whisper stops before its end, as it does at repetitions."""

AGAIN_SEGMENTS = 40
"""Segments of one window, at most. No speaker says more sentences in half a minute."""

T = TypeVar("T")


class FasterWhisperOptions(Frozen):
    """Options of `FasterWhisper`.

    Attributes:
        compute_type: number format of CTranslate2; `int8` on a CPU.
        beam_size: 1 takes the likeliest word each time.
        batch_size: windows of 30 s at a time. Other recordings wait for a batch, so small ones are fairer.
        lacks_languages: languages of the API that the weights do not know.
    """

    compute_type: Literal["int8", "int8_float32", "int8_float16", "float16", "bfloat16", "float32"] = "int8"
    beam_size: int = Field(5, ge=1, le=20)
    batch_size: int = Field(4, ge=1, le=64)
    lacks_languages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """Settings for every window of a recording; `language` is None until it is detected in the first one."""

    language: str | None
    prompt: str | None
    words: bool
    owner: str


class FasterWhisper(TranscriptionAdapter, ThreadedAdapter):
    """Whisper, loaded. `serving.threads` bounds the CPU threads of all recordings together."""

    options_type = FasterWhisperOptions
    imports = ONNX + Imports(("numpy", "httpx", "faster_whisper"))
    _workers: Stepper

    def __init__(self, model: TranscriptionModel, path: Path | None) -> None:
        super().__init__(model, path)
        self._options = read(model, FasterWhisperOptions)
        self._whisper = whisper.load(
            need_folder(path, model.id),
            device="cuda" if self.serving.on_gpu else "cpu",
            compute_type=self._options.compute_type,
            threads=self.serving.threads or 0,
        )
        whisper.check_languages(self._whisper, self._options.lacks_languages, model.id)
        self._workers = Stepper(self.serving.max_ongoing_requests, self.serving.deadline_s, model.id)
        # On a GPU one batch is prepared while another is transcribed. One slot more is for another owner.
        each = 2 if self.serving.on_gpu else 1
        self._slots = FairSemaphore(each + 1, each=each)
        self._warm_up()

    def listen(self, job: TranscriptionJob, recording: Recording) -> AsyncGenerator[TranscriptUpdate, None]:
        return self._workers.run(self._parts(job, recording))

    def _parts(self, job: TranscriptionJob, recording: Recording) -> Generator[TranscriptUpdate]:
        duration_s, end = recording.sound.seconds, 0.0
        prompt = job.prompt or ", ".join(job.terms)
        task = Task(job.language, prompt.strip() or None, job.words, job.owner)
        for block in blocks(recording.samples, duration_s):
            windows = iter(block.windows)
            while batch := list(islice(windows, self._options.batch_size)):
                task, firsts = self._in_turn(self._begin, task, block, batch)
                for done_s, segments in self._segments(task, block, batch, firsts):
                    placed = tuple(whisper.in_order(segments, end, duration_s))
                    end = placed[-1].end if placed else end
                    yield TranscriptUpdate(duration_s, min(done_s, duration_s), task.language, placed)
            yield TranscriptUpdate(duration_s, block.done_s, task.language)

    def _in_turn(self, work: Callable[..., T], task: Task, *arguments: Any) -> T:
        """The result of `work` for `task`, computed when it is its owner's turn."""
        with self._slots.blocking(task.owner):
            return work(task, *arguments)

    def _begin(self, task: Task, block: Block, batch: Sequence[Window]) -> tuple[Task, list[Any]]:
        """The first segments of some windows, and the language, in one turn."""
        if task.language is None:
            task = replace(task, language=self._whisper.detect_language(_cut(block, batch[0]))[0])
        return task, self.batch(task, block, batch)

    def _segments(
        self, task: Task, block: Block, batch: Sequence[Window], firsts: Sequence[Any]
    ) -> Iterator[tuple[float, list[Segment]]]:
        """The segments of some windows, each list with the time up to which it is complete. Each is a step."""
        for window, first in zip(batch, firsts, strict=True):
            remainder: Window | None = window
            for number in range(1 + RESTS):
                if remainder is None:
                    break
                part = remainder
                segment = first if number == 0 else self._in_turn(self.batch, task, block, [part])[0]
                best = [segment]
                if whisper.is_doubtful(segment):
                    best = self._in_turn(self._again, task, block, part, segment)
                words = [word for segment in best for word in segment.words]
                remainder = rest(part, words[-1].end) if words else None
                done_s = remainder.start if remainder else part.end
                yield done_s, [passage for segment in best for passage in self._passages(segment, task, part)]

    def batch(self, task: Task, block: Block, batch: Sequence[Window]) -> list[Any]:
        """One segment of faster-whisper's for each window. Times are of the block."""
        from faster_whisper import BatchedInferencePipeline

        clips = [{"start": w.start - block.start, "end": w.end - block.start} for w in batch]
        segments, _ = BatchedInferencePipeline(self._whisper).transcribe(
            block.samples,
            language=task.language,
            beam_size=self._options.beam_size,
            batch_size=len(batch),
            clip_timestamps=clips,
            initial_prompt=f" {task.prompt}" if task.prompt else None,
            without_timestamps=True,
            word_timestamps=True,
        )
        by_window = groupby(segments, key=lambda segment: segment.seek)
        return [_moved(_joined(list(segments)), block.start) for _, segments in by_window]

    def _again(self, task: Task, block: Block, window: Window, first: Any) -> list[Any]:
        """Segments of one window transcribed alone; `first` where that is no better and `first` bearable."""
        segments, _ = self._whisper.transcribe(
            _cut(block, window),
            language=task.language,
            beam_size=self._options.beam_size,
            best_of=SAMPLES,
            temperature=TEMPERATURES,
            compression_ratio_threshold=whisper.MAX_REPETITION,
            log_prob_threshold=whisper.MIN_LOGPROB,
            no_speech_threshold=whisper.MAX_NO_SPEECH,
            condition_on_previous_text=False,
            initial_prompt=task.prompt,
            word_timestamps=True,
        )
        again = [_moved(segment, window.start) for segment in islice(segments, AGAIN_SEGMENTS)]
        plausible = [part for part in again if not whisper.is_doubtful(part)]
        if plausible or not whisper.is_bearable(first):
            return plausible
        return [replace(first, words=[word for word in first.words if whisper.lasts(word)])]

    def _passages(self, segment: Any, task: Task, window: Window) -> Iterator[Segment]:
        if whisper.is_no_speech(segment):
            return
        for words in whisper.sentences(segment.words or ()):
            text = "".join(word.text for word in words).strip()
            if not text or not whisper.is_heard(words, window.spoken):
                continue
            yield Segment(
                text=text,
                start=words[0].start,
                end=words[-1].end,
                words=tuple(replace(w, text=w.text.strip()) for w in words if w.text.strip()) if task.words else (),
                seek=int(window.start * 100),
                tokens=tuple(self._whisper.hf_tokenizer.encode(f" {text}", add_special_tokens=False).ids),
                temperature=float(segment.temperature or 0.0),
                avg_logprob=float(segment.avg_logprob),
                compression_ratio=float(segment.compression_ratio),
                no_speech_prob=float(segment.no_speech_prob),
            )

    def _warm_up(self) -> None:
        """Runs both networks on a second of silence, so that they fail here and not at a client."""
        import numpy as np

        silence = np.zeros(SAMPLE_RATE, np.float32)
        spoken(silence)
        self._whisper.encode(self._whisper.feature_extractor(silence))


def _cut(block: Block, window: Window) -> Any:
    """float32 [n] of a window."""
    first, last = (round((at - block.start) * SAMPLE_RATE) for at in (window.start, window.end))
    return block.samples[first:last]


def _joined(segments: Sequence[Any]) -> Any:
    """All segments of a window as one: some models write time stamps although that is turned off."""
    return replace(
        segments[0],
        text="".join(segment.text for segment in segments),
        words=[word for segment in segments for word in segment.words or ()],
        compression_ratio=max(segment.compression_ratio for segment in segments),
    )


def _moved(segment: Any, by_s: float) -> Any:
    """A segment of faster-whisper with words of our type, later by `by_s` seconds."""
    words = [
        TimedWord(word.word, float(word.start) + by_s, float(word.end) + by_s, float(word.probability))
        for word in segment.words or ()
    ]
    return replace(segment, words=words)
