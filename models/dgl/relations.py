"""Which of DGL's convolutions may stand in a HeteroGraphConv; plain data, read without torch and DGL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from configs.errors import RecipeError
from models.dgl.adapter import convolution_options
from models.dgl.convolutions import complete_options, find_convolution

_OWN_READS = {"edges", "edges_like_nodes"}
"""What a relation's edges can give a convolution beside the vectors of their two ends."""

TWO_MAPS = ("DotGatConv", "EdgeGATConv", "GATConv")
"""Convolutions that have a map for sources and one for destinations where they are told that these are two sets."""


def place_of(relation: str) -> str:
    """Name a relation's convolution for messages."""
    return f"model.conv[{relation}]"


def check_convolution(relation: str, name: str, given: Mapping[str, Any], *, width: int) -> dict[str, Any]:
    """Return a convolution's options with graphmill's defaults.

    `width` is hidden_dim, the columns of what it reads and gives.

    Raises:
        RecipeError: it is unknown, or cannot read two types of nodes; options that it has not, or that do not fit.
    """
    spec, place = find_convolution(name), place_of(relation)
    reason = ""
    if spec.homogeneous or spec.whole:
        reason = "wants nodes of one type, and a relation joins two sets of them"
    elif {"node_types", "relations"} & set(spec.reads):
        reason = "reads all relations itself; take it as model dgl, or model hgt or rgcn"
    elif set(spec.reads) - _OWN_READS:
        reason = "reads degrees in the whole graph, which a batch does not know"
    if reason:
        raise RecipeError(
            f"{place}: {name} {reason}; SAGEConv, GraphConv, GATConv and GATv2Conv are among those that fit"
        )
    options = complete_options(name, given, place)
    # A batch knows the edges drawn of a source, not how many it has.
    if spec.out_degrees and options.setdefault("norm", "right") not in ("right", "none"):
        raise RecipeError(
            f"{place}.norm={options['norm']} divides by out-degrees, which batches do not know; take right or none"
        )
    heads = options.get("num_heads", 1)
    if "num_heads" in convolution_options(name) and (type(heads) is not int or heads < 1 or width % heads):
        raise RecipeError(f"{place}.num_heads={heads} does not divide model.hidden_dim={width}; change one of them")
    return options
