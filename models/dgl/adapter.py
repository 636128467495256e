"""The one door to DGL: everything else in graphmill that needs it comes through here.

DGL 2.1.0's wheel carries its `graphbolt` library for torch 2.0 to 2.2 only and loads it on import. Sampling and message
passing do not need it, so where the library for this torch is missing a stand-in takes the module's place. DGL is
imported on first use: reading a recipe or listing models does not wait for it, nor for torch.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from configs.errors import RecipeError, StageError
from configs.reading.parsing import without_collection

if TYPE_CHECKING:
    from torch import Tensor

NEWEST_PYTHON = (3, 12)
"""The last Python that DGL has a wheel for; `pyproject.toml` says the same."""

_HEADER = (32, 4096)  # bytes of a file of dgl.save_graphs that mean something, and to which its header is filled


def dgl_folder() -> Path:
    """Return where DGL is installed, without importing it. Raises RecipeError naming the ways out."""
    spec = importlib.util.find_spec("dgl")
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent
    if sys.version_info[:2] > NEWEST_PYTHON:
        newest = ".".join(map(str, NEWEST_PYTHON))
        raise RecipeError(
            f"DGL is not installed: it has no wheel for Python {sys.version.split()[0]}, its last one is for {newest}. "
            "All but the model dgl and `export graph` works without it: take one of graphmill's own models (graphsage, "
            f"gcn, gat, gatv2, gin, ...), or make the environment anew: PYTHON=python{newest} make setup"
        )
    raise RecipeError("DGL is not installed; run `make setup` or `pip install dgl==2.1.0`")


def _not_sound() -> str:
    mend = "`pip install --force-reinstall --no-deps dgl==2.1.0` mends it"
    return f"DGL in {dgl_folder()} is damaged or another version than 2.1.0; {mend}"


@cache
def load_dgl() -> Any:
    """Import DGL, with a stand-in for graphbolt where its library does not fit this torch.

    Raises RecipeError: it is not installed, or cannot be loaded.
    """
    os.environ.setdefault("DGLBACKEND", "pytorch")  # else DGL prints a notice and writes into the user's home
    if import_mode() == "stand-in":
        stand_in = types.ModuleType("dgl.graphbolt")
        # dgl.distributed looks this name up even where it is not used.
        stand_in.FusedCSCSamplingGraph = type("FusedCSCSamplingGraph", (), {})  # type: ignore[attr-defined]
        sys.modules.setdefault("dgl.graphbolt", stand_in)
    import torch

    try:
        import dgl
    except (ImportError, OSError) as error:
        raise RecipeError(f"{_not_sound()}: {error}") from error
    dgl.utils.set_num_threads(torch.get_num_threads())
    return dgl


def import_mode() -> str:
    """Return `native` where DGL's graphbolt library fits this torch, `stand-in` where it does not."""
    import torch

    version = torch.__version__.split("+")[0]
    library = dgl_folder() / "graphbolt" / f"libgraphbolt_pytorch_{version}.so"
    return "native" if library.exists() else "stand-in"


@cache
def convolution_options(name: str) -> dict[str, Any]:
    """Return the arguments of a convolution's constructor and their defaults (`...`: none), from DGL's source.

    Read and not imported: a recipe is checked without torch. `name` is one that `dgl.nn.pytorch.conv` exports; of a
    default that is no plain value the source text is given.
    """
    try:
        init = _constructor(dgl_folder() / "nn" / "pytorch" / "conv", name)
    except (OSError, SyntaxError, ValueError) as error:
        raise RecipeError(f"{_not_sound()}: it has no {name} ({error})") from error
    names = [argument.arg for argument in init.args.args[1:]]
    defaults = []
    for node in init.args.defaults:
        try:
            defaults.append(ast.literal_eval(node))
        except ValueError:
            defaults.append(ast.unparse(node))
    return dict(zip(names, [...] * (len(names) - len(defaults)) + defaults, strict=True))


