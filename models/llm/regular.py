"""Regular expressions and lists of answers as grammars with cheap steps.

xgrammar follows a regular expression as it is written: one with repetitions inside repetitions keeps many readings of
the same text, and a token then costs up to a second in which the engine answers no request. So an expression becomes
the smallest automaton that has one reading of every text, and each state of it becomes a rule:

    (a|aa)+b   ->   root ::= "a" s1      s1 ::= "a" s1 | "b" s2      s2 ::= ""

What grows instead is the automaton, before the engine sees it, and that is bounded. Runs inside `grammar_child.py`: it
takes only the standard library and interegular.
"""

import json
from collections.abc import Iterator
from typing import Any

MAX_GRAMMAR_CHARS = 64 * 1024
"""The engine's process reads the grammar in its event loop, at some MB/s."""


class NoGrammar(ValueError):
    """An expression or a list that cannot become a grammar; the text says why."""


def grammar(kind: str, spec: str, most_states: int) -> str:
    """The grammar, in xgrammar's EBNF, of a regular expression (REGEX) or of a JSON list of texts (CHOICE).

    `most_states` bounds the automaton of an expression. Raises NoGrammar for what cannot be one.
    """
    text = _of_regex(spec, most_states) if kind == "REGEX" else "root ::= " + " | ".join(map(_quoted, json.loads(spec)))
    if len(text) > MAX_GRAMMAR_CHARS:
        raise NoGrammar(f"its grammar is longer than {MAX_GRAMMAR_CHARS} characters")
    return text


def _of_regex(regex: str, most_states: int) -> str:
    from interegular import InvalidSyntax, Unsupported, parse_pattern

    try:
        pattern: Any = parse_pattern(_unanchored(regex))
        automaton = pattern.to_fsm().reduce()
    except RecursionError:
        raise NoGrammar("it is nested too deeply") from None
    except (InvalidSyntax, Unsupported, ValueError, AttributeError, IndexError, KeyError, TypeError):
        raise NoGrammar("its syntax is not supported") from None
    live = {state for state in automaton.states if automaton.islive(state)}
    if automaton.initial not in live:
        raise NoGrammar("no text matches it")
    if len(live) > most_states:
        raise NoGrammar(f"it has {len(live)} deterministic states; at most {most_states} are allowed")
    return "\n".join(_rules(automaton, live))


def _unanchored(regex: str) -> str:
    """An answer is matched whole in any case, so anchors at both ends say nothing more."""
    regex = regex.removeprefix("^")
    ahead = regex.removesuffix("$")
    escaped = (len(ahead) - len(ahead.rstrip("\\"))) % 2
    return regex if escaped else ahead


def _rules(automaton: Any, live: set[Any]) -> Iterator[str]:
    """A rule for each live state, that of the start first."""
    from interegular.fsm import anything_else

    symbols: dict[Any, list[str]] = {}
    for symbol, transition in automaton.alphabet.items():
        symbols.setdefault(transition, []).append(symbol)
    others = [symbol for symbol in automaton.alphabet if symbol != anything_else]

    def characters(transitions: list[Any]) -> str:
        chosen = {symbol for transition in transitions for symbol in symbols[transition]}
        if anything_else in chosen:
            return f"[^{_escaped(({*others} - chosen) | {chr(0)})}]"
        return f"[{_escaped(chosen - {chr(0)})}]" if chosen - {chr(0)} else ""

    names = {automaton.initial: "root"}
    names |= {state: f"s{place}" for place, state in enumerate(sorted(live - {automaton.initial}))}
    for state, name in names.items():
        towards: dict[Any, list[Any]] = {}
        for transition, target in automaton.map.get(state, {}).items():
            if target in live:
                towards.setdefault(target, []).append(transition)
        ways = [f"{text} {names[target]}" for target, by in towards.items() if (text := characters(by))]
        if state in automaton.finals:
            ways.insert(0, '""')
        if not ways:
            raise NoGrammar("it requires the character U+0000, which no answer can contain")
        yield f"{name} ::= {' | '.join(ways)}"


def _escaped(characters: set[str]) -> str:
    """Inside of a class; neighbours as ranges."""
    points = sorted(map(ord, characters))
    text, place = "", 0
    while place < len(points):
        end = place
        while end + 1 < len(points) and points[end + 1] == points[end] + 1:
            end += 1
        text += f"\\U{points[place]:08x}" + (f"-\\U{points[end]:08x}" if end > place else "")
        place = end + 1
    return text


def _quoted(text: str) -> str:
    return '"' + "".join(c if c.isalnum() or c == " " else f"\\U{ord(c):08x}" for c in text) + '"'
