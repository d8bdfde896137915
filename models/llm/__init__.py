"""Language models in vLLM: what chat and decisions share. vLLM is imported where an engine starts.

engine.py     EngineSpec -> a running engine: environment, arguments, engine core in a thread or in processes
arguments.py  vLLM's engine arguments, checked without importing vLLM
architectures.py  what the installed vLLM does not know is refused in one sentence
core.py       vLLM's engine core in a thread of this process
loading.py    what vLLM does while it loads, in less time
pulse.py      how long an engine core has been silent while requests waited
watched.py    vLLM with its core in processes of its own, and a health check that notices when they hang
threads.py    how many CPU threads a step takes, and threads that go after it
label_reads.py  how likely each label is after a prompt
head.py       logits in float32 without making the head again in every step
plain_text.py what clients send never becomes a control token
pictures.py   how large pictures are before they are decoded, and what caches know them by
grammars.py   which grammars of strangers the engine may compile; they go first through
  grammar_child.py, a program that compiles them under limits, and
  grammar_walk.py, which looks whether their steps are cheap and a token may always follow
regular.py    regular expressions and lists of answers as grammars whose every step is cheap
exact.py      probabilities that nothing else moves
gguf.py       one GGUF file into a folder that vLLM loads
"""
