"""The files of the console are made so that names that others chose stay text."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT

MODULES = sorted((ROOT / "console").rglob("*.js"))

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
