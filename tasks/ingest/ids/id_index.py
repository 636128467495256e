"""A hash index from original ids (whole numbers or texts) to dense ones, in NumPy arrays and compiled kernels.

A dictionary of Python objects would take ten times the memory and time. Here an id costs its own bytes plus 16 to 32.
Where an id stands in the table depends on keys that each index draws: nobody can choose ids that all meet in one place
and so make the search slow. The numbers of ids do not depend on them.
"""

from __future__ import annotations

import secrets

import numpy as np
import pyarrow as pa
from numba import njit

from tasks.arrays import Array
from tasks.readers.columns import is_text as is_text

_PRIME = np.uint64(0x9E3779B97F4A7C15)


@njit(cache=True, nogil=True)
def _mix(x):  # type: ignore[no-untyped-def]
    x = (x ^ (x >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return x ^ (x >> np.uint64(32))


@njit(cache=True, nogil=True)
def _shift(table):  # type: ignore[no-untyped-def]
    """Return how far the product of a scattered number and the secret is shifted: its highest bits are the slot.

    Of numbers chosen without knowing the secret, hardly more meet than by chance.
    """
    shift = np.uint64(64)
    size = len(table)
    while size > 1:
        size //= 2
        shift -= np.uint64(1)
    return shift


@njit(cache=True, nogil=True)
def _scatter(value):  # type: ignore[no-untyped-def]
    """Break up the even steps of usual ids, of which many would meet under an unlucky secret."""
    x = np.uint64(value) * _PRIME
    return x ^ (x >> np.uint64(32))


@njit(cache=True, nogil=True)
def _find_numbers(table, keys, count, values, out, add, secret):  # type: ignore[no-untyped-def]
    """Fill `out` with the index of each value, -1 where unknown; append unknown ones if `add`. Return the count."""
    mask, shift, factor = np.uint64(len(table) - 1), _shift(table), secret[1]
    for i in range(len(values)):
        slot = (_scatter(values[i]) * factor) >> shift
        while table[slot] >= 0 and keys[table[slot]] != values[i]:
            slot = (slot + np.uint64(1)) & mask
        if table[slot] < 0 and add:
            keys[count] = values[i]
            table[slot] = count
            count += 1
        out[i] = table[slot]
    return count


@njit(cache=True, nogil=True)
def _hash_secretly(data, start, end, begin, factor):  # type: ignore[no-untyped-def]
    value = begin
    for j in range(start, end):
        value = (value ^ np.uint64(data[j])) * factor
        value ^= value >> np.uint64(32)  # without it, some long texts meet whatever the keys are
    return _mix(value)


@njit(cache=True, nogil=True)
def _same_text(a, a_start, a_end, b, b_start, b_end):  # type: ignore[no-untyped-def]
    if a_end - a_start != b_end - b_start:
        return False
    for j in range(a_end - a_start):  # noqa: SIM110 -- compiled code
        if a[a_start + j] != b[b_start + j]:
            return False
    return True


@njit(cache=True, nogil=True)
def _find_texts(index, count, offsets, data, out, add, secret):  # type: ignore[no-untyped-def]
    """The same for texts: text i is data[offsets[i]:offsets[i + 1]], text k of the index pool[ends[k]:ends[k + 1]]."""
    table, hashes, ends, pool = index
    mask = np.uint64(len(table) - 1)
    begin, factor = secret[0], secret[1]
    for i in range(len(offsets) - 1):
        start, end = offsets[i], offsets[i + 1]
        key = _hash_secretly(data, start, end, begin, factor)
        slot = key & mask
        while table[slot] >= 0:
            k = table[slot]
            if hashes[k] == key and _same_text(pool, ends[k], ends[k + 1], data, start, end):
                break
            slot = (slot + np.uint64(1)) & mask
        if table[slot] < 0 and add:
            hashes[count] = key
            at = ends[count]
            for j in range(start, end):
                pool[at + j - start] = data[j]
            ends[count + 1] = at + end - start
            table[slot] = count
            count += 1
        out[i] = table[slot]
    return count


@njit(cache=True, nogil=True)
def _rehash_texts(table, hashes, count):  # type: ignore[no-untyped-def]
    mask = np.uint64(len(table) - 1)
    for i in range(count):
        slot = hashes[i] & mask
        while table[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        table[slot] = i


def _grown(array: Array, size: int) -> Array:
    if size <= len(array):
        return array
    larger = np.zeros(max(size, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger


class IdIndex:
    """Distinct ids in the order of their first appearance; id k has the dense id k.

    The first array decides whether ids are whole numbers or texts.
    """

    def __init__(self) -> None:
        self.count = 0
        self.is_text: bool | None = None
        self._table = np.full(1 << 10, -1, np.int64)
        self._keys = np.zeros(0, np.int64)
        self._hashes = np.zeros(0, np.uint64)
        self._ends = np.zeros(1, np.int64)
        self._pool = np.zeros(0, np.uint8)
        self._secret = np.array([secrets.randbits(64), secrets.randbits(64) | 1], np.uint64)

    def add(self, ids: pa.Array) -> Array:
        """Return the dense id of each of `ids`, int64 (n,); ids not seen before get the next ones."""
        return self._look_up(ids, add=True)

    def find(self, ids: pa.Array) -> Array:
        """Return the dense id of each of `ids`, int64 (n,); -1 where unknown. Raises TypeError for another kind."""
        return self._look_up(ids, add=False)

    def keys(self) -> pa.Array:
        """Return the original ids by dense id: int64 or string."""
        if not self.is_text:
            return pa.array(self._keys[: self.count])
        offsets = self._ends[: self.count + 1]
        size = int(offsets[-1])
        texts = pa.Array.from_buffers(
            pa.large_string(), self.count, [None, pa.py_buffer(offsets), pa.py_buffer(self._pool[:size])]
        )
        return texts.cast(pa.string()) if size < 2**31 else texts

    def sort(self) -> Array:
        """Put the ids into ascending order; return the new dense id of each old one, int64 (count,)."""
        import pyarrow.compute as compute

        keys = self.keys()
        order = np.asarray(compute.sort_indices(keys)).astype(np.int64)
        rank = np.empty(self.count, np.int64)
        rank[order] = np.arange(self.count)
        self.__init__()  # type: ignore[misc]
        self.add(keys.take(pa.array(order)))
        return rank

    def _look_up(self, ids: pa.Array, add: bool) -> Array:
        assert ids.null_count == 0
        text = is_text(ids.type)
        if self.is_text is None:
            self.is_text = text
        if text != self.is_text:
            raise TypeError(f"ids are {'texts' if text else 'whole numbers'}, the others are not")
        out = np.empty(len(ids), np.int64)
        if add:
            self._make_room(len(ids))
        if text:
            self._look_up_texts(ids, out, add)
        else:
            values = np.asarray(ids.cast(pa.int64()))
            if add:
                self._keys = _grown(self._keys, self.count + len(ids))
            self.count = _find_numbers(self._table, self._keys, self.count, values, out, add, self._secret)
        return out

    def _look_up_texts(self, ids: pa.Array, out: Array, add: bool) -> None:
        if len(ids) == 0:
            return
        offsets, data = _text_buffers(ids)
        if add:
            self._hashes = _grown(self._hashes, self.count + len(ids))
            self._ends = _grown(self._ends, self.count + len(ids) + 1)
            self._pool = _grown(self._pool, int(self._ends[self.count]) + int(offsets[-1] - offsets[0]))
        index = (self._table, self._hashes, self._ends, self._pool)
        self.count = _find_texts(index, self.count, offsets, data, out, add, self._secret)

    def _make_room(self, more: int) -> None:
        """Keep the table at most half full."""
        size = len(self._table)
        while size < 2 * (self.count + more):
            size *= 2
        if size > len(self._table):
            self._table = np.full(size, -1, np.int64)
            if self.is_text:
                _rehash_texts(self._table, self._hashes, self.count)
            else:
                numbers = self._keys[: self.count]
                _find_numbers(self._table, self._keys, 0, numbers, np.empty(self.count, np.int64), True, self._secret)


@njit(cache=True, nogil=True)
def _hash_texts(offsets, data, out):  # type: ignore[no-untyped-def]
    for i in range(len(out)):
        value = np.uint64(0xCBF29CE484222325)
        for j in range(offsets[i], offsets[i + 1]):
            value = (value ^ np.uint64(data[j])) * np.uint64(0x100000001B3)
        out[i] = _mix(value)


def hash_ids(ids: pa.Array) -> Array:
    """Return a hash of each id as a text, uint64 (n,): the same id has the same one in any data set and process."""
    out = np.empty(len(ids), np.uint64)
    if len(ids):
        _hash_texts(*_text_buffers(ids), out)
    return out


def _text_buffers(ids: pa.Array) -> tuple[Array, Array]:
    """Return the offsets, int64 (n + 1,), and the bytes, uint8, of ids as texts."""
    texts = ids.cast(pa.large_string())
    _, offset_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return offsets, np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
