"""What graphmill knows of each convolution that `dgl.nn.pytorch` exports: how it is called, or why it cannot be.

Plain data, read without torch and DGL, so that a recipe's options are checked when it is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from configs.errors import RecipeError
from configs.matching import did_you_mean
from models.dgl.adapter import convolution_options


@dataclass(frozen=True)
class Convolution:
    """How one of DGL's convolutions is made and called."""

    sizes: Mapping[str, str]
    """Arguments of its constructor that a recipe does not give, and what fills them (`models.dgl.conv.Sizes`)."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Options that differ from DGL's defaults, or have none there."""
    reads: tuple[str, ...] = ()
    """What its `forward` takes after graph and node features, in order (`models.dgl.conv.DglConv`)."""
    takes_weights: bool = False
    """Whether `forward` has an argument `edge_weight`."""
    homogeneous: bool = False
    """Whether it wants a graph and no block: the block's sources become one, of which the destinations' rows count."""
    hops: str = ""
    """Option that says how far one convolution looks; beyond one hop it needs all nodes and edges at once."""
    same_width: bool = False
    """Whether it gives as many columns as it reads; inputs are mapped to hidden_dim before the first one."""
    out_degrees: bool = False
    """Whether norm=both and norm=left divide by out-degrees, which blocks of a directed graph do not know."""
    refuses_isolated: bool = False
    """Whether it refuses nodes without in-edges, and has no option against that; their sums are 0, as elsewhere."""
    whole: str = ""
    """Why it needs the whole graph at once, whatever its options."""


