"""Columns of texts to vectors: what their encoder learns, and the texts that no run has encoded before, in jobs.

Memory: the encoder's sample of training texts, then 16 bytes for each new text of a million, and a shard's texts in
each worker.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import RecipeError
from tasks.arrays import Array, blocks
from tasks.preprocess.shards import ShardJob, compute_shard, digest, result
from tasks.preprocess.texts.base import FILES, State, make_encoder
from tasks.preprocess.texts.configs import TextEncoderConfig
from tasks.preprocess.texts.kept import KEY, KeptVectors, text_keys
from tasks.preprocess.texts.model_files import check_files, model_digest
from tasks.stage import StageContext, map_in_process
from tasks.storage.dataset_store import ShardRef, iter_row_groups, read_shard, to_numpy
from tasks.storage.home_files.source_digests import SourceDigests
from tasks.storage.outputs.values import write_values

FILE = "texts"
"""Name of what was learned, in the artifact."""
_WINDOW = 1 << 20
"""Texts that are planned at once."""
_LONG_SECONDS = 60.0
Rows = Iterable[tuple[ShardRef, Array | None]]
"""Some rows of shards, ascending; None: all of a shard's."""


@dataclass(frozen=True)
class EncodedTexts:
    """The vectors of one column; picklable."""

    kept: KeptVectors
    config: TextEncoderConfig
    state: State = field(compare=False, repr=False)

    @property
    def dim(self) -> int:
        """Numbers of a text."""
        return self.kept.dim

    def read(self, column: Any) -> Array:
        """Return vectors, float32 (n, dim), of texts; of empty ones zeros. What is not kept any more is encoded."""
        texts = _plain(column)
        vectors, there = self.kept.find(text_keys(texts))
        lost = np.flatnonzero(~there & _has_letters(texts))
        x = vectors.astype(np.float32)
        if len(lost):
            x[lost] = _encoded(self.config, texts.take(pa.array(lost)), self.state)
        return x


@dataclass(frozen=True)
class NewTexts:
    """Rows of a shard whose texts are encoded."""

    sha256: str
    """Names the texts."""
    shard: ShardRef
    column: str
    rows: Array = field(compare=False)


def encode_rows(texts: NewTexts, payload: tuple[TextEncoderConfig, State]) -> dict[str, Any]:
    """Job: vectors of texts, float16 (n, dim)."""
    config, state = payload
    column = _plain(read_shard(texts.shard, [texts.column]).column(texts.column))
    return {"x": _encoded(config, column.take(pa.array(texts.rows)), state)}


def _encoded(config: TextEncoderConfig, texts: pa.Array, state: State) -> Array:
    """Return vectors, float16 (n, dim). Raises RecipeError: this machine has another model."""
    check_files(config, state.get(FILES, ""))
    return make_encoder(config).encode(texts, state).astype(np.float16)


