"""What can be asked of a registered model: the options of the flow, of its deployments' form and of the commands."""

from __future__ import annotations

import datetime
from dataclasses import fields
from typing import Any
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from configs.errors import RecipeError
from configs.layout_options import LayoutOptions
from configs.load import flatten_errors
from tasks.apply.completion.asked import CompletionRequest
from tasks.apply.run import OutputKind, OutputRequest
from tasks.explain.asked import ExplainRequest


class UseOptions(BaseModel):
    """What is made, of which rows, and where it goes; None: as usual."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    output: str | None = None
    """File to write, or folder for the model's files; `{date}` and `{time}` are those of the scheduled start. Empty:
    `NAME-vVERSION-predictions.parquet` in the current folder."""
    format: str | None = None
    """`parquet`, `csv`, `csv.gz`, `npy`, ...; empty: by the output's ending."""
    nodes: str | None = None
    """File of node ids; empty: all that can carry labels."""
    pairs: str | None = None
    """File of `source` and `target` ids (link models)."""
    graphs: str | None = None
    """File of graph ids; empty: all."""
    edges: str | None = None
    """File of edges' ids, `edge_id`, or of their rows in the table, `row` (edge tasks); empty: all."""
    queries: str | None = None
    """File of triples to complete, with the columns `head`, `relation` and `tail`, one of them empty in each row."""
    head: str | None = None
    """Of a triple that a model of a knowledge graph completes; two of the three are given."""
    relation: str | None = None
    """Likewise."""
    tail: str | None = None
    """Likewise."""
    k: int | None = Field(default=None, ge=1)
    """Completions of each triple, or targets that a link model lists for each node; empty: 10."""
    known: str | None = None
    """What becomes of completions that are triples of the data: `leave-out` (as usual) or `mark`."""
    type: str | None = None
    """Complete by entities of this type; empty: of the types that the relation has had at that end."""
    any_type: bool | None = None
    """Complete by entities of all types."""
    threshold: str | None = None
    """Probability from which class 1 is predicted, or of one of several classes `NAME=P`; empty: the likeliest is."""
    split: str | None = None
    """`none`: rows have no splits, and tables need no labels; empty: as the data set deals rows out."""
    keep_layers: bool = False
    """Keep the outputs of all layers in the home, and compute only what has changed since earlier ones were kept."""
    timezone: str | None = None
    """Time zone of `{date}` and `{time}`, `Europe/Berlin` say; empty: this machine's."""
    node_type: str | None = None
    """Embeddings: of which nodes, where there are several types; empty: of the type that carries labels."""
    layout: dict[str, Any] | None = None
    """Options of a layout, as of `evaluate.layout`."""
    explained: dict[str, Any] | None = None
    """What is explained: `nodes`, `edges`, `pairs` or `triples` by their ids, `of_class`."""
    triples: str | None = None
    """File of triples to explain, with the columns `head`, `relation` and `tail`."""

    def request(self, what: OutputKind, moment: datetime.datetime) -> OutputRequest:
        """Return what is to be written by a run that was to start at a moment. Raises RecipeError."""
        if self.split not in (None, "none"):
            raise RecipeError(
                f"--split {self.split}: the only choice is none, by which all rows are scored and belong to no split"
            )
        given = ("nodes", "edges", "pairs", "graphs", "queries", "triples")
        files = {name: getattr(self, name) for name in given}
        local = moment.astimezone(ZoneInfo(self.timezone) if self.timezone else None)
        output = self.output and self.output.replace("{date}", f"{local:%Y-%m-%d}").replace("{time}", f"{local:%H%M}")
        return OutputRequest(
            what,
            output,
            self.format,
            {name: path for name, path in files.items() if path is not None},
            self.node_type,
            CompletionRequest(**{one.name: getattr(self, one.name) for one in fields(CompletionRequest)}),
            self.keep_layers,
            layout_options(self.layout),
            self.threshold,
            self.split is None,
            ExplainRequest(**(self.explained or {})),
        )


def layout_options(given: dict[str, Any] | None) -> LayoutOptions:
    """Return the options of a layout. Raises RecipeError for what they cannot be."""
    try:
        return LayoutOptions.model_validate(given or {})
    except ValidationError as error:
        mistakes = [f"{'.'.join(map(str, ('layout', *where)))}: {text}" for where, text in flatten_errors(error)]
        raise RecipeError("; ".join(mistakes)) from error
