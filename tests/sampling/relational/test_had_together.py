"""What candidates were had together with before a moment, against loops over the same rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tasks.sampling.relational import links as module
from tasks.sampling.relational.links import RankedLinks
from tasks.storage.graph_store import ALWAYS, GraphStore
from tests.ranked_shop import EDGE_TYPES, MOMENTS, ranked_shop, store_of


def together_store(folder: Path) -> GraphStore:
    """The small shop, in which products go with products of one customer: tasks' entities are not read."""
    store = store_of(ranked_shop(folder))
    ranking = store.manifest.ranking
    assert ranking is not None
    manifest = store.manifest.model_copy(update={"ranking": ranking.model_copy(update={"together": True})})
    return GraphStore(store.folder, manifest)


@pytest.mark.parametrize("newest", [256, 3])
def test_pasts_are_those_of_loops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newest: int) -> None:
    monkeypatch.setattr(module, "_NEWEST", newest)
    store = together_store(tmp_path)
    links = RankedLinks(store)
    assert store.manifest.edge_types[0] == EDGE_TYPES[0]
    places = np.flatnonzero(store["edge_type"] == 0)
    product = np.searchsorted(store["csc_indptr"], places, side="right") - 1
    customer, time = np.asarray(store["csc_indices"])[places], np.asarray(store["edge_time"])[places]
    entities = links.candidates[links.candidate_time == ALWAYS][[5, 0, 12, 7]]
    mine = np.isin(product, entities)
    assert len(np.unique(time[mine])) == mine.sum(), "which is newest is not left to chance"
    moments = np.array([MOMENTS[2], MOMENTS[0] - 10**9, MOMENTS[4], MOMENTS[5]])
    indptr, column, counts, last = links.past(entities, moments)
    for row, (entity, at) in enumerate(zip(entities.tolist(), moments.tolist(), strict=True)):
        mine = np.flatnonzero((product == entity) & (time < at))
        mine = mine[np.argsort(time[mine])][-newest:]
        wanted: Counter[int] = Counter()
        latest: dict[int, int] = {}
        for one in mine.tolist():
            for other in np.flatnonzero((customer == customer[one]) & (time < at)).tolist():
                if product[other] != entity:
                    wanted[product[other]] += 1
                    both = max(time[one], time[other])
                    latest[product[other]] = max(latest.get(product[other], both), both)
        some = slice(indptr[row], indptr[row + 1])
        found = links.candidates[column[some]].tolist()
        assert found == sorted(wanted)
        assert counts[some].tolist() == [wanted[one] for one in found]
        assert last[some].tolist() == [latest[one] for one in found]
    assert indptr[1] == indptr[2]
    assert indptr[-1] > 20


def test_what_is_asked_about_is_no_candidate_for_itself(tmp_path: Path) -> None:
    links = RankedLinks(together_store(tmp_path))
    links._entity = links.candidates[np.arange(len(links._entity)) % 31]
    own = links.own_columns(links._tasks)
    assert own is not None
    assert own.tolist() == (np.arange(len(own)) % 31).tolist()
