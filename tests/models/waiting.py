"""Which operators a computation has called that would wait for a GPU: known without one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

_ALWAYS = {
    "_local_scalar_dense",  # Tensor.item, float(tensor), bool(tensor)
    "bincount",
    "equal",
    "masked_select",
    "nonzero",
    "_unique2",
    "unique_consecutive",
    "unique_dim",
}
_BY_MASK = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}


class Waiting(TorchDispatchMode):
    """Notes calls of operators whose result's size, or whose value, the CPU must know before it goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __enter__(self) -> Any:
        self._patch = pytest.MonkeyPatch()
        whole = torch.Tensor.tolist

        def tolist(tensor: torch.Tensor) -> Any:  # reads CPU memory without any operator
            self.found.append("tolist")
            return whole(tensor)

        self._patch.setattr(torch.Tensor, "tolist", tolist)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._patch.undo()

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = operator.overloadpacket.__name__, kwargs or {}
        by_mask = name in _BY_MASK and any(index is not None and index.dtype == torch.bool for index in args[1])
        of_unknown_size = name == "repeat_interleave" and kwargs.get("output_size") is None
        if name in _ALWAYS or by_mask or of_unknown_size:
            self.found.append(name)
        return operator(*args, **kwargs)
