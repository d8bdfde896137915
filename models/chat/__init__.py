"""Chat completions with vLLM, in this process on a CPU. No Ray, no HTTP; vLLM is imported where a model loads."""
