"""What models are compared with, by the names that `EvalReport.controls` has."""

from __future__ import annotations

from typing import NamedTuple


class Control(NamedTuple):
    """Names of what a model is compared with."""

    row: str
    """In a table."""
    what: str
    """In a sentence."""
    gates: bool = True
    """Whether it is one of the simple ones, which a model has to beat; of the others it must not be worse than them."""
    serves: bool = False
    """Whether it can be published in place of a model: it scores rows of other data."""


FEATURES_CONTROL, TEXTS_CONTROL = "features", "texts"
LAST_VALUE_CONTROL, OWN_MEAN_CONTROL = "last_value", "own_mean"
BOOSTED_CONTROL = "boosted"
BOTH_ENDS_CONTROL = "both_ends"
POPULAR_CONTROL, RECENT_CONTROL = "popular", "popular_recent"
OWN_PAST_CONTROL, TOGETHER_CONTROL = "own_past", "had_together"
POPULAR_TARGETS_CONTROL, JOINED_ALIKE_CONTROL = "popular_targets", "joined_alike"
CONSTANT_OF_EACH = "constant"
"""Of several tasks: each one's constant control."""
CONSTANT_CONTROLS = frozenset({"majority", "mean", "chance"})
"""Those that say the same of every row."""
CONTROLS = {
    "majority": Control("majority", "the majority class", serves=True),
    "mean": Control("mean", "the training split's mean (mae: its median)", serves=True),
    "chance": Control("chance", "chance"),
    CONSTANT_OF_EACH: Control("constant", "the majority class, or the training split's mean, of each task"),
    FEATURES_CONTROL: Control("features only", "a linear model that sees only the rows' own features", serves=True),
    TEXTS_CONTROL: Control("texts only", "a linear model that sees only the rows' own texts"),
    BOOSTED_CONTROL: Control(
        "boosted",
        "gradient boosting that sees the entities' own rows and counts, ages and means of what is one key away, as of "
        "their moments",
        gates=False,
        serves=True,
    ),
    BOTH_ENDS_CONTROL: Control(
        "both ends, boosted",
        "gradient boosting that sees the features of both ends and the edge's own, without the graph",
        gates=False,
    ),
    POPULAR_CONTROL: Control("popularity", "what was linked to most before the moment", serves=True),
    RECENT_CONTROL: Control(
        "popularity lately", "what was linked to most in the horizon before the moment", serves=True
    ),
    OWN_PAST_CONTROL: Control(
        "own past", "what the entity itself was linked to most before, then what is popular", gates=False, serves=True
    ),
    TOGETHER_CONTROL: Control(
        "had together", "what others had who had the same, by cosine, then what is popular", gates=False, serves=True
    ),
    POPULAR_TARGETS_CONTROL: Control("popularity", "what most sources are joined to in training"),
    JOINED_ALIKE_CONTROL: Control(
        "joined alike", "what sources with the same targets are joined to, by cosine, then what is popular", gates=False
    ),
    LAST_VALUE_CONTROL: Control(
        "last value", "the same figure over as long before the moment", gates=False, serves=True
    ),
    OWN_MEAN_CONTROL: Control("own mean", "the mean of the entity's own earlier values", gates=False, serves=True),
    "frequency": Control("frequency", "entities by how often the relation has them at that end", gates=False),
    "association": Control("association", "what the entities have that share most with the given one", gates=False),
    "degree": Control("degrees", "the product of the ends' degrees", gates=False, serves=True),
    "common_neighbors": Control(
        "common neighbours", "the number of neighbours that both ends have", gates=False, serves=True
    ),
    "edge_bank": Control("EdgeBank", "EdgeBank, whether the pair was an edge in training", gates=False),
    "adamic_adar": Control(
        "Adamic-Adar", "Adamic-Adar, common neighbours by the inverse log of degrees", gates=False, serves=True
    ),
}
"""By the names that `EvalReport.controls` has."""
