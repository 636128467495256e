"""Ranked lists and their metrics against sorting by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from configs.errors import DataError, RecipeError
from configs.registry import EVALUATORS
from tasks.controls.ranked.recommendation import RecommendationControls
from tasks.evaluate.intervals import SureMetrics
from tasks.evaluators.prediction import Prediction
from tasks.evaluators.ranked import measure_ranked
from tasks.evaluators.ranked_places import places_of
from tasks.evaluators.several import make_evaluator
from tasks.inference.ranked import ranked_by
from tasks.sampling.relational.links import RankedLinks
from tests.ranked_shop import HORIZON, ranked_shop, store_of
from tests.support import node_graph


def random_lists(seed: int, rows: int = 37, width: int = 23) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores with many ties and some that are no candidates, and what is right: indptr and columns."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 9, (rows, width)).astype(np.float32)
    scores[rng.random(scores.shape) < 0.1] = -np.inf
    counts = rng.integers(1, 6, rows)
    right = [np.sort(rng.choice(width, size, replace=False)) for size in counts]
    return scores, np.concatenate([[0], np.cumsum(counts)]), np.concatenate(right)


def plain_places(scores: np.ndarray, right: list[int]) -> list[float]:
    """The mean of the places over all orders of equals, of what is not right; what is right itself in its order."""
    found = []
    others = [c for c in range(len(scores)) if c not in right]
    for k, column in enumerate(sorted(right, key=lambda c: -scores[c])):
        above = sum(scores[c] > scores[column] for c in others)
        level = sum(scores[c] == scores[column] for c in others) if np.isfinite(scores[column]) else 0
        found.append(1 + above + level / 2 + k)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_places_are_those_of_sorting(seed: int) -> None:
    scores, indptr, right = random_lists(seed)
    rows = places_of(scores, indptr, right)
    for i in range(len(scores)):
        wanted = plain_places(scores[i], right[indptr[i] : indptr[i + 1]].tolist())
        assert rows.places[i, : len(wanted)].tolist() == wanted
        assert np.isinf(rows.places[i, len(wanted) :]).all()
    assert rows.counts.tolist() == np.diff(indptr).tolist()


@pytest.mark.parametrize("k", [1, 3, 10, 50])
def test_metrics_are_those_of_lists(k: int) -> None:
    """Without ties a list is the columns by score, and each metric what textbooks say of it."""
    _, indptr, right = random_lists(5)
    rng = np.random.default_rng(1)
    scores = rng.permuted(np.tile(np.arange(23, dtype=np.float32), (37, 1)), axis=1)
    found = measure_ranked(places_of(scores, indptr, right), k)
    wanted: dict[str, list[float]] = {name: [] for name in found}
    for i, row in enumerate(scores):
        is_right = set(right[indptr[i] : indptr[i + 1]].tolist())
        hit = [column in is_right for column in np.argsort(-row)]
        first = hit[:k]
        wanted["mrr"].append(1 / (hit.index(True) + 1))
        wanted[f"hits@{k}"].append(float(any(first)))
        wanted[f"recall@{k}"].append(sum(first) / len(is_right))
        wanted[f"precision@{k}"].append(sum(first) / k)
        precisions = [sum(first[: j + 1]) / (j + 1) for j in range(len(first)) if first[j]]
        wanted[f"map@{k}"].append(sum(precisions) / min(k, len(is_right)))
        gain = sum(1 / math.log2(j + 2) for j in range(len(first)) if first[j])
        best = sum(1 / math.log2(j + 2) for j in range(min(k, len(is_right))))
        wanted[f"ndcg@{k}"].append(gain / best)
    for name, values in wanted.items():
        assert found[name] == pytest.approx(np.mean(values), rel=1e-12), name


def test_scores_that_are_all_alike_are_worth_the_middle() -> None:
    rows = places_of(np.zeros((4, 101), np.float32), np.arange(5), np.array([0, 7, 50, 100]))
    assert rows.places[:, 0].tolist() == [51] * 4
    assert measure_ranked(rows, 10)["map@10"] == 0


def test_draws_of_rows_are_those_rows() -> None:
    scores, indptr, right = random_lists(2)
    whole = places_of(scores, indptr, right)
    chosen = np.array([3, 3, 8])
    np.testing.assert_array_equal(whole.taken(chosen).places, whole.places[chosen])


def test_the_evaluator_judges_by_the_data_sets_metric(tmp_path: Path) -> None:
    store = store_of(ranked_shop(tmp_path))
    scores, indptr, right = random_lists(0)
    prediction = Prediction(ranked=places_of(scores, indptr, right))
    for metric in ("map@3", "hits@5", "mrr", "ndcg@10"):
        manifest = store.manifest.model_copy(update={"metric": metric})
        evaluator = make_evaluator(EVALUATORS.config("auto"), manifest)
        found = evaluator(prediction)
        assert (evaluator.metric, next(iter(found))) == (metric, metric)
        assert evaluator.higher_is_better
    with pytest.raises(DataError, match="no row to which something is right"):
        evaluator(Prediction(ranked=prediction.ranked.taken(np.empty(0, np.int64))))
    with pytest.raises(RecipeError, match=r"rocauc measures .* is a ranking task"):
        make_evaluator(EVALUATORS.config("rocauc"), store.manifest)
    with pytest.raises(RecipeError, match="ranking measures link, ranking tasks"):
        make_evaluator(EVALUATORS.config("ranking"), node_graph(tmp_path / "nodes").manifest)
    sure = SureMetrics(evaluator, [evaluator], prediction)
    low, high = sure.intervals()["metric"]
    assert low < sure.values[evaluator.metric] < high


@pytest.mark.parametrize("new_only", [False, True])
def test_controls_are_those_of_loops(tmp_path: Path, new_only: bool) -> None:
    parent = ranked_shop(tmp_path, new_only=new_only)
    store = store_of(parent)
    links = RankedLinks(store)
    tasks = np.asarray(store["test_idx"], np.int64)
    moment = int(links.moments(tasks)[0])
    who, column = links.interactions(moment)
    entity = links.entities(tasks)
    controls = RecommendationControls(store)
    found = {name: one.ranked for name, one in controls.predictions("test", Prediction())}
    assert list(found) == ["popular", "popular_recent", "own_past", "had_together"]
    count = np.bincount(column, minlength=links.num_candidates)
    had = np.zeros((store.manifest.num_nodes, links.num_candidates), np.float64)
    had[who, column] = 1
    norm = np.maximum(np.linalg.norm(had, axis=0), 1)
    cosine = (had.T @ had) / norm[:, None] / norm[None, :]
    np.fill_diagonal(cosine, 0)
    popular = np.tile(count.astype(np.float32), (len(tasks), 1))
    np.testing.assert_array_equal(
        ranked_by(links, tasks, lambda rows, at: popular[: len(rows)]).places, found["popular"].places
    )
    recent = controls._recent_scores(moment)
    together = (had[entity] @ cosine + 1e-4 * recent).astype(np.float32)
    order = {task: place for place, task in enumerate(tasks.tolist())}
    wanted = ranked_by(links, tasks, lambda rows, at: together[[order[one] for one in rows.tolist()]])
    np.testing.assert_allclose(wanted.places[:, 0], found["had_together"].places[:, 0], atol=1)
    own = np.zeros((len(tasks), links.num_candidates))
    for row, one in enumerate(entity.tolist()):
        for product in column[who == one].tolist():
            own[row, product] += 1
    lists = ranked_by(links, tasks, controls._own_past, 3).lists
    assert lists is not None
    for row in range(len(tasks)):
        first = np.flatnonzero(np.isin(links.candidates, lists.candidates[row][lists.candidates[row] >= 0]))
        if new_only:
            assert (own[row, first] == 0).all()
        else:
            assert own[row, first].min() >= np.sort(own[row])[::-1][2] - 1e-9


def test_what_an_entity_had_counts_by_number_recency_and_popularity(tmp_path: Path) -> None:
    store = store_of(ranked_shop(tmp_path, buys=600))
    controls, links = RecommendationControls(store), RankedLinks(store)
    tasks = np.asarray(store["test_idx"], np.int64)
    moment = int(links.moments(tasks)[0])
    scores, popular = controls._own_past(tasks, moment), controls._recent_scores(moment)
    entities = links.entities(tasks)
    indptr, column, counts, newest = links.past(entities, np.full(len(tasks), moment))
    assert popular.min() >= 0
    assert popular.max() < 1
    for row in range(len(tasks)):
        wanted = popular.astype(np.float64)
        for at in range(indptr[row], indptr[row + 1]):
            wanted[column[at]] += 1 + counts[at] + 1 / (1 + (moment - newest[at]) / HORIZON)
        np.testing.assert_allclose(scores[row], wanted, rtol=1e-6)


def test_lists_hold_the_first_candidates_and_who_is_right(tmp_path: Path) -> None:
    store = store_of(ranked_shop(tmp_path))
    links = RankedLinks(store)
    tasks = np.concatenate([store["test_idx"], store["valid_idx"][:5]]).astype(np.int64)
    scores = np.random.default_rng(0).standard_normal((len(tasks), links.num_candidates)).astype(np.float32)
    place = {task: row for row, task in enumerate(tasks.tolist())}
    ranked = ranked_by(links, tasks, lambda rows, _: scores[[place[one] for one in rows.tolist()]], 4)
    lists = ranked.lists
    assert lists is not None
    indptr, right = links.right(tasks)
    for row in range(len(tasks)):
        there = links.there(int(links.moments(tasks)[row]))
        shown = np.where(there, scores[row], -np.inf)
        order = np.argsort(-shown)[:4]
        assert lists.candidates[row].tolist() == links.candidates[order].tolist()
        own = right[indptr[row] : indptr[row + 1]]
        assert lists.right[row].tolist() == np.isin(order, own).astype(float).tolist()
        assert ranked.places[row, 0] == plain_places(shown, own.tolist())[0]
