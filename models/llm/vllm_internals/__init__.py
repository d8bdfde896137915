"""Uses of private names of vLLM and torch, and replacements of vLLM's own parts. Nothing else over vLLM does either.

core.py            vLLM's engine core in a thread of this process
loading.py         what is left out or shared while vLLM loads
cache.py           its cache takes no memory before it is used, nor while the engine rests
cpu.py             what vLLM does on a CPU, in less time: names of it are replaced while it loads, and forwards that fit
steps.py           what runs in each step on a CPU: a short forward, the choice of threads
int8.py            products with weights in 8 bits by another kernel than vLLM's; inputs turned before them
heads.py           heads in float32 on a CPU, for decisions
process_engine.py  vLLM with its core in processes of its own, and a health check that notices when they hang
serving.py         chat serving: parsers, logprobs and failures; prompts as tokens, cut at their top or split

`tests/models/llm/test_vllm_contract.py` names everything that is used, and fails by name when an upgrade moves it.
"""
