"""Texts as numbers: the words and the pieces of words that they have, hashed into a few columns.

A text becomes a vector of length 1 (Weinberger et al., Feature Hashing for Large Scale Multitask Learning, ICML 2009):
each of its words, and each run of three bytes of a word, adds 1 or -1 to one of `TEXT_DIM` numbers, as its hash says.
Nothing is fitted: a text has the same numbers in any data.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
from numba import njit

from tasks.arrays import Array

TEXT_DIM = 64
_PIECE = 3
_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
"""FNV-1a's (Fowler, Noll and Vo, http://www.isthe.com/chongo/tech/comp/fnv/)."""
_MIX, _SHIFT, _ONE = np.uint64(0x9E3779B97F4A7C15), np.uint64(32), np.uint64(1)


def text_numbers(cells: pa.Array) -> Array:
    """Return numbers of texts (or of what is written as texts), float32 (n, TEXT_DIM); 0 of empty cells.

    Case does not count; words are runs of letters, digits and whatever lies beyond ASCII.
    """
    texts = compute.utf8_lower(compute.fill_null(cells.cast(pa.string()), "")).cast(pa.large_string())
    _, starts, data = texts.buffers()
    offsets = np.frombuffer(starts, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    letters = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    out = np.zeros((len(texts), TEXT_DIM), np.float32)
    _hash_texts(offsets, letters, out)
    return out


@njit(inline="always")
def _in_word(letter):  # type: ignore[no-untyped-def]
    return (97 <= letter <= 122) or (48 <= letter <= 57) or letter >= 128


@njit(inline="always")
def _hash(letters, start, stop, seed):  # type: ignore[no-untyped-def]
    value = _OFFSET ^ np.uint64(seed)
    for i in range(start, stop):
        value = (value ^ np.uint64(letters[i])) * _PRIME
    return (value ^ (value >> _SHIFT)) * _MIX


@njit(inline="always")
def _add(out, row, value):  # type: ignore[no-untyped-def]
    place = np.int64((value >> _SHIFT) % np.uint64(out.shape[1]))
    out[row, place] += np.float32(1) if (value >> np.uint64(63)) & _ONE else np.float32(-1)


@njit(cache=True, nogil=True)
def _hash_texts(offsets, letters, out):  # type: ignore[no-untyped-def]
    for row in range(len(offsets) - 1):
        at, end = offsets[row], offsets[row + 1]
        while at < end:
            if not _in_word(letters[at]):
                at += 1
                continue
            start = at
            while at < end and _in_word(letters[at]):
                at += 1
            _add(out, row, _hash(letters, start, at, 0))
            for piece in range(start, at - _PIECE + 1):
                _add(out, row, _hash(letters, piece, piece + _PIECE, 1))
        norm = np.float32(0)
        for j in range(out.shape[1]):
            norm += out[row, j] * out[row, j]
        if norm > 0:
            for j in range(out.shape[1]):
                out[row, j] /= np.sqrt(norm)
