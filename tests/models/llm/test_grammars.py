"""Compiling grammars in children that can be ended: real xgrammar and the embedded model's vocabulary."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from itertools import product
from pathlib import Path
from typing import Any

import psutil
import pytest

from contract.limits import REGEX_STATES
from models.llm import grammars as module
from models.llm.grammars import Grammars, QueueFull, Refused
from models.weights import store as weights
from tests.waiting import until

CPU_S = 1
"""So little that what is too dear is ended soon."""
PROGRAM = """
import json, sys
from models.llm.grammar_child import load_xgrammar
xgrammar = load_xgrammar()
kind = xgrammar.VocabType.BYTE_LEVEL
print(xgrammar.TokenizerInfo(json.load(sys.stdin), vocab_type=kind, stop_token_ids=[2]).serialize_json())
"""


@pytest.fixture(scope="module")
def vocabulary() -> Callable[[], str]:
    """Of SmolLM2, made without the libraries that a replica has loaded anyway."""
    file = weights.ensure("smollm2-135m-instruct") / "tokenizer.json"
    ids = json.loads(file.read_text("utf-8"))["model"]["vocab"]
    tokens = json.dumps(sorted(ids, key=ids.__getitem__))
    made = subprocess.run([sys.executable, "-c", PROGRAM], input=tokens, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return lambda: made.stdout.strip()


@pytest.fixture(scope="module")
async def grammars(anyio_backend: str, vocabulary: Callable[[], str]) -> AsyncIterator[Grammars]:
    checked = Grammars(vocabulary, CPU_S)
    yield checked
    checked.close()


@pytest.fixture(scope="module")
async def unhurried(anyio_backend: str, vocabulary: Callable[[], str]) -> AsyncIterator[Grammars]:
    """With the processor time of the product, so that a slow machine does not change a verdict."""
    checked = Grammars(vocabulary)
    yield checked
    checked.close()


def strings(*lengths: int) -> str:
    fields = {f"f{i}": {"type": "string", "maxLength": length} for i, length in enumerate(lengths)}
    return json.dumps({"type": "object", "properties": fields})


BOMB = strings(*range(9000, 9014))
"""Within what the contract lets through, and many times dearer than the limit here."""
CHEAP = json.dumps({"type": "object", "properties": {"city": {"type": "string"}}})


async def reason(grammars: Grammars, spec: str, owner: str = "a", kind: Any = "JSON") -> str:
    """Why `spec` is refused; empty where it is not."""
    try:
        await grammars.check(kind, spec, owner)
    except Refused as refusal:
        return refusal.reason
    return ""


async def test_a_cheap_schema_passes_and_a_bomb_is_ended(grammars: Grammars) -> None:
    assert await reason(grammars, CHEAP) == ""
    assert await reason(grammars, BOMB) == "time"
    assert await reason(grammars, CHEAP) == ""


PATTERNS_THAT_COMPILE_OR_NOT = {
    r"^\d{4}-\d{2}-\d{2}$": {""},
    "^[A-Z]+-[0-9]+$": {""},
    r"\bfoo\b": {"invalid"},
    r"\p{L}+": {"invalid"},
    r"(a)\1": {"invalid"},
    "(" * 100_000 + ")" * 100_000: {"memory"},
    "^" + "(a?){1000}" * 100 + "$": {"time", "memory"},  # whichever is spent first on this machine
}


async def test_regular_expressions_pass_where_they_compile(grammars: Grammars) -> None:
    wrong = {}
    for pattern, expected in PATTERNS_THAT_COMPILE_OR_NOT.items():
        found = await reason(grammars, json.dumps({"type": "string", "pattern": pattern}))
        if found not in expected or await reason(grammars, CHEAP):
            wrong[pattern[:40]] = found
    assert not wrong


MATCHING = """
import json, sys
from models.llm.grammar_child import load_xgrammar
xgrammar = load_xgrammar()
vocabulary, asked = json.load(sys.stdin)
compiler = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo.deserialize_json(vocabulary))
for schema, text in asked:
    matcher = xgrammar.GrammarMatcher(compiler.compile_json_schema(json.dumps({"type": "string"} | schema)))
    print(matcher.accept_string(json.dumps(text)))
