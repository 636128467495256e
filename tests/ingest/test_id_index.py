"""The id index against a dictionary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.ingest.ids.id_index import IdIndex, hash_ids

NUMBERS = st.lists(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 20), max_size=60), max_size=5)
TEXTS = st.lists(st.lists(st.text(max_size=12), max_size=60), max_size=5)


@settings(max_examples=80, deadline=None)
@given(NUMBERS | TEXTS)
def test_like_a_dictionary(chunks: list[list[Any]]) -> None:
    known: dict[Any, int] = {}
    index = IdIndex()
    for chunk in chunks:
        kind = pa.string() if chunk and isinstance(chunk[0], str) else pa.int64()
        if chunk:
            expected = [known.setdefault(x, len(known)) for x in chunk]
            assert index.add(pa.array(chunk, kind)).tolist() == expected
    assert index.count == len(known)
    if known:
        assert index.keys().to_pylist() == list(known)
        assert index.find(index.keys()).tolist() == list(range(len(known)))


def test_many_ids_unknown_ids_and_slices() -> None:
    rng = np.random.default_rng(0)
    numbers = rng.choice(10**9, 50_000, replace=False)
    index = IdIndex()
    index.add(pa.array(numbers))
    assert index.find(pa.array(numbers + 10**9)).tolist() == [-1] * len(numbers)
    np.testing.assert_array_equal(index.find(pa.array(numbers[::-1])), np.arange(50_000)[::-1])
    texts = pa.array([f"node/{n}" for n in numbers])
    index = IdIndex()
    for start in range(0, 50_000, 7_001):
        index.add(texts.slice(start, 7_001))
    np.testing.assert_array_equal(index.find(texts.slice(123, 456)), np.arange(123, 579))
    assert index.find(pa.array(["node/x", ""])).tolist() == [-1, -1]
    assert index.find(texts.slice(5, 3).dictionary_encode()).tolist() == [5, 6, 7]


def longest_run(index: IdIndex) -> int:
    """How many slots in a row are taken: what an id may have to pass."""
    free = np.flatnonzero(index._table < 0)
    return int(np.diff(np.append(free, free[0] + len(index._table))).max())


def meeting_numbers() -> pa.Array:
    """Numbers that a hash without a secret, x ^ x >> 32 twice around a product, would put into one slot."""
    y = np.arange(20_000, dtype=np.uint64) << np.uint64(32)
    y = (y ^ (y >> np.uint64(32))) * np.uint64(pow(0xD6E8FEB86659FD93, -1, 2**64))
    return pa.array((y ^ (y >> np.uint64(32))).astype(np.int64))


def meeting_texts() -> pa.Array:
    """Texts whose hash of `hash_ids`, which is the same in all processes, ends alike."""
    texts = pa.array([f"t{i}" for i in range(400_000)])
    return texts.filter(pa.array(hash_ids(texts) % np.uint64(256) == 0))


def distant_numbers() -> pa.Array:
    return pa.array(np.arange(20_000) * 1000)


@pytest.mark.parametrize("make_ids", [meeting_numbers, meeting_texts, distant_numbers])
def test_ids_that_are_chosen_to_meet(make_ids: Callable[[], pa.Array]) -> None:
    """They stand all over the table, at other places in each index, under the same numbers."""
    ids = make_ids()
    one, other = IdIndex(), IdIndex()
    np.testing.assert_array_equal(one.add(ids), np.arange(len(ids)))
    other.add(ids.slice(0, 100))
    np.testing.assert_array_equal(other.add(ids), np.arange(len(ids)))
    assert max(longest_run(one), longest_run(other)) < 100
    assert not np.array_equal(one._table, other._table)


@pytest.mark.parametrize("ids", [[5, 1, 9], ["b", "a", "c"]])
def test_sort(ids: list[Any]) -> None:
    index = IdIndex()
    index.add(pa.array(ids))
    rank = index.sort()
    assert index.keys().to_pylist() == sorted(ids)
    assert [sorted(ids)[r] for r in rank] == ids


def test_kinds_do_not_mix() -> None:
    index = IdIndex()
    index.add(pa.array([1]))
    with pytest.raises(TypeError, match="texts"):
        index.find(pa.array(["1"]))
