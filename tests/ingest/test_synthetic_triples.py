"""The generated knowledge graph has the patterns that it promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from configs.registry import DATASETS
from tasks.ingest.synthetic import triple_generator
from tasks.ingest.synthetic.triple_generator import make_relations
from tasks.storage.dataset_store import DatasetStore
from tests.ingest.conftest import Ingest

SPLITS = ("train", "valid", "test")


def triples(store: DatasetStore, *splits: str) -> np.ndarray:
    columns = ("src", "relation", "dst")
    parts = [np.stack([store.column(f"split/{split}", name) for name in columns], 1) for split in splits or SPLITS]
    return np.concatenate(parts).astype(np.int64)


def pairs(rows: np.ndarray, relation: int) -> set[tuple[int, int]]:
    return {(h, t) for h, r, t in rows.tolist() if r == relation}


def test_size_and_shape(ingest: Ingest) -> None:
    store = ingest(name="synthetic_triples")
    manifest, rows = store.manifest, triples(store)
    assert (manifest.task, manifest.metric, manifest.num_nodes, manifest.num_relations) == ("triple", "mrr", 150, 40)
    assert len(rows) == 6250
    assert len(np.unique(rows, axis=0)) == 6250  # a triple stands once
    assert 4800 < manifest.splits["train"] < 5200
    assert np.unique(triples(store, "train")[:, [0, 2]]).tolist() == list(range(150))
    assert store.read("relations")["name"].to_pylist()[:6] == [
        "turn_0", "inverse_1", "symmetric_2", "turn_3", "composed_4", "one_way_5",
    ]  # fmt: skip
    edges = store.read("edges/entity__to__entity").to_pydict()
    train = triples(store, "train")
    assert (edges["src"], edges["dst"]) == (train[:, 0].tolist(), train[:, 2].tolist())


@pytest.mark.parametrize("options", [{}, {"num_entities": 413, "num_types": 4, "num_relations": 24, "noise": 0.2}])
def test_patterns(ingest: Ingest, options: dict[str, Any]) -> None:
    rows = triples(ingest(name="synthetic_triples", **options))
    for first in range(0, 24, 6):
        turn, inverse, symmetric, _, _, one_way = (pairs(rows, first + k) for k in range(6))
        turned = {(t, h) for h, t in inverse}
        assert len(turn & turned) >= len(turned) - 1  # one of the two may have a triple more
        assert len({(t, h) for h, t in symmetric} - symmetric) <= 1
        back = {(t, h) for h, t in one_way} & one_way
        assert len(back) <= options.get("noise", 0.02) * len(one_way)


def test_composed_relations_are_both_turns(ingest: Ingest) -> None:
    rows = triples(ingest(name="synthetic_triples", noise=0))
    for first in range(0, 36, 6):
        one, two, both = (pairs(rows, first + k) for k in (0, 3, 4))
        after: dict[int, set[int]] = {}
        for middle, tail in two:
            after.setdefault(middle, set()).add(tail)
        reached = {(head, tail) for head, middle in one for tail in after.get(middle, ())}
        # Some middles are not there, and places are rounded between types; by chance a fifth would be reached.
        assert len(both & reached) > 0.6 * len(both)


def test_noise_leads_elsewhere(ingest: Ingest) -> None:
    clean, noisy = (triples(ingest(name="synthetic_triples", noise=noise)) for noise in (0, 0.3))
    changed = (np.sort(clean, axis=0) != np.sort(noisy, axis=0)).any()
    kept = len(set(map(tuple, clean.tolist())) & set(map(tuple, noisy.tolist())))
    assert changed
    assert 0.65 < kept / len(clean) < 0.78
    assert len(np.unique(noisy, axis=0)) == len(noisy)


def test_the_same_in_any_chunks(ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"name": "synthetic_triples", "num_triples": 3001, "num_relations": 17}
    whole = triples(ingest(**options, seed=5))
    monkeypatch.setattr(triple_generator, "_CHUNK", 100)
    monkeypatch.setattr("tasks.ingest.synthetic.dataset.SyntheticTriples.fingerprint", lambda *_: {"again": 1})
    np.testing.assert_array_equal(triples(ingest(**options, seed=5)), whole)
    assert (triples(ingest(**options, seed=6))[:, 0] != whole[:, 0]).any()


def test_relations_compose_where_they_meet() -> None:
    config = DATASETS.config({"name": "synthetic_triples", "num_relations": 60, "num_entities": 1000, "num_types": 20})
    found = make_relations(config)  # type: ignore[arg-type]
    for first in range(0, 60, 6):
        assert found.target[first] == found.source[first + 3]
        assert found.of[first + 1] == first
        assert (found.source[first + 4], found.target[first + 4]) == (found.source[first], found.target[first + 3])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_entities": 150, "num_types": 4}, "num_types 4 leaves 37 entities a type; 40 are needed"),
        ({"num_triples": 13_000}, "too many for 40 relations between types of 50 entities: 12480 at most"),
        ({"valid_share": 0.5, "test_share": 0.5}, "must leave something to train on"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        DATASETS.config({"name": "synthetic_triples", **options})


def test_the_most_triples_that_fit_are_distinct(ingest: Ingest) -> None:
    rows = triples(ingest(name="synthetic_triples", num_triples=12_480, noise=0.5))
    assert len(np.unique(rows, axis=0)) == 12_480
