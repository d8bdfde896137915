"""Every command that a page in `docs/` or the message of a ready graph shows is run, or says why not.

Pages are read from top to bottom: what a block leaves behind in `var/`, the next one finds. Other marks are read by
`test_models_and_engines.py` and `test_python_client.py`; examples of the reference by `test_made_pages.py`.
"""

import json
import re
import shlex
from pathlib import Path

import pytest
from rich.console import Console

import configs
from launch import welcome
from tests.docs.answers import check_answer
from tests.docs.conftest import Reader
from tests.docs.pages import ROOT, Example, examples

NAMES = """
clients cluster concepts given-a-key live-sessions migrating models-and-engines one-gpu operating python-client
measurements README troubleshooting users-and-budgets what-is-stored
"""
PAGES = [ROOT / "SECURITY.md", *(ROOT / f"docs/{name}.md" for name in NAMES.split())]
COMMANDS = re.compile(r"^(?:(<!-- [^\n]* -->)\n)?```(?:bash|sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARKS = re.compile(
    r"<!-- (?:run|run on a graph|run with handles|run without Ray|run on (?:two nodes|three machines): \w+"
    r"|adapter of \w+|not run: .+) -->"
)
MAKE = re.compile(r"^(?:\w+=\S+ )*make (\w[\w-]*)", re.MULTILINE)


def test_commands_are_run_or_say_why_not_and_make_has_the_targets() -> None:
    targets = re.findall(r"^([\w-]+):.*##", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    for page in PAGES:
        text = page.read_text("utf-8")
        for mark, code in COMMANDS.findall(text):
            assert MARKS.fullmatch(mark), f"{page.name} does not say whether this is run:\n{code}"
        assert set(MAKE.findall(text)) <= set(targets), page.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_do_what_the_page_says(reader: Reader, page: Path) -> None:
    for example in examples(page):
        if example.on_a_graph:
            continue
        done = reader.paste(example)
        assert done.returncode == 0, f"{example.code}\n{done.stdout}{done.stderr}"
        if example.answer is not None:
            check_answer(done.stdout, example.answer)
    copies = [reader.folder / "var/backup.db", *(reader.folder / "var/restored").rglob("*")]
    assert not [path for path in copies if path.exists() and path.stat().st_mode & 0o077]


EMBEDDED = list(configs.load("embedded").deployed())
METRICS = "http://127.0.0.1:8001/metrics"


def test_every_thing_to_try_is_answered(reader: Reader) -> None:
    """In the order in which they are offered: what is heard is the file that was spoken."""
    key_file = reader.folder / "var/demo.key"
    for verb, command in welcome.things_to_try("http://127.0.0.1:8000", key_file, EMBEDDED):
        done = reader.paste(Example("bash", command, None))
        assert done.returncode == 0, done.stdout + done.stderr
        if verb != "speak":
            assert "France" in done.stdout or "Good" in json.loads(done.stdout)["text"]


def test_the_ready_message(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(highlight=False, soft_wrap=True, force_terminal=True, no_color=True, color_system=None)
    welcome.say_ready(console, "http://127.0.0.1:8000", METRICS, Path("/home/var"), "prl_x", EMBEDDED, ["smollm2"])
    out = capsys.readouterr().out
    assert "Parlance is ready at http://127.0.0.1:8000" in out
    assert "Each engine starts at its first request; smollm2 is starting now." in out
    assert "prl_x (stored in /home/var/demo.key)" in out
    commands = [line.split("curl")[1] for line in out.splitlines() if "curl" in line]
    assert [shlex.split(command)[0].rpartition("/v1/")[2] for command in commands] == [
        "chat/completions",
        "audio/speech",
        "audio/transcriptions",
    ]
    assert f"Metrics for Prometheus: {METRICS}" in out
    assert out.rstrip().endswith("Ctrl-C stops everything.")


@pytest.mark.parametrize("key", ["prl_x", None])
def test_what_collects_the_output_of_a_server_gets_no_key(capsys: pytest.CaptureFixture[str], key: str | None) -> None:
    """Off a terminal the message goes to a file, to systemd, or to the log of a container."""
    console = Console(highlight=False, soft_wrap=True)
    assert not console.is_terminal
    welcome.say_ready(console, "http://127.0.0.1:8000", METRICS, Path("/home/var"), key, EMBEDDED, [])
    out = capsys.readouterr().out
    assert "prl_x" not in out
    assert "Each engine starts at its first request.\n" in out
    assert ("has a key with every scope, stored in /home/var/demo.key" in out) is bool(key)
    assert out.count('-H "Authorization: Bearer $(cat /home/var/demo.key)"') == 3
