"""What somebody wants explained."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from configs.errors import RecipeError


@dataclass(frozen=True)
class ExplainRequest:
    """Rows that are named on the command line, and how they are explained."""

    nodes: list[str] = field(default_factory=list)
    """Ids of nodes or rows."""
    edges: list[str] = field(default_factory=list)
    """Of models of edges: ids, or `source,target`, or `source,target,row`."""
    pairs: list[list[str]] = field(default_factory=list)
    """Ids of source and target, of models of links."""
    triples: list[list[str]] = field(default_factory=list)
    """Head, relation and tail, of models of knowledge graphs."""
    of_class: str | None = None
    """Class, or number of a label's column, whose probability is explained; None: the predicted."""
    model: str = ""
    """Name and version, for the page."""
    options: dict[str, Any] = field(default_factory=lambda: {"name": "removal"})
    """Of the explainer."""

    def check(self, explained_by: str, words: str, *, has_file: bool) -> None:
        """Refuse what rows of a model are not named by (`Kind.explained_by`), and a request of nothing. RecipeError."""
        if not explained_by:
            raise RecipeError(
                f"scores of {words} are not explained; those of nodes, rows, edges, pairs and triples are"
            )
        named = {name: len(getattr(self, name)) for name in ("nodes", "edges", "pairs", "triples")}
        option = f"--{explained_by[:-1]}"
        for name, count in named.items():
            if count and name != explained_by:
                raise RecipeError(f"--{name[:-1]}: this is a model of {words}; give {option}")
        if bool(named[explained_by]) == has_file:
            both = f"{option} and --{explained_by} FILE: leave one out"
            raise RecipeError(both if has_file else f"say what is explained: {option} ..., or --{explained_by} FILE")
