"""The one door to DGL: everything else in graphmill that needs it comes through here.

DGL 2.1.0's wheel carries its `graphbolt` library for torch 2.0 to 2.2 only and loads it on import. Sampling and message
passing do not need it, so where the library for this torch is missing a stand-in takes the module's place. DGL is
imported on first use: reading a recipe or listing models does not wait for it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from configs.errors import RecipeError


@cache
def load_dgl() -> Any:
    """Import DGL, with a stand-in for graphbolt where its library does not fit this torch."""
    os.environ.setdefault("DGLBACKEND", "pytorch")  # else DGL prints a notice and writes into the user's home
    if import_mode() == "stand-in":
        stand_in = types.ModuleType("dgl.graphbolt")
        # dgl.distributed looks this name up even where it is not used.
        stand_in.FusedCSCSamplingGraph = type("FusedCSCSamplingGraph", (), {})  # type: ignore[attr-defined]
        sys.modules.setdefault("dgl.graphbolt", stand_in)
    import dgl

    return dgl


def import_mode() -> str:
    """Return `native` where DGL's graphbolt library fits this torch, `stand-in` where it does not."""
    found = importlib.util.find_spec("dgl")
    if found is None or found.origin is None:
        raise RecipeError("DGL is not installed; run `make setup` or `pip install dgl==2.1.0`")
    version = torch.__version__.split("+")[0]
    library = Path(found.origin).parent / "graphbolt" / f"libgraphbolt_pytorch_{version}.so"
    return "native" if library.exists() else "stand-in"


def make_handle(indptr: Tensor, indices: Tensor, num_src: int) -> Any:
    """Make a DGL block from CSC arrays.

    Args:
        indptr: int64 (num_dst + 1,), from 0.
        indices: int64 (E,), sources below num_src. Ids are int64 because DGL 2.1 mistreats int32 ones in places.
        num_src: number of source nodes; the first num_dst of them are the destinations.
    """
    # Explicit edge ids: DGL's fused kernels with edge operands refuse a CSC that has none.
    edge_ids = torch.arange(len(indices), dtype=torch.int64, device=indices.device)
    return load_dgl().create_block(
        ("csc", (indptr, indices, edge_ids)), num_src_nodes=num_src, num_dst_nodes=len(indptr) - 1
    )


def use_threads(count: int) -> None:
    """Tell DGL's own OpenMP runtime, which may be another copy than torch's, how many threads to use."""
    load_dgl().utils.set_num_threads(count)
