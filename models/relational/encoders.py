"""From what a row carries to the vector that the first layer reads: each type of nodes has an encoder of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from configs.errors import RecipeError
from models.facts import GraphFacts
from models.kernels.dense.linear import Linear
from models.kernels.sparse.segment import segment_reduce
from models.layers.encoders import CategoryEmbedding
from models.layers.layer import Activation, Dropout
from models.relational.batch import RelationBlock, TypedInputs, TypeInputs


def columns_of(given: tuple[tuple[int, ...], ...], number: int, width: int) -> tuple[int, ...]:
    """Return a type's columns among `width`; all of them where nothing is said of any type."""
    return given[number] if given else tuple(range(width))


class TypeEncoder(nn.Module):
    """A type's numbers, categories and age, mapped to `dim` columns and added up; a learnt row where it has nothing.

    With more than one layer, what is added up goes through an activation and further linear maps.
    """

    def __init__(self, facts: GraphFacts, number: int, config: Any) -> None:
        """`number` is that of the type; `config` a `RelationalConfig`."""
        super().__init__()
        dim = config.hidden_dim
        width = len(columns_of(facts.node_columns, number, facts.feature_dim))
        codes = columns_of(facts.node_codes, number, len(facts.categories))
        self.numbers = Linear(width, dim, bias=False) if width else None
        self.categories = CategoryEmbedding(tuple(facts.categories[c] for c in codes), dim) if codes else None
        self.ages = AgeEncoding(sines=config.ages == "sines") if facts.has_times and config.ages != "none" else None
        self.age_map = Linear(self.ages.width, dim, bias=False) if self.ages else None
        self.row = nn.Parameter(torch.empty(1, dim))
        nn.init.xavier_uniform_(self.row)
        further: list[nn.Module] = []
        for _ in range(config.encoder_layers - 1):
            further += [Activation(config.activation, config.dropout), Linear(dim, dim)]
        self.further = nn.Sequential(*further)
        self.dropout = Dropout(config.input_dropout)

    def forward(self, inputs: TypeInputs) -> Tensor:
        """Encode the rows: (n, dim)."""
        x = self.row.expand(len(inputs.node_ids), -1)
        if self.numbers is not None:
            assert inputs.feat is not None, "the loader gave no numbers"
            x = x + self.numbers(inputs.feat)
        if self.categories is not None:
            x = x + self.categories(inputs.feat_cat)
        if self.ages is not None and self.age_map is not None:
            assert inputs.age is not None, "the loader gave no ages"
            x = x + self.age_map(self.ages(inputs.age))
        encoded: Tensor = self.dropout(self.further(x))
        return encoded


class TypedEncoder(nn.Module):
    """The encoders of the types that the first layer reads."""

    def __init__(self, facts: GraphFacts, types: frozenset[int], config: Any) -> None:
        """Raises RecipeError: rows of a type are to have learnt vectors, and the model reads none of them."""
        super().__init__()
        self.types = nn.ModuleDict({str(number): TypeEncoder(facts, number, config) for number in sorted(types)})
        self.out_dim: int = config.hidden_dim
        self.embedded = config.embedded(facts)
        """Types whose rows have learnt vectors."""
        unread = [facts.node_types[number] for number in self.embedded if number not in types]
        if unread:
            raise RecipeError(
                f"model.id_embedding.types: no key leads from {', '.join(unread)} to what is predicted within "
                f"model.num_layers={config.num_layers}; leave them out, or take more layers"
            )
        self.ids = RowVectors(facts, self.embedded, config) if self.embedded else None
        self.embedding: nn.Module | None = None
        if self.ids is not None:
            # A model around a table that is elsewhere is made for a graph of one node (`without_table`).
            count = 1 if facts.num_nodes == 1 else self.ids.num_rows
            self.embedding = nn.Embedding(count, config.id_options.dim)
            nn.init.normal_(self.embedding.weight, std=0.1)

    def look_up(self, inputs: TypedInputs) -> dict[int, Tensor]:
        """Return the learnt vectors of the rows of each type that has them: (n_t, dim) by number of the type."""
        return {} if self.ids is None or self.embedding is None else self.ids.look_up(inputs, self.embedding)

    def forward(self, inputs: TypedInputs, ids: Mapping[int, Tensor] | None = None) -> dict[int, Tensor]:
        """Encode each type's rows: (n_t, out_dim) by number of the type; `ids` are their learnt vectors."""
        ids = self.look_up(inputs) if ids is None else ids
        encoded = {int(number): encoder(inputs.types[int(number)]) for number, encoder in self.types.items()}
        if self.ids is None:
            return encoded
        return encoded | {t: encoded[t] + self.ids.maps[str(t)](rows) for t, rows in ids.items()}


