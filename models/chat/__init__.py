"""Chat completions with vLLM: `VllmChat(model, path)`. No Ray, no HTTP; vLLM is imported where a model loads.

adapter.py   VllmChat: complete, stream, check_health, close
engine.py    from a stanza to a running engine: arguments, threads, environment
core.py      vLLM's engine core in a thread of this process
serving.py   vLLM's chat serving with our events and our errors
request.py   what of a request reaches vLLM
gguf.py      weights out of a GGUF file
"""

from models.chat.adapter import VllmChat

__all__ = ["VllmChat"]
