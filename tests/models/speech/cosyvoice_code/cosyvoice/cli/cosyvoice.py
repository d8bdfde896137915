"""Stands for the file of the same name in the official repository, at commit ace7c47.

The same signatures and the same demands, and it notes every call. It speaks one sample of 0.25 a character, in two
pieces, louder than 1 at the end. One call at a time: two at once would mix, for the official code keeps what it speaks
in one place.
"""

import logging
import os
import threading
import time
import wave

import torch

from cosyvoice.cli.model import CosyVoice3Model

logging.basicConfig(level=logging.DEBUG)

CALLS = []
AT_WORK = threading.Lock()


class CosyVoice3:
    def __init__(self, model_dir, load_trt=False, load_vllm=False, fp16=False, trt_concurrent=1):
        self.sample_rate = 24000
        self.model = CosyVoice3Model()
        self.model.load(f"{model_dir}/llm.pt", f"{model_dir}/flow.pt", f"{model_dir}/hift.pt")
        self.known = {}

    def add_zero_shot_spk(self, prompt_text, prompt_wav, zero_shot_spk_id):
        assert zero_shot_spk_id != ""
        CALLS.append(("add_zero_shot_spk", prompt_text, clip(prompt_wav), zero_shot_spk_id))
        self.known[zero_shot_spk_id] = prompt_text
        return True

    def inference_zero_shot(
        self, tts_text, prompt_text, prompt_wav, zero_shot_spk_id="", stream=False, speed=1.0, text_frontend=True
    ):
        told = self.known[zero_shot_spk_id] if zero_shot_spk_id else prompt_text
        assert "<|endofprompt|>" in told
        heard = prompt_wav if zero_shot_spk_id else clip(prompt_wav)
        CALLS.append(("zero_shot", tts_text, prompt_text, heard, zero_shot_spk_id, stream, speed, text_frontend))
        yield from speak(tts_text)

    def inference_cross_lingual(
        self, tts_text, prompt_wav, zero_shot_spk_id="", stream=False, speed=1.0, text_frontend=True
    ):
        assert "<|endofprompt|>" in tts_text
        CALLS.append(("cross_lingual", tts_text, clip(prompt_wav), zero_shot_spk_id, stream, speed, text_frontend))
        yield from speak(tts_text)

    def inference_instruct2(
        self, tts_text, instruct_text, prompt_wav, zero_shot_spk_id="", stream=False, speed=1.0, text_frontend=True
    ):
        assert "<|endofprompt|>" in instruct_text
        CALLS.append(
            ("instruct2", tts_text, instruct_text, clip(prompt_wav), zero_shot_spk_id, stream, speed, text_frontend)
        )
        yield from speak(tts_text)


def AutoModel(**kwargs):
    assert os.path.exists(f"{kwargs['model_dir']}/cosyvoice3.yaml")
    return CosyVoice3(**kwargs)


def clip(path):
    """Sample rate, and the samples as they lie in the file."""
    with wave.open(path) as file:
        assert (file.getnchannels(), file.getsampwidth()) == (1, 2)
        assert file.getnframes() / file.getframerate() <= 30
        assert file.getframerate() >= 16000
        return file.getframerate(), file.readframes(file.getnframes())


def speak(text):
    assert AT_WORK.acquire(blocking=False), "two calls at once"
    try:
        logging.info("synthesis text %s", text)
        logging.warning("synthesis text %s too short", text)
        yield {"tts_speech": torch.full((1, len(text)), 0.25)}
        time.sleep(0.005)  # other threads have a turn
        yield {"tts_speech": torch.full((1, 1), 1.5)}
    finally:
        AT_WORK.release()
