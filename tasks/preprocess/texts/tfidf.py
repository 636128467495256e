"""Encoder tfidf: terms by their hashes, weighted by how rare they are, and reduced by a truncated SVD.

Terms are words, pairs of words and pieces of words. Words are runs of letters, digits and whatever lies beyond ASCII;
upper and lower case are one. A word with a character that takes three bytes, as Chinese, Korean and Thai ones do, has
pieces: from each character on the fewest that take three bytes, or five, one and two Chinese signs (Weinberger et al.,
Feature Hashing for Large Scale Multitask Learning, ICML 2009).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import scipy.sparse as sp
from numba import njit

from configs.registry import TEXTS
from tasks.arrays import Array, blocks
from tasks.preprocess.texts.base import State, TextEncoder

_BUCKETS = 1 << 20
_CHUNK = 4096
_EXTRA, _STEPS = 10, 3
"""Of the SVD: columns beside those that are asked for, and power iterations."""


@TEXTS.register("tfidf")
class Tfidf(TextEncoder):
    """x = normalised(w V): w of weights (1 + log tf) (1 + log((1 + n) / (1 + df))) and length 1, V the SVD's axes.

    Latent semantic analysis (Deerwester et al., Indexing by Latent Semantic Analysis, JASIS 1990), the axes by a
    randomised SVD (Halko, Martinsson, Tropp, SIAM Review 2011). Weights are scikit-learn's.
    """

    @property
    def rows(self) -> int:
        """So many training texts."""
        return int(self.config.rows)

    def learn(self, texts: pa.Array) -> State:
        """Return `buckets`, int32 (F,) ascending, `idf`, float32 (F,), and `axes`, float16 (F, dim)."""
        from sklearn.utils.extmath import randomized_svd

        parts = [self._count(texts.slice(rows.start, _CHUNK)) for rows in blocks(len(texts), _CHUNK)]
        counts = sp.vstack(parts, format="csr") if parts else sp.csr_matrix((0, _BUCKETS), dtype=np.float32)
        frequency = np.bincount(counts.indices, minlength=_BUCKETS)
        least = 2 if len(texts) > 1 else 1
        often = np.argsort(-frequency, kind="stable")[: self.config.terms]
        buckets = np.sort(often[frequency[often] >= least]).astype(np.int32)
        idf = (1 + np.log((1 + len(texts)) / (1 + frequency[buckets]))).astype(np.float32)
        dim = min(self.config.dim, len(texts), len(buckets))
        axes = np.zeros((1, 0))
        if dim < 1:  # no training text, or no term of two
            buckets, idf = buckets[:0], idf[:0]
        else:
            extra = {"n_oversamples": _EXTRA, "n_iter": _STEPS, "random_state": 0}
            _, _, axes = randomized_svd(self._weighted(counts, buckets, idf), dim, **extra)
        return {"dim": len(axes), "buckets": buckets, "idf": idf, "axes": axes.T.astype(np.float16)}

    def encode(self, texts: pa.Array, state: State) -> Array:
        """Return float32 (n, dim) of length 1; 0 where no term is known."""
        axes, out = state["axes"].astype(np.float32), np.zeros((len(texts), state["dim"]), np.float32)
        if not len(axes):
            return out
        for rows in blocks(len(texts), _CHUNK):
            counts = self._count(texts.slice(rows.start, rows.stop - rows.start))
            x = self._weighted(counts, state["buckets"], state["idf"]) @ axes
            out[rows] = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
        return out

    def _count(self, texts: pa.Array) -> Any:
        return count_terms(texts, _BUCKETS)

    @staticmethod
    def _weighted(counts: Any, buckets: Array, idf: Array) -> Any:
        """Return the weights of the terms that count, float32 (n, F)."""
        from sklearn.feature_extraction.text import TfidfTransformer

        transformer = TfidfTransformer(sublinear_tf=True)
        transformer.idf_ = idf
        return transformer.transform(counts[:, buckets], copy=False)


_SIZES = (3, 5)
_THREE_BYTES = 0xE0
"""The least first byte of a character that takes three."""
_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
"""FNV-1a's (Fowler, Noll and Vo, http://www.isthe.com/chongo/tech/comp/fnv/)."""
_MIX, _SHIFT, _PAIR = np.uint64(0x9E3779B97F4A7C15), np.uint64(32), np.uint64(0xA0761D6478BD642F)


def count_terms(texts: pa.Array, buckets: int) -> sp.csr_matrix:
    """Return how often texts, large_string (n,), have terms: float32 (n, buckets), a term in the bucket of its hash."""
    lower = compute.utf8_lower(texts)
    _, starts, data = lower.buffers()
    offsets = np.frombuffer(starts, np.int64)[lower.offset : lower.offset + len(lower) + 1]
    letters = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    indptr = np.zeros(len(texts) + 1, np.int64)
    _scan(offsets, letters, buckets, indptr, np.empty(0, np.int32))
    np.cumsum(indptr, out=indptr)
    terms = np.empty(indptr[-1], np.int32)
    _scan(offsets, letters, buckets, indptr.copy(), terms)
    counts = sp.csr_matrix((np.ones(len(terms), np.float32), terms, indptr), shape=(len(texts), buckets))
    counts.sum_duplicates()
    return counts


@njit(inline="always")
def _in_word(letter):  # type: ignore[no-untyped-def]
    return (97 <= letter <= 122) or (48 <= letter <= 57) or letter >= 128


@njit(inline="always")
def _hash(letters, start, stop, seed):  # type: ignore[no-untyped-def]
    value = (_OFFSET ^ np.uint64(seed)) * _PRIME
    for i in range(start, stop):
        value = (value ^ np.uint64(letters[i])) * _PRIME
    return (value ^ (value >> _SHIFT)) * _MIX


@njit(inline="always")
def _put(out, place, value, buckets):  # type: ignore[no-untyped-def]
    if len(out):
        out[place] = np.int32((value >> _SHIFT) % np.uint64(buckets))
    return place + 1


@njit(cache=True, nogil=True)
def _scan(offsets, letters, buckets, indptr, out):  # type: ignore[no-untyped-def]
    """Count the terms of each text into indptr[row + 1]; where `out` has room write them from indptr[row] on."""
    for row in range(len(offsets) - 1):
        at, end = offsets[row], offsets[row + 1]
        first = place = indptr[row] if len(out) else 0
        before = np.uint64(0)
        while at < end:
            if not _in_word(letters[at]):
                at += 1
                continue
            start, highest = at, 0
            while at < end and _in_word(letters[at]):
                highest = max(highest, letters[at])
                at += 1
            word = _hash(letters, start, at, 0)
            place = _put(out, place, word, buckets)
            if before:
                place = _put(out, place, (before ^ (word * _PAIR)) * _MIX, buckets)
            before = word
            if highest < _THREE_BYTES:
                continue
            for piece in range(start, at):
                if letters[piece] & 0xC0 == 0x80:  # inside of a character
                    continue
                for size in _SIZES:
                    stop = piece + size
                    while stop < at and letters[stop] & 0xC0 == 0x80:
                        stop += 1
                    if stop <= at and (piece > start or stop < at):  # the whole word counts already
                        place = _put(out, place, _hash(letters, piece, stop, size), buckets)
        if not len(out):
            indptr[row + 1] = place - first
