"""Use a registered model from the command line, and show completions of triples."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from configs.errors import IntegrityError
from flows.apply.model_use import Data, ModelUse, NotFoundError
from flows.commands.recipes.run import run_flow
from flows.records.use_options import UseOptions
from flows.services.environment import own_server_url, prepare_environment
from flows.terminal.console import err, out, table
from flows.terminal.progress import REPORTER, Reporter
from flows.terminal.room import check_home
from tasks.apply.run import OutputKind
from tasks.calls import ParentGoneError
from tasks.storage.home import Home


@dataclass(frozen=True)
class UseRequest:
    """What the command line asks for."""

    model: str
    what: OutputKind = "predictions"
    options: UseOptions = field(default_factory=UseOptions)
    recipe: str | None = None
    """Of other data than the training's."""
    overrides: list[str] = field(default_factory=list)


def use_model(home: Home, request: UseRequest, *, verbose: bool) -> dict[str, Any]:
    """Use a model and return what was written; without Prefect where the data is there, and no server keeps history.

    Raises UserError before anything is started, if it can.
    """
    check_home(home)
    prepare_environment(home, verbose=verbose)
    REPORTER.set(Reporter(err(), verbose=verbose))
    use = requested_use(home, request)
    if not verbose and own_server_url() is None:
        with contextlib.suppress(NotFoundError, ParentGoneError, IntegrityError):
            return use.run()

    def call() -> dict[str, Any]:
        from flows.apply.flows import use_model as flow

        record: dict[str, Any] = flow(**vars(request), home=str(home.root))
        return record

    return run_flow(home, call, verbose=verbose)


def requested_use(home: Home, request: UseRequest) -> ModelUse:
    """Return the use that is asked for, now. Raises UserError."""
    now = datetime.datetime.now(datetime.UTC)
    data = Data(request.recipe, request.overrides, is_own=True)
    return ModelUse(request.model, request.options.request(request.what, now), data, str(home.root), now)


_ENDS = ("head", "relation", "tail")
_FIGURES = ("rank", "score", "probability")


def show_completions(asked: str, completions: Sequence[dict[str, Any]]) -> None:
    """Print the completions of one triple's end `asked`, best first; known ones are marked, where there are any."""
    if not completions:
        return
    question = " ".join("?" if end == asked else str(completions[0][end]) for end in _ENDS)
    marks = any(row["known"] for row in completions)
    figures = [name for name in _FIGURES if completions[0][name] is not None]
    shown = table("rank", question, *figures[1:], *(["known"] if marks else []), right=tuple(figures))
    for row in completions:
        cells = str(row["rank"]), str(row[asked]), *(f"{row[name]:.4f}" for name in figures[1:])
        shown.add_row(*cells, *([row["known"] or ""] if marks else []))
    out().print(shown, markup=False)
