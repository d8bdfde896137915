"""A program that compiles grammars of clients, each in a process that is forked for it and ends with it.

It reads lines and answers each with one: first the vocabulary, as xgrammar writes it, then requests

    {"kind": "JSON", "spec": "...", "cpu_s": 10, "wall_s": 30, "states": 512, "step_ms": 5}
      -> {"bytes": 39640, "spent_s": 0.02}          processor time; in all of these answers
         {"bytes": 39640, "grammar": "root ::= ..."}
         {"reason": "invalid", "refused": "why an expression is refused"}     empty where xgrammar does it
         {"reason": "empty", "refused": "the text that nothing can follow"}
         {"reason": "slow", "refused": "33 ms for a token; at most 5 ms are allowed"}
         {"died": "time"}                         also "memory"

A list of texts and a regular expression come back as a grammar. This process imports xgrammar once and stores nothing
of what it compiles. It runs in a `concurrency.child`, and imports only the standard library, xgrammar with its numpy,
and interegular, for its siblings `regular.py` and `grammar_walk.py`. It must have one thread, or a fork could wait for
a lock that no thread releases.
"""

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from . import grammar_walk, regular

MEMORY_BYTES = 1 << 30
"""Bytes that a compilation may take beyond what this process has."""
STACK_BYTES = 2 << 20
"""Less than a thread of the engine has: what recurses too deeply dies here."""


class _StubModule(ModuleType):
    """A library that xgrammar names while it is imported, and that compiling does not need."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda self, *args, **kwargs: None})


def load_xgrammar() -> ModuleType:
    """Xgrammar without torch and transformers: a second and 60 MB, where it would be several and 270."""
    os.environ["TVM_FFI_DISABLE_TORCH_C_DLPACK"] = "1"
    sys.modules["torch"] = None  # type: ignore[assignment]  # tvm_ffi would take an absent one for the real one
    import tvm_ffi  # noqa: F401

    for name in ("torch", "transformers", "triton"):
        absent = _StubModule(name)
        absent.__spec__ = ModuleSpec(name, None)
        sys.modules[name] = absent
    import xgrammar

    return xgrammar


def main() -> None:
    """Answers requests until the other end closes."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    xgrammar = load_xgrammar()
    vocabulary = xgrammar.TokenizerInfo.deserialize_json(sys.stdin.readline())
    ground = grammar_walk.GrammarProbe(vocabulary, xgrammar.GrammarMatcher)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.stdout.write('{"ready": true}\n')
    for line in sys.stdin:
        request = json.loads(line)
        judge = partial(_judge, xgrammar, vocabulary, ground, request)
        sys.stdout.write(json.dumps(_attempt(judge, request)) + "\n")


def _attempt(judge: Callable[[], dict[str, Any]], request: dict[str, Any]) -> dict[str, Any]:
    """Judges in a fork, under the limits of `request`; what the fork writes, or how it died."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            _limit(request["cpu_s"], request["wall_s"])
            os.write(writing, json.dumps(judge()).encode())
        except MemoryError:
            os.write(writing, b'{"died": "memory"}')
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answer:
        output = answer.read()
    _, status, used = os.wait4(pid, 0)
    return (json.loads(output) if output else _died(status)) | {"spent_s": used.ru_utime + used.ru_stime}


def _died(status: int) -> dict[str, Any]:
    timed_out = -os.waitstatus_to_exitcode(status) in (signal.SIGXCPU, signal.SIGALRM, signal.SIGKILL)
    return {"died": "time" if timed_out else "memory"}


def _limit(cpu_s: int, wall_s: int) -> None:
    """The kernel ends this process at any of the limits, whatever it is doing."""
    signal.setitimer(signal.ITIMER_REAL, wall_s)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_STACK, (STACK_BYTES, STACK_BYTES))
    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, used + MEMORY_BYTES))


def _judge(xgrammar: ModuleType, vocabulary: object, ground: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Compiles as vLLM's engine does it, but on one thread, and walks through what came of it."""
    compiler, spec = xgrammar.GrammarCompiler(vocabulary, max_threads=1), request["spec"]
    try:
        match request["kind"]:
            case "JSON":
                grammar = compiler.compile_json_schema(spec)
            case "STRUCTURAL_TAG":
                grammar = compiler.compile_structural_tag(spec)
            case "REGEX" | "CHOICE":
                # Every step of these is cheap, and their ends are reached.
                text = regular.grammar(request["kind"], spec, request["states"])
                return {"bytes": compiler.compile_grammar(text).memory_size_bytes, "grammar": text}
            case _:
                xgrammar.Grammar.from_json_schema(spec)
                return {"bytes": 0}
    except MemoryError:
        raise
    except regular.NoGrammar as error:
        return {"reason": "invalid", "refused": str(error)}
    except Exception:
        # The texts of xgrammar name the lines of its source.
        return {"reason": "invalid", "refused": ""}
    if fault := ground.fault(grammar, grammar_walk.starts(spec), request["step_ms"]):
        return {"reason": fault.reason, "refused": fault.detail}
    return {"bytes": grammar.memory_size_bytes}
