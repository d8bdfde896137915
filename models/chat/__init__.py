"""Chat completions with vLLM: `VllmChat(model, path)`. No Ray, no HTTP; vLLM is imported where a model loads.

adapter.py     VllmChat: complete, stream, check_health, close
request.py     what of a request reaches vLLM
serving.py     vLLM's chat serving with our events and our cut
structures.py  the form of a JSON answer as the engine compiles it
errors.py      what vLLM and the check of grammars refuse, as errors of the API
cut.py         inputs that are too long, cut at their top around whole images
tools.py       calls joined from deltas; those of custom tools put back from the functions that engines know
completions.py plain prompts, continued
choices.py     engine outputs of those, as choices and events
tokens.py      texts as token ids and back
turns.py       messages of clients cannot forge turns: control tokens in them are text
events.py      engine outputs as events of a stream, or as one reply
smollm2.jinja  a chat template with tools, for weights with a template that has none
"""

from models.chat.adapter import VllmChat

__all__ = ["VllmChat"]