def _constructor(folder: Path, name: str) -> ast.FunctionDef:
    """Return `__init__` of a class. Raises OSError, SyntaxError or ValueError where its source is not as expected."""
    exports = _parse(folder / "__init__.py").body
    [module] = [
        str(each.module)
        for each in exports
        if isinstance(each, ast.ImportFrom) and name in [alias.name for alias in each.names]
    ]
    tree = _parse(folder / f"{module}.py")
    [cls] = [each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name]
    [init] = [each for each in cls.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
    return init


def _parse(source: Path) -> ast.Module:
    with without_collection():
        return ast.parse(source.read_text())


def make_handle(indptr: Tensor, indices: Tensor, num_src: int) -> Any:
    """Make a DGL block from CSC arrays, or a homogeneous graph where all nodes are both ends.

    Args:
        indptr: int64 (num_dst + 1,), from 0.
        indices: int64 (E,), sources below num_src. Ids are int64 because DGL 2.1 mistreats int32 ones in places.
        num_src: number of source nodes; the first num_dst of them are the destinations.
    """
    dgl = load_dgl()
    if len(indptr) - 1 == num_src:
        return _made(indices, partial(dgl.graph, _csc(indptr, indices), num_nodes=num_src))
    return make_bipartite(indptr, indices, num_src)


def make_bipartite(indptr: Tensor, indices: Tensor, num_src: int) -> Any:
    """Make a DGL block from CSC arrays as `make_handle`, whose destinations need not be the first sources."""
    csc = _csc(indptr, indices)
    num_dst = len(indptr) - 1
    return _made(indices, partial(load_dgl().create_block, csc, num_src_nodes=num_src, num_dst_nodes=num_dst))


def _made(indices: Tensor, make: Callable[[], Any]) -> Any:
    """Return what DGL makes of edges. Raises RecipeError where it cannot compute on their device."""
    dgl = load_dgl()
    try:
        return make()
    except dgl.DGLError as error:
        if not indices.is_cuda:
            raise
        raise RecipeError(
            "this build of DGL computes on the CPU only: take train.device=cpu, one of graphmill's own models, or a "
            f"build of DGL for CUDA ({str(error).splitlines()[0]})"
        ) from error


def give_degrees(handle: Any, in_degrees: Tensor, out_degrees: Tensor) -> Any:
    """Let a handle answer with these degrees, (nodes,) each, in place of those of the edges that it holds; returns it.

    Of a source in a mini-batch DGL sees the drawn edges only: where convolutions ask for its degree, the whole graph's
    is the answer that makes layer-wise inference and the whole graph agree.
    """
    handle.in_degrees = lambda *_args, **_kwargs: in_degrees
    handle.out_degrees = lambda *_args, **_kwargs: out_degrees
    return handle


def _csc(indptr: Tensor, indices: Tensor) -> tuple[str, tuple[Tensor, Tensor, Tensor]]:
    import torch

    # Explicit edge ids: DGL's fused kernels with edge operands refuse a CSC that has none.
    return "csc", (indptr, indices, torch.arange(len(indices), dtype=torch.int64, device=indices.device))


@dataclass(frozen=True)
class PlainGraph:
    """A graph as arrays, by names of node types and of (source, relation, destination) types."""

    num_nodes: Mapping[str, int]
    edges: Mapping[tuple[str, str, str], tuple[Tensor, Tensor]]
    """int64 (m,) source and destination; of a graph with one type and one relation CSC: indptr (n + 1,), indices."""
    ndata: Mapping[str, Mapping[str, Tensor]]
    edata: Mapping[tuple[str, str, str], Mapping[str, Tensor]]


def save_graphs(path: Path, graphs: Iterable[PlainGraph], labels: Mapping[str, Tensor]) -> None:
    """Write graphs and named tensors by `dgl.save_graphs`. Raises StageError where DGL cannot write."""
    dgl, made = load_dgl(), []
    for graph in graphs:
        if len(graph.num_nodes) == len(graph.edges) == 1:
            [num_nodes], [(indptr, indices)] = graph.num_nodes.values(), graph.edges.values()
            handle = dgl.graph(_csc(indptr, indices), num_nodes=num_nodes)
            [ndata], [edata] = graph.ndata.values(), graph.edata.values()
            handle.ndata.update(ndata)
            handle.edata.update(edata)
        else:
            handle = dgl.heterograph(dict(graph.edges), num_nodes_dict=dict(graph.num_nodes))
            for kind, data in graph.ndata.items():
                handle.nodes[kind].data.update(data)
            for triplet, data in graph.edata.items():
                handle.edges[triplet].data.update(data)
        made.append(handle)
    try:
        dgl.save_graphs(str(path), made, dict(labels))
    except dgl.DGLError as error:
        free, reason = shutil.disk_usage(path.parent).free, str(error).splitlines()[0]  # a stack trace follows
        raise StageError(f"DGL cannot write {path} ({free / 1e6:.0f} MB are free on that disk): {reason}") from error
    with path.open("r+b") as file:
        file.seek(_HEADER[0])  # DGL leaves whatever was in memory there: no two files would be alike
        file.write(bytes(_HEADER[1] - _HEADER[0]))


def use_threads(count: int) -> None:
    """Tell DGL's own OpenMP runtime, which may be another copy than torch's, how many threads to use."""
    load_dgl().utils.set_num_threads(count)
