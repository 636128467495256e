"""Values that ranks tell each other, as JSON and the bytes of arrays: whoever sends them, nothing of them is run.

torch's own `broadcast_object_list` and `all_gather_object` unpickle what comes over the network.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor


def to_message(value: Any) -> tuple[bytes, list[Tensor]]:
    """Return a value as JSON, and the bytes of its arrays in order: uint8 (n,) on the CPU.

    A value is plain, bytes, a tensor or a NumPy array, or a list, tuple or dict of such. Raises TypeError for others.
    """
    arrays: list[Tensor] = []
    return json.dumps(_plain(value, arrays)).encode(), arrays


def from_message(text: bytes, receive: Callable[[int], Tensor]) -> Any:
    """Return the value of `to_message`; tensors are on the CPU.

    Args:
        text: the JSON.
        receive: called for each array with its number of bytes; returns them, uint8 (n,).
    """
    return _value(json.loads(text), receive)


def _plain(value: Any, arrays: list[Tensor]) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [_plain(item, arrays) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [_plain(item, arrays) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[_plain(key, arrays), _plain(item, arrays)] for key, item in value.items()]}
    if isinstance(value, bytes):
        arrays.append(torch.from_numpy(np.frombuffer(value, np.uint8).copy()))
        return {"bytes": len(value)}
    if isinstance(value, np.ndarray):
        return {"array": _plain(torch.from_numpy(np.array(value, order="C")), arrays)}
    if isinstance(value, Tensor):
        arrays.append(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8))
        return {"dtype": str(value.dtype).removeprefix("torch."), "shape": value.shape}
    raise TypeError(f"ranks cannot tell each other a {type(value).__name__}")


def _value(plain: Any, receive: Callable[[int], Tensor]) -> Any:
    if isinstance(plain, list):
        return [_value(item, receive) for item in plain]
    if not isinstance(plain, dict):
        return plain
    if "tuple" in plain:
        return tuple(_value(item, receive) for item in plain["tuple"])
    if "dict" in plain:
        return {_value(key, receive): _value(item, receive) for key, item in plain["dict"]}
    if "bytes" in plain:
        return receive(plain["bytes"]).numpy().tobytes()
    if "array" in plain:
        return _value(plain["array"], receive).numpy()
    dtype = getattr(torch, plain["dtype"])
    return receive(dtype.itemsize * math.prod(plain["shape"])).view(dtype).reshape(plain["shape"])
