"""An LLM: a question, a conversation, a stream, many questions at a time, answers of a given form, tokens.

Shows that an answer is the API's own (`.body`), and that calls are on their way as soon as they are made.
"""

# %% The graph of `make serve`. On a cluster, `RAY_AUTH_TOKEN` takes the place of the file.
import os

os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN_PATH", "var/ray_token")

import time

from graph import connect

g = connect()
print("chat models that are set up:", *g.chat)
chat = g.chat["qwen2.5-coder-0.5b-instruct"]

# %% A question. Fields are those of POST /chat/completions.
reply = chat.complete("Name the capital of France.", temperature=0, max_tokens=32)
print(reply.text)
print(f"{reply.prompt_tokens} tokens read, {reply.completion_tokens} written")

# %% A conversation is a list of messages: a model remembers nothing but what it is sent.
talk = [{"role": "user", "content": "My name is Ada."}]
talk.append({"role": "assistant", "content": chat.complete(talk, temperature=0, max_tokens=32).text})
talk.append({"role": "user", "content": "What is my name?"})
print(chat.complete(talk, temperature=0, max_tokens=32).text)

# %% A stream: the text as it is made, and how long the first piece took.
started, first_s = time.perf_counter(), None
for batch in chat.stream("Tell me about the sea in two sentences.", max_tokens=60, seed=1):
    first_s = first_s or time.perf_counter() - started
    print(batch.text, end="", flush=True)
took_s = time.perf_counter() - started
print(f"\n[first words after {first_s:.2f} s, all {batch.completion_tokens} tokens after {took_s:.2f} s]")

# %% Many at a time: `submit` returns at once. The engine works on them together, which takes less time than one by one.
# In an asynchronous program the same calls are awaited: `reply = await chat.submit("...")`.
countries = ["Italy", "Japan", "Kenya", "Peru"]
questions = [f"Name the capital of {country}." for country in countries]
started = time.perf_counter()
one_by_one = [chat.complete(question, temperature=0, max_tokens=16) for question in questions]
middle = time.perf_counter()
calls = [chat.submit(question, temperature=0, max_tokens=16) for question in questions]
for country, call in zip(countries, calls, strict=True):
    print(f"{country}: {call.result().text}")
print(f"one by one {middle - started:.2f} s, together {time.perf_counter() - middle:.2f} s")

# %% One of these answers and no other: the engine leaves it nothing else to say.
for review in ("I love it, best purchase this year!", "It broke after a day."):
    mood = chat.complete(
        f"Is this review positive or negative? {review}",
        temperature=0,
        structured_outputs={"choice": ["positive", "negative"]},
    )
    print(f"{mood.text:8}  {review}")

# %% What the model reads: tokens, some of them words, some parts of one.
tokens = chat.tokenize("Unbelievable headphones!", return_token_strs=True, add_special_tokens=False)
print(tokens.strings)
print(repr(chat.detokenize(tokens.ids)))
