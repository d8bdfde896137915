"""A body that is taken, for each route with a scope. The matrix asks for an entry when a route is added."""

from __future__ import annotations

from typing import Any

BODIES: dict[str, dict[str, Any]] = {
    "/chat/completions": {"model": "obedient", "messages": [{"role": "user", "content": "say hello"}]},
    "/responses": {"model": "obedient", "input": "say hello"},
    "/messages": {"model": "obedient", "max_tokens": 50, "messages": [{"role": "user", "content": "say hello"}]},
    "/messages/count_tokens": {"model": "obedient", "messages": [{"role": "user", "content": "say hello"}]},
    "/completions": {"model": "obedient", "prompt": "say hello"},
    "/tokenize": {"model": "obedient", "prompt": "say hello"},
    "/detokenize": {"model": "obedient", "tokens": [72, 105]},
    "/embeddings": {"model": "lengths", "input": "a text"},
    "/audio/speech": {"input": "hello"},
    "/audio/voices/designs": {"gender": "f", "age_years": 34},
    "/audio/voices/designs/x/adopt": {"slug": "our-anna"},
    "/audio/voices/designs/suggest": {"text": "a warm, deep voice of an old man"},
    "/audio/uploads": {"mime": "audio/webm", "size": 1000},
    "/realtime/client_secrets": {"session": {"type": "transcription"}},
    "/decisions": {"state": "a text", "preset": "colour-v1"},
    "/systemone": {
        "state": "a text",
        "questions": {"q": {"type": "choice", "instructions": "Which?", "criteria": {"a": None, "b": "the other"}}},
    },
    "/rerank": {"model": "longest", "query": "q", "documents": ["a", "bb"]},
    "/v2/rerank": {"model": "longest", "query": "q", "documents": ["a", "bb"]},
    "/mcp/mcp": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
}
"""By path without `/v1`, over the catalogue of `tests.catalogs`."""

FORM_TYPE = b"multipart/form-data; boundary=x"
FORMS: dict[str, bytes] = {
    "/audio/transcriptions": b"\r\n".join(
        (b"--x", b'Content-Disposition: form-data; name="file"; filename="memo"', b"", b"hello", b"--x--", b"")
    ),
}
"""The same for routes that take a form."""
