"""What we promise: the spec as code. Pure; imports pydantic only.

    errors.py        section 7      every error, one row each
    remedies.py                     why each of them happens, and what to do
    limits.py        section 8      numbers that hold for all models
    access.py        section 5      scopes, plans, the caller behind a key
    catalog.py       section 2      types of the catalogue: what a model's stanza may say
    models.py        section 2      how a model is listed
    base.py  body.py  images.py     how strictly bodies are read: types, JSON, `data:` addresses
    events.py        section 4      server-sent events
    wires.py                        which paths tell errors in another shape than OpenAI's
    responses/  messages/           chat on OpenAI's newer wire, and on Anthropic's
    mcp.py           section 4      JSON-RPC messages, what tools take
    completions.py                  plain text that an LLM continues
    tokens.py                       texts as tokens and back
    logprobs.py                     of how many tokens a reply tells probabilities
    quantities.py    section 5      what a job may cost at most
    place.py         section 2      who runs the models, and in which country
    <noun>.py or <noun>/            section 4, one per capability of the catalogue

Each capability has a request (what a client may say), a job (what crosses to an engine), a protocol (what an engine
does) and a reply. A job is a frozen dataclass of plain values; replicas hand it on unopened.
"""
