"""Stands for `torchaudio.compliance.kaldi` in the environment of Qwen3-TTS, whose 25 Hz codec imports it.

We run the 12 Hz codec, which does not. The torchaudio of the package index is a CUDA build: with the CPU build of torch
it cannot be imported.
"""


def __getattr__(name: str) -> object:
    raise ImportError("the 25 Hz codec of Qwen3-TTS needs torchaudio, which is not part of this environment")
