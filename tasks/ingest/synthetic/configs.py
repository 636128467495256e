"""Options of the generated data sets."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from configs.base import ComponentConfig
from configs.registry import DATASETS
from tasks.ingest.database.configs import check_moments_are_kept


@DATASETS.options("synthetic", "synthetic.dataset")
class SyntheticConfig(ComponentConfig):
    """Generated graph: planted communities, power-law degrees, features of known difficulty; up to 10^9 edges."""

    num_nodes: int = Field(default=20_000, ge=10, le=2 * 10**9)
    """Nodes."""
    num_edges: int = Field(default=150_000, ge=1, le=10**10)
    """Undirected edges, each stored once; a few are drawn twice (`preprocess.deduplicate` merges them)."""
    num_classes: int = Field(default=8, ge=2, le=10_000)
    """Classes, of about equal size."""
    community_size: int = Field(default=500, ge=4)
    """Nodes of a community, about; a class has one community or many."""
    feature_dim: int = Field(default=32, ge=0, le=65_536)
    """Feature columns; 0: none. At least num_classes, so that the difficulty is exact."""
    feature_accuracy: float = Field(default=0.5, gt=0, lt=1)
    """Accuracy on clean labels of the best classifier that sees a node's own features only."""
    label_noise: float = Field(default=0.05, ge=0, lt=1)
    """Share of labels that are replaced by another class: 1 - label_noise is the ceiling of accuracy."""
    task: Literal["node", "link"] = "node"
    """What is predicted: a node's class, or held-out edges."""
    valid_share: float = Field(default=0.2, gt=0, lt=1)
    """Share of nodes (or edges) in the validation split."""
    test_share: float = Field(default=0.2, gt=0, lt=1)
    """Share of nodes (or edges) in the test split; the rest trains."""
    num_negatives: int = Field(default=100_000, ge=1)
    """Negative pairs of the validation and of the test split (link task)."""
    seed: int = Field(default=1, ge=0)
    """Seed of everything above."""

    @model_validator(mode="after")
    def _fits(self) -> SyntheticConfig:
        if 0 < self.feature_dim < self.num_classes:
            raise ValueError(
                f"feature_dim {self.feature_dim} is below num_classes {self.num_classes}; take 0 (no features) or "
                f"at least {self.num_classes}"
            )
        if self.feature_accuracy <= 1 / self.num_classes:
            raise ValueError(
                f"feature_accuracy {self.feature_accuracy} is not above chance, 1/{self.num_classes}; "
                "for features without information take feature_dim: 0"
            )
        if self.valid_share + self.test_share >= 1:
            raise ValueError("valid_share + test_share must leave something to train on (be below 1)")
        if self.label_noise >= 1 - 1 / self.num_classes:
            raise ValueError(f"label_noise {self.label_noise} leaves no more than chance, {1 / self.num_classes:g}")
        if self.num_nodes < 4 * self.num_classes:
            raise ValueError(f"num_nodes {self.num_nodes} is below four a class, {4 * self.num_classes}")
        return self


@DATASETS.options("synthetic_triples", "synthetic.dataset")
class SyntheticTriplesConfig(ComponentConfig):
    """Generated knowledge graph: latent types, and relations that follow rules; up to millions of entities."""

    num_entities: int = Field(default=150, ge=40, le=2 * 10**9)
    """Entities."""
    num_relations: int = Field(default=40, ge=1, le=100_000)
    """Relations; of each six two are turns, one is a turn's inverse, one symmetric, one composed and one one-way."""
    num_triples: int = Field(default=6_250, ge=10, le=10**10)
    """Triples of all splits, in equal shares for each relation."""
    num_types: int = Field(default=3, ge=1, le=10_000)
    """Latent types, of equal size; all entities are of one node type."""
    noise: float = Field(default=0.02, ge=0, lt=1)
    """Share of triples that follow no rule."""
    valid_share: float = Field(default=0.1, gt=0, lt=1)
    """Share of triples in the validation split."""
    test_share: float = Field(default=0.1, gt=0, lt=1)
    """Share of triples in the test split; the rest trains."""
    seed: int = Field(default=1, ge=0)
    """Seed of everything above."""

    @model_validator(mode="after")
    def _fits(self) -> SyntheticTriplesConfig:
        if self.valid_share + self.test_share >= 1:
            raise ValueError("valid_share + test_share must leave something to train on (be below 1)")
        size = self.num_entities // self.num_types
        if size < 40:
            raise ValueError(f"num_types {self.num_types} leaves {size} entities a type; 40 are needed")
        most = size * size // 8 * self.num_relations
        if self.num_triples > most:
            raise ValueError(
                f"num_triples {self.num_triples} is too many for {self.num_relations} relations between types of "
                f"{size} entities: {most} at most"
            )
        return self


@DATASETS.options("synthetic_vectors", "synthetic.vectors")
class SyntheticVectorsConfig(ComponentConfig):
    """Generated vectors to look at: groups that are curved sheets, some of them near to each other."""

    task: ClassVar[str] = "layout"
    preprocess_defaults: ClassVar[dict[str, Any]] = {"neighbors": {}}

    num_rows: int = Field(default=10_000, ge=2, le=10**9)
    """Vectors."""
    dim: int = Field(default=50, ge=2, le=65_536)
    """Numbers of each."""
    num_groups: int = Field(default=12, ge=1, le=10_000)
    """Groups, three to a family."""
    noise: float = Field(default=0.15, ge=0, le=1000)
    """Standard deviation of what is added to each number."""
    seed: int = Field(default=1, ge=0)
    """Seed of everything above."""


@DATASETS.options("synthetic_shop", "synthetic.shop")
class SyntheticShopConfig(ComponentConfig):
    """Generated shop: customers, orders, items, products, reviews; reviews by others tell which customers leave."""

    task: ClassVar[str] = "node"
    preprocess_defaults: ClassVar[dict[str, Any]] = {"deduplicate": False}  # edges of one pair at two times are two

    num_customers: int = Field(default=55_000, ge=100, le=10**8)
    """Customers of all times."""
    num_products: int = Field(default=4_000, ge=20, le=10**7)
    """Products."""
    num_quarters: int = Field(default=10, ge=5, le=100)
    """Quarters of 90 days from 2021-01-01; at the begin of each but the first two customers are predicted."""
    reviews_a_quarter: int = Field(default=35_000, ge=1, le=10**9)
    """Reviews of each quarter, of all products."""
    quality_effect: float = Field(default=3.0, ge=0, le=20)
    """What one standard deviation of a product's quality, the mean over a customer's last quarter, adds to the log odds
    of staying."""
    plan_effect: float = Field(default=0.6, ge=0, le=20)
    """What the next better plan of a customer adds to them: all that the customer's own row tells."""
    styles: int = Field(default=0, ge=0, le=10**6)
    """Styles that products and customers have, each one: four in five items are of the customer's own. No column tells
    them, only who bought what. 0: everybody buys anything."""
    predict: Literal["churn", "products", "together"] = "churn"
    """Which customers leave, which products they will order, or which products are ordered together."""
    seed: int = Field(default=1, ge=0)
    """Seed of everything above."""

    def check_recipe(self, recipe: Any) -> None:
        """Refuse options that mix times, or count what is behind a moment. Raises ValueError."""
        check_moments_are_kept(self.name, recipe)
        if recipe.snapshot.as_of is not None:
            raise ValueError(
                f"snapshot.as_of: {self.name} has moments of its own, of which each sees only what is older; leave it "
                "out"
            )
