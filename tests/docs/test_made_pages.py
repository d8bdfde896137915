"""Made pages are as they would be made now, tell schemas in words, and show examples that are answered."""

import json
import re
from typing import Any
from xml.etree import ElementTree

import pytest

from contract.errors import FAULTS
from deployments.ingress.wire.openapi import meanings
from docs.made import errors, schemas
from docs.made.__main__ import FOLDER, PAGES, PICTURES
from docs.made.pictures import record, style
from docs.made.reference import Example as RouteExample
from docs.made.reference import examples
from tests.docs.conftest import Reader
from tests.docs.pages import ROOMS, ROOT, Example

OF_THE_START = {"PARLANCE_HAPROXY", "PARLANCE_LOOPBACK", "PARLANCE_SLOT"}
"""Variables that the start sets for its own processes."""
OF_CLIENTS = {"PARLANCE_KEY", "PARLANCE_OTHER_KEY", "PARLANCE_URL"}
"""Read by benchmarks and examples, which are clients."""
NUMBER = re.compile(r"(?<![#\w])-?\d+(?:\.\d+)?")


def test_made_pages_are_fresh() -> None:
    stale = [name for name in PAGES if (FOLDER / name).read_text("utf-8") != PAGES[name]()]
    assert stale == [], "run `make docs`"


def test_pictures_are_fresh_in_both_themes_can_be_read_on_a_phone_or_aloud_and_load_nothing() -> None:
    """Places may differ by what processors round differently."""
    for name, draw in PICTURES.items():
        drawn = draw()
        for theme, expected in (("light", drawn), ("dark", style.dark(drawn))):
            text = (FOLDER / f"images/{name}-{theme}.svg").read_text("utf-8")
            assert NUMBER.sub("", text) == NUMBER.sub("", expected), f"{name} is stale: run `make docs`"
            places = [[float(number) for number in NUMBER.findall(each)] for each in (text, expected)]
            assert places[0] == pytest.approx(places[1], abs=0.1), name
            assert re.findall(r'(?:href|src)="(?!#)|url\((?!#)|<script|@import', text) == [], name
            sizes = re.findall(r"font(?:-size)?: (?:[\w ]+ )?([\d.]+)px", text)
            assert f'width="{style.WIDTH}"' in text, name
            assert min(map(float, sizes)) * 360 / style.WIDTH >= 7.5, f"{name} has type that nobody reads on a phone"
            assert {"title", "desc"} <= {child.tag.rpartition("}")[2] for child in ElementTree.fromstring(text)}, name
    names = {f"{name}-{theme}.svg" for name in PICTURES for theme in ("light", "dark")}
    of_a_run = {f"console-{theme}.png" for theme in ("light", "dark")}  # tests.console.pictures, which is run by hand
    assert {file.name for file in (FOLDER / "images").iterdir()} == names | of_a_run


def test_the_recording_holds_no_key_and_no_path_of_a_machine() -> None:
    text = record.RECORDING.read_text("utf-8")
    assert re.findall(r"prl_\w|(?<![\w~./-])/(?:home|root|work|tmp|Users)/", text) == []
    commands = [step["command"] for step in json.loads(text)]
    assert commands == ["make serve", *(request.replace(f"{record.FOLDER}/", "") for request in record.REQUESTS)]


def test_every_setting_is_explained() -> None:
    page = PAGES["settings.md"]()
    assert re.findall(r"^\| `(\w+)` \|.*\|  \|$", page, re.MULTILINE) == []
    read = set()
    for room in (*ROOMS, "launch", "cluster"):
        for file in (ROOT / room).rglob("*"):
            if file.is_file() and file.suffix in {".py", "", ".yaml", ".env"} and "__pycache__" not in file.parts:
                read |= set(re.findall(r"\bPARLANCE_[A-Z0-9_]+\b", file.read_text("utf-8", errors="replace")))
    assert read - OF_THE_START - OF_CLIENTS == set(re.findall(r"^\| `(PARLANCE_\w+)` \|", page, re.MULTILINE))


def test_every_error_has_a_cause_and_a_remedy() -> None:
    """A code that several rows share has a paragraph for each, which begins with its status and headers."""
    sections = re.split(r"^## `(\w+)`$", PAGES["errors.md"](), flags=re.MULTILINE)[1:]
    explained = [
        (code, headline)
        for code, text in zip(sections[::2], sections[1::2], strict=True)
        for headline in re.findall(r"^(\*\*\d+\*\*[^:]*): .+\.\n.+\.$", text, re.MULTILINE)
    ]
    assert sorted(explained) == sorted((fault.code, errors.headline(fault)) for fault in FAULTS.values())


@pytest.mark.parametrize(
    ("route", "example"), examples().items(), ids=lambda value: value if type(value) is str else ""
)
def test_an_example_is_answered(reader: Reader, route: str, example: RouteExample) -> None:
    (reader.folder / "var/morning.wav").write_bytes(b"good morning")
    done = reader.paste(Example("bash", example.shell, None))
    if example.status == 200:
        assert done.returncode == 0, done.stdout + done.stderr
    else:
        assert f"error: {example.status}" in done.stderr, done.stdout + done.stderr


TEXT = {"type": "string"}
NULL = {"type": "null"}


SAID: list[tuple[dict[str, Any], str]] = [
    (TEXT, "string"),
    ({}, "anything"),
    (NULL, "null"),
    ({"anyOf": [TEXT, NULL]}, "string"),
    ({"anyOf": [{"type": "integer", "minimum": 1, "maximum": 2048}, NULL]}, "integer; 1 to 2,048"),
    ({"type": "number", "exclusiveMinimum": 0, "maximum": 1.0}, "number; above 0; at most 1"),
    ({"type": "integer", "minimum": -(2**63)}, "integer"),
    ({"enum": ["wav", "mp3"]}, '`"wav"`, `"mp3"`'),
    ({"type": "array", "items": TEXT, "minItems": 1}, "list of string; not empty"),
    ({"type": "string", "minLength": 0, "maxLength": 256}, "string; 0 to 256 characters"),
    ({"type": "array", "items": TEXT, "minItems": 2, "maxItems": 2}, "list of string; 2 entries"),
    ({"type": "array", "items": {"anyOf": [TEXT, {"type": "number"}]}}, "list of (string or number)"),
    ({"type": "array", "items": {}}, "list"),
    ({"type": "object", "additionalProperties": {"$ref": "#/components/schemas/Tool"}}, "object of [`Tool`](#tool)"),
    ({"type": "string", "format": "binary"}, "file"),
    ({"type": "string", "pattern": "^a|b$"}, "string; matches `^a\\|b$`"),
]


def test_what_a_value_may_be_and_what_a_docstring_says_of_fields() -> None:
    assert [schemas.words(schema) for schema, _ in SAID] == [said for _, said in SAID]
    assert schemas.words({"anyOf": [TEXT, NULL]}, nulls=True) == "string or null"
    docstring = "A body (spec 4).\n\nAttributes:\n    a, b: one\n        and two (design 3).\n    c: three."
    assert schemas.about({"description": docstring}) == "A body."
    assert meanings(docstring) == {"a": "one and two.", "b": "one and two.", "c": "three."}
