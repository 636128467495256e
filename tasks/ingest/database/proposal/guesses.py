"""Keys by uniqueness and name, foreign keys by inclusion and name, times by form and name, and what to predict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from configs.errors import DataError
from configs.moments import TimeUnit
from tasks.ingest.database.moments import DAY, end_of_data
from tasks.ingest.database.proposal.names import (
    COUNTED,
    IDS,
    KEPT_UP,
    PREDICTED,
    foreign_score,
    is_birth,
    key_score,
    time_score,
    usual_score,
    words,
)
from tasks.ingest.database.proposal.tables import ColumnFacts, TableFacts, share_of_known
from tasks.ingest.database.rows import RowTimes
from tasks.ingest.database.survey import Verdict, judge
from tasks.ingest.tables.intake import Intake

_MANY = 30  # different texts that are all keys of another table by no chance
_MOST_DANGLING = 0.1
_SHOWN = 3
_EPOCHS = {"seconds": (10**8, 5 * 10**9), "milliseconds": (10**11, 5 * 10**12)}
_USUAL_DAYS = (1, 2, 7, 14, 30, 60, 90, 180, 365)


@dataclass
class Guess:
    """What a table is taken as."""

    table: TableFacts
    key: str | None = None
    time: str | None = None
    epoch: str | None = None
    foreign: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, Verdict] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    """Part (`key`, `time`, a column) to what is unsure about it."""
    dangling: bool = False
    """Whether some foreign keys name no row."""
    time_formats: dict[str, str] = field(default_factory=dict)
    """Of columns of times that are no ISO 8601: how they are written."""
    missing_values: tuple[str, ...] = ()
    """Texts among numbers that stand for empty cells."""
    broken_key: str | None = None
    """What would be the key, did no value of it stand twice."""
    gaps_in_time: bool = False
    oldest: int = 0
    newest: int = 0
    unit: TimeUnit = "seconds"

    @property
    def is_link(self) -> bool:
        """Whether rows would be edges."""
        return self.key is None and len(self.foreign) == 2


@dataclass
class PredictGuess:
    """What may be predicted."""

    entity: str
    target: str
    horizon: int
    first: int
    last: int
    unit: TimeUnit


def guess_tables(tables: dict[str, TableFacts], intake: Intake, max_categories: int) -> dict[str, Guess]:
    """Return what each table is taken as. Raises DataError for a file that cannot be read."""
    guesses = {name: Guess(table) for name, table in tables.items()}
    for guess in guesses.values():
        _guess_key(guess)
    _guess_foreign(guesses, intake)
    for guess in guesses.values():
        _guess_time(guess, intake)
        for column, facts in guess.table.columns.items():
            if column not in (guess.key, guess.time, *guess.foreign):
                guess.kinds[column] = _kind_of(column, facts, guess, max_categories)
        _ignore_ids(guess, guesses)
    return guesses


def _guess_key(guess: Guess) -> None:
    candidates = _scored(guess.table, lambda facts: facts.is_unique)
    named = sorted((one for one in candidates if one[0] > 0), reverse=True)
    if not named or named[0][0] < 3:
        _find_broken_key(guess)
        if guess.broken_key is not None:
            return
    if not named:
        if candidates:
            others = ", ".join(column for _, _, column in candidates)
            guess.notes["key"] = f"no column is called like a key; different in every row: {others}"
        return
    score, _, guess.key = named[0]
    if score < 3:
        guess.notes["key"] = f"{guess.key} is different in every row, and not called like a key"
    elif len(named) > 1 and named[1][0] >= 3:
        guess.notes["key"] = f"{named[1][2]} is different in every row too"


def _scored(table: TableFacts, is_candidate: Callable[[ColumnFacts], bool]) -> list[tuple[int, int, str]]:
    """Return by how much columns are called like the table's key, their places below 0, and their names."""
    return [
        (key_score(column, table.name, place), -place, column)
        for place, (column, facts) in enumerate(table.columns.items())
        if is_candidate(facts)
        and facts.may_name_rows
        and not (facts.profile.forms <= {"date text"} or facts.has_dates_of_another_form)
    ]


def _find_broken_key(guess: Guess) -> None:
    """Say of a column that is called like a key why it is none: values of it stand twice."""
    # All rows have a value, and a few of them one that another row has.
    options = _scored(guess.table, lambda one: one.index is not None and bool(one.repeated) and not one.profile.empty)
    score, _, column = max(options, default=(0, 0, ""))
    if score >= 3:
        repeated = list(dict.fromkeys(guess.table.columns[column].repeated))
        shown = ", ".join(map(str, repeated[:_SHOWN])) + (", ..." if len(repeated) > _SHOWN else "")
        verb = "stands" if len(repeated) == 1 else "stand"
        guess.broken_key = column
        guess.notes["key"] = (
            f"{column} is called like a key, and {len(repeated):,} of its values {verb} twice ({shown}): mend them, or "
            f"key: {column} with on_duplicate_id: first"
        )


