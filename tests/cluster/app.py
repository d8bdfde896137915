"""The graph of the cluster tests: profile `embedded` plus one obedient engine for each manner of a stanza.

`qwen` obeys too, with the manners that the real one has: one stream, so that it can be busy. So does
`whisper-large-v3`, which refuses when it is cold; the other transcriber is the real one. Of the speech engines the
default one is real, and espeak-ng speaks for the others, which are asked for much. The designer of voices obeys.

The real engines may hold most of two CPUs: the ingress and engines that obey start without one.
"""

from pydantic import BaseModel
from ray.serve import Application

import configs
from deployments.ingress.deployment import IngressArgs
from graph import wire
from tests.catalogs import NO_CPUS, chat, obedient_designer, obedient_speaker, obedient_transcriber
from tests.quick_speech import quick

ALTERNATIVES = {"ray_actor_options": {"num_cpus": 0, "runtime_env": {"py_executable": ".venv/qwen/bin/python"}}}

GROWS = {"autoscaling_config": {"max_replicas": 2, "upscale_delay_s": 1}}

LARGE = {"ray_actor_options": {"num_cpus": 0, "memory": 6 * 2**30}}
"""There is room for one of these (`MEMORY` of conftest.py)."""

LOOKED_AFTER = {"health_check_period_s": 0.5, "health_check_timeout_s": 2}

MANNERS = (
    chat("obedient", max_ongoing_requests=100),
    chat("mortal", max_ongoing_requests=100),
    chat("refusing", when_cold="refuse", idle_s=2),
    chat("sleepy", idle_s=2),
    chat("drowsy", idle_s=2),
    chat("exact", max_ongoing_requests=2, when_busy="refuse"),
    chat("queued", max_ongoing_requests=1, max_queued=2),
    chat("late", deadline_s=1),
    chat("elsewhere", deployment=ALTERNATIVES, idle_s=2),
    chat("broken", "BrokenChat", wait_s=60),
    chat("hanging", deadline_s=40, deployment=NO_CPUS | LOOKED_AFTER),
    chat("left", max_ongoing_requests=4, deployment=LARGE),
    chat("right", max_ongoing_requests=4, deployment=LARGE),
    chat("growing", max_ongoing_requests=1, deployment=NO_CPUS | GROWS),
)


class Args(BaseModel):
    """As the real graph's."""

    profile: str


def build(args: Args) -> Application:
    """The real wiring over a larger catalogue."""
    catalog = configs.load(args.profile)
    chats = catalog.chat | {model.id: model for model in MANNERS}
    speech = catalog.speech | {
        "qwen3-tts": obedient_speaker(catalog.speech["qwen3-tts"]),
        **{id: quick(catalog.speech[id]) for id in ("supertonic-3", "cosyvoice-3")},
    }
    whisper = obedient_transcriber(catalog.transcription["whisper-large-v3"])
    designer = obedient_designer(catalog.voice_design["qwen3-tts"])
    changed = {
        "chat": chats,
        "speech": speech,
        "transcription": catalog.transcription | {whisper.id: whisper},
        "voice_design": {designer.id: designer},
    }
    return wire(catalog.model_copy(update=changed), IngressArgs(cpus=0))
