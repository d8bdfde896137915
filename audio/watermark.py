"""An inaudible watermark, which marks speech of a machine. It carries no other message.

The networks are those of Perth's implicit watermarker (package `resemble-perth`, MIT), read from its wheel and run
here: its own front end needs torchaudio, which has no build for machines without CUDA, and where that is missing the
package continues without a watermark. Each detects the watermark of the other. It is a change of loudness below 2 kHz;
higher frequencies do not change.

It survives MP3 and Opus, other sample rates and cuts. It does not survive a change of speed by 5 %, nor loud noise. A
clip shorter than MIN_S has a watermark like any other, but may not be detected. The detector is for speech: its answers
about steady sounds, such as a hum, mean nothing.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import torch

    Samples = np.ndarray[Any, np.dtype[np.float32]]

MIN_S = 0.5
"""Shortest clip in which the watermark is detected for sure."""

THRESHOLD = 0.5
"""A result of `detect` above this is a watermark."""

RATE = 32_000
WINDOW, HOP = 2048, 320
BAND = 128
"""Frequencies that carry the watermark, from 0 Hz: 2 kHz."""
FLOOR_DB, HEADROOM_DB = -180.0, 15.0
"""The networks see loudness from the floor (0) to the headroom (1)."""
SPEEDS = {"slow": 1.25, "normal": 1.0, "fast": 0.75}
"""Each part of the detector looks at the sound at another speed."""
EDGE_S = 0.01
"""A part begins and ends without the watermark, so that parts that follow each other join without a click."""


class Watermark:
    """Adds and detects the watermark. Any number of threads may use one. Raises RuntimeError if it cannot be loaded."""

    def __init__(self) -> None:
        import torch

        weights = torch.load(_weights_path(), map_location="cpu", weights_only=True, mmap=True)["model"]
        self._weights: dict[str, torch.Tensor] = {name: value.float() for name, value in weights.items()}
        self._window = torch.hann_window(WINDOW)

    def embed(self, samples: Samples, sample_rate: int) -> Samples:
        """The same sound with the watermark: float32 mono [n] in, float32 mono [n] out. Silence has none."""
        import numpy as np
        import torch

        if len(samples) == 0:
            return samples
        with torch.inference_mode():
            spectrum = self._spectrum(samples, sample_rate)
            loudness = _loudness(spectrum)
            louder = self._layers("encoder.layers", loudness[:BAND]) * _mask(loudness)
            gain = 10 ** (louder * (HEADROOM_DB - FLOOR_DB) / 20)
            difference = torch.zeros_like(spectrum)
            difference[:BAND] = spectrum[:BAND] * (gain - 1)
            change = torch.istft(difference, WINDOW, HOP, window=self._window).numpy()
        change = _resampled(change, RATE, sample_rate)[: len(samples)]
        change = np.pad(change, (0, len(samples) - len(change)))
        return (samples + change * _edges(len(samples), sample_rate)).astype(np.float32)

    def detect(self, samples: Samples, sample_rate: int) -> float:
        """Returns the probability that the watermark is there, 0 to 1; 0 for silence."""
        import torch

        if not samples.any():
            return 0.0
        with torch.inference_mode():
            loudness = _loudness(self._spectrum(samples, sample_rate))
            mask = _mask(loudness)
            parts = [self._part(f"decoder.{name}_layers", loudness[:BAND], mask, by) for name, by in SPEEDS.items()]
            trust, presence = torch.stack(parts).T
            return float((trust.softmax(0) * presence).sum().clip(0, 1))

    def _part(self, layers: str, band: torch.Tensor, mask: torch.Tensor, by: float) -> torch.Tensor:
        """The result of one part of the detector: how much to trust it, and whether there is a watermark."""
        from torch.nn.functional import interpolate

        size = max(int(band.shape[1] * by), 1)
        out = self._layers(layers, interpolate(band[None], size=size, mode="linear", align_corners=True)[0])
        audible = interpolate(mask[None, None], size=size, mode="nearest")[0, 0]
        return (out * audible).sum(1) / audible.sum().clip(min=1)

    def _layers(self, name: str, x: torch.Tensor) -> torch.Tensor:
        """Seven convolutions over time: [channels, frames] in and out, the same number of frames."""
        from torch.nn.functional import conv1d, leaky_relu

        for i in range(7):
            weight = self._weights[f"{name}.{i}.conv.weight"]
            x = conv1d(x[None], weight, self._weights[f"{name}.{i}.conv.bias"], padding=weight.shape[2] // 2)[0]
            x = leaky_relu(x) if i < 6 else x
        return x

    def _spectrum(self, samples: Samples, sample_rate: int) -> torch.Tensor:
        """Complex [frequencies, frames]."""
        import torch

        sound = torch.from_numpy(_resampled(samples, sample_rate, RATE))
        sound = torch.nn.functional.pad(sound, (0, -len(sound) % HOP))  # no frame too few at the end
        return torch.stft(sound, WINDOW, HOP, window=self._window, pad_mode="constant", return_complex=True)


def _weights_path() -> Path:
    spec = find_spec("perth")
    if spec is None or spec.origin is None:
        raise RuntimeError(
            "speech must be watermarked, but resemble-perth is not installed: install the extra `speech`"
        )
    return Path(spec.origin).parent / "perth_net" / "pretrained" / "implicit" / "perth_net_250000.pth.tar"


def _loudness(spectrum: torch.Tensor) -> torch.Tensor:
    decibels = 20 * spectrum.abs().clip(10 ** (FLOOR_DB / 20)).log10()
    return (decibels - FLOOR_DB) / (HEADROOM_DB - FLOOR_DB)


def _mask(loudness: torch.Tensor) -> torch.Tensor:
    """1 for frames that have sound, by the measure that the networks were trained with. [frames]."""
    whole = loudness.sum(0)
    return (whole > 0.05 * whole.max()).float()


def _resampled(samples: Samples, from_rate: int, to_rate: int) -> Samples:
    import numpy as np
    import soxr

    if from_rate == to_rate:
        return samples
    return np.asarray(soxr.resample(samples, from_rate, to_rate), np.float32)


def _edges(length: int, sample_rate: int) -> Samples:
    """1, but rising from 0 at the beginning and falling to 0 at the end."""
    import numpy as np

    size = min(int(EDGE_S * sample_rate), length // 2)
    gain = np.ones(length, np.float32)
    if size:
        gain[:size] = np.linspace(0, 1, size, dtype=np.float32)
        gain[-size:] = gain[:size][::-1]
    return gain
