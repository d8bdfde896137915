"""Message of `make serve` once the graph is ready: its address, the key that opens it, three things to try."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from contract.catalog import Model

STOP = "Ctrl-C stops everything."


def say_ready(
    console: Console, url: str, metrics_url: str, home: Path, new_key: str | None, models: list[Model], woken: list[str]
) -> None:
    """Prints the address, the key, and one line to try for each thing that `models` can do."""
    key_file = home / "demo.key"
    early = f"; {', '.join(woken)} is starting now" if woken else ""
    console.print(f"\n[bold green]Parlance is ready[/] at {url}. Each engine starts at its first request{early}.")
    if new_key:
        # Off a terminal this goes to a log, and from there to all who read logs.
        shown = f": [bold]{new_key}[/] (stored in {key_file})" if console.is_terminal else f", stored in {key_file}"
        console.print(f"The organisation `demo` has a key with every scope{shown}")
    lines = [f"  {verb:<10} {command}" for verb, command in things_to_try(url, key_file, models)]
    look = f"Look at it, and try every route, in a browser: {url}/console/"
    message = ["Try, in another terminal:", "", *lines, "", look, f"Metrics for Prometheus: {metrics_url}", STOP]
    console.print("\n".join(message), markup=False)


def things_to_try(url: str, key_file: Path, models: list[Model]) -> Iterator[tuple[str, str]]:
    """A verb and a command for chat, speech and transcription, as far as `models` can. The last takes the speech."""
    first = {model.noun: model.id for model in reversed(models)}
    key = f'-H "Authorization: Bearer $(cat {key_file})"'
    file = "good-morning.wav" if "speech" in first else "recording.wav"
    if "chat" in first:
        question = '"messages": [{"role": "user", "content": "Name the capital of France."}]'
        yield "ask", f'curl {url}/v1/chat/completions {key} -d \'{{"model": "{first["chat"]}", {question}}}\''
    if "speech" in first:
        text = '{"input": "Good morning.", "language": "en", "response_format": "wav"}'
        yield "speak", f"curl {url}/v1/audio/speech {key} -d '{text}' -o {file}"
    if "transcription" in first:
        yield "transcribe", f"curl {url}/v1/audio/transcriptions {key} -F file=@{file}"
