"""What somebody asks a model of a knowledge graph."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args

from configs.errors import RecipeError
from configs.matching import did_you_mean

ENDS = ("head", "relation", "tail")
Known = Literal["leave-out", "mark"]
_MOST = 10
_MOST_SHOWN = 1000
FORMS = (
    "--head X --relation R (which tails?), --relation R --tail Y (which heads?), --head X --tail Y (which relations?), "
    "or --queries FILE with the columns head, relation and tail, one of them empty in each row"
)


@dataclass(frozen=True)
class CompletionRequest:
    """A query on the command line, and how its answers, or those of a file's queries, are to be."""

    head: str | None = None
    relation: str | None = None
    tail: str | None = None
    k: int | None = None
    """Completions of a query; None: 10."""
    known: str | None = None
    """Of `Known`: what becomes of completions that are triples of the data; None: they are left out."""
    type: str | None = None
    """Entities of this type only; None: of those that the relation has had at that end."""
    any_type: bool | None = None
    """Whether entities of all types may complete."""

    @property
    def most(self) -> int:
        """How many completions a query has, at most."""
        return _MOST if self.k is None else self.k

    @property
    def marks_known(self) -> bool:
        """Whether known triples are kept and marked."""
        return self.known == "mark"

    def refuse(self, task: str) -> None:
        """Refuse options where the model completes no triples. Raises RecipeError naming the first."""
        for one in fields(self):
            if getattr(self, one.name) is not None:
                option = "-k" if one.name == "k" else f"--{one.name.replace('_', '-')}"
                raise RecipeError(f"{option} is for models of knowledge graphs; this is a model of {task}s")

    def check(self, *, has_file: bool, is_shown: bool) -> None:
        """Refuse what is no query. Raises RecipeError.

        `has_file`: the queries are a file's. `is_shown`: the completions go to the terminal.
        """
        given = [name for name in ENDS if getattr(self, name) is not None]
        if has_file and given:
            raise RecipeError(f"--queries and --{given[0]}: the queries are in the file; leave one out")
        if not has_file and len(given) != 2:
            wrong = f"--{given[0]} alone is no query; " if len(given) == 1 else ""
            wrong = "one of head, relation and tail is what is asked for; " if len(given) == 3 else wrong
            raise RecipeError(f"{wrong}a model of a knowledge graph completes triples: graphmill predict with {FORMS}")
        allowed = get_args(Known)
        if self.known is not None and self.known not in allowed:
            raise RecipeError(f"--known {self.known!r}{did_you_mean(self.known, allowed)}: {' or '.join(allowed)}")
        if self.most < 1:
            raise RecipeError(f"-k {self.most}: there must be a place at least")
        if is_shown and self.most > _MOST_SHOWN:
            raise RecipeError(f"-k {self.most}: of more than {_MOST_SHOWN:,} write a file: --output FILE.parquet")
        types = [option for option, is_given in (("--type", self.type), ("--any-type", self.any_type)) if is_given]
        if len(types) > 1:
            raise RecipeError("--type and --any-type: leave one out")
        if types and not has_file and "relation" not in given:
            raise RecipeError(f"{types[0]} is for entities, and a relation is asked for; leave it out")
