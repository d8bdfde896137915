"""What pages say of the profiles, held against the catalogue: what each sets up, and under which licence it runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import configs
from contract.catalog import Catalog, Serving
from tests.docs.pages import API, README, ROOT, rows

CONCEPTS = ROOT / "docs/concepts.md"
OPERATING = ROOT / "docs/operating.md"
TRANSCRIBERS = ("voxtral-mini-transcribe", "whisper-large-v3")
IDLE_S = Serving.model_fields["idle_s"].default


def test_profiles() -> None:
    told = {row[0]: row[2] for row in rows(OPERATING, "profile", "meant for")}
    assert told.keys() == set(configs.PROFILES)
    everything = {model.id for model in configs.load("embedded").models()}
    for profile in set(configs.PROFILES) - {"embedded"}:
        named = everything & set(re.findall(r"[\w.-]+", told[profile]))
        set_up = {model.id for model in configs.load(profile).deployed()}
        assert named == set_up, profile
        assert set_up or told[profile] == "no model"


def test_health_example_shows_every_engine_of_the_embedded_profile() -> None:
    (example,) = re.findall(
        r'^```json\n(\{\s+"status": "ok".*?)^```$', API.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    told = json.loads(example)["replicas"]
    assert list(told) == [model.deployment for model in configs.load("embedded").deployed()]


def test_licence_of_embedded_speech() -> None:
    licences = {model.runtime_license for model in configs.load("embedded").speech.values()}
    assert licences == {"Apache-2.0 AND GPL-3.0-or-later"}
    assert "`embedded` `Apache-2.0 AND GPL-3.0-or-later` for every speech engine" in _unwrapped(API)
    assert "In `embedded` that is Apache-2.0 AND GPL-3.0-or-later for all four speech engines" in _unwrapped(README)


def test_idle_times() -> None:
    others = _idle_times(configs.load("embedded"))
    assert (IDLE_S, others) == (300, dict.fromkeys(("cosyvoice", "qwen", *TRANSCRIBERS, "the voice designer"), 120))
    assert "120 s for `cosyvoice`, `qwen`, both transcribers and the voice designer" in _unwrapped(API)
    assert "after 5 minutes, `cosyvoice`, `qwen`, the transcribers and the voice designer after 2" in _unwrapped(
        CONCEPTS
    )


def _unwrapped(page: Path) -> str:
    return " ".join(page.read_text("utf-8").split())


def _idle_times(catalog: Catalog) -> dict[str, float]:
    """Seconds by engine, of those that do not keep to the default."""
    serving = {model.provider: model.serving for model in catalog.speech.values()}
    serving |= {"the voice designer": next(iter(catalog.voice_design.values())).serving}
    serving |= {model.id: model.serving for model in catalog.deployed() if model.noun not in ("speech", "voice_design")}
    return {name: table.idle_s for name, table in serving.items() if table and table.idle_s != IDLE_S}
