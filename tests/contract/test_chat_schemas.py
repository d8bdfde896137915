"""Which JSON schemas are compiled, and what is refused before an engine sees it."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from contract.chat import schemas
from contract.errors import ApiError
from models.chat.request import engine_fields
from tests.contract.bodies import chat_request, refused, tool

NAMED = {"type": "function", "function": {"name": "f"}}

MCP_TOOLS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "mcp_tools.json").read_text("utf-8"))
"""Parameters of tools of public MCP servers, by `server/tool`; descriptions are ours."""


def form(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}


def strings(*lengths: int) -> dict[str, Any]:
    properties = {f"f{i}": {"type": "string", "maxLength": n} for i, n in enumerate(lengths)}
    return {"type": "object", "properties": properties}


BOMBS = {
    "100 near 9,000": strings(*range(9000, 9100)),
    "40 near 4,000": strings(*range(4000, 4040)),
    "enum of 300,000 characters": {"enum": [f"value {i:08}" for i in range(20_000)]},
    "counts of items": {"anyOf": [{"type": "array", "maxItems": n} for n in range(500, 600)]},
    "inside a definition": {"$defs": {"a": strings(*range(4000, 4040))}, "$ref": "#/$defs/a"},
    "behind a pattern of names": {"patternProperties": {"^x": strings(*range(4000, 4040))}},
}


def test_schema_bombs_are_refused_before_an_engine_sees_them() -> None:
    for name, schema in BOMBS.items():
        for param, fields in {
            "response_format": {"response_format": form(schema)},
            "tools[1].function.parameters": {"tools": [tool("g", parameters={}), tool(parameters=schema, strict=True)]},
            "tools[0].function.parameters": {"tools": [tool(parameters=schema)], "tool_choice": "required"},
        }.items():
            place, sentence = refused(chat_request, **fields)
            assert (place, f"{schemas.MAX_SCHEMA_COST}" in sentence) == (param, True), name
        assert chat_request(tools=[tool(parameters=schema)])


def test_the_cost_has_a_limit_and_equal_bounds_cost_once() -> None:
    dear = schemas.MAX_SCHEMA_COST // schemas.REPEATED_STATES
    assert chat_request(response_format=form(strings(*range(1000, 1000 + dear - 1))))
    assert "cost" in refused(chat_request, response_format=form(strings(*range(1000, 1000 + dear + 1))))[1]
    assert chat_request(response_format=form(strings(*[1000] * 500)))


def test_names_and_values_cost_by_their_characters() -> None:
    for chars in (0, 64 * 4096 - 4, 64 * 4096, 64 * 4097):
        schema = {"enum": ["x" * chars]}
        assert schemas.cost(schema) == (chars + len("enum")) // schemas.CHARS_PER_STATE
        if schemas.cost(schema) > schemas.MAX_SCHEMA_COST:
            assert refused(chat_request, response_format=form(schema))[0] == "response_format"
        else:
            assert chat_request(response_format=form(schema))


def test_a_keyword_with_any_value_is_refused_or_counted_and_breaks_nothing() -> None:
    for key in (
        {"type", "items", "allOf", "$ref", "minLength", "additionalProperties"} | schemas.NAMED_SCHEMAS | schemas.DATA
    ):
        for value in (None, True, 1, 1.5, "a", [], [1], [None], ["a"], [[]], {}, {"a": 1}, {"a": None}):
            with suppress(ApiError):
                schemas.check({"response_format": {key: value}})


def test_schemas_of_all_tools_count_together() -> None:
    half = schemas.MAX_SCHEMA_COST // schemas.REPEATED_STATES // 2 + 1
    tools = [tool(name, parameters=strings(*range(1000, 1000 + half)), strict=True) for name in "ab"]
    assert chat_request(tools=tools[:1])
    assert refused(chat_request, tools=tools)[0] == "tools[1].function.parameters"


def test_a_reference_leads_to_a_definition_and_nowhere_else() -> None:
    """A `default` is not looked at, so a reference into one would smuggle any bomb past the estimate."""
    bomb = strings(*range(9000, 9100))
    for target in (
        *("https://example.org/schema", "#/properties/a", "#/properties/a/default", "#/$defs/a/default"),
        *("#/$defs/nowhere", "#/$defs/a~1default", "#/$defs/%", "#/const", "#a", 5),
    ):
        schema = {"properties": {"a": {"default": bomb}, "b": {"$ref": target}}, "const": bomb, "$defs": {"a": {}}}
        param, sentence = refused(chat_request, tools=[tool(parameters=schema, strict=True)])
        assert param == "tools[0].function.parameters"
        assert f"has a `$ref` to `{target}` at `properties.b`; only `#`" in sentence
        assert chat_request(tools=[tool(parameters=schema)])


POINTERS = {
    "a": ["#/$defs/a", "#/%24defs/a", "#/$defs/%61"],
    "a/b": ["#/$defs/a~1b", "#/$defs/a%7E1b"],
    "a~b": ["#/$defs/a~0b"],
    "a b": ["#/$defs/a%20b", "#/$defs/a b"],
    "~1/ä%": ["#/$defs/~01~1%C3%A4%25"],
}


def test_a_reference_is_a_json_pointer() -> None:
    """And the compiler of grammars, which splits it at its slashes and does no more, finds the definition."""
    for name, reference in [(name, at) for name, several in POINTERS.items() for at in several]:
        schema = {"$defs": {name: {"const": 1}}, "properties": {"x": {"$ref": reference}, "$ref": {"type": "string"}}}
        asked = chat_request(tools=[tool(parameters=schema)], tool_choice="required", response_format=form(schema))
        fields = engine_fields(asked)
        compiled = [fields["tools"][0]["function"]["parameters"], fields["response_format"]["json_schema"]["schema"]]
        for found in compiled:
            step: Any = found
            for key in found["properties"]["x"]["$ref"].split("/")[1:]:
                step = step[key]
            assert step == {"const": 1}
            assert found["properties"]["$ref"] == {"type": "string"}
        assert_loops({"$defs": {name: {"$ref": reference}}})


def assert_loops(schema: dict[str, Any]) -> None:
    """The grammar would allow no token at all, so the engine would fail in the middle of the answer."""
    param, sentence = refused(chat_request, response_format=form(schema))
    assert (param, "leads back to itself" in sentence) == ("response_format", True)


def test_a_reference_that_leads_back_to_itself_is_refused() -> None:
    assert_loops({"$ref": "#"})
    assert_loops({"anyOf": [{"type": "null"}, {"allOf": [{"$ref": "#"}]}]})
    assert_loops({"$defs": {"a": {"$ref": "#/$defs/a"}}, "properties": {"x": {"$ref": "#/$defs/a"}}})
    assert_loops({"definitions": {f"{i}": {"$ref": f"#/definitions/{(i + 1) % 4000}"} for i in range(4000)}})


CHEAP: list[dict[str, Any]] = [
    {"properties": {"pattern": {"type": "string"}, "$ref": {"type": "string"}, "default": {}}},
    {"$defs": {"a": {"properties": {"next": {"$ref": "#/$defs/a"}}}}, "$ref": "#/$defs/a"},
    {"definitions": {"a": {}}, "items": {"$ref": "#/definitions/a"}},
    {"properties": {"children": {"type": "array", "items": {"$ref": "#"}}}},
    {"enum": [{"$ref": "x"}], "default": {"maxLength": 10**9}},
    {"examples": ["x" * 10**6], "description": "x" * 10**6},
    {"type": "string", "pattern": "^[a-z]+$", "format": "uri"},
    {"maxLength": 10**12},
]


def test_what_is_not_compiled_is_not_restricted() -> None:
    wild = {"pattern": "(a+)+$", "$ref": "https://example.org/x", "items": [{"maxLength": 10**9}], "const": "x" * 10**6}
    for choice in (None, "auto", "none"):
        assert chat_request(tools=[tool(parameters=wild, description="x" * 100_000)], tool_choice=choice)
    assert chat_request(tools=[tool(parameters=wild, strict=True)], tool_choice="none")
    assert chat_request(tools=[tool(parameters=wild, strict=False)], tool_choice="required")
    assert chat_request(tools=[tool("g", parameters=wild), tool(parameters={})], tool_choice=NAMED)


def test_what_is_cheap_is_compiled_and_the_compiled_ones_are_those_that_an_answer_follows() -> None:
    for schema in CHEAP:
        assert list(chat_request(response_format=form(schema)).compiled_schemas()) == ["response_format"], schema
    first, second = (f"tools[{place}].function.parameters" for place in (0, 1))
    rows: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
        ({}, {}, ["response_format"]),
        ({"tool_choice": "auto"}, {}, ["response_format"]),
        ({}, {"strict": True}, ["response_format", first]),
        ({"tool_choice": "required"}, {}, [first, second]),
        ({"tool_choice": NAMED}, {}, [first]),
        ({"tool_choice": NAMED}, {"strict": False}, []),
        ({"tool_choice": "none"}, {"strict": True}, ["response_format"]),
    ]
    for fields, strict, expected in rows:
        tools = [tool(parameters={"type": "object"}, **strict), tool("g", parameters={"type": "object"})]
        body = chat_request(tools=tools, response_format=form({"type": "object"}), **fields)
        assert list(body.compiled_schemas()) == expected, (fields, strict)


def test_tools_of_public_mcp_servers_pass_as_they_are_and_together() -> None:
    assert len(MCP_TOOLS) == 34
    for name, parameters in MCP_TOOLS.items():
        mcp_tool = tool(parameters=parameters, strict=None)
        for choice in (None, "auto", "none", *(["required"] if name != "figma/get_nodes" else [])):
            assert chat_request(tools=[mcp_tool], tool_choice=choice), name
    leading_away = tool(parameters=MCP_TOOLS["figma/get_nodes"], strict=None)
    assert "$defs" in refused(chat_request, tools=[leading_away], tool_choice="required")[1]
    assert chat_request(tools=[tool(name.replace("/", "_"), parameters=each) for name, each in MCP_TOOLS.items()])
