"""A proposed recipe as YAML, with a comment wherever something is unsure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from configs.trust import printable
from tasks.ingest.database.configs import connected_tables
from tasks.ingest.database.moments import DAY, time_text
from tasks.ingest.database.proposal.guesses import Guess, PredictGuess, guess_tables, guess_target
from tasks.ingest.database.proposal.tables import find_tables, read_tables, table_name
from tasks.ingest.tables.intake import Intake

_MAX_CATEGORIES = 1000
_UNSURE = "unsure: "


def propose_recipe(places: Sequence[str]) -> str:
    """Return a recipe for the tables in some files and folders, as YAML with comments.

    Raises:
        RecipeError: there is no table.
        DataError: a file that cannot be read.
    """
    intake = Intake()
    tables = read_tables(find_tables(places), intake)
    guesses = guess_tables(tables, intake, _MAX_CATEGORIES)
    target = guess_target(guesses)
    path = Path(places[0]).resolve()
    stem = table_name((path if len(places) == 1 else path.parent).name)
    plain = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in stem).strip("._-")
    name = plain if plain.isascii() and plain else "my-database"
    description = "Predict something of these tables"
    if target is not None:
        description = f"Predict which rows of {target.entity} no row of {target.target} will name"
    keyed = [guess for guess in guesses.values() if guess.key is not None]
    zeros = any(intake.hint_at_leading_zero(guess.table.config, [str(guess.key)]) for guess in keyed)
    lines = [
        f"# Proposed from {', '.join(places)}. Read it, mend what is unsure; then graphmill check, and graphmill run.",
        f"name: {_scalar(name)}",
        f"description: {_scalar(description)}",
        "dataset:",
        "  name: database",
        f"  title: {_scalar(name)}",
        *(["  text_ids: true                      # keys such as 007 stay texts"] if zeros else []),
        "  tables:",
    ]
    foreign = {table: guess.foreign for table, guess in guesses.items()}
    reached = None if target is None else connected_tables(foreign, target.entity)
    for table, guess in guesses.items():
        if reached is None or table in reached:
            lines += [f"    {line}" for line in _table_lines(table, guess)]
        else:
            entity = target.entity if target else ""
            why = f"# {_UNSURE}no key connects it to {entity}; name a foreign key, or leave it out"
            lines += [f"    {why}", *(f"    # {line}" for line in _table_lines(table, guess))]
    lines += ["  predict:", *(f"    {line}" for line in _predict_lines(target, guesses))]
    lines += [
        "preprocess:",
        "  transforms:",
        "    - {name: standardize}             # fitted on rows before the first moment that validates",
        f"model: {{name: heterosage, num_layers: {3 if len(guesses) > 3 else 2}}}",
        "train: {loader: {name: relational, choose: recent}}",
    ]
    return "".join(f"{printable(line)}\n" for line in lines)


def _table_lines(name: str, guess: Guess) -> list[str]:
    table, notes = guess.table, guess.notes
    rows = f"{table.num_rows:,} rows{'; a row is an edge' if guess.is_link else ''}"
    lines = [_with_comment(f"{_scalar(name)}:", rows, width=34)]
    files = table.config.files
    lines.append(f"  files: {_scalar(files[0]) if len(files) == 1 else _flow(list(files))}")
    if files[0].endswith(".duckdb"):
        lines.append(f"  table: {_scalar(table.name)}")
    if table.config.header is False:
        lines.append("  header: false")
    if guess.missing_values:
        lines.append(_with_comment(f"  missing_values: {_flow(['', *guess.missing_values])}", "among numbers"))
    if guess.key is not None:
        lines.append(_with_note(f"  key: {_scalar(guess.key)}", notes.get("key")))
    elif "key" in notes:
        lines.append(f"  # {_UNSURE}{notes['key']}")
    if guess.time is not None:
        lines.append(_with_note(f"  time: {_scalar(guess.time)}", notes.get("time")))
        lines += _form_lines(guess)
        if guess.epoch:
            lines.append(f"  epoch: {guess.epoch}")
        if guess.gaps_in_time:
            lines.append(_with_note("  on_missing_time: drop", "rows without a time are left out; always takes them"))
    elif "time" in notes:
        lines.append(f"  # {_UNSURE}{notes['time']}")
    if guess.foreign:
        lines.append("  foreign:")
        for column, target in guess.foreign.items():
            lines.append(_with_note(f"    {_scalar(column)}: {_scalar(target)}", notes.get(column)))
    if guess.dangling:
        lines.append("  on_unknown_id: count                # error refuses them, drop leaves their rows out")
    if guess.kinds:
        lines.append("  columns:")
    ignored: list[str] = []
    for column, verdict in guess.kinds.items():
        if verdict.kind != "ignore":
            kind = "number" if verdict.kind == "list" else verdict.kind
            lines.append(_with_note(f"    {_scalar(column)}: {kind}", notes.get(column)))
        else:
            note = f"; {_UNSURE}{notes[column]}" if column in notes else ""
            ignored.append(_with_comment(f"    {_scalar(column)}: ignore", verdict.why + note))
    return [*lines, *ignored]


def _form_lines(guess: Guess) -> list[str]:
    """Return how times are written that are no ISO 8601: the row's own, and those of columns that are read."""
    forms = {
        column: form
        for column, form in guess.time_formats.items()
        if column == guess.time or (column in guess.kinds and guess.kinds[column].kind == "time")
    }
    if not forms:
        return []
    fitting = {column: guess.table.columns[column].profile.date_forms for column in forms}
    doubt = [f"{column} may be {other[1]} as well" for column, other in fitting.items() if len(other) > 1]
    shown = "{" + ", ".join(f'{_scalar(column)}: "{form}"' for column, form in forms.items()) + "}"
    if list(forms) == [guess.time]:
        shown = f'"{next(iter(forms.values()))}"'
    return [_with_note(f"  time_format: {shown}", "; ".join(doubt) or None)]


