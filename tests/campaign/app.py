"""The graph of the campaign: profile `embedded` over engines that obey, of which some may die, hang or be full.

Two ingress replicas. Voices are spoken by espeak-ng, and recordings are decoded in the real sandbox.
"""

import hashlib
from collections.abc import AsyncGenerator

from ray.serve import Application

from contract.transcription.engine import Segment, TranscriptionJob, TranscriptUpdate
from deployments.ingress.deployment import IngressArgs
from graph import wire
from models.transcription.adapter import Recording, TranscriptionAdapter
from tests.catalogs import NO_CPUS, REAL, chat, embedded, run_by
from tests.cluster.app import LOOKED_AFTER, Args
from tests.engines import TranscriberOptions
from tests.quick_speech import quick

INGRESSES = 2
SLOTS, LINE = 8, 24
"""Calls that the engine `full` works on, and that wait for it."""

CHATS = (
    chat("obedient", max_ongoing_requests=300, deployment=NO_CPUS | LOOKED_AFTER),
    chat("hanging", deadline_s=40, deployment=NO_CPUS | LOOKED_AFTER),
    chat("full", max_ongoing_requests=SLOTS, max_queued=LINE),
    chat("cold", max_ongoing_requests=100, idle_s=2),
)


class Digest(TranscriptionAdapter):
    """Hears the SHA-256 of the file, once the sandbox has decoded it."""

    options_type = TranscriberOptions

    async def listen(self, job: TranscriptionJob, recording: Recording) -> AsyncGenerator[TranscriptUpdate, None]:
        content = recording.file if isinstance(recording.file, bytes) else recording.file.read_bytes()
        segment = Segment(hashlib.sha256(content).hexdigest(), 0, recording.sound.seconds, ())
        yield TranscriptUpdate(recording.sound.seconds, recording.sound.seconds, "en", (segment,))

    async def check_health(self) -> None:
        pass

    def close(self) -> None:
        pass


def build(args: Args) -> Application:
    """The real wiring over this catalogue."""
    catalog = embedded()
    hearing = run_by("ObedientTranscriber").model_copy(update={"adapter": f"{__name__}:Digest"})
    change = {
        "chat": {model.id: model for model in CHATS},
        "speech": {id: quick(model) for id, model in REAL.speech.items()},
        "transcription": {
            id: model.model_copy(update={"serving": hearing}) for id, model in REAL.transcription.items()
        },
    }
    return wire(catalog.model_copy(update=change), IngressArgs(replicas=INGRESSES))
