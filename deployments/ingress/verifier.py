"""Speech verification: a transcriber of the graph checks what a speech engine of the graph has said.

It is called as for any client, through its gate: it starts, queues and takes turns as ever, in the name of the
organisation that the speech belongs to. Nothing is billed.
"""

from __future__ import annotations

import asyncio
import io
import wave
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace

from audio.sandbox import NotAudio, QueueFull, SharesExhausted, TooLong, decode
from autoscaling.engine import CallContext, Engine
from contract.catalog import TranscriptionModel
from contract.errors import BUSY, UPSTREAM_TIMEOUT, WARMING_UP, ApiError
from contract.limits import RECORDING_S
from contract.speech.engine import Clip, SpeechJob
from contract.speech.verdict import VERDICT_LISTEN_S, Reason, SpeechVerdict, can_judge, unverified
from contract.transcription.engine import Segment, TranscriptionEngine, TranscriptionJob, joined
from contract.voice_design.engine import DesignJob, DesignResult, VoiceDesignEngine
from text.spoken import compare, doubts

REASONS: Mapping[str, Reason] = {BUSY.name: "busy", UPSTREAM_TIMEOUT.name: "late", WARMING_UP.name: "late"}
"""Of errors that say more than that verification failed."""

SAMPLE_RATE = 16_000
"""Samples per second of a part that is transcribed again: what transcribers work with."""
HINTED_S = 30
"""Seconds that are transcribed again in one piece: a window of Whisper. Of more it would leave out whole sentences."""


@dataclass(frozen=True, slots=True)
class SpeechVerifier:
    """Transcriber of one voice in one language: `engine`, in front of the model."""

    engine: Engine
    language: str

    async def verdict(self, sound: bytes, text: str, context: CallContext) -> SpeechVerdict:
        """Transcribes a file to be compared with its text. Never raises: at worst there is no verdict."""
        try:
            async with asyncio.timeout(VERDICT_LISTEN_S):
                segments = await self._listen(sound, context)
                transcript = _joined(segments)
                # In a thread: signs that stand for whole sentences make it a tenth of a second.
                result = await asyncio.to_thread(compare, text, transcript, self.language)
                if segments and result.is_doubtful:
                    transcript = await self._listen_again(sound, text, segments, context)
                    result = await asyncio.to_thread(compare, text, transcript, self.language)
        except TimeoutError:
            return unverified("late")
        except (QueueFull, SharesExhausted):
            return unverified("busy")
        except (NotAudio, TooLong):
            return unverified("ears_failed")
        except ApiError as error:
            return unverified(REASONS.get(error.fault.name, "ears_failed"))
        return SpeechVerdict(
            "differs" if result.first else "faithful",
            None,
            transcript,
            result.word_error_rate,
            result.first,
            result.longest,
        )

    async def _listen_again(self, sound: bytes, text: str, segments: list[Segment], context: CallContext) -> str:
        """The transcript with doubtful parts transcribed again: with a hint fewer words are wrong."""
        if segments[-1].end <= HINTED_S:
            return _joined(await self._listen(sound, context, text))
        pieces = [segment.text for segment in segments]
        doubtful = await asyncio.to_thread(doubts, text, pieces, self.language)
        whole = await decode(sound, SAMPLE_RATE, RECORDING_S, context.owner)
        for part in reversed(doubtful):
            # With the silence around it, in which something may have been said.
            start_s = segments[part.first - 1].end if part.first else 0.0
            end_s = segments[part.end].start if part.end < len(segments) else whole.seconds
            end_s = max(end_s, segments[part.end - 1].end)
            first, last = (2 * round(at_s * SAMPLE_RATE) for at_s in (start_s, end_s))
            clip = Clip(whole.samples[first:last], SAMPLE_RATE)
            pieces[part.first : part.end] = [_joined(await self._listen(wav(clip), context, part.text))]
        return joined(pieces)

    async def _listen(self, sound: bytes, context: CallContext, prompt: str | None = None) -> list[Segment]:
        job = TranscriptionJob(sound, self.language, prompt, owner=context.owner)
        # Nobody waits for the first word, so a cold transcriber is waited for, whatever it does with other calls.
        await self.engine.ready(VERDICT_LISTEN_S, timings=context.timings)
        async with aclosing(self.engine.stream(TranscriptionEngine.transcribe, job, context=context)) as updates:
            return [segment async for update in updates for segment in update.segments]


def wav(clip: Clip) -> bytes:
    """The recording as a file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((1, 2, clip.sample_rate, 0, "NONE", ""))
        writer.writeframes(clip.samples)
    return file.getvalue()


def _joined(segments: Iterable[Segment]) -> str:
    return joined(segment.text for segment in segments)


def verifier_for(
    offered: Iterable[TranscriptionModel], engines: Mapping[str, Engine], runtime: str, job: SpeechJob
) -> SpeechVerifier | Reason:
    """Returns the transcriber that can judge `runtime` for a job, or the reason why none can. The default is first."""
    models = sorted(offered, key=lambda model: not model.is_default)
    if not models:
        return "no_ears"
    for model in models:
        if can_judge(model.runtime, runtime, job.language, job.voice):
            return SpeechVerifier(engines[model.deployment], job.language)
    return "not_measured"


async def verified_design(
    engine: Engine, job: DesignJob, context: CallContext, verifier: SpeechVerifier | Reason
) -> DesignResult:
    """A voice that says its text, as far as `verifier` can judge: a preview that does not is an attempt that failed.

    Raises RuntimeError where all attempts are used up, and the errors of `engine`.
    """
    used, seconds = 0, 0.0
    while used < job.attempts:
        rest = replace(job, attempts=job.attempts - used, seed=job.seed + used)
        result = await engine.call(VoiceDesignEngine.design, rest, context=context)
        used, seconds = used + result.attempts_used, seconds + result.seconds
        call = CallContext(context.owner)
        if isinstance(verifier, str) or (await verifier.verdict(result.sample, job.text, call)).judgement != "differs":
            return replace(result, attempts_used=used, seconds=seconds)
    raise RuntimeError("no preview says its text")