def _predict_lines(target: PredictGuess | None, guesses: dict[str, Guess]) -> list[str]:
    if target is None:
        return [
            f"# {_UNSURE}no table with a time names the key of another: nothing can be counted. Give a table of labels",
            "# (labels: {files, key, time, label}) or a column (label: COLUMN), or name times and foreign keys above",
            "# and say what is predicted. What nodes of one graph are, at no moment: data set tables, my-graph.yaml",
            "table: TABLE",
            "target: {none: TABLE}",
            "at: [2023-01-01, 2023-04-01, 2023-07-01]",
            "horizon: 90d",
        ]
    length = f"{target.horizon}" if target.unit == "number" else f"{target.horizon // DAY}d"
    first, last = (time_text(moment, target.unit) for moment in (target.first, target.last))
    via = [column for column, name in guesses[target.target].foreign.items() if name == target.entity]
    lines = [
        f"# {_UNSURE}only you know what is to be predicted. none: no row within the horizon (who leaves); also any,",
        "# count, sum: TABLE.COLUMN, mean: TABLE.COLUMN, or labels: {files, key, time, label}, or label: COLUMN",
        f"table: {_scalar(target.entity)}",
        f"target: {{none: {_scalar(target.target)}}}",
    ]
    if len(via) > 1:
        lines.append(_with_note(f"via: {_scalar(via[0])}", f"{', '.join(via[1:])} would do too"))
    return [
        *lines,
        f"at: {{first: {first}, last: {last}, every: {length}}}   # the last tests, the one before validates",
        f"horizon: {length}",
        f"active: {{any: {_scalar(target.target)}, within: {length}}}   # only those who were there lately",
    ]


def _with_note(text: str, note: str | None) -> str:
    return text if note is None else _with_comment(text, _UNSURE + note)


def _with_comment(text: str, comment: str, width: int = 38) -> str:
    return f"{text} ".ljust(width) + f"# {comment}"  # without a space before it YAML takes it for the value's end


def _scalar(value: Any) -> str:
    """Return a value as YAML in one line: what a file calls its columns may hold line ends."""
    return _flow(value).removesuffix("\n...").strip()


def _flow(value: Any) -> str:
    style = None if printable(str(value)) == str(value) else '"'
    text: str = yaml.safe_dump(
        value, default_flow_style=True, default_style=style, width=10**6, allow_unicode=True
    )  # fmt: skip
    return text.strip()
