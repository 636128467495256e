"""What a model is. A new one is one file, in this folder or anywhere: see the page on adding things, and `examples/`.

A `GraphModel` with a `Config` and a `make_conv` is enough for node, edge, link and graph tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from configs.errors import RecipeError
from models.block import Batch
from models.configs import ModelConfig as ModelConfig  # models of users take it from here
from models.facts import GraphFacts
from models.layers.encoders import NodeEncoder
from models.layers.layer import Layer, NormFirstLayer, make_norm
from models.layers.output_heads import EdgeHead, GraphHead, LinkHead, NodeHead


class GraphModel(nn.Module):
    """Encoder of nodes, a stack of layers, and a head that fits the task.

    The last layer has no activation where the head is more than a linear map of single nodes: on graph and edge tasks
    it keeps norm and dropout, on link tasks it is the bare convolution (both as in OGB's examples), as it is with
    head=none.
    """

    uses_edge_features: bool = False
    """Whether the model reads edge features, where the graph has some; see `reads_edge_features`."""
    evaluated_as: ClassVar[str] = ""
    """Name of the kind of task that it is evaluated as, whatever the data is for; empty: the data's."""
    uses_edge_types: ClassVar[bool] = False
    uses_node_types: ClassVar[bool] = False
    """Whether each type of nodes has its own map from numeric features to hidden_dim, where there are several types."""
    scores_relations: ClassVar[bool] = False
    """Whether `score` takes the relation, int64 (n,), that pairs are asked about behind their ends."""
    uses_edge_weights: ClassVar[bool] = False
    """Whether option `edge_weights` means something to the model."""
    reads_degrees: ClassVar[bool] = True
    """Whether what a node gets from a neighbour may follow from how many in-edges that neighbour has."""
    project_inputs: ClassVar[bool] = False
    """Whether the encoder maps numeric features to hidden_dim; else the first layer reads them as they are."""
    encoder_class: type[NodeEncoder] = NodeEncoder
    """What makes the first layer's input."""
    layer_class: type[Layer] = Layer
    """What stands around a convolution."""
    num_propagations = 0
    """Powers of the propagation matrix that the model reads in place of blocks (loader precomputed); 0: none."""

    def __init__(self, config: Any, facts: GraphFacts) -> None:
        """`config` is the model's own `Config`. Raises RecipeError for options that do not fit the task."""
        super().__init__()
        self.config = config
        self.facts = facts
        self.uses_edge_features = self.reads_edge_features(config)
        self.label_mean: Tensor
        self.label_scale: Tensor
        if facts.label_scale:
            self.scale_labels(facts.label_mean, facts.label_scale)
        config.check_together()
        config.check_facts(facts, weighs_edges=self.uses_edge_weights)
        self.encoder = self.make_encoder()
        self.layers = self.make_layers(self.encoder.out_dim)
        self.finish = self.make_finish()
        """Applied to the nodes' vectors before the head."""
        self.head = self.make_head()

    # ---- what a model may define

    @classmethod
    def reads_edge_features(cls, config: Any) -> bool:
        """Whether a model with these options reads edge features, where the graph has some."""
        return cls.uses_edge_features and getattr(config, "edge_features", True)

    @property
    def edge_facts(self) -> GraphFacts | None:
        """The facts, where edge features are there and read; else None."""
        return self.facts if self.uses_edge_features and self.facts.has_edge_features else None

    @classmethod
    def reads_relations(cls, config: Any) -> bool:
        """Whether a model with these options tells relations apart."""
        return cls.uses_edge_types

    def make_conv(self, in_dim: int, out_dim: int) -> nn.Module:
        """Return one convolution: forward(block, x (num_src, in_dim)) -> (num_dst, out_dim)."""
        raise RecipeError(
            f"model.name={self.config.name}: its class {type(self).__name__} has to define make_conv(in_dim, out_dim)"
        )

    def make_last_conv(self, in_dim: int, out_dim: int) -> nn.Module:
        """Return the last layer's convolution, where it differs."""
        return self.make_conv(in_dim, out_dim)

    def make_encoder(self) -> NodeEncoder:
        """Return what makes the first layer's input."""
        config, facts = self.config, self.facts
        return self.encoder_class(
            facts,
            config.hidden_dim,
            project=self.project_inputs or config.norm_first,
            embedding_dim=config.embedding_dim,
            labels=facts.out_dim if config.label_reuse else 0,
            node_types=facts.num_node_types if self.uses_node_types else 1,
            embedded_types=config.embedded_types(facts),
            dropout=config.input_dropout,
            activation=config.activation if config.norm_first else None,
        )

    def make_layers(self, in_dim: int) -> nn.ModuleList:
        """Return the stack; each layer is forward(block, x (num_src, in)) -> (num_dst, its `out_dim`)."""
        config = self.config
        layers = nn.ModuleList()
        for number in range(config.num_layers):
            last = number == config.num_layers - 1
            out_dim = self.facts.out_dim if last and config.head == "none" else config.hidden_dim
            conv = (self.make_last_conv if last else self.make_conv)(in_dim, out_dim)
            if config.norm_first:
                layers.append(NormFirstLayer(conv, config))
            else:
                bare = last and (self.facts.scores_pairs or config.head == "none")
                activate = not last or self.facts.scores_nodes
                layers.append(self.layer_class(conv, in_dim, out_dim, config, bare=bare, activate=activate))
            in_dim = out_dim
        return layers

    def make_finish(self) -> nn.Module:
        """Return what stands between the nodes' vectors and the head."""
        return make_norm(self.config.norm, self.vector_dim) if self.config.norm_first else nn.Identity()

    def make_head(self) -> nn.Module:
        """Return the head of the task."""
        config, facts = self.config, self.facts
        if facts.scores_pairs:
            layers = config.decoder_layers or 3
            return LinkHead(self.head_dim, config.hidden_dim, config.decoder or "mlp", layers, config.dropout)
        if facts.scores_edges:
            layers = config.decoder_layers or 2
            return EdgeHead(self.head_dim, config.hidden_dim, facts, layers, config.dropout)
        if facts.many_graphs:
            return GraphHead(self.head_dim, facts.out_dim, config.pooling or "mean")
        return NodeHead(self.head_dim, facts.out_dim, linear=config.head == "linear")

    @property
    def reads_mean(self) -> bool:
        """Whether the first layer reads its neighbours only through `aggregate` with mean or sum of raw features.

        The loader may then take that mean while it gathers the features.
        """
        return False

    # ---- what loaders and inference read

    @property
    def vector_dim(self) -> int:
        """Columns of `represent`'s result."""
        return int(self.layers[-1].out_dim)  # type: ignore[arg-type]

    @property
    def head_dim(self) -> int:
        """Columns of what `finish` makes of it."""
        return self.vector_dim

    @property
    def table(self) -> Tensor | None:
        """The vectors of all nodes, float32 (N, dim), where a model is these and has no layers."""
        return None

    @property
    def is_layered(self) -> bool:
        """Whether `represent` is the layers, one after the other, each for all nodes."""
        return type(self).represent is GraphModel.represent

    def forward(self, batch: Batch) -> Tensor:
        """Return the scores that the batch asks for: (n, out_dim), or (n,) for pairs; higher is likelier.

        Those of a regression are in the labels' units.
        """
        scores: Tensor = self.head(self.finish(self.represent(batch)), batch)
        return self._in_label_units(scores)

    def represent(self, batch: Batch) -> Tensor:
        """Return the last block's destinations as vectors: (num_dst, vector_dim).

        A batch without blocks brings rows that the loader has propagated: what the layers would make.
        """
        x: Tensor = self.encoder(batch.inputs)
        if not batch.blocks:
            return x
        for number, layer in enumerate(self.layers):
            x = layer(batch.block(number), x)
        return x

    def score(self, *vectors: Tensor) -> Tensor:
        """Return scores from vectors: of nodes (n, vector_dim) -> (n, out_dim), or of both ends of pairs -> (n,)."""
        assert isinstance(self.head, NodeHead | LinkHead), "graphs are scored from whole batches"
        scores: Tensor = self.head.score(*(self.finish(vector) for vector in vectors))
        return self._in_label_units(scores)

    def score_edges(self, source: Tensor, target: Tensor, numbers: Tensor | None, codes: Tensor | None) -> Tensor:
        """Return scores of edges (n, out_dim) from the vectors of their ends (n, vector_dim), and what they carry."""
        assert isinstance(self.head, EdgeHead), "a model of edges has their head"
        return self._in_label_units(self.head.score(self.finish(source), self.finish(target), numbers, codes))

    # ---- the labels of a regression

    def scale_labels(self, mean: Sequence[float], scale: Sequence[float]) -> None:
        """Say what one unit of the head's numbers is: `scale` of each label, counted from its `mean`.

        So the head learns numbers near one, whatever the labels are measured in. Both are facts of the training, not
        weights: they travel with `facts`.
        """
        self.facts = replace(self.facts, label_mean=tuple(mean), label_scale=tuple(scale))
        device = next((parameter.device for parameter in self.parameters()), None)
        for name, values in (("label_mean", mean), ("label_scale", scale)):
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32, device=device), persistent=False)

    @property
    def label_units(self) -> tuple[list[float], list[float]] | None:
        """What `scale_labels` was told; None where the head's numbers are the labels."""
        return (list(self.facts.label_mean), list(self.facts.label_scale)) if self.facts.label_scale else None

    def standardized(self, labels: Tensor) -> Tensor:
        """Return labels, or scores in their units, float32 (n, out_dim), as the head counts them."""
        return (labels - self.label_mean) / self.label_scale if self.facts.label_scale else labels

    def _in_label_units(self, scores: Tensor) -> Tensor:
        # In float32: what bfloat16 has of a mean of 151 ends before the point.
        return scores.float() * self.label_scale + self.label_mean if self.facts.label_scale else scores
