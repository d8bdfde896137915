"""Language models in vLLM: what chat and decisions share. vLLM is imported where an engine starts.

adapter.py       what adapters of one engine have in common
engine.py        EngineSpec -> a running engine: environment, arguments, engine core in a thread or in processes
arguments.py     vLLM's engine arguments, checked without importing vLLM
vllm_internals/  where private names of vLLM and torch are used, and its own parts are replaced
plain_text.py    what clients send never becomes a control token
images.py        images of clients: sizes, names in caches, pixels within bounds
grammars.py      which grammars of clients the engine may compile; they are compiled before by
  grammar_child.py, a program that compiles them under limits, and
  grammar_walk.py, which checks that their steps are cheap and a token may always follow
regular.py       regular expressions and lists of answers as grammars with cheap steps
gguf.py          one GGUF file into a folder that vLLM loads
quantization/    the same weights in 8 bits, and where they fit
"""
