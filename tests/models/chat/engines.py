"""Chat engines on vLLM for tests: a stanza, and what it leaves out."""

from typing import Any

from contract.catalog import ChatModel, Serving

ARGUMENTS = {"dtype": "float32", "enforce_eager": True, "max_num_seqs": 8, "kv_cache_memory_bytes": 1 << 26}
"""Of an engine that starts quickly, and whose figures can be held against those of another library."""


def stanza(id: str, window: int, engine: dict[str, Any], *, template: str | None = None, **fields: Any) -> ChatModel:
    """A chat model with a window of `window` tokens; `engine` is added to ARGUMENTS, `fields` are of the model."""
    options = {"engine": ARGUMENTS | engine} | ({"chat_template": template} if template else {})
    serving = Serving(adapter="models.chat:VllmChat", runtime=id, threads=2, options=options)
    return ChatModel(id=id, owned_by="test", context_window=window, serving=serving, **fields)
