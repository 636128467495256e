"""Dropout of attention weights by counter: an edge's fate is a hash of (key, its position, its head), never stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import types
from torch import Tensor

from models.kernels.simd import _llvm
from models.kernels.simd._llvm import FLOAT, INT
from models.kernels.simd.vector import VectorType, instruction

_WORD = 1 << 32
_MIX = (16, 0x85EBCA6B, 13, 0xC2B2AE35, 16)
"""Shifts and factors of MurmurHash3's last step (Appleby, public domain)."""


@dataclass(frozen=True)
class EdgeDropout:
    """Which attention weights are dropped: those whose hash lies below `threshold`, of 2^32."""

    threshold: int
    low: int
    """Half of the key, mixed."""
    high: int

    @classmethod
    def of(cls, rate: float, key: int) -> EdgeDropout:
        """Make it of a rate in [0, 1) and any key; keys that differ by little give unrelated masks."""
        if not 0 <= rate < 1:
            raise ValueError(f"attention dropout is a rate from 0 to below 1, not {rate}")
        low = _mix(_mix(key % _WORD) ^ (key >> 32) % _WORD)
        return cls(min(round(rate * _WORD), _WORD - 1), low, _mix(low + 1))

    @property
    def scale(self) -> float:
        """What kept weights are multiplied by, so that their expectation stays."""
        return _WORD / (_WORD - self.threshold)

    def arguments(self) -> tuple[Any, ...]:
        """Return what kernels are told: the key's halves, the threshold and the scale."""
        return self.low, self.high, self.threshold, np.float32(self.scale)

    def mask(self, weights: Tensor) -> Tensor:
        """Return `scale` where a weight is kept and 0 where it is dropped, like weights (E, H)."""
        counter = torch.arange(weights.numel(), device=weights.device) % _WORD
        hashed = _mix((_mix(counter ^ self.low) + self.high) % _WORD)
        return (hashed >= self.threshold).view(weights.shape).to(weights.dtype) * self.scale


def _mix(word: Any) -> Any:
    a, p, b, q, c = _MIX
    word = (word ^ (word >> a)) * p % _WORD  # 64-bit products of tensors wrap; their low half is right
    word = (word ^ (word >> b)) * q % _WORD
    return word ^ (word >> c)


@instruction
def kept(typing, numbers, counter, low, high, threshold):  # type: ignore[no-untyped-def]
    """kept(numbers, counter, low, high, threshold) -> numbers, 0 where dropped; lane i has the count counter + i."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        lanes = signature.return_type.lanes

        def words(value: Any) -> Any:
            return _llvm.splat(builder, builder.trunc(value, INT), lanes)

        def mix(word: Any) -> Any:
            for number, shift in enumerate(_MIX[::2]):
                word = builder.xor(word, builder.lshr(word, _llvm.constant(INT, lanes, shift)))
                if number < 2:
                    word = builder.mul(word, _llvm.constant(INT, lanes, _MIX[2 * number + 1]))
            return word

        numbers = ir.Constant(ir.VectorType(INT, lanes), list(range(lanes)))
        hashed = mix(builder.xor(builder.add(words(args[1]), numbers), words(args[2])))
        hashed = mix(builder.add(hashed, words(args[3])))
        keeps = builder.icmp_unsigned(">=", hashed, words(args[4]))
        return builder.select(keeps, args[0], _llvm.constant(FLOAT, lanes, 0.0))

    assert isinstance(numbers, VectorType)
    return numbers(numbers, types.int64, types.int64, types.int64, types.int64), generate