CONVOLUTIONS: Mapping[str, Convolution] = {
    "AGNNConv": Convolution({}, same_width=True),
    "APPNPConv": Convolution(
        {}, {"k": 10, "alpha": 0.1}, takes_weights=True, homogeneous=True, hops="k", same_width=True, out_degrees=True
    ),
    "AtomicConv": Convolution(
        {"features_to_use": "none"},
        {
            "interaction_cutoffs": [12.0, 12.0, 12.0],
            "rbf_kernel_means": [0.0, 4.0, 8.0],
            "rbf_kernel_scaling": [4.0, 4.0, 4.0],
        },
        reads=("distances",),
        homogeneous=True,
    ),
    "CFConv": Convolution(
        {"node_in_feats": "in", "edge_in_feats": "edge", "hidden_feats": "out", "out_feats": "out"}, reads=("edges",)
    ),
    "ChebConv": Convolution(
        {"in_feats": "in", "out_feats": "out", "activation": "none"},
        {"k": 2},
        reads=("lambda_max",),
        homogeneous=True,
        hops="k",
    ),
    "DotGatConv": Convolution({"in_feats": "in", "out_feats": "head"}, {"num_heads": 4}),
    "EGATConv": Convolution(
        {"in_node_feats": "in", "in_edge_feats": "edge", "out_node_feats": "head", "out_edge_feats": "head"},
        {"num_heads": 4},
        reads=("edges",),
        takes_weights=True,
        homogeneous=True,
        refuses_isolated=True,
    ),
    "EGNNConv": Convolution(
        {"in_size": "in", "hidden_size": "out", "out_size": "out", "edge_feat_size": "edge_if_any"},
        reads=("coordinates", "edges_if_any"),
        homogeneous=True,
    ),
    "EdgeConv": Convolution({"in_feat": "in", "out_feat": "out"}),
    "EdgeGATConv": Convolution(
        {"in_feats": "in", "edge_feats": "edge", "out_feats": "head"}, {"num_heads": 4}, reads=("edges",)
    ),
    "GATConv": Convolution({"in_feats": "in", "out_feats": "head"}, {"num_heads": 4}, takes_weights=True),
    "GATv2Conv": Convolution({"in_feats": "in", "out_feats": "head"}, {"num_heads": 4}),
    "GCN2Conv": Convolution(
        {"in_feats": "in", "layer": "layer"},
        reads=("first_vectors",),
        takes_weights=True,
        homogeneous=True,
        same_width=True,
    ),
    "GINConv": Convolution({"apply_func": "mlp"}, takes_weights=True),
    "GINEConv": Convolution({"apply_func": "mlp"}, reads=("edges_like_nodes",)),
    "GMMConv": Convolution({"in_feats": "in", "out_feats": "out", "dim": "two"}, {"n_kernels": 3}, reads=("degrees",)),
    "GatedGCNConv": Convolution(
        {"input_feats": "in", "edge_feats": "edge", "output_feats": "out"}, reads=("edges",), homogeneous=True
    ),
    "GatedGraphConv": Convolution(
        {"in_feats": "in", "out_feats": "wider", "n_etypes": "relations"},
        {"n_steps": 1},
        reads=("relations",),
        homogeneous=True,
        hops="n_steps",
        same_width=True,
    ),
    "GraphConv": Convolution({"in_feats": "in", "out_feats": "out"}, takes_weights=True, out_degrees=True),
    "HGTConv": Convolution(
        {"in_size": "in", "head_size": "head", "num_ntypes": "node_types", "num_etypes": "relations"},
        {"num_heads": 4},
        reads=("node_types", "relations"),
    ),
    "NNConv": Convolution({"in_feats": "in", "out_feats": "out", "edge_func": "edge_map"}, reads=("edges",)),
    "PNAConv": Convolution(
        {"in_size": "in", "out_size": "out", "edge_feat_size": "edge_if_any"},
        {
            "aggregators": ["mean", "max", "min", "std"],
            "scalers": ["identity", "amplification", "attenuation"],
            "delta": 1.0,
        },
        reads=("edges_if_any",),
        homogeneous=True,
        whole="it divides by the number of nodes",
    ),
    "RelGraphConv": Convolution({"in_feat": "in", "out_feat": "out", "num_rels": "relations"}, reads=("relations",)),
    "SAGEConv": Convolution(
        {"in_feats": "in", "out_feats": "out", "norm": "none"}, {"aggregator_type": "mean"}, takes_weights=True
    ),
    "SGConv": Convolution(
        {"in_feats": "in", "out_feats": "out", "norm": "none", "cached": "no"},
        takes_weights=True,
        homogeneous=True,
        hops="k",
    ),
    "TAGConv": Convolution({"in_feats": "in", "out_feats": "out"}, takes_weights=True, homogeneous=True, hops="k"),
    "TWIRLSConv": Convolution(
        {"input_d": "in", "output_d": "out", "hidden_d": "out"},
        {"prop_step": 4},
        whole="it adds self-loops and counts degrees anew",
    ),
}

_CUGRAPH = "runs on a GPU with pylibcugraphops only, which is not among the pinned packages"
_DENSE = "reads the adjacency as a matrix of all nodes by all nodes"
REFUSED: Mapping[str, str] = {
    "CuGraphGATConv": f"{_CUGRAPH}; take GATConv",
    "CuGraphRelGraphConv": f"{_CUGRAPH}; take RelGraphConv",
    "CuGraphSAGEConv": f"{_CUGRAPH}; take SAGEConv",
    "DGNConv": "reads eigenvectors of the graph's Laplacian, which graphmill does not make; take PNAConv, which is the "
    "same without them",
    "DenseChebConv": f"{_DENSE}; take ChebConv, which computes the same",
    "DenseGraphConv": f"{_DENSE}; take GraphConv, which computes the same",
    "DenseSAGEConv": f"{_DENSE}; take SAGEConv with aggregator_type=gcn, which computes the same",
    "EdgeWeightNorm": "gives weights of edges and no vectors of nodes; TAGConv, SGConv, APPNPConv and GCN2Conv call it "
    "with model.edge_weights=true",
    "GroupRevRes": "wraps a convolution that is reversible by groups of columns; take model deepgcn with "
    "reversible=true, which is that",
    "HeteroGraphConv": "wraps a convolution for each relation; take model dgl_hetero, which is that",
    "TWIRLSUnfoldingAndAttention": "is the propagation inside TWIRLSConv and needs the self-loops that this adds; take "
    "TWIRLSConv",
}
"""What is exported beside them, and why it is no model; each a sentence after the name."""


