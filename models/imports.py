"""What adapters import until they have answered once, as data: another process may have imported it before.

Modules of packages that are installed, in the order in which they are imported, and none of ours. They must be safe to
fork: no thread stays, no file is open, no GPU is touched. tests/fork_server holds each list to what is really imported.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Imports:
    """Names of modules, and the environment variables that these read while they are imported.

    A variable that the operator has set stays as it is.
    """

    modules: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    def __add__(self, other: Imports) -> Imports:
        """Both, one after the other."""
        return Imports((*self.modules, *other.modules), self.environment | other.environment)


NOTHING = Imports()

ONNX = Imports(("onnxruntime",), {"ORT_DISABLE_TELEMETRY": "1"})
"""Without the variable it reports to its maker, by a thread and a database that are there as soon as it is imported."""

SOUND = Imports(("numpy", "av", "soxr"))
"""Of `audio`, which knows no models."""

WATERMARK = Imports(("torch",))
"""Of `audio.watermark`."""
