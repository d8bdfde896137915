"""A stanza of production on a CPU: what is changed, and nothing else is. What the stanza says goes for all the rest.

A GPU, and shares of one      num_gpus and gpu_memory_utilization: there is none
`engine_process`              false: another process imports vLLM for 15 s; `llm/test_engine.py` has one
`kv_cache_memory_bytes`       room for one conversation of the whole window of a twin
`enforce_eager`, `threads`    nothing is compiled, and one thread is enough for two layers
`dtype`                       as the adapters do it themselves: float32 where a CPU would emulate it (models.cpu)
"""

from contract.catalog import Model

CACHE_BYTES = 1 << 28


def on_cpu(model: Model) -> Model:
    assert model.serving
    options = dict(model.serving.options)
    if "engine" in options:
        kept = {name: value for name, value in options["engine"].items() if name != "gpu_memory_utilization"}
        options["engine"] = kept | {"kv_cache_memory_bytes": CACHE_BYTES, "enforce_eager": True}
        options["engine_process"] = False
    update = {"options": options, "threads": 1, "deployment": {}}
    return model.model_copy(update={"serving": model.serving.model_copy(update=update)})
