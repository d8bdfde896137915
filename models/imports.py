"""Modules that adapters import until they have answered once, as data: another process may import them beforehand.

They are modules of installed packages, in the order of their imports, and none of this project. They must be safe to
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
        """These modules, and `other` after them."""
        return Imports((*self.modules, *other.modules), self.environment | other.environment)


NOTHING = Imports()

ONNX = Imports(("onnxruntime",), {"ORT_DISABLE_TELEMETRY": "1"})
"""Without the variable, the import starts a thread and a database that report to the maker."""

SOUND = Imports(("numpy", "av", "soxr"))
"""Modules that `audio` imports, which knows no models."""

WATERMARK = Imports(("torch",))
"""Modules that `audio.watermark` imports."""