def find_convolution(name: str) -> Convolution:
    """Return how a convolution is called. Raises RecipeError with the known ones, or with the reason against it."""
    if name in REFUSED:
        raise RecipeError(f"model.conv={name}: {name} {REFUSED[name]}")
    if name not in CONVOLUTIONS:
        raise RecipeError(
            f"model.conv={name}: dgl.nn.pytorch has no such convolution{did_you_mean(name, CONVOLUTIONS)}; known: "
            f"{', '.join(sorted(CONVOLUTIONS, key=str.lower))}"
        )
    return CONVOLUTIONS[name]


def complete_options(name: str, given: Mapping[str, Any], place: str = "model.options") -> dict[str, Any]:
    """Return a convolution's options with graphmill's defaults; those of DGL stay unsaid.

    `place` is what messages call the options.

    Raises:
        RecipeError: unknown or misspelt ones, with the known ones and their defaults; one that graphmill fills itself;
            a number of hops that is none.
    """
    spec = find_convolution(name)
    signature = convolution_options(name)
    if spec.hops in given and (type(given[spec.hops]) is not int or given[spec.hops] < 0):
        raise RecipeError(f"{place}.{spec.hops}={given[spec.hops]}: a whole number from 0 is needed")
    # Functions are no options of a recipe.
    options = {key: spec.defaults.get(key, value) for key, value in signature.items() if key != "activation"}
    options = {key: value for key, value in options.items() if key not in spec.sizes}
    for key in given:
        if key in signature and key not in options:
            why = f"model.{key} does that" if key in ("activation", "norm") else "graphmill sets it by graph and model"
            raise RecipeError(f"{place}.{key}: {why}; remove it")
        if key not in options:
            shown = ", ".join(f"{option}={value}" if value is not ... else option for option, value in options.items())
            raise RecipeError(
                f"{place}: {name} has no option {key!r}{did_you_mean(key, options)}; known: {shown or 'none'}"
            )
    complete = {**spec.defaults, **given}
    if "allow_zero_in_degree" in options:  # isolated nodes, and sources without drawn edges, are no mistake here
        complete.setdefault("allow_zero_in_degree", True)
    return complete


def hops(name: str, options: Mapping[str, Any]) -> int:
    """Return how far one convolution looks with these options."""
    spec = find_convolution(name)
    if not spec.hops:
        return 1
    count = {**convolution_options(name), **spec.defaults, **options}[spec.hops]
    return int(count) - (name == "ChebConv")  # its k counts polynomials from the constant one


def reason_for_whole(name: str, options: Mapping[str, Any], *, edge_weights: bool, symmetric: bool) -> str:
    """Say why a convolution needs all nodes of a graph at once; an empty text if it does not.

    Args:
        edge_weights: whether it weighs messages.
        symmetric: whether each edge of the graph has its reverse.
    """
    spec = find_convolution(name)
    if spec.whole:
        return spec.whole
    if hops(name, options) > 1:
        option = f"options.{spec.hops}={hops(name, options) + (name == 'ChebConv')}"
        return f"with {option} it looks {hops(name, options)} hops far, and a block holds one"
    if edge_weights and name in ("APPNPConv", "GCN2Conv", "SGConv", "TAGConv"):
        return "with edge_weights=true it divides by the weights of all edges of both ends"
    norm = options.get("norm", "both")
    if spec.out_degrees and not symmetric and norm in ("both", "left"):
        return f"with norm={norm} it divides by out-degrees, which batches of a directed graph do not know"
    return ""


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
