"""A training step never waits for a GPU. In float64 models take torch's functions on the CPU too, as on a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from configs.registry import LOSSES
from configs.training import TrainConfig
from models.block import Batch, Block
from models.gnn.rgcn import by_relation
from models.kernels.sparse.adjacency import transpose_by_sorting
from models.layers.encoders import TypedLinear
from models.losses.chosen import loss_of
from tasks.train.gradients.steps import Optimization
from tasks.train.strategies.base import Ranks
from tests.kernels.graphs import random_graph
from tests.models.test_contract import LOADERS, NAMES, build

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
        self.names: list[str] = []

    def __enter__(self) -> Any:
        self._patch = pytest.MonkeyPatch()
        whole = torch.Tensor.tolist

        def tolist(tensor: torch.Tensor) -> Any:  # reads CPU memory without any operator
            self.names.append("tolist")
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
            self.names.append(name)
        return operator(*args, **kwargs)


def in_float64(batch: Batch) -> Batch:
    return batch._map(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("dgl", "mlp")])
@pytest.mark.parametrize(("task", "loader"), LOADERS)
def test_no_model_waits(tmp_path: Path, name: str, task: str, loader: str) -> None:
    options = {"dropout": 0.3, **({"virtual_node": True} if task == "graph" and name in ("gin", "deepgcn") else {})}
    model, store, batches = build(tmp_path, name, task, loader, **options)
    batch = in_float64(batches.batch(np.arange(min(40, batches.num_seeds)), key=3))
    model.double()
    with Waiting() as waiting:
        loss_of(store.manifest.task_type)(model(batch), batch.target, batch.num_seeds).backward()
    assert waiting.names == []


def test_what_would_wait_is_noticed() -> None:
    numbers = torch.tensor([1, 0, 2])
    with Waiting() as waiting:
        numbers[numbers > 0]
        torch.repeat_interleave(numbers)
        torch.repeat_interleave(numbers, output_size=3)
        float(numbers[0])
        numbers.tolist()
    assert waiting.names == ["index", "repeat_interleave", "_local_scalar_dense", "tolist"]


def test_no_loss_and_no_transpose_waits() -> None:
    scores, adj = torch.randn(7, 3, dtype=torch.float64), random_graph()
    classes, labels = torch.tensor([-1, 0, 1, 2, 2, 1, 0]), torch.tensor([[1.0, 0.0, torch.nan]] * 7)
    with Waiting() as waiting:
        for name in LOSSES.names():
            for kind in LOSSES.config_class(name).label_types:
                if kind == "link":
                    loss_of(kind, LOSSES.config(name))(scores[:6, 0], labels[:6, 0], 2)
                elif kind == "multiclass":
                    loss_of(kind, LOSSES.config(name), torch.ones(3))(scores, classes, 7)
                elif kind not in ("triple", "ranking"):
                    loss_of(kind, LOSSES.config(name), torch.ones(3, 2))(scores, labels, 7)
        transpose_by_sorting(adj.indptr, adj.indices, adj.num_src)
    assert waiting.names == []


def test_types_that_were_counted_are_not_counted_again() -> None:
    """And where they were not, a GPU is waited for once."""
    adj = random_graph(12, 17, 80)
    types = torch.arange(80) % 3
    plain = Block(adj.indptr, adj.indices, 17, edge_type=types)
    counted = replace(plain, edge_type_counts=(27, 27, 26))
    layer = TypedLinear(5, 4, 7).double()
    x = torch.randn(80, 5, dtype=torch.float64)
    with Waiting() as waiting:
        relations = by_relation(counted, 5)
        mapped = layer(x, types, counted.edge_type_counts)
    assert waiting.names == []
    with Waiting() as waiting:
        found = by_relation(plain, 5)
        assert torch.equal(layer(x, types), mapped)
    assert waiting.names.count("tolist") == 2
    targets = adj.targets()
    for number, (one, other) in enumerate(zip(relations, found, strict=True)):
        assert torch.equal(one.indptr, other.indptr)
        assert torch.equal(one.indices, other.indices)
        assert torch.equal(one.indices, adj.indices[types == number])
        assert torch.equal(one.degrees(), torch.bincount(targets[types == number], minlength=12))


def test_clipping_does_not_wait(tmp_path: Path) -> None:
    """Adam itself reads the number of its step, from CPU memory."""
    model, store, batches = build(tmp_path, "graphsage", "node", "neighbor")
    batch, names = batches.batch(np.arange(20), key=3), []
    for limit in (None, 0.01):
        train = TrainConfig(clip_norm=limit)
        optimization = Optimization(train, model, model, store.manifest.task_type, Ranks(), 10)
        optimization.backward(batch, 1.0, last=True)
        with Waiting() as waiting:
            optimization.step(1)
        names.append(waiting.names)
    assert names[0] == names[1]
