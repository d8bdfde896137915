"""What is played: requests, each with the second at which it comes, its engine, its organisation and its work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Trace:
    """Requests in the order in which they come; all arrays have one element for each.

    Attributes:
        engines: names.
        at_s: seconds since `epoch_s`, ascending, float64.
        engine: index into `engines`, int16.
        owner: organisation, int32; from 1.
        work_s: how long a replica that has nothing else works on it, float32.
        epoch_s: Unix time at which the trace begins.
        notes: sentences about what was read and left out.
    """

    engines: tuple[str, ...]
    at_s: npt.NDArray[np.float64]
    engine: npt.NDArray[np.int16]
    owner: npt.NDArray[np.int32]
    work_s: npt.NDArray[np.float32]
    epoch_s: float = 0.0
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.at_s)
