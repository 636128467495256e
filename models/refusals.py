"""Options that would do nothing, or cannot work together, are refused by name, never ignored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from configs.base import ComponentConfig
from configs.errors import RecipeError

if TYPE_CHECKING:
    from models.configs import ModelConfig
    from models.facts import GraphFacts

_BY_TASK = (
    ("decoder", "link", None),
    ("decoder_layers", "link", None),
    ("pooling", "graph", None),
    ("label_reuse", "node", False),
    ("head", "node", "linear"),
)


def refuse_foreign_options(config: ModelConfig, facts: GraphFacts, *, weights: bool) -> None:
    """Check the options of every model against the task and the graph; `weights`: the model can weigh its edges.

    Raises:
        RecipeError: naming the option and the way out.
    """
    for name, task, default in _BY_TASK:
        if getattr(config, name) != default and facts.task != task:
            raise RecipeError(f"model.{name} is for {task} tasks and this is a {facts.task} task; remove it")
    if config.decoder == "dot" and config.decoder_layers is not None:
        raise RecipeError("model.decoder_layers does nothing with decoder=dot; remove it or take decoder=mlp")
    if config.embedding_dim is not None and (facts.feature_dim or facts.categories):
        raise RecipeError("model.embedding_dim is for graphs without node features and this one has some; remove it")
    if config.edge_weights and not weights:
        raise RecipeError(f"model.edge_weights does nothing in {config.name}; remove it or take graphsage or gcn")
    if config.edge_weights and not facts.has_edge_weights:
        raise RecipeError("model.edge_weights=true, and the graph's edges have no weights; remove it")
    if config.norm_first:
        _refuse(config, "norm_first", residual=False, jumping="none", head="linear")
    if config.label_iterations and not config.label_reuse:
        raise RecipeError("model.label_iterations is for model.label_reuse=true; set that or remove it")
    if config.head == "none":
        _refuse(config, "head=none", jumping="none")


def refuse_numbers_as_labels(config: ComponentConfig, task_type: str) -> None:
    """Refuse to read labels that are no classes. Raises RecipeError naming the option and the way out."""
    if getattr(config, "label_reuse", False) and task_type == "regression":
        raise RecipeError("model.label_reuse reads classes, and this is a regression; remove it")


def _refuse(config: ModelConfig, owner: str, **defaults: object) -> None:
    """Refuse every option that is not at the value given for it."""
    for name, value in defaults.items():
        if getattr(config, name) != value:
            raise RecipeError(f"model.{name} cannot be used with model.{owner}; remove one of them")