class TextColumns:
    """Encodes a data set's columns of texts by one encoder, each with what it learned of that column."""

    def __init__(self, context: StageContext, config: Any, trained: dict[str, State] | None = None) -> None:
        """`config`: the encoder's; `trained`: what a registered model's training learned of each column."""
        self.context, self.config, self.trained = context, config, trained
        self.encoder = make_encoder(config)
        self.states: dict[str, State] = {}
        """What was learned, by place."""

    def encode(self, place: str, column: str, shards: Sequence[ShardRef], training: Rows) -> EncodedTexts:
        """Encode a column's texts; `place` names it (`nodes/memo`), `training` are the rows that may be learnt from.

        Raises RecipeError: a model's files are not those of the training, or cannot be used.
        """
        state = self.states[place] = self._state(place, column, training)
        kept = KeptVectors.of(self.context.home, self.encoder.key(state), state["dim"])
        self._encode_new(column, shards, kept, state)
        return EncodedTexts(kept, self.config, state)

    def write(self) -> None:
        """Write what was learned beside the graph: a published model brings it along."""
        if self.states:
            write_values(self.context.work, FILE, self.states)

    def _state(self, place: str, column: str, training: Rows) -> State:
        files = model_digest(self.config, SourceDigests(self.context.home))
        if self.trained is None:
            if self.encoder.rows:
                self.context.progress(0, 0, "texts", column)
            texts = _sample(column, list(training), self.encoder.rows) if self.encoder.rows else _NONE
            return self.encoder.learn(texts) | {"version": self.encoder.version} | ({FILES: files} if files else {})
        if place not in self.trained:
            raise RecipeError(f"the model was trained without texts in the column {column}; train on this data")
        state = self.trained[place]
        if state.get("version") != self.encoder.version:
            raise RecipeError(
                f"preprocess.texts: the model was trained on texts of {column} as an earlier version of graphmill's "
                f"{self.config.name} encodes them; train anew"
            )
        if state.get(FILES, "") != files:
            raise RecipeError(
                f"preprocess.texts: the files of the model {self.config.model} are others than when the model was "
                "trained, and their vectors would mean nothing to it; put those files back, name the folder that has "
                "them, or train anew"
            )
        return state

    def _encode_new(self, column: str, shards: Sequence[ShardRef], kept: KeptVectors, state: State) -> None:
        """Have all texts of a column kept, and say how many were new."""
        total = sum(shard.num_rows for shard in shards)
        empty = new = done = 0
        window: list[tuple[ShardRef, Array, Array]] = []
        for number, shard in enumerate(shards):
            first = 0
            for group in iter_row_groups(shard, [column]):
                texts = _plain(group.column(column))
                filled = np.flatnonzero(_has_letters(texts))
                keys = text_keys(texts)[filled]
                missing = kept.missing(keys)
                window.append((shard, first + filled[missing], keys[missing]))
                new += int(np.count_nonzero(missing))
                empty += len(texts) - len(filled)
                first += len(texts)
            if new >= _WINDOW or number == len(shards) - 1:
                done += self._run(column, _distinct(window), kept, state, done)
                window, new = [], 0
        blank = f" ({empty:,} empty)" if empty else ""
        self.context.message(
            f"{column}: encoded {done:,} of {total:,} texts{blank} by {self.config.name}; the others were kept, or "
            "are the same as one of them"
        )

    def _run(
        self, column: str, new: list[tuple[ShardRef, Array, Array]], kept: KeptVectors, state: State, done: int
    ) -> int:
        """Encode new texts and keep them, job by job; returns how many. `done`: those that were encoded before."""
        context, key, payload = self.context, self.encoder.key(state), (self.config, state)
        jobs, keys_of = [], []
        for shard, rows, keys in new:
            for part in blocks(len(rows), self.encoder.texts_a_job):
                texts = NewTexts(digest(keys[part]), shard, column, rows[part])
                jobs.append(ShardJob(encode_rows, 1, texts, {"encoder": key}, context.cache, payload, True))
                keys_of.append(keys[part])
        left = total = sum(map(len, keys_of))
        started = time.monotonic()
        mapped = (map_in_process if self.encoder.in_process else context.map_shards)(compute_shard, jobs)
        for number, (job, keys, _) in enumerate(zip(jobs, keys_of, mapped, strict=True), start=1):
            kept.add(keys, result(job)["x"])
            context.cache.forget(job.name)
            left -= len(keys)
            context.progress(done + total - left, done + total, "texts", column)
            estimate = (time.monotonic() - started) / (total - left) * left
            if number == 2 and estimate > _LONG_SECONDS:
                context.message(f"{column}: {left:,} texts are left, about {estimate / 60:,.0f} minutes in one process")
        return total


_NONE = pa.array([], pa.large_string())


def _plain(column: Any) -> pa.Array:
    """Return texts in one piece, large_string (n,)."""
    return pa.concat_arrays([_NONE, *(chunk.cast(pa.large_string()) for chunk in column.chunks)])


def _has_letters(texts: pa.Array) -> Array:
    return np.asarray(compute.not_equal(compute.utf8_trim_whitespace(texts), ""))


def _distinct(window: list[tuple[ShardRef, Array, Array]]) -> list[tuple[ShardRef, Array, Array]]:
    """Leave of equal texts the first."""
    keys = np.concatenate([np.empty(0, KEY), *(keys for _, _, keys in window)])
    first = np.zeros(len(keys), np.bool_)
    first[np.unique(keys, return_index=True)[1]] = True
    parts = np.split(first, np.cumsum([len(keys) for _, _, keys in window])[:-1]) if window else []
    return [(shard, rows[one], of_rows[one]) for (shard, rows, of_rows), one in zip(window, parts, strict=True)]


def _sample(column: str, training: list[tuple[ShardRef, Array | None]], most: int) -> pa.Array:
    """Return at most so many of the training rows' texts, evenly spaced, without empty ones."""
    total = sum(shard.num_rows if rows is None else len(rows) for shard, rows in training)
    step, skipped, parts = max(1, -(-total // most)), 0, [_NONE]
    for shard, rows in training:
        chosen = (np.arange(shard.num_rows) if rows is None else rows)[skipped::step]
        skipped = (skipped - (shard.num_rows if rows is None else len(rows))) % step
        parts += _taken(shard, column, chosen) if len(chosen) else []
    texts = pa.concat_arrays(parts)
    return texts.filter(pa.array(_has_letters(texts)))


def older_rows(shard: ShardRef, until: int | None) -> Array | None:
    """Return the rows of a shard whose column `time` is before a moment, ascending; None: all of them."""
    if until is None or "time" not in shard.columns:
        return None
    return np.flatnonzero(to_numpy(read_shard(shard, ["time"]).column("time")) < until)


def _taken(shard: ShardRef, column: str, rows: Array) -> Iterator[pa.Array]:
    first = 0
    for group in iter_row_groups(shard, [column]):
        low, high = np.searchsorted(rows, [first, first + group.num_rows])
        yield _plain(group.column(column)).take(pa.array(rows[low:high] - first))
        first += group.num_rows
