"""What computes: weights are loaded and inference runs here, without Ray and without HTTP.

    weights.py  weights.toml    where the weights come from; pinned, verified, never run as code
    embeddings.py  rerank.py    encoders, batched by tokens in batching.py
    chat/  decisions/           language models
    speech/  transcription/     voices and ears

Every adapter is `Class(model, path)`: its stanza of the catalogue and the folder of its weights. A notebook needs no
more than `models.load(catalog.embeddings["bge-m3"])`.
"""

from __future__ import annotations

import importlib
from typing import Any

from contract.catalog import Model


def load(model: Model) -> Any:
    """The adapter of `model` with its weights loaded: seconds to minutes. Raises `weights.WeightsError`.

    The adapter is named by the stanza, so this is the one place that imports a module by a name from data.
    """
    from models.weights import store as weights

    serving = model.serving
    if serving is None:
        raise ValueError(f"model `{model.id}` is not set up in this profile")
    module, _, name = serving.adapter.partition(":")
    adapter = getattr(importlib.import_module(module), name)
    return adapter(model, weights.ensure(serving.weights) if serving.weights else None)