class RowVectors(nn.Module):
    """Learnt vectors of single rows, those of several types end to end in one table, which is the encoder's.

    In training a share of them is taken away at random, and rows that the table does not know have none: so what a
    model says of rows that it never saw is what it learnt to say without.
    """

    def __init__(self, facts: GraphFacts, types: tuple[int, ...], config: Any) -> None:
        super().__init__()
        self.sizes = [facts.type_sizes[t] for t in types]
        self.numbers, self.rate = types, config.id_options.dropout
        self.num_rows = sum(self.sizes)
        self.dim: int = config.id_options.dim
        self.maps = nn.ModuleDict({str(t): Linear(self.dim, config.hidden_dim, bias=False) for t in types})

    def look_up(self, inputs: TypedInputs, table: nn.Module) -> dict[int, Tensor]:
        """Return the vectors of each type's rows, (n_t, dim), 0 where there is none."""
        places, numbered, first = [], [], 0
        for t, size in zip(self.numbers, self.sizes, strict=True):
            number = inputs.types[t].number
            assert number is not None, "the loader did not number the rows"
            places.append(number.clamp(min=0) + first)
            numbered.append(number >= 0)
            first += size
        rows, there = table(torch.cat(places)), torch.cat(numbered)
        if self.training and self.rate:
            there = there & (torch.rand(len(rows), device=rows.device) >= self.rate)
            rows = rows * (there / (1 - self.rate)).unsqueeze(1)
        else:
            rows = rows * there.unsqueeze(1)
        split = torch.split(rows, [len(one) for one in places])
        return dict(zip(self.numbers, split, strict=True))


class EdgeTerm(nn.Module):
    """What a relation's edges carry, averaged over each destination's in-edges: (num_dst, dim).

    Since it is added to a mean of linear messages it is what reading each edge's features beside its source would give:
    mean_e (W x_e + U f_e) = W mean_e x_e + U mean_e f_e.
    """

    def __init__(self, facts: GraphFacts, number: int, dim: int, *, ages: bool) -> None:
        """`number` is that of the relation."""
        super().__init__()
        width = len(columns_of(facts.edge_columns, number, facts.edge_feature_dim))
        codes = columns_of(facts.edge_codes, number, len(facts.edge_categories))
        self.has_features = bool(width or codes)
        self.ages = AgeEncoding(sines=False) if self.has_features and facts.has_times and ages else None
        width += self.ages.width if self.ages else 0
        self.numbers = Linear(width, dim, bias=False) if width else None
        self.categories = CategoryEmbedding(tuple(facts.edge_categories[c] for c in codes), dim) if codes else None

    def forward(self, relation: RelationBlock) -> Tensor | None:
        """Return the term; None where the relation's edges carry nothing."""
        if not self.has_features:
            return None
        parts = [] if relation.edge_feat is None else [relation.edge_feat]
        if self.ages is not None:
            assert relation.edge_age is not None, "the loader gave no ages of edges"
            parts.append(self.ages(relation.edge_age))
        term: Tensor | None = None
        if self.numbers is not None:
            term = self.numbers(segment_reduce(torch.cat(parts, 1), relation.indptr, "mean"))
        if self.categories is not None:
            embedded = segment_reduce(self.categories(relation.edge_feat_cat), relation.indptr, "mean")
            term = embedded if term is None else term + embedded
        return term


_PERIODS_DAYS = (1.0, 7.0, 30.44, 91.31, 365.25, 1461.0)
"""A day, a week, a month, a quarter, a year, four years."""
_LONG = math.log1p(10_000.0)
"""Days whose logarithm becomes 1: 27 years."""


class AgeEncoding(nn.Module):
    """Days (n,) -> (n, width): 1 where there is an age, log(1 + days), and with `sines` sin and cos by period.

    All are relative to the moment that is asked about, never a date: another moment of the same past looks alike. Rows
    without an age (NaN) are zeros.
    """

    def __init__(self, *, sines: bool) -> None:
        super().__init__()
        periods = _PERIODS_DAYS if sines else ()
        self.width = 2 + 2 * len(periods)
        self.frequency: Tensor
        self.register_buffer("frequency", torch.tensor([2 * math.pi / days for days in periods]), persistent=False)

    def forward(self, age: Tensor) -> Tensor:
        """Encode each age."""
        has_time = ~torch.isnan(age)
        days = torch.where(has_time, age, 0.0).clamp(min=0)
        columns = [torch.ones_like(days).unsqueeze(1), (torch.log1p(days) / _LONG).unsqueeze(1)]
        if len(self.frequency):
            # In float32 a phase of 10 000 days is right to a minute.
            phase = days.unsqueeze(1) * self.frequency
            columns += [torch.sin(phase), torch.cos(phase)]
        return torch.cat(columns, 1) * has_time.unsqueeze(1)