def _guess_foreign(guesses: dict[str, Guess], intake: Intake) -> None:
    keys = {
        name: index
        for name, guess in guesses.items()
        if guess.key is not None and (index := guess.table.columns[guess.key].index) is not None
    }
    for name, guess in guesses.items():
        columns = [column for column, facts in guess.table.columns.items() if _may_refer(facts)]
        shares = share_of_known(guess.table, columns, keys, intake)
        for column in columns:
            _choose_target(name, guess, column, {t: shares.get((column, t), (0, 0)) for t in keys}, guesses)
    for name, guess in guesses.items():  # a key that another table's key is: one row of this for one of that
        if guess.key in guess.foreign:
            target = guess.foreign[guess.key]
            if any(name in other.foreign.values() for other in guesses.values()):
                del guess.foreign[guess.key]
                guess.notes["key"] = f"it is one of {target}'s too; a column is a key or a foreign key"
            else:
                guess.key = None


def _may_refer(facts: ColumnFacts) -> bool:
    return facts.may_name_rows and facts.profile.empty < facts.profile.rows and not facts.has_dates_of_another_form


def _choose_target(
    name: str, guess: Guess, column: str, shares: dict[str, tuple[int, int]], guesses: dict[str, Guess]
) -> None:
    """Take the table whose name and key a column goes with, and say what speaks against it."""
    options = []
    for target, (there, hits) in shares.items():
        key = guesses[target].key
        if key is None or there == 0 or (target == name and column == key):
            continue
        share = hits / there
        if share < 1 - _MOST_DANGLING:
            continue
        score, key_like = foreign_score(column, name, target, key), key_score(key, target, 0)
        if guess.key == column and (score < 4 or key_like <= key_score(column, name, 0)):
            continue
        options.append((score, key_like, share, -guesses[target].table.num_rows, target, there - hits))
    named = sorted((one for one in options if one[0] > 0), reverse=True)
    forms, values = guess.table.columns[column].profile.forms, guess.table.columns[column].profile.num_values
    if not named:
        if options and forms <= {"text", "numeric text"} and column != guess.key and (values is None or values > 2):
            target = max(options)[4]
            if len(options) == 1 and forms == {"text"} and options[0][2] == 1 and (values is None or values >= _MANY):
                guess.foreign[column] = target
                guess.notes[column] = f"by its values alone: all its texts are keys of {target}, and of no other table"
            else:
                guess.notes[column] = f"its texts are keys of {target}; a foreign key? foreign: {{{column}: {target}}}"
        return
    score, key_like, _, _, target, dangling = named[0]
    guess.foreign[column] = target
    others = [one[4] for one in named[1:] if one[:2] == (score, key_like)]
    if dangling:
        guess.dangling = True
        guess.notes[column] = f"{dangling:,} cells name no row of {target}"
    elif score < 3:
        rest = f"; {' and '.join(others)} would do too" if others else ""
        guess.notes[column] = f"its values are keys of {target}, by name it may be another table's{rest}"
    elif others:
        guess.notes[column] = f"{' and '.join(others)} would do too"


def _guess_time(guess: Guess, intake: Intake) -> None:
    options: list[tuple[int, float, int, str, str | None]] = []
    for place, (column, facts) in enumerate(guess.table.columns.items()):
        if column == guess.key or column in guess.foreign:
            continue
        profile, epoch = facts.profile, None
        if profile.forms == {"whole"} and time_score(column):
            ranges = ((unit, low <= profile.low <= profile.high <= high) for unit, (low, high) in _EPOCHS.items())
            epoch = next((unit for unit, fits in ranges if fits), None)
        dated = profile.forms <= {"date", "date text"} and bool(profile.forms)
        form = None  # whole numbers must be called like a time besides
        if facts.has_dates_of_another_form or (profile.forms <= {"whole", "numeric text"} and time_score(column)):
            form = profile.date_form
        if form is not None:
            guess.time_formats[column] = form
            dated, epoch = True, None
        if not dated and epoch is None:
            continue
        options.append((time_score(column), 1 - profile.empty / profile.rows, -place, column, epoch))
    good = sorted((one for one in options if one[0] >= 0 and one[1] > 0.5), reverse=True)
    for _, _, _, column, _ in options:
        if not is_birth(column) and not any(column == one[3] for one in good):
            guess.notes[column] = (
                "a time that may be later than the row itself: as its time it would hide the row too long"
            )
    if not good:
        return
    score, full, _, guess.time, guess.epoch = good[0]
    others = [one[3] for one in good[1:]]
    if others:
        guess.notes["time"] = f"when did a row come to be known? {', '.join(others)} would do too"
    elif score == 0:
        guess.notes["time"] = "is it when a row came to be known?"
    guess.gaps_in_time = full < 1
    _read_times(guess, intake)