"""


PATTERNS: list[tuple[dict[str, Any], str, bool]] = [
    ({"pattern": "b"}, "b", True),
    ({"pattern": "b"}, "abc", False),
    ({"pattern": "^b"}, "bc", False),
    ({"pattern": "^b$"}, "b", True),
    ({"pattern": "^(?!x).*$"}, "x", True),
    ({"pattern": "[a-z]+", "minLength": 3}, "ab", True),
    ({"pattern": "[a-z]+", "maxLength": 1}, "ab", True),
]


def test_a_pattern_is_the_whole_text_and_nothing_holds_beside_it(vocabulary: Callable[[], str]) -> None:
    asked = json.dumps([vocabulary(), [(schema, text) for schema, text, _ in PATTERNS]])
    child = subprocess.run([sys.executable, "-c", MATCHING], input=asked, capture_output=True, text=True)
    assert child.stdout.split() == [str(fits) for *_, fits in PATTERNS], child.stderr


NOTHING = {"type": "string", "pattern": "[^\\s\\S]"}


EMPTY: list[tuple[dict[str, Any], str | None]] = [
    (NOTHING, '"'),
    ({"type": "object", "properties": {"a": NOTHING}, "required": ["a"]}, '{"a":"'),
    ({"type": "array", "items": {"type": "string", "pattern": "x[^\\w\\W]"}, "minItems": 1}, '["x'),
    ({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}, ""),
    ({"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(4)} | {"q": NOTHING}}, None),
]
"""Schemas, and after what nothing can follow, where that is always the same."""


async def test_a_schema_that_no_answer_fits_is_refused(grammars: Grammars) -> None:
    for schema, text in EMPTY:
        with pytest.raises(Refused) as caught:
            await grammars.check("JSON", json.dumps(schema), "a")
        assert caught.value.reason == "empty", schema
        assert text is None or caught.value.detail == text, schema


DEAR = {"$ref": "#/$defs/a"}


def array_of_itself(branches: int) -> dict[str, Any]:
    return {"anyOf": [{"type": "array", "items": DEAR}] * branches}


def object_of_itself(branches: int) -> dict[str, Any]:
    return {"anyOf": [{"type": "object", "additionalProperties": DEAR}] * branches}


FIELDS = {f"p{i}": {"type": "string"} for i in range(4)}


TREE = {"value": {"type": "string"}, "children": {"items": {"$ref": "#"}}}
LINKED = {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}
NAMED_TREE = {"type": "object", "properties": TREE | {"next": DEAR}}


def defined(definition: dict[str, Any], schema: dict[str, Any] = DEAR) -> dict[str, Any]:
    return {"$defs": {"a": definition}} | schema


COSTS: list[tuple[dict[str, Any], str]] = [
    *((defined(array_of_itself(branches)), "") for branches in (1, 2, 4, 8)),
    *((defined(object_of_itself(branches)), "") for branches in (2, 8)),
    (defined(array_of_itself(96)), "slow"),
    (defined(object_of_itself(160)), "slow"),
    (defined(array_of_itself(96), {"type": "object", "properties": FIELDS | {"q": DEAR}}), "slow"),
    (
        defined(array_of_itself(96), {"anyOf": [{"type": "array"}, {"properties": {"q": DEAR}, "required": ["q"]}]}),
        "slow",
    ),
    *(({"type": "string", "pattern": "(.*)*" * readings}, why) for readings, why in ((5, ""), (60, "slow"))),
    ({"type": "object", "properties": TREE}, ""),
    ({"type": "object", "properties": LINKED, "required": ["value", "next"]}, ""),
    (defined(NAMED_TREE), ""),
    ({}, ""),
]


async def test_a_schema_is_refused_by_what_its_tokens_cost(unhurried: Grammars) -> None:
    found = [await reason(unhurried, json.dumps(schema)) for schema, _ in COSTS]
    assert found == [why for _, why in COSTS]


async def test_every_tool_of_a_structural_tag_is_walked(unhurried: Grammars) -> None:
    """Free text comes before a tool, in which no walk would find it."""
    for place, (schema, why) in product((0, 9), (({}, ""), (NOTHING, "empty"), (defined(array_of_itself(96)), "slow"))):
        schemas = [schema if i == place else {"type": "object"} for i in range(10)]
        tags = [
            {"begin": f'<call>{{"name": "f{i}", "arguments": ', "content": {"type": "json_schema", "json_schema": one}}
            for i, one in enumerate(schemas)
        ]
        form = {"type": "triggered_tags", "triggers": ["<call>"], "tags": [tag | {"end": "}</call>"} for tag in tags]}
        spec = json.dumps({"type": "structural_tag", "format": form})
        assert await reason(unhurried, spec, kind="STRUCTURAL_TAG") == why, place


async def test_every_tool_of_a_forced_call_is_walked(unhurried: Grammars) -> None:
    for place in (0, 9):
        named = []
        for i in range(10):
            parameters = DEAR if i == place else {"type": "object"}
            fields = {"name": {"type": "string", "enum": [f"f{i}"]}, "parameters": parameters}
            named.append({"properties": fields, "required": ["name", "parameters"]})
        calls = {"type": "array", "minItems": 1, "items": {"type": "object", "anyOf": named}}
        assert await reason(unhurried, json.dumps(calls | {"$defs": {"a": {"type": "null"}}})) == ""
        assert await reason(unhurried, json.dumps(calls | {"$defs": {"a": array_of_itself(96)}})) == "slow"


async def test_verdicts_are_kept_for_their_owner_alone(vocabulary: Callable[[], str]) -> None:
    grammars = Grammars(vocabulary, CPU_S)
    assert await reason(grammars, CHEAP) == ""
    assert await reason(grammars, BOMB) == "time"
    grammars.close()  # nobody is there any more who could compile
    assert await reason(grammars, CHEAP) == ""
    assert await reason(grammars, BOMB) == "time"
    for spec in (CHEAP, BOMB):
        with pytest.raises(RuntimeError):
            await reason(grammars, spec, owner="b")


async def test_of_several_the_first_that_is_refused_is_found(grammars: Grammars) -> None:
    specs = [json.dumps({"const": i}) for i in range(3)]
    specs.insert(2, '{"type": "nonsense"}')
    assert await grammars.first_refused("JSON", specs, "a") == 2
    assert await grammars.first_refused("JSON", specs[:2], "a") is None
    assert await grammars.first_refused("PARSE", ["{}", '{"$ref": "#/$defs/nowhere"}'], "a") == 1
    known = [specs[0]] * (grammars._cpu_s + 1)
    assert await grammars.first_refused("JSON", [*known, specs[2]], "a") == len(known), "what is known takes no time"


async def test_the_search_for_it_takes_no_longer_than_one_compilation(vocabulary: Callable[[], str]) -> None:
    """A request may have 128 tools, each of which may take as long as all may."""
    grammars = Grammars(vocabulary, CPU_S)
    specs = [json.dumps({"const": i}) for i in range(500)]
    assert await grammars.first_refused("JSON", [*specs, '{"type": "nonsense"}'], "a") is None
    kept = grammars._verdicts.values()
    assert 1 < len(kept) < len(specs)
    assert sum(verdict.spent_s for verdict in kept) < CPU_S + 1
    assert await grammars.first_refused("JSON", [BOMB, '{"type": "nonsense"}'], "a") is None
    grammars.close()


async def test_an_engine_compiles_only_what_passed_in_the_same_turn(vocabulary: Callable[[], str]) -> None:
    compiled = []

    def compile_in_engine(kind: str, spec: str) -> None:
        compiled.append((kind, spec[:4]))
        assert grammars._slots.free == module.CHILDREN - 1

    grammars = Grammars(vocabulary, CPU_S, compile_in_engine)
    tag = '{"type": "structural_tag", "format": {"type": "json_schema", "json_schema": {"const": 1}}}'
    for kind, spec in (("STRUCTURAL_TAG", tag), ("STRUCTURAL_TAG", tag), ("CHOICE", '["a", "b"]')):
        await grammars.check(kind, spec, "a")
    with pytest.raises(module.Refused):
        await grammars.check("STRUCTURAL_TAG", tag.replace('{"const": 1}', '{"type": "nonsense"}'), "a")
    assert await grammars.first_refused("JSON", ['{"const": 2}'], "a") is None
    assert compiled == [("STRUCTURAL_TAG", tag[:4]), ("GRAMMAR", "root")]
    grammars.close()


async def test_what_is_kept_is_bounded(vocabulary: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHE_BYTES", 200_000)
    grammars = Grammars(vocabulary, CPU_S)
    for i in range(8):
        assert await reason(grammars, json.dumps({"const": f"value {i}", "title": "x" * i})) == ""
    kept = grammars._verdicts
    assert sum(verdict.weight_bytes for verdict in kept.values()) == kept.currsize <= 200_000
    grammars.close()


async def test_bombs_of_one_owner_do_not_hold_up_another(grammars: Grammars) -> None:
    bombs = [strings(*range(500 + i, 514 + i)) for i in range(module.OWNER_WAITING + 3)]
    waiting = [asyncio.create_task(reason(grammars, bomb, "attacker")) for bomb in bombs]
    await asyncio.sleep(0)
    for i in range(3):
        assert await reason(grammars, json.dumps({"const": i}), "victim") == ""
        assert not all(task.done() for task in waiting)
    crowded = [task for task in waiting if task.done() and isinstance(task.exception(), QueueFull)]
    assert len(crowded) == 2
    assert sum(not task.done() for task in waiting) >= module.OWNER_WAITING - 2
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_client_that_leaves_breaks_no_answer_of_another(vocabulary: Callable[[], str]) -> None:
    grammars = Grammars(vocabulary, CPU_S)
    leaving = asyncio.create_task(reason(grammars, BOMB))
    await until(lambda: grammars._slots.free < module.CHILDREN)
    leaving.cancel()
    assert await reason(grammars, CHEAP) == ""
    assert await reason(grammars, '{"type": "nonsense"}') == "invalid"
    grammars.close()


async def test_clients_that_leave_give_up_their_turns(vocabulary: Callable[[], str]) -> None:
    grammars = Grammars(vocabulary, CPU_S)
    bombs = [asyncio.create_task(reason(grammars, strings(*range(500 + i, 514 + i)))) for i in range(5)]
    slots = grammars._slots
    await until(lambda: slots.waiting >= 4 and slots.free < module.CHILDREN)
    for task in bombs:
        task.cancel()
    await asyncio.gather(*bombs, return_exceptions=True)
    while slots.waiting:  # noqa: ASYNC110 - the moment when none waits is what is looked at
        await asyncio.sleep(0)
    assert slots.free == module.CHILDREN - 1
    grammars.close()


async def test_a_child_that_dies_is_replaced(vocabulary: Callable[[], str]) -> None:
    before = set(psutil.Process().children())
    grammars = Grammars(vocabulary, CPU_S)
    assert await reason(grammars, CHEAP) == ""
    (child,) = set(psutil.Process().children()) - before
    assert child.nice() == min(19, psutil.Process().nice() + module.NICENESS)
    child.kill()
    child.wait()
    assert await reason(grammars, json.dumps({"const": 1})) == ""
    grammars.close()


async def test_tools_of_public_mcp_servers_and_of_agent_frameworks_compile_when_they_are_strict(
    vocabulary: Callable[[], str],
) -> None:
    """33 of 34; the one that is left refers to a place that is no definition, which the contract refuses before."""
    grammars, data = Grammars(vocabulary), Path(__file__).parents[2] / "data"
    tools = json.loads((data / "mcp_tools.json").read_text("utf-8"))
    tools.pop("figma/get_nodes")
    assert len(tools) == 33
    frameworks = json.loads((data / "framework_tools.json").read_text("utf-8"))
    tools |= {name: tool["function"].get("parameters") or {} for name, tool in frameworks.items()}
    refused = {name: await reason(grammars, json.dumps(schema)) for name, schema in tools.items()}
    grammars.close()
    assert {name: why for name, why in refused.items() if why} == {}


BEGINNINGS = {
    r"^[0-9]{4}-[0-9]$": "root ::= [\\U00000030-\\U00000039] s0",
    "(a|aa)+": "root ::= [\\U00000061] s0",
    "((((a*)*)*)*)*": 'root ::= "" | [\\U00000061] root',
    "é|😀": "root ::= [\\U000000e9\\U0001f600] s0",
    "[^x]*": 'root ::= "" | [^\\U00000000\\U00000078] root',
    r"a\$": "root ::= [\\U00000061] s0",
    r"[\s\S]*": 'root ::= "" | [^\\U00000000] root',
}


async def test_a_regular_expression_becomes_a_grammar_with_one_reading(grammars: Grammars) -> None:
    for regex, beginning in BEGINNINGS.items():
        grammar = await grammars.check("REGEX", regex, "a")
        assert grammar.startswith(beginning), regex
        assert len(set(grammar.split("\n"))) == len(grammar.split("\n")), regex


async def test_an_automaton_has_a_bounded_number_of_states(grammars: Grammars) -> None:
    for more, why in ((-1, ""), (0, ""), (1, "invalid")):
        assert await reason(grammars, f"a{{{REGEX_STATES + more - 1}}}", kind="REGEX") == why


HOSTILE = {
    "repeated a million times": ("REGEX", "(a{1000}){1000}"),
    "exponential": ("REGEX", ".*a.{20}"),
    "nested deeply": ("REGEX", "(" * 1000 + "a" + ")" * 1000),
    "classes of Unicode": ("REGEX", r"\p{L}+"),
    "looks back": ("REGEX", r"(a)\1"),
    "no text": ("REGEX", "a(?!)"),
    "the character U+0000": ("REGEX", "a\\x00|\0"),
    "many counts": ("REGEX", "|".join(f"(.{{{n}}}){{{n}}}" for n in range(30, 60))),
    "nothing closed": ("REGEX", "[[[[((((" * 200),
    "answers that begin alike": ("CHOICE", json.dumps(["a" * 9000, "a" * 9001])),
    "10,000 answers": ("CHOICE", json.dumps([f"value {i}" for i in range(10_000)])),
}


async def test_hostile_forms_end_in_a_refusal_and_others_are_served(grammars: Grammars) -> None:
    for name, (kind, spec) in HOSTILE.items():
        attack = asyncio.create_task(reason(grammars, spec, "attacker", kind))
        assert await reason(grammars, json.dumps({"const": name}), "victim") == "", name
        assert await attack in ("invalid", "time", "memory"), name
        assert await reason(grammars, f"[a-z]{{{len(name)}}}", "victim", "REGEX") == "", name


async def test_a_list_of_answers_may_hold_any_characters(grammars: Grammars) -> None:
    texts = ['say "hi"', "two\nlines", "back\\slash", "😀 # ::= //", "a"]
    assert (await grammars.check("CHOICE", json.dumps(texts), "a")).startswith('root ::= "say \\U00000022hi')
