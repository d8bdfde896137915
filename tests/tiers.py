"""What each test needs beyond its own process, by file or folder, and what is begun first.

`make test` leaves out what has a marker of this table, except for the smoke tests of the cluster. `make test-all` runs
everything. `pyproject.toml` explains the markers.
"""

from __future__ import annotations

MARKERS = {
    "tests/cluster/": "cluster",
    "tests/fork_server/": "forks",
    "tests/models/test_chat_": "engines",
    "tests/models/test_decisions_": "engines",
    "tests/models/test_embeddings.py": "engines",
    "tests/models/test_llm_": "engines",
    "tests/models/test_rerank.py": "engines",
    "tests/models/test_speech_cosyvoice.py": "engines",
    "tests/models/test_speech_kokoro.py": "engines",
    "tests/models/test_speech_marks.py": "engines",
    "tests/models/test_speech_qwen.py": "engines",
    "tests/models/test_speech_supertonic.py": "engines",
    "tests/models/test_transcription_twin.py": "engines",
    "tests/models/test_transcription_voxtral.py": "engines",
    "tests/models/test_transcription_whisper.py": "engines",
    "tests/models/test_voice_design_kokoro.py": "engines",
    "tests/models/test_voice_design_qwen.py": "engines",
    "tests/twins/": "engines",
}

FIRST = (
    "tests/models/test_chat_vllm.py",
    "tests/twins/",
    "tests/models/test_chat_",
    "tests/fork_server/",
    "tests/models/test_decisions_",
    "tests/models/test_llm_grammars.py",
    "tests/state/test_crashes.py",
    "tests/models/",
    "tests/test_haproxy.py",
    "tests/docs/test_snippets.py",
    "tests/attacks/",
    "tests/state/",
    "tests/api/",
)
"""What takes longest, longest first, so that no process is left alone with it at the end."""


def marker_of(file: str) -> str | None:
    """The marker of a test file, by its path from the root."""
    return next((marker for place, marker in MARKERS.items() if file.startswith(place)), None)


def turn_of(file: str) -> int:
    """When a test file is begun."""
    return next((turn for turn, place in enumerate(FIRST) if file.startswith(place)), len(FIRST))
