"""Numbers of the spec's section 8 that hold for all models, with their units. What holds for one is in its stanza."""

MIB = 1024 * 1024

JSON_BODY_BYTES = 8 * MIB
CHAT_BODY_BYTES = 24 * MIB
"""Chat bodies may carry images."""

JSON_DEPTH = 32
"""Nesting of any JSON body."""

KEEPALIVE_S = 15
"""Seconds of silence in an event stream before a comment is sent."""

COLD_RETRY_AFTER_MAX_S = 60
"""SDKs ignore a longer `Retry-After`."""

RATE_WINDOW_S = 60

KEY_CACHE_S = 5
"""A revoked key dies within this time on every ingress replica."""

STREAM_SLICE_OUTPUT_TOKENS = 1024
"""Output tokens of a stream that are reserved at a time."""
