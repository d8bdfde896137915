"""Requests, replies, limits and errors of the API as code. Pure; imports pydantic only.

    errors.py                       every error, one row each
    limits.py                       limits that hold for all models, with their units
    access.py  usage.py             scopes, tariffs and the caller behind a key; billed usage by day
    console.py                      data of the console: engines, requests, keys
    catalog/                        types of the catalogue: the stanzas of models, and the operator
    models.py                       entries of the lists of models
    base.py  body.py  images.py     strict reading of bodies: types, JSON, `data:` addresses
    wires.py                        writing of replies: server-sent events, the shape of errors
    telemetry.py  tracing.py        every metric, one row each; every span, and the headers of traces
    ids.py                          unguessable ids, from a stock
    hours.py                        hours of the week, in a time zone
    mcp.py                          JSON-RPC messages, and the arguments of tools
    chat/                           chat on OpenAI's first wire
    responses/  messages/           chat on OpenAI's newer wire, and on Anthropic's
    completions.py  tokens.py       plain text that an LLM continues; texts as tokens and back
    embeddings.py  rerank.py        vectors of texts; documents by relevance
    speech/  transcription/         text to speech, and speech to text
    realtime/                       live transcription, over a websocket
    voice_design/                   voices from a description
    decisions/                      answers to closed questions, with probabilities

Each capability has a request (the body that a client sends), a job (the input of an engine), a protocol (the methods
of an engine) and a reply. A job is a frozen dataclass of plain values; replicas pass it on unread.
"""

VERSION = "0.3.0"
"""Version of Parlance. CHANGELOG.md lists the changes of each version."""
