"""Products with weights in 8 bits by FBGEMM, which torch brings for every x86 with AVX2, in place of vLLM's oneDNN.

Activations are rounded row by row, as vLLM's own kernels do it. Without VNNI oneDNN is slower than float32.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from vllm.config import VllmConfig
from vllm.model_executor.kernels.linear.scaled_mm import cpu as scaled_mm

from models.cpu import int8_kernel
from models.llm.quantization import TURNS
from models.llm.quantization.rotation import InputTurn
from models.llm.vllm_internals.loading import replaced

LARGEST = 111
"""The largest rounded activation.

AVX2 adds two products in 16 bits, which saturate. With 127 that doubles the error of a product, with 111 it is rare.
"""


class Int8Product:
    """The product of float32 (rows, channels) with an int8 weight (outputs, channels) and one scale for each output."""

    def __init__(self, weight: Tensor, scale: Tensor) -> None:
        zeros = torch.zeros(len(weight), dtype=torch.long)
        with warnings.catch_warnings(), replaced(torch.backends.quantized, "engine", "fbgemm"):
            warnings.simplefilter("ignore", UserWarning)  # a later torch will not have these types
            by_row = torch._make_per_channel_quantized_tensor(weight, scale.flatten().double(), zeros, 0)
            self._packed = torch.ops.quantized.linear_prepack(by_row, None)
        self._multiply = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default
        self._smallest = torch.tensor(1e-20)

    def __call__(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Outputs in float32 (rows, outputs)."""
        peaks = torch.linalg.vector_norm(x, torch.inf, 1, True)
        scale = torch.add(self._smallest, peaks, alpha=1 / LARGEST)
        product: Tensor = self._multiply(x / scale, 1.0, LARGEST + 1, self._packed)
        return product.mul_(scale) if bias is None else torch.addcmul(bias, product, scale)


@contextmanager
def int8_products(dtype: torch.dtype) -> Iterator[None]:
    """While a model is loaded, its weights in 8 bits go to the kernel that `models.cpu` names for this processor.

    Replaces `scaled_mm.check_cpu_sgl_kernel`, which wants AMX where VNNI will do, and oneDNN's part of
    `CPUInt8ScaledMMLinearKernel` where FBGEMM is the quicker.
    """
    kernel = int8_kernel("cpu", str(dtype).removeprefix("torch."))
    fits_amx, theirs = scaled_mm.check_cpu_sgl_kernel, scaled_mm.CPUInt8ScaledMMLinearKernel

    def fits(rows: int, columns: int, kind: torch.dtype) -> bool:
        fits_vnni = kernel == "sgl" and kind == torch.int8 and columns % 32 == 0 and rows % 16 == 0
        return fits_vnni or (kernel != "fbgemm" and bool(fits_amx(rows, columns, kind)))

    pack, apply = theirs.process_weights_for_onednn, theirs._apply_weights_onednn

    def pack_here(part: Any, layer: Any) -> None:
        config = part.config
        if kernel != "fbgemm" or config.is_static_input_scheme or not config.input_symmetric & config.is_channelwise:
            pack(part, layer)
            return
        weight, scale, *_ = part._get_layer_params(layer)
        layer.int8_product = Int8Product(weight.data, scale.data)
        setattr(layer, part.layer_param_names[0], None)

    def apply_here(part: Any, layer: Any, x: Tensor, bias: Tensor | None = None) -> Any:
        if not hasattr(layer, "int8_product"):
            return apply(part, layer, x, bias)
        return layer.int8_product(x.reshape(-1, x.shape[-1]), bias).view(*x.shape[:-1], -1)

    with (
        replaced(scaled_mm, "check_cpu_sgl_kernel", fits),
        replaced(theirs, "process_weights_for_onednn", pack_here),
        replaced(theirs, "_apply_weights_onednn", apply_here),
    ):
        yield


class PackedTurn:
    """An `InputTurn` in bfloat16 by vLLM's own product, a third of the time of torch's for so small a matrix."""

    def __init__(self, turn: InputTurn) -> None:
        self._size, self._packed = len(turn.block), torch.ops._C.convert_weight_packed(turn.block)
        self._multiply = torch.ops._C.weight_packed_linear.default

    def __call__(self, x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        self._multiply(out.view(-1, self._size), x.view(-1, self._size), self._packed, None, True)
        return out


class TurnedMethod:
    """Takes the place of the `quant_method` of a part, and turns its input in each step."""

    def __init__(self, original: Any, turn: Callable[[Tensor], Tensor]) -> None:
        self.original, self.turn = original, turn

    def apply(self, layer: Any, x: Tensor, bias: Tensor | None = None) -> Any:
        """Computes what `layer` does, as vLLM calls it."""
        return self.original.apply(layer, self.turn(x), bias)


def turn_inputs(config: VllmConfig, model: Module) -> None:
    """Has the parts of `model` that its configuration names turn what they are given."""
    blocks, dtype = getattr(config.model_config.hf_text_config, TURNS, {}), config.model_config.dtype
    packs = int8_kernel(config.device_config.device_type, str(dtype).removeprefix("torch.")) == "sgl"
    for name, part in model.named_modules():
        if block := blocks.get(name.rpartition(".")[2]):
            turn = InputTurn(part.input_size, dtype, block)
            part.quant_method = TurnedMethod(part.quant_method, PackedTurn(turn) if packs else turn)
