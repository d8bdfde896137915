"""Stands for the `sox` package in the environment of Qwen3-TTS, whose 25 Hz codec imports it. We run the 12 Hz codec.

The package itself calls a program that is not part of the environment, and complains when it is imported.
"""


def __getattr__(name: str) -> object:
    raise ImportError("the 25 Hz codec of Qwen3-TTS needs the `sox` package, which is not part of this environment")
