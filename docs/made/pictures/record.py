"""Records the first two minutes of a user in `first_minutes.json`: what `make serve` says, and three requests.

    .venv/bin/python -m docs.made.pictures.record

The server is the one that `make serve` starts once it has installed everything, on port 8000. The file holds neither
its key nor a path of the machine, and no times: `terminal.py` draws it at the pace of a reader.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

from launch.welcome import STOP

RECORDING = Path(__file__).with_name("first_minutes.json")
FOLDER = Path("var/first-minutes")
SERVE = [sys.executable, "-m", "launch", "configs/embedded.yaml", "--port", "8000", "--warm"]
KEY = '-H "Authorization: Bearer $(cat var/demo.key)"'
REQUESTS = (
    f"""curl -s localhost:8000/v1/chat/completions {KEY} -d '{{"model": "qwen2.5-coder-0.5b-instruct", \
"messages": [{{"role": "user", "content": "Name the capital of France."}}]}}'""",
    f"""curl -s localhost:8000/v1/audio/speech {KEY} -d '{{"input": "Good morning.", "language": "en", \
"response_format": "wav"}}' -o {FOLDER}/good-morning.wav && wc -c {FOLDER}/good-morning.wav""",
    f"curl -s localhost:8000/v1/audio/transcriptions {KEY} -F file=@{FOLDER}/good-morning.wav",
)
SECRET = re.compile(r"prl_\w+")


def main() -> None:
    """Entry point. Raises SystemExit if the server ends before it is ready."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with subprocess.Popen(SERVE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout
        lines = []
        for line in server.stdout:
            lines.append(line.rstrip())
            if STOP in line:
                break
        else:
            raise SystemExit("the server ended before it was ready")
        steps = [{"command": "make serve", "output": lines}]
        for request in REQUESTS:
            done = subprocess.run(["bash", "-c", request], capture_output=True, text=True, check=True)
            steps.append({"command": request, "output": done.stdout.splitlines()})
        server.send_signal(signal.SIGINT)
    text = json.dumps(steps, indent=2, ensure_ascii=False) + "\n"
    text = SECRET.sub("prl_...", text.replace(str(Path.cwd()), "~/parlance").replace(f"{FOLDER}/", ""))
    RECORDING.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
