"""What each test needs beyond its own process, by file or folder, and what is begun first.

`make test` leaves out what has a marker of this table, except for the smoke tests of the cluster. `make test-all` runs
everything. `pyproject.toml` explains the markers.
"""

ENGINES = (
    *("chat/", "decisions/", "llm/", "test_embeddings.py", "test_qwen.py", "test_rerank.py"),
    *(f"speech/test_{name}.py" for name in ("conformance", "cosyvoice", "kokoro", "marks", "supertonic")),
    *("transcription/test_voxtral.py", "transcription/test_whisper.py", "voice_design/test_kokoro.py"),
)
PLACES = {
    "cluster": ("tests/cluster/",),
    "browser": ("tests/console/",),
    "forks": ("tests/fork_server/",),
    "attacks": ("tests/attacks/", "tests/audio/test_bombs.py"),
    "engines": ("tests/twins/", "tests/audio/test_watermark.py", *(f"tests/models/{place}" for place in ENGINES)),
}
"""Files and folders, by the marker of their tests."""

FIRST = (
    "tests/cluster/test_idle.py",
    "tests/models/chat/",
    "tests/console/",
    "tests/twins/",
    "tests/fork_server/",
    "tests/models/decisions/",
    "tests/models/llm/test_grammars.py",
    "tests/state/test_crashes.py",
    "tests/models/",
    "tests/test_haproxy.py",
    "tests/docs/test_snippets.py",
    "tests/attacks/",
    "tests/state/",
    "tests/api/",
)
"""What takes longest, longest first, so that no process is left alone with it at the end. Of a graph, what is measured
before others have sent it anything: a process keeps memory that it once needed, such as that of bodies under attack."""

ON_VLLM = (
    "tests/models/chat/",
    "tests/models/decisions/",
    "tests/models/llm/",
    "tests/models/transcription/test_voxtral.py",
)
"""What imports vLLM. One process runs all of it, which imports it once and shares engines."""


def marker_of(file: str) -> str | None:
    """The marker of a test file, by its path from the root."""
    return next((marker for marker, places in PLACES.items() if file.startswith(places)), None)


def scope_of(file: str) -> str:
    """Files of one scope are run by one process."""
    if file.startswith("tests/console/"):
        return "browser"  # one is started for all of them
    return "vLLM" if file.startswith(ON_VLLM) else file


def turn_of(file: str) -> int:
    """When a test file is begun."""
    return next((turn for turn, place in enumerate(FIRST) if file.startswith(place)), len(FIRST))
