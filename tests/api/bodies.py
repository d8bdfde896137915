"""A body that is taken, for each route with a scope. The matrix asks for an entry when a route is added."""

from typing import Any

from tests.catalogs import REAL

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
    )
}
"""The same for routes that take a form."""

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
ADDRESS = f"data:image/png;base64,{PIXEL}"
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}

CHAT: dict[str, Any] = BODIES["/chat/completions"]
TALK = CHAT | {
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "add"}]},
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "a", "function": {"name": "add"}},
                {"id": "b", "type": "custom", "custom": {"name": "note", "input": "x"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "3"},
        {"role": "tool", "tool_call_id": "b", "content": "4"},
        {"role": "user", "content": "say hello"},
    ],
    "tools": [
        {"function": {"name": "add"}},
        {"type": "custom", "custom": {"name": "note"}},
        {"type": "custom", "custom": {"name": "paint", "format": {"type": "text"}}},
    ],
    "tool_choice": {"function": {"name": "add"}},
}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"function": {"name": "add"}}]}}
TALKS = (
    TALK,
    TALK | {"tool_choice": ALLOWED},
    CHAT | {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": ADDRESS}}]}]},
    CHAT | {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
    CHAT | {"response_format": {"type": "text"}},
    CHAT | {"structured_outputs": {"choice": ["a"]}},
    CHAT | {"structured_outputs": {"regex": "a"}},
    CHAT | {"stream_options": {}},
)
ASKED: dict[str, Any] = BODIES["/messages"]
CONVERSATION = {
    "model": "obedient",
    "messages": [
        {"role": "user", "content": "add"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "add", "input": {}}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "a"}, {"type": "text", "text": "say hello"}],
        },
    ],
    "tools": [{"name": "add", "input_schema": SCHEMA}, {"type": "web_search_20250305"}],
    "tool_choice": {"type": "auto"},
    "thinking": {"type": "disabled"},
    "output_config": {},
}
ASKS = (
    CONVERSATION,
    ASKED | {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    ASKED
    | {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
                    {"type": "text", "text": "say hello"},
                ],
            }
        ]
    },
)
ANSWER = {"model": "obedient"}
FUNCTION = {"type": "function", "name": "add"}
GROUP = {"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "find"}]}
INPUTS = (
    {"input": "say hello"},
    {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "add"}]},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
            {"type": "function_call", "call_id": "a", "name": "add", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "3"},
            {"type": "custom_tool_call", "call_id": "b", "name": "note", "input": "x"},
            {"type": "custom_tool_call_output", "call_id": "b", "output": "3"},
            {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
            {"type": "shell_call_output", "call_id": "c", "output": "3"},
            {"type": "apply_patch_call", "call_id": "d", "operation": {"type": "delete_file"}},
            {"type": "apply_patch_call_output", "call_id": "d"},
            {"type": "reasoning"},
            {"role": "user", "content": "say hello"},
        ],
        "tools": [FUNCTION, {"type": "custom", "name": "note"}, GROUP],
        "tool_choice": FUNCTION,
        "text": {"format": {"type": "text"}},
        "reasoning": {},
    },
    {"input": "say hello", "text": {}, "tools": [FUNCTION], "instructions": "Be brief."}
    | {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [FUNCTION]}},
    {"input": "say hello", "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}}},
    {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": ADDRESS}]}]},
)
BINARY = {"type": "binary", "instructions": "Is it?", "true_description": "it is", "false_description": "it is not"}
CHOICE = {"type": "choice", "instructions": "Which?", "options": [{"id": "a"}, {"id": "b", "description": "the other"}]}
OURS = (
    {"state": "a text", "questions": {"a": CHOICE, "b": BINARY}, "policy": {}},
    {"state": "a text", "questions": {"a": {"type": "score", "instructions": "How?", "levels": ["low", "high"]}}},
    {"messages": [{"role": "user", "content": "a text"}], "preset": "colour-v1", "policy": {"mode": "review_only"}},
)
CALL = {"type": "function_call", "name": "add", "arguments": "{}"}
THEIRS: dict[str, Any] = {
    "input": [
        {"content": [{"type": "input_text", "text": "a text"}, {"type": "input_json", "data": {"a": 1}}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        CALL,
        {"type": "function_call_output", "output": "3"},
    ],
    "questions": [
        {"type": "predicate", "instructions": "Is it?"},
        {"type": "choice", "instructions": "Which?", "choices": [{"value": "a"}, {"value": True}]},
        {"type": "score", "instructions": "How?", "levels": [{"label": "low"}, {"label": "high"}]},
    ],
}
NAMED = THEIRS | {"questions": [question | {"name": "q"} for question in THEIRS["questions"]]}
SYSTEM_ONE = {
    "state": {"a": 1},
    "questions": {
        "c": {"type": "choice", "criteria": {"a": "one", "b": "the other"}},
        "n": {"type": "noul"},
        "s": {"type": "score", "criteria": ["low", "high"]},
    },
}
RERANKS = (
    BODIES["/rerank"],
    BODIES["/rerank"] | {"return_documents": True},
    {"query": "q", "documents": [{"text": "a"}, "bb"]},
)
ORDER = "/v1/audio/voices/designs"
TRANSCRIPTION = "/v1/audio/transcriptions"
ADOPTION = "/v1/audio/voices/designs/{design_id}/adopt"

SAMPLES: dict[str, tuple[dict[str, Any], ...]] = {
    "/v1/chat/completions": (CHAT, *TALKS),
    "/v1/messages": (ASKED, *({"max_tokens": 50} | asked for asked in ASKS)),
    "/v1/messages/count_tokens": (BODIES["/messages/count_tokens"], *ASKS),
    "/v1/responses": tuple(ANSWER | given for given in INPUTS),
    "/v1/completions": (BODIES["/completions"], BODIES["/completions"] | {"stream_options": {}}),
    "/v1/tokenize": (BODIES["/tokenize"], BODIES["/tokenize"] | {"return_token_strs": True}, CHAT, *TALKS),
    "/v1/detokenize": (BODIES["/detokenize"],),
    "/v1/embeddings": (BODIES["/embeddings"], BODIES["/embeddings"] | {"encoding_format": "base64"}),
    "/v1/rerank": RERANKS,
    "/v2/rerank": RERANKS,
    "/v1/audio/speech": (
        BODIES["/audio/speech"],
        *(BODIES["/audio/speech"] | {"provider": "cosyvoice", style: "calm"} for style in ("instruction", "emotion")),
    ),
    "/v1/audio/uploads": (BODIES["/audio/uploads"],),
    "/v1/realtime/client_secrets": (
        BODIES["/realtime/client_secrets"],
        BODIES["/realtime/client_secrets"] | {"expires_after": {}},
    ),
    ORDER: (BODIES["/audio/voices/designs"], {"gender": "f", "age_group": next(iter(REAL.traits.age_groups))}),
    "/v1/audio/voices/designs/suggest": (BODIES["/audio/voices/designs/suggest"],),
    "/v1/decisions": (*OURS, OURS[0] | {"request_id": "mine", "order": "both"}, THEIRS, NAMED),
    "/v1/mcp/mcp": (BODIES["/mcp/mcp"],),
    "/v1/mcp/docs/mcp": (BODIES["/mcp/mcp"],),
    "/v1/systemone": (SYSTEM_ONE, SYSTEM_ONE | {"assets": {"a": {"format": "png", "data_base64": PIXEL}}}),
}
"""Small bodies that are taken, by path; together they hold every object that a body may hold.

`test_every_optional_field_is_tried` asks for another where one is missing.
"""
