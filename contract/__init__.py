"""What we promise: requests, replies, limits and errors as code. Pure; imports pydantic only.

    errors.py                       every error, one row each
    limits.py                       numbers that hold for all models, and their units
    access.py  usage.py             scopes, tariffs, the caller behind a key; what it was billed, by day
    console.py                      what the console is told: engines, requests, keys
    catalog/                        types of the catalogue: what a model's stanza may say, and who runs the service
    models.py                       how a model is listed
    base.py  body.py  images.py     how strictly bodies are read: types, JSON, `data:` addresses
    wires.py                        how replies are written: server-sent events, the shape of errors
    telemetry.py  tracing.py        every metric, one row each; every span, and how traces are named
    ids.py                          ids that nobody can guess, from a stock
    hours.py                        hours of the week, in a time zone
    mcp.py                          JSON-RPC messages, and what tools take
    chat/                           chat on OpenAI's first wire
    responses/  messages/           the same on OpenAI's newer wire, and on Anthropic's
    completions.py  tokens.py       plain text that an LLM continues; texts as tokens and back
    embeddings.py  rerank.py        vectors of texts; documents by relevance
    speech/  transcription/         text to sound, and sound to text
    realtime/                       speech as it is said, over a websocket
    voice_design/                   voices from a description
    decisions/                      answers to closed questions, with probabilities

Each capability has a request (what a client may say), a job (what crosses to an engine), a protocol (what an engine
does) and a reply. A job is a frozen dataclass of plain values; replicas hand it on unopened.
"""

VERSION = "0.3.0"
"""The version of Parlance. CHANGELOG.md says what each version changes."""
