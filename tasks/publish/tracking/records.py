"""Shape what is tracked: recipes flattened to parameters, metric records thinned and named as MLflow allows."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from configs.errors import IntegrityError

Record = dict[str, Any]

# MLflow's limits (mlflow.utils.validation, 3.17) are 6000 for values and 250 for names.
MAX_PARAM_LENGTH = 6000
MAX_KEY_LENGTH = 250
MAX_POINTS = 2000  # a curve of more points looks the same and costs the store seconds a thousand

_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9_\-. :/]")
_NOT_METRICS = frozenset({"step", "epoch", "seconds"})


def metric_key(name: str) -> str:
    """Return a metric's name as MLflow accepts it: `hits@20` becomes `hits_at_20`."""
    return _NOT_ALLOWED.sub("_", name.replace("@", "_at_"))[:MAX_KEY_LENGTH]


def flatten(value: Any, prefix: str = "") -> dict[str, str]:
    """Return a nested recipe as `section.key` -> text; lists become JSON, long texts are cut and say so."""
    if isinstance(value, dict) and value:
        flat: dict[str, str] = {}
        for key, inner in value.items():
            flat.update(flatten(inner, f"{prefix}.{key}" if prefix else str(key)))
        return flat
    text = value if isinstance(value, str) else json.dumps(value)
    if len(text) > MAX_PARAM_LENGTH:
        note = f"... ({len(text):,} characters in all)"
        text = text[: MAX_PARAM_LENGTH - len(note)] + note
    return {_NOT_ALLOWED.sub("_", prefix)[:MAX_KEY_LENGTH]: text}


def read_records(path: Path) -> list[Record]:
    """Read a training's `metrics.jsonl`. A torn last line (its writer was killed) is left out.

    Raises IntegrityError: another line is not a JSON object.
    """
    if not path.is_file():
        return []
    records: list[Record] = []
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if isinstance(record, dict):
            records.append(record)
        elif line.strip() and number < len(lines):
            raise IntegrityError(f"{path}, line {number}: not a JSON object")
    return records


def values_of(record: Record) -> dict[str, float]:
    """Return the metrics of a record: its numbers, without step, epoch and clock."""
    return {
        key: float(value)
        for key, value in record.items()
        if key not in _NOT_METRICS and isinstance(value, int | float) and not isinstance(value, bool)
    }


def step_of(record: Record, default: int = 0) -> int:
    """Return the step of a record, or its epoch, or `default`."""
    numbers = (record.get(key) for key in ("step", "epoch"))
    return next((int(one) for one in numbers if isinstance(one, int | float) and math.isfinite(one)), default)


def thin(records: Sequence[Record], limit: int = MAX_POINTS) -> list[Record]:
    """Keep all evaluations, the first and the last record, and evenly spaced ones of the rest: about `limit`."""
    # An evaluation holds a split's metrics, such as `valid/accuracy`.
    plain = [i for i, record in enumerate(records) if not any("/" in key for key in record)]
    if len(plain) <= limit:
        return list(records)
    last = len(plain) - 1
    gone = set(plain) - {plain[round(i * last / max(1, limit - 1))] for i in range(limit)}
    return [record for i, record in enumerate(records) if i not in gone]


def unique_by_step(records: Iterable[Record]) -> dict[str, dict[int, tuple[float, float]]]:
    """Return metric -> step -> (value, seconds since the start); of a step told twice the last word counts.

    (A resumed training repeats the steps after its checkpoint.)
    """
    curves: dict[str, dict[int, tuple[float, float]]] = {}
    for number, record in enumerate(records):
        seconds = record.get("seconds", 0.0)
        for key, value in values_of(record).items():
            curves.setdefault(key, {})[step_of(record, number)] = (value, float(seconds))
    return curves
