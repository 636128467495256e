"""What a map shows, and how a page carries it: coordinates as 16-bit numbers, columns as codes or numbers, ids."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from tasks.publish.map.colors import CATEGORIES

MAX_CATEGORIES = 65_534
"""More different texts than this are shown on a point's card, and cannot colour it."""

STEPS = 65_535
"""A coordinate is one of 0..65535 steps over the longest axis: finer than any screen at once."""
COARSE = 4
"""In space only each fourth step is taken: of a million points that saves 1 MB, and perspective shows no difference."""


def packed(array: np.ndarray[Any, Any]) -> str:
    """Return the array's bytes, compressed by zlib, as base64: all first (lowest) bytes of numbers, then all second.

    High bytes are alike from number to number, and apart from the others they compress well.
    """
    little_N = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    planes = little_N.view(np.uint8).reshape(len(little_N), little_N.itemsize).T
    return base64.b64encode(zlib.compress(planes.tobytes(), 6)).decode()


def packed_ids(ids: Sequence[str]) -> dict[str, Any]:
    """Return ids as texts, or, where they are one prefix and a number each, as numbers.

    A million of them in order take 0.02 MB as numbers and 3.1 MB as texts; in random order 3.6 and 5.2 MB.
    """
    prefix = ids[0].rstrip("0123456789")
    tails = [identity.removeprefix(prefix) for identity in ids]
    widths = {len(tail) for tail in tails}
    plain = max(widths) <= 9 and all(tail.isascii() and tail.isdigit() for tail in tails)
    plain = plain and all(identity.startswith(prefix) for identity in ids)
    if not plain or (len(widths) > 1 and any(tail.startswith("0") and tail != "0" for tail in tails)):
        return {"texts": packed_texts(ids)}
    numbers_N = np.array(tails).astype(np.uint32)
    return {"prefix": prefix, "width": widths.pop() if len(widths) == 1 else 0, "numbers": packed(numbers_N)}


def packed_text(text: str) -> str:
    """Return the text, compressed by zlib, as base64; of texts their JSON list is one, which holds any character."""
    return base64.b64encode(zlib.compress(text.encode("utf-8", "replace"), 6)).decode()


def packed_texts(texts: Sequence[str]) -> str:
    """Return texts as a compressed JSON list in base64."""
    return packed_text(json.dumps(list(texts), ensure_ascii=False, separators=(",", ":")))


def quantized(coordinates_ND: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], list[float], float]:
    """Return uint16 (N, 2 or 3), the lowest corner and the length of a step, the same on all axes so that shapes keep.

    Coordinates are finite, as `measure_layout` has seen.
    """
    exact_ND = np.asarray(coordinates_ND, np.float64)
    low = exact_ND.min(axis=0)
    # Halves, because the difference of two large numbers may be infinite.
    coarse = COARSE if exact_ND.shape[1] == 3 else 1
    step = float((exact_ND.max(axis=0) / 2 - low / 2).max()) * 2 / (STEPS - STEPS % coarse)
    steps_ND = np.rint((exact_ND - low) / step / coarse) * coarse if step > 0 else np.zeros_like(exact_ND)
    return steps_ND.astype(np.uint16), low.tolist(), step


@dataclass(frozen=True)
class MapColumn:
    """A column as maps know it: see `read_column`."""

    name: str
    kind: str
    values: np.ndarray[Any, Any]
    labels: list[str] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    low: float = 0.0
    high: float = 0.0


