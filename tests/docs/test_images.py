"""Pictures that pages show are there, and the dark one of a pair says the same as the light one."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.docs.pages import PAGES, ROOT

LIGHT = sorted((ROOT / "docs/images").glob("*-light.svg"))
SHOWN = re.compile(r'(?:src|srcset)="([^"]+)"|!\[[^\]]*\]\(([^)]+)\)')
COLOUR = re.compile(r"#[0-9a-f]{6}")


def test_shown_pictures_are_there() -> None:
    for page in PAGES:
        for names in SHOWN.findall(page.read_text("utf-8")):
            assert (page.parent / "".join(names)).exists(), f"{page.name} shows {names}"


@pytest.mark.parametrize("light", LIGHT, ids=lambda file: file.stem)
def test_a_pair_differs_in_colours_only(light: Path) -> None:
    pair = [file.read_text("utf-8") for file in (light, light.with_name(light.name.replace("light", "dark")))]
    assert COLOUR.sub("", pair[0]) == COLOUR.sub("", pair[1])
    assert COLOUR.findall(pair[0]) != COLOUR.findall(pair[1])


@pytest.mark.parametrize("light", LIGHT, ids=lambda file: file.stem)
def test_a_picture_can_be_read_aloud(light: Path) -> None:
    tags = {child.tag.rpartition("}")[2] for child in ElementTree.parse(light).getroot()}
    assert {"title", "desc"} <= tags
