"""The files of the console: small, and made so that what others have named stays text."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT

FILES = sorted(file for file in (ROOT / "console").rglob("*") if file.is_file())
MODULES = [file for file in FILES if file.suffix == ".js"]
LONGEST = 250
LONGEST_FUNCTION = 43

FUNCTION = re.compile(
    r"=>|\bfunction\b|^\s*(?!(?:if|for|while|switch|catch|return)\b)(?:static |async |get |set )*[*#]*\w+\(.*\) \{$"
)
"""How a line looks that begins a function: the lines that belong to it are indented more."""

FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|createContextualFragment"
    r"|DOMParser|setAttribute\(\s*[\"']style|style:\s*[\"'`]"
)
OUTSIDE = re.compile(r"^(?:import|export|})[^=\n]*[\"'](?![.]{1,2}/)[^\"'\n]+[\"']", re.MULTILINE)


def test_modules_make_no_markup_and_import_nothing_from_outside() -> None:
    texts = {file.name: file.read_text("utf-8") for file in MODULES}
    assert {
        name: hits for name, text in texts.items() if (hits := FORBIDDEN.findall(text) + OUTSIDE.findall(text))
    } == {}


def test_no_file_is_long() -> None:
    assert [file.name for file in FILES if len(file.read_text("utf-8").splitlines()) > LONGEST] == []


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def test_no_function_is_long() -> None:
    functions = {}
    for file in MODULES:
        lines = file.read_text("utf-8").splitlines()
        for start, line in enumerate(lines):
            if FUNCTION.search(line) and not line.lstrip().startswith(("//", "*", "/*")):
                rest = enumerate(lines[start + 1 :], start + 1)
                end = next((at for at, text in rest if text and indent(text) <= indent(line)), len(lines))
                functions[f"{file.name}:{start + 1}"] = end - start + 1
    assert len(functions) > 300, "functions are recognised"
    assert {place: lines for place, lines in functions.items() if lines > LONGEST_FUNCTION} == {}


def test_the_page_has_no_script_and_no_style_of_its_own() -> None:
    page = (ROOT / "console/index.html").read_text("utf-8")
    assert "<style" not in page
    assert " style=" not in page
    assert re.findall(r"<script(?![^>]* src=)", page) == []
    assert re.findall(r"(?:src|href)=\"(?:https?:)?//", page) == []
