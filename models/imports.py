"""What adapters import while they load, as data: another process may have imported it before.

Modules of packages that are installed, in the order in which they are imported, and none of ours. A test holds each
list to what a real load imports.
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