def read_column(name: str, values: Any) -> MapColumn:
    """Return the column by its kind.

    `kind` is category (values are codes into `labels`; 0 is a missing value), number, time (seconds since 1970, UTC) or
    text. Labels that have a colour each are in their own order, so that tomorrow's map has today's colours; of more the
    commonest come first. Numbers and times have `low` and `high`, the percentiles 1 and 99 that colours
    span, and NaN where they are missing.
    """
    if hasattr(values, "to_pandas"):  # Arrow's arrays, of which pandas would keep each value's wrapping
        values = values.to_pandas()
    series = pd.Series(values).reset_index(drop=True)
    if pd.api.types.is_datetime64_any_dtype(series):
        moments = pd.to_datetime(series, utc=True).dt.tz_convert(None)
        seconds = moments.to_numpy(dtype="datetime64[ms]").astype(np.int64) / 1000
        return _spanned(name, "time", np.where(series.isna(), np.nan, seconds))
    if pd.api.types.is_numeric_dtype(series) and not pd.api.types.is_bool_dtype(series):
        present = series.dropna()
        is_whole = len(present) and not pd.api.types.is_float_dtype(series)
        if is_whole and (int(present.max()) > 2**53 or int(present.min()) < -(2**53)):  # JavaScript holds no more
            return MapColumn(name, "text", np.array(_texts(series), dtype=object))
        return _spanned(name, "number", series.to_numpy(dtype=np.float64, na_value=np.nan))
    texts = pd.Series(_texts(series)).where(~series.isna())
    counts = texts.value_counts()
    if len(counts) > MAX_CATEGORIES:
        return MapColumn(name, "text", texts.fillna("").to_numpy(dtype=object))
    if len(counts) <= len(CATEGORIES):
        in_order = sorted(counts.index.tolist())
        with suppress(ValueError):  # numbers, where all are
            in_order.sort(key=float)
        counts = counts.loc[in_order]
    codes = pd.Categorical(texts, categories=counts.index).codes.astype(np.int64) + 1
    labels, sizes = ["", *counts.index.tolist()], [int(texts.isna().sum()), *counts.tolist()]
    return MapColumn(name, "category", codes.astype(np.uint8 if len(counts) < 256 else np.uint16), labels, sizes)


def _spanned(name: str, kind: str, numbers_N: np.ndarray[Any, Any]) -> MapColumn:
    finite = numbers_N[np.isfinite(numbers_N)]
    low, high = np.percentile(finite, [1, 99], method="nearest").tolist() if len(finite) else (0.0, 0.0)
    return MapColumn(name, kind, numbers_N, low=low, high=high)


def pack_column(name: str, values: Any) -> dict[str, Any]:
    """Return what the page knows of a column: see `read_column`; `data` its values."""
    column = read_column(name, values)
    described = {"name": name, "kind": column.kind}
    if column.kind == "text":
        return described | {"data": packed_texts(column.values.tolist())}
    if column.kind == "category":
        packing = {"type": column.values.dtype.name, "data": packed(column.values)}
        return described | {"labels": column.labels, "counts": column.counts} | packing
    return described | {"low": column.low, "high": column.high} | _pack_numbers(column)


def _texts(series: pd.Series) -> list[str]:
    return ["" if missing else str(value) for value, missing in zip(series, series.isna(), strict=True)]


def _pack_numbers(column: MapColumn) -> dict[str, str]:
    """Pack numbers as float32 (seven digits), times and large numbers as float64, and what repeats as codes."""
    different, codes_N = np.unique(column.values, return_inverse=True)
    # Rounded numbers and days repeat: codes compress to a third of the numbers.
    if len(different) <= MAX_CATEGORIES and len(different) < len(column.values) / 4:
        narrow = np.uint8 if len(different) <= 256 else np.uint16
        codes = codes_N.astype(narrow)
        return {"different": packed(different), "type": codes.dtype.name, "data": packed(codes)}
    finite = column.values[np.isfinite(column.values)]
    largest = float(np.abs(finite).max()) if len(finite) else 0.0
    width = np.float64 if column.kind == "time" or largest > 2**24 else np.float32
    return {"type": np.dtype(width).name, "data": packed(column.values.astype(width))}


@dataclass(frozen=True)
class MapPoints:
    """What a map shows.

    `coordinates` (N, 2) or (N, 3) numbers; `ids` N, shown and searched as text; `columns` by name, N values each:
    texts, truths, categories, numbers or datetimes; `edges` (M, 2) rows of the points that an edge joins; `color` the
    column that colours first.
    """

    title: str
    coordinates: np.ndarray[Any, Any]
    ids: Sequence[Any]
    columns: Mapping[str, Any] = field(default_factory=dict)
    edges: np.ndarray[Any, Any] | None = None
    color: str = ""


def coloring(columns: Mapping[str, Any], color: str) -> MapColumn | None:
    """Return the column `color`, else the first that can colour; None: none can."""
    read = (read_column(name, values) for name, values in columns.items() if color in ("", name))
    return next((column for column in read if column.kind != "text"), None)
