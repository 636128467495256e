"""Options of layouts that are no model's: of nearest neighbours, and of the map that an evaluation draws."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from configs.base import ConfigModel

LAYOUT: Literal["layout"] = "layout"
"""Family of models that are layouts, and task of data of which nothing is predicted: it is looked at. Labels, where
there are some, are colours; their kind is the task type, which is `layout` too where there are none."""


class NeighborsConfig(ConfigModel):
    """The graph of vectors' nearest neighbours, for data that has no edges of its own."""

    k: int | None = Field(default=None, ge=1, le=1000)
    """Neighbours of each row; lowered where there are fewer rows. null: one and a half times the perplexity, 15 for
    fuzzy."""
    metric: Literal["euclidean", "cosine", "dot"] = "euclidean"
    """How near two rows are: by distance, by the cosine of their angle, or by their product."""
    method: Literal["auto", "exact", "clusters"] = "auto"
    """exact: all rows are compared with all; clusters: each cluster of rows with those beside it, which finds most
    neighbours, then neighbours' neighbours. auto: clusters beyond 10,000 rows, but not for dot."""
    weights: Literal["auto", "perplexity", "fuzzy"] = "auto"
    """perplexity: as t-SNE and LargeVis weigh neighbours; fuzzy: as UMAP does; auto: as the model's authors do."""
    perplexity: float = Field(default=30, ge=1, le=1000)
    """How many neighbours share a row's weight, about; fuzzy weights do not read it."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    """Seed of the clusters."""

    @model_validator(mode="after")
    def _options_are_read(self) -> NeighborsConfig:
        if self.metric == "dot" and self.method == "clusters":
            raise ValueError("method=clusters cannot search by the dot product; leave it out, or set metric=cosine")
        if self.weights == "fuzzy" and self.perplexity != type(self).model_fields["perplexity"].default:
            raise ValueError("perplexity has no effect with weights=fuzzy: leave one of them out (k counts neighbours)")
        return self

    def settled(self, usual: str) -> NeighborsConfig:
        """Return it with the weights that auto stands for: `usual`, the model's."""
        return self.model_copy(update={"weights": usual}) if self.weights == "auto" else self

    @property
    def num_neighbors(self) -> int:
        """k, or what null stands for."""
        if self.k is not None:
            return self.k
        # Fashion-MNIST, 20,000 rows: trustworthiness 0.980 with 45 of perplexity 30, 0.979 with 90.
        return 15 if self.weights == "fuzzy" else math.ceil(1.5 * self.perplexity)


class LayoutOptions(ConfigModel):
    """A map of what the model has learnt: a point for each of its vectors.

    Of a layout, which is its own map, `color` alone is read.
    """

    runtime_fields: ClassVar[frozenset[str]] = frozenset({"color"})

    method: Literal["largevis", "umap", "tsne"] = "largevis"
    """How points are laid out (`graphmill models`)."""
    dim: Literal[2, 3] = 2
    """Dimensions of the picture."""
    neighbors: NeighborsConfig = NeighborsConfig(metric="cosine")
    """The neighbours that points are drawn to."""
    color: str | None = None
    """Column that colours the map first; null: predictions, labels, or what else there is."""

    def not_usual(self) -> list[str]:
        """Return the options but `color` whose values are not the usual ones: a recipe written out names all."""
        usual = LayoutOptions(color=self.color)
        return [name for name, value in self if value != getattr(usual, name)]
