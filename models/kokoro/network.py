"""Kokoro's network: a front, which decides how a sentence is said, and a generator, which makes the sound of it.

    front.onnx              8 bits, by onnxruntime: phonemes to features, and a source that hums as high as the voice
    generator.safetensors   by torch in bfloat16: a frame of features to 300 samples
    model.onnx              both as they are published, in 8 bits

The generator is most of the work, and bfloat16 does it in half the time or less, nearer to what float32 gives than 8
bits are. A processor without instructions for bfloat16 runs the published file. `converter.py` cuts it; durations come
from the front, so both ways last equally long.

Norms of the generator look at the whole sentence. So a sentence is made in one go, with the silence around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from math import prod
from operator import iadd
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.cpu import fitting_dtype

if TYPE_CHECKING:
    import numpy as np
    import torch

    from audio.encoding import Samples

    Inputs = Mapping[str, np.ndarray[Any, Any]]

WHOLE, FRONT, GENERATOR = "model.onnx", "front.onnx", "generator.safetensors"

STRIDES = (10, 6)
"""By how much each of the two levels is finer than what goes in. A last transform makes 5 samples of each step."""

BLOCKS = 3
"""Residual blocks of a level; their mean is taken."""

DILATIONS = (1, 3, 5)
STEEP, SLIGHT = 0.1, 0.01
"""Slopes below zero."""
EPSILON = 1e-5
HOP = 5
EDGE = 10
"""Samples at each end that the last transform makes of less than it needs."""


def load_network(folder: Path, threads: int | None) -> CutNetwork | PublishedNetwork:
    """The network of a folder, as this processor runs it best. Several threads may use it."""
    dtype = fitting_dtype("bfloat16", "cpu")
    return CutNetwork(folder, threads, dtype) if dtype == "bfloat16" else PublishedNetwork(folder, threads)


class PublishedNetwork:
    """The whole network in 8 bits."""

    def __init__(self, folder: Path, threads: int | None) -> None:
        self._session = _session(folder / WHOLE, threads)

    def sound(self, inputs: Inputs) -> Samples:
        """The sound of `tokens` [1, n] in a `style` [1, 256] at a `speed` [1], silence around it: float32 [n]."""
        sound: Samples = self._session.run(None, inputs)[0]
        return sound


class CutNetwork:
    """The front in 8 bits, the generator in `dtype`."""

    def __init__(self, folder: Path, threads: int | None, dtype: str) -> None:
        import torch
        from safetensors.torch import load_file

        self._front = _session(folder / FRONT, threads)
        self._generator = Generator(load_file(folder / GENERATOR), getattr(torch, dtype), threads)

    def sound(self, inputs: Inputs) -> Samples:
        features, source = self._front.run(None, inputs)
        return self._generator.sound(features, source, inputs["style"])


class Generator:
    """Features and source to sound, by the published weights. Two-dimensional with a height of 1: torch is quicker so.

    Blocks that do not need each other run side by side, each by one thread. Shared out by torch, each of some hundred
    operations would wait for its slower half, which takes several times as long on cores that others use too.

    Args:
        weights: by the names of their training, as `converter.py` writes them.
        dtype: of the computation; styles and the last transform are float32.
        threads: of the blocks; None is as many as there are blocks of a level.
    """

    def __init__(self, weights: Mapping[str, torch.Tensor], dtype: torch.dtype, threads: int | None) -> None:
        import torch

        self._dtype = dtype
        self._weights = {
            name: weight if ".fc." in name or "basis" in name else self._laid_out(weight)
            for name, weight in weights.items()
        }
        torch.set_num_threads(1)
        self._pool = ThreadPoolExecutor(threads or BLOCKS, "kokoro")

    def sound(self, features: Samples, source: Samples, style: Samples) -> Samples:
        """300 samples for each frame.

        Args:
            features: float32 [1, 512, frames].
            source: float32 [1, 22, 60 * frames + 1].
            style: float32 [1, 256], of which the first half is the generator's.
        """
        import torch

        with torch.inference_mode():
            x, hum, manner = (torch.from_numpy(array) for array in (features, source, style[:, :128]))
            x, hum = self._laid_out(x), self._laid_out(hum)
            hums = [self._pool.submit(self._source_branch, level, hum, manner) for level in range(len(STRIDES))]
            for level, addition in enumerate(hums):
                x = self._upsample(level, x).add_(addition.result())
                # The widest first: it takes as long as the others together.
                numbers = reversed(range(BLOCKS * level, BLOCKS * (level + 1)))
                blocks = [self._pool.submit(self._block, f"resblocks.{number}", x, manner) for number in numbers]
                x = reduce(iadd, (block.result() for block in blocks)).div_(BLOCKS)
            samples: Samples = self._transformed(x).numpy()
            return samples

    def _laid_out(self, tensor: torch.Tensor) -> torch.Tensor:
        import torch

        if tensor.dim() < 3:
            return tensor.to(self._dtype)
        return tensor[:, :, None].to(self._dtype, memory_format=torch.channels_last)

    def _upsample(self, level: int, x: torch.Tensor) -> torch.Tensor:
        """The steps of a level, from the coarser ones of the level before."""
        import torch
        from torch.nn import functional

        stride = STRIDES[level]
        weight, bias = self._weights[f"ups.{level}.weight"], self._weights[f"ups.{level}.bias"]
        x = functional.leaky_relu(x, STEEP)
        x = functional.conv_transpose2d(x, weight, bias, stride=(1, stride), padding=(0, stride // 2))
        # The source has one step more than the finest level.
        return torch.cat([x[..., 1:2], x], 3) if level == len(STRIDES) - 1 else x

    def _source_branch(self, level: int, source: torch.Tensor, manner: torch.Tensor) -> torch.Tensor:
        """Returns what the source adds to a level."""
        import torch

        coarser = prod(STRIDES[level + 1 :])
        with torch.inference_mode():
            x = self._convolved(f"noise_convs.{level}", source, stride=(1, coarser), padding=(0, coarser // 2))
            return self._block(f"noise_res.{level}", x, manner)

    def _block(self, name: str, x: torch.Tensor, manner: torch.Tensor) -> torch.Tensor:
        import torch

        with torch.inference_mode():
            for turn, dilation in enumerate(DILATIONS):
                y = x
                for part, apart in ((1, dilation), (2, 1)):
                    y = self._styled(f"{name}.adain{part}.{turn}", y, manner)
                    alpha = self._weights[f"{name}.alpha{part}.{turn}"]
                    y.addcdiv_((y * alpha).sin_().square_(), alpha)  # the activation: y + sin(ay)² / a
                    layer = f"{name}.convs{part}.{turn}"
                    around = apart * (self._weights[f"{layer}.weight"].shape[3] // 2)
                    y = self._convolved(layer, y, padding=(0, around), dilation=(1, apart))
                x = y.add_(x)
            return x

    def _styled(self, name: str, x: torch.Tensor, manner: torch.Tensor) -> torch.Tensor:
        """An instance norm, scaled and shifted by the style. For one item a batch norm is the same, and quicker."""
        import torch
        from torch.nn import functional

        factors = torch.addmm(self._weights[f"{name}.fc.bias"], manner, self._weights[f"{name}.fc.weight"])
        scale, shift = factors[0].chunk(2)
        return functional.batch_norm(x, None, None, scale + 1, shift, training=True, eps=EPSILON)

    def _convolved(self, name: str, x: torch.Tensor, **form: tuple[int, int]) -> torch.Tensor:
        from torch.nn import functional

        return functional.conv2d(x, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"], **form)

    def _transformed(self, x: torch.Tensor) -> torch.Tensor:
        """The inverse of a short Fourier transform, of the loudness and phase of 11 frequencies."""
        import torch
        from torch.nn import functional

        x = self._convolved("conv_post", functional.leaky_relu(x, SLIGHT), padding=(0, 3))[:, :, 0].float()
        size, phase = x.chunk(2, 1)
        size, phase = size.exp(), phase.sin()
        waves = torch.cat([size * phase.cos(), size * phase.sin()], 1)
        basis = self._weights["stft.istft.stft.inverse_basis"]
        return functional.conv_transpose1d(waves, basis, stride=HOP)[0, 0, EDGE:-EDGE]


def _session(file: Path, threads: int | None) -> Any:
    """Its threads sleep while there is nothing to do: a replica that waits costs nothing."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    # PublishedNetwork as it runs best: nothing is gained by looking for more, which takes a third of the loading.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_mem_pattern = False  # it pays where all inputs are of one length
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
