"""Options of the loader by which models learn to recommend, apart from its code."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from configs.base import ComponentConfig
from configs.errors import RecipeError
from configs.registry import LOADERS
from tasks.train.loaders.configs import RelationalConfig

if TYPE_CHECKING:
    from tasks.storage.manifests import GraphManifest


@LOADERS.options("ranking", "typed.ranking")
class RankingLoaderConfig(RelationalConfig):
    """Neighbourhoods by relation of seeds and of what is recommended to them, all of one moment a batch."""

    name: str = "ranking"
    usual_fanout: ClassVar[tuple[int, ...]] = (12, 4, 4)

    batch_size: int = Field(default=256, ge=1)
    """Seeds (rows that something is recommended to) a step and rank."""
    positives: int = Field(default=8, ge=1, le=10_000)
    """Of what is right for a seed, so many are learnt from in an epoch at most, drawn anew in each."""
    negatives: int = Field(default=1024, ge=1, le=1_000_000)
    """Candidates that are drawn for a batch, beside what is right for its seeds; all there are, where these are no
    more."""
    draw: Literal["popularity", "uniform"] = "popularity"
    """How they are drawn: by how often they were linked to before the moment, to the power of alpha, or all alike. Both
    are corrected for in the loss."""
    alpha: float = Field(default=0.75, ge=0, le=4)
    """With draw=popularity: 0 draws all alike, 1 as often as they were linked to."""

    hard_negatives: int = Field(default=0, ge=0, le=1000)
    """Besides, of what walks from a seed reach most and is not right for it, so many in its batch at most: none in the
    first epoch, one in the second, and so on. Where all candidates are compared anyway, none are added."""
    hard_skip: int = Field(default=0, ge=0, le=10_000)
    """The first so many of these are left out, which may be right though nobody knew."""

    def check_graph(self, model: ComponentConfig, manifest: GraphManifest) -> None:
        """Refuse graphs in which nothing is ranked."""
        if manifest.ranking is None:
            raise RecipeError(
                f"train.loader=ranking is for recommendations, and {manifest.dataset} predicts a "
                f"{manifest.task_type} label; take train.loader=relational, or say what is recommended: "
                "dataset.predict.target: {links: TABLE.COLUMN}"
            )
        super().check_graph(model, manifest)

    def resolve(self, manifest: GraphManifest) -> RankingLoaderConfig:
        """Return these options."""
        return self
