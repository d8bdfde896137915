"""Speed, beside the servers of others and beside less of ours. Tables with date and machine are in `results/`.

__main__.py        all of them in some forty minutes; `make bench` makes the environments of peers

One question each:

gateway.py         what keys, limits and bills add to a call; beside ray.serve.llm, vLLM's router and LiteLLM
processor_time.py  what a request takes of the ingress, beside another checkout, where speed changes
fairness.py        what one organisation that sends as fast as it may costs another
waits.py           whether answers begin when those who wait were promised
unit_costs.py      what of the database, Redis and the controller grows with a cluster
chat.py            streams beside `vllm serve` and llama.cpp's server
steps.py           its engine alone: vLLM's own steps, quick ones, and those in 8 bits
cold_start.py      from zero replicas to the first answer, with and without the fork server; beside `vllm serve`
idle_memory.py     what a graph takes in memory while every engine is at zero
embeddings.py      texts per second beside infinity
speech.py          what the graph adds to speech; beside kokoro-onnx
transcription.py   what the graph adds to transcription; beside faster-whisper; a long recording
voice_design.py    how often a designed voice comes out at the pitch that was ordered
decisions.py       beside `vllm serve`, by its own decisions and by chat calls
gpu.py             whether every model of production runs on the GPU that is there; asks.py: what each is asked
growth.py          what more clients and longer prompts cost
quick.py           the ratios of some of these in six minutes, beside those of `ratios.toml`

What they work with:

peers.py           the servers of others
llama_server.py    one of them, as a program
kokoro_peer.py     another one, a library; sound_loop.py, in which speech is made
serve_llm_peer.py  another one, ray.serve.llm over an engine that answers at once
cold_requests.py   the first answer of each capability
load.py            clients, in a process of their own
instant.py         servers over engines that answer at once, configured by `instant.yaml`
instant_engine.py  those engines
small_qwen3.py     small random weights that ours and vLLM can both read
"""
