"""docs/commands.md: every command of the server, with its arguments."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import launch.check.cli
import launch.start
import launch.weights
import state.__main__
from docs.made.blocks import filled
from docs.made.schemas import cell

COMMAND_LINES = (
    launch.start.command_line,
    launch.check.cli.command_line,
    launch.weights.command_line,
    state.__main__.command_line,
)


def page() -> str:
    """The whole page."""
    return filled(
        "commands.md", commands="".join(section for make in COMMAND_LINES for section in _sections(make(), ""))
    )


def _sections(parser: argparse.ArgumentParser, about: str) -> Iterator[str]:
    """One for a command, and those of its subcommands."""
    about = about or parser.description or ""
    arguments = [action for action in parser._actions if not isinstance(action, argparse._SubParsersAction)]
    rows = [
        _row(action)
        for action in arguments
        if action.dest not in ("help", "version") and action.help is not argparse.SUPPRESS
    ]
    table = ["| argument | what it is |", "|---|---|", *rows] if rows else []
    sentence = " ".join(about.split())
    if rows or len(arguments) == len(parser._actions):  # a group of commands without arguments of its own says nothing
        yield (
            "\n".join(["", f"## {parser.prog}", "", f"{sentence[:1].upper()}{sentence[1:].rstrip('.')}.", "", *table])
            + "\n"
        )
    for action in parser._actions:  # argparse has no public way to what it was given
        if isinstance(action, argparse._SubParsersAction):
            abouts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, command in action.choices.items():
                yield from _sections(command, abouts.get(name, ""))


def _row(action: argparse.Action) -> str:
    metavar = action.metavar or action.dest.upper()
    choices = f" one of {', '.join(f'`{choice}`' for choice in action.choices)}" if action.choices else ""
    value = "" if action.nargs == 0 else f" {metavar}"
    name = f"{', '.join(action.option_strings)}{value}" if action.option_strings else str(metavar)
    required = "required" if action.required and action.option_strings else ""
    words = [text for text in (action.help or "", choices.strip(), required) if text]
    return f"| `{cell(name)}` | {cell('; '.join(words))} |"