def _read_times(guess: Guess, intake: Intake) -> None:
    """Set the oldest and the newest time of the rows; leave the time out where it cannot be read."""
    assert guess.time is not None
    silent, clock = Intake(), RowTimes(guess.time, guess.time_formats.get(guess.time), guess.epoch)
    spans: list[tuple[int, int]] = []
    try:
        for batch in silent.batches(guess.table.config, [guess.time], (), (), [guess.time]):
            times, missing = clock.read_rows(batch, gaps=True)
            if not missing.all():
                spans.append((int(times[~missing].min()), int(times[~missing].max())))
        silent.problems.raise_any()
    except DataError as error:
        guess.notes["time"] = f"{guess.time} cannot be read as a time: {str(error).splitlines()[-1].strip()[:200]}"
        guess.time_formats.pop(guess.time, None)
        guess.time = guess.epoch = None
        return
    guess.oldest, guess.newest = min(low for low, _ in spans), max(high for _, high in spans)
    guess.unit = clock.unit or "seconds"


def _kind_of(column: str, facts: ColumnFacts, guess: Guess, max_categories: int) -> Verdict:
    """Return what a column is taken as that names no row and is not the row's time."""
    profile, is_csv, form = facts.profile, guess.table.config.is_csv, guess.time_formats.get(column)
    has_time = guess.time is not None and (time_score(column) >= -1 or is_birth(column))
    verdict = judge(column, profile, is_csv=is_csv, max_categories=max_categories, has_own_time=has_time)
    if form is not None and has_time:
        verdict = Verdict("time")
    missing_words = profile.missing_words if is_csv and form is None else ()
    if missing_words:
        verdict = Verdict("number")
        guess.missing_values = tuple(dict.fromkeys((*guess.missing_values, *missing_words)))
    if guess.time is not None and not has_time and (form is not None or profile.forms <= {"date", "date text"}):
        verdict = Verdict("ignore", "may hold times that are later than the row's")
    if verdict.kind in ("number", "list") and profile.broken:
        verdict = Verdict("ignore", f"{profile.broken}, which a column of numbers may not hold")
    if verdict.kind != "ignore" and not KEPT_UP.isdisjoint(words(column)):
        guess.notes.setdefault(column, "written again later? Then it tells of the future: ignore it")
    return verdict


def _ignore_ids(guess: Guess, guesses: dict[str, Guess]) -> None:
    """Take no id for a feature: it tells rows apart, and a model would learn rows by heart."""
    table = guess.table
    for column, verdict in guess.kinds.items():
        facts, is_broken_key = table.columns[column], column == guess.broken_key
        named = [
            name
            for name, other in guesses.items()
            if other.broken_key is not None and foreign_score(column, table.name, name, other.broken_key) >= 2
        ]
        is_number = verdict.kind == "number" and facts.profile.forms <= {"whole", "numeric text"}
        is_ids = (
            is_broken_key
            or (named and _may_refer(facts))
            or (is_number and not IDS.isdisjoint(words(column)[:1] + words(column)[-1:]))
        )
        if verdict.kind == "ignore" or not is_ids:
            continue
        why = f"an id of {named[0]}, which has no key" if named and not is_broken_key else "an id, and no feature"
        guess.kinds[column] = Verdict("ignore", why)


def guess_target(guesses: dict[str, Guess]) -> PredictGuess | None:
    """Return what may be predicted: rows of a table that many name, by those that name it at some time."""
    options = []
    for name, guess in guesses.items():
        for column in guess.foreign.values():
            entity = guesses[column]
            if guess.time is None or guess.newest <= guess.oldest or entity.key is None or column == name:
                continue
            options.append(
                (usual_score(column, PREDICTED), usual_score(name, COUNTED), guess.table.num_rows, column, name)
            )
    if not options:
        return None
    *_, predicted, counted = max(options)
    rows, first = guesses[counted], guesses[counted].oldest
    span = rows.newest - first
    horizon = max(1, span // 10)
    if rows.unit == "seconds":
        horizon = max(day for day in _USUAL_DAYS if day <= max(1, span // DAY // 10)) * DAY
    last = end_of_data(rows.newest, rows.unit) - horizon
    if guesses[predicted].time:
        first = max(first, guesses[predicted].oldest)
    count = int(np.clip((last - first) // horizon - 1, 2, 8))
    return PredictGuess(predicted, counted, horizon, last - count * horizon, last, rows.unit)
