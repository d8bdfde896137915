"""Programs that the interpreter of Qwen3-TTS runs for the tests: the true package, whose weights are a twin's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.twins.qwen import make

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("PARLANCE_QWEN_PYTHON", ROOT / ".venv" / "qwen" / "bin" / "python"))


def outcomes_of(child: str, home: Path) -> dict[str, str]:
    """By the name of each check of the module `child`: empty where it held, else the traceback."""
    environment = os.environ | {"PARLANCE_HOME": str(home), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [PYTHON, "-m", child, home / "twins"]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    return dict(json.loads(run.stdout.splitlines()[-1]))


def checks_of(module: dict[str, Any]) -> list[Callable[[Any], None]]:
    """The functions of a child that take its `subject` and nothing else."""
    return [item for item in module.values() if list(getattr(item, "__annotations__", ())) == ["subject", "return"]]


def run_checks(variant: str, start: Callable[[Path], Any], checks: Sequence[Callable[[Any], None]]) -> None:
    """Of a child: makes the twin of `variant` in the folder of its command line, and checks what `start` returns."""
    twin = Path(sys.argv[1]) / variant
    make(twin, variant)
    subject, outcomes = start(twin), {}
    for check in checks:
        try:
            check(subject)
            outcomes[check.__name__] = ""
        except Exception:
            outcomes[check.__name__] = traceback.format_exc()
    sys.stdout.write("\n" + json.dumps(outcomes) + "\n")


def relabelled(twin: Path, variant: str) -> Path:
    folder = twin.with_name(variant)
    shutil.copytree(twin, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"tts_model_type": variant}))
    return folder


def counted(holder: Any, name: str) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []
    method = getattr(holder, name)

    def noted(**arguments: Any) -> Any:
        calls.append(arguments)
        return method(**arguments)

    setattr(holder, name, noted)
    return calls


def error(act: Callable[[], Any]) -> str:
    try:
        act()
    except Exception as raised:
        return f"{type(raised).__name__}: {getattr(getattr(raised, 'fault', None), 'name', raised)}"
    return "nothing"
