"""Who runs the models and where: what a profile may say."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pydantic import ValidationError

import graph
from contract.catalog import COUNTRIES, UNKNOWN_COUNTRY, Catalog, Operator
from graph import GraphArgs


@pytest.mark.parametrize("country", ["DE", "IE", "ZW", UNKNOWN_COUNTRY])
def test_a_country_is_taken(country: str) -> None:
    assert GraphArgs(operator="Example GmbH", country=country).country == country


@pytest.mark.parametrize("country", ["", "de", "DEU", "XX", "UK", "EU", "Germany", "D", 49, None])
def test_what_is_no_country_is_refused(country: Any) -> None:
    with pytest.raises(ValidationError):
        GraphArgs(country=country)


@pytest.mark.parametrize(("operator", "taken"), [("x", True), ("x" * 100, True), ("x" * 101, False), (" ", False)])
def test_an_operator_has_a_name(operator: str, taken: bool) -> None:
    if taken:
        assert Operator(name=operator).name == operator
    else:
        with pytest.raises(ValidationError):
            Operator(name=operator)


def test_there_are_as_many_countries_as_in_the_standard() -> None:
    assert len(COUNTRIES) == 249
    assert UNKNOWN_COUNTRY not in COUNTRIES


@pytest.mark.parametrize(("country", "warned"), [("DE", False), (UNKNOWN_COUNTRY, True)])
def test_the_graph_gets_the_place_and_an_unknown_country_is_loud(
    country: str, warned: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wired: list[Catalog] = []
    monkeypatch.setattr(graph, "wire", lambda catalog, _ingress, **_: wired.append(catalog))
    with caplog.at_level(logging.WARNING, "parlance.graph"):
        graph.build(GraphArgs(operator="Example GmbH", country=country))
    assert wired[0].operator == Operator(name="Example GmbH", country=country)
    assert bool(caplog.records) == warned
