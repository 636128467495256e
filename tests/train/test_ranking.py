"""Recommending: batches of one moment, the loss, learnt rows, and models that learn whose style is which."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import OtherGraphError, RecipeError
from configs.load import build_recipe
from configs.registry import LOADERS, MODELS
from models.relational.batch import RankingBatch
from models.relational.configs import RankingHeadConfig
from models.relational.ranking import RankingHead, past_features
from tasks.controls.ranked.recommendation import RecommendationControls
from tasks.evaluators.prediction import Prediction
from tasks.evaluators.ranked import measure_ranked
from tasks.inference.predictor import Predictor, evaluating
from tasks.kinds.of import predict
from tasks.sampling.relational.batches import TypedNeighborhoods
from tasks.sampling.relational.links import RankedLinks, RankedNeighborhoods
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tasks.train.embeddings.host_tables import SparseEmbedding
from tasks.train.job import BEST, RESULT
from tasks.train.loaders.base import TrainingData
from tasks.train.loaders.config_base import resolve_loader
from tasks.train.loaders.configs import RankingLoaderConfig
from tasks.train.loaders.relational import RankingLoader, _some_of_each
from tasks.train.state.checkpoint import load_model
from tests.ranked_shop import DAY, HORIZON, MOMENTS, ranked_shop, store_of
from tests.shop_graph import shop_graph
from tests.train.in_process import make_engine, make_job, train_here


def recipe(*changes: str, **model: Any) -> Any:
    found = {
        "name": "small",
        "dataset": {"name": "synthetic_shop", "predict": "products"},
        "model": {"name": "heterosage", "hidden_dim": 16, "num_layers": 2, "dropout": 0, **model},
        "train": {"loader": {"name": "ranking", "batch_size": 32}, "epochs": 8, "threads": 1},
    }
    return build_recipe(found, list(changes))


def loader_of(store: GraphStore, **options: Any) -> RankingLoader:
    config = LOADERS.config({"name": "ranking", **options})
    data = TrainingData(store, None, num_layers=2, seed=3)  # type: ignore[arg-type]
    return RankingLoader(config, data)


def test_an_epoch_is_every_seed_once_in_batches_of_one_moment(tmp_path: Path) -> None:
    store = store_of(ranked_shop(tmp_path))
    loader = loader_of(store, batch_size=16, negatives=8)
    links, entities = loader.links, []
    for number in range(loader.num_batches):
        batch = loader.epoch_batch(1, number, 100 + number)
        assert 0 < batch.num_seeds <= 16
        customers = batch.inputs.types[0]
        assert torch.isnan(customers.age).all()  # they were always there
        entities.append(customers.node_ids[batch.rows].numpy())
        again = loader.epoch_batch(1, number, 100 + number)
        np.testing.assert_array_equal(batch.right.numpy(), again.right.numpy())
    wanted = links.entities(np.asarray(store["train_idx"], np.int64))
    assert sorted(np.concatenate(entities).tolist()) == sorted(wanted.tolist())
    other = [loader.epoch_batch(2, n, n).inputs.types[0].node_ids.numpy() for n in range(loader.num_batches)]
    assert not all(np.array_equal(a, b) for a, b in zip(other, entities, strict=True))


@pytest.mark.parametrize("new_only", [False, True])
def test_a_batch_knows_what_is_right_and_what_was_before(tmp_path: Path, new_only: bool) -> None:
    store = store_of(ranked_shop(tmp_path, new_only=new_only))
    loader = loader_of(store, batch_size=16, negatives=8, positives=2)
    links = loader.links
    for number in range(loader.num_batches):
        batch = loader.epoch_batch(0, number, number)
        products = batch.inputs.types[1].node_ids[batch.candidate_rows].numpy()
        columns = np.searchsorted(links.candidates, products)
        assert (links.candidates[columns] == products).all()
        assert (np.diff(columns) > 0).all()
        entity = batch.inputs.types[0].node_ids[batch.rows].numpy()
        tasks = np.asarray(store["train_idx"], np.int64)
        moments = links.moments(tasks)
        [moment] = [
            m
            for m in MOMENTS
            if set(entity) <= set(links.entities(tasks[moments == m])) and _fits(batch, links, columns, m)
        ]
        own = {int(links.entities(tasks[[i]])[0]): tasks[i] for i in np.flatnonzero(moments == moment)}
        before = {(int(e), int(c)) for e, c in zip(*links.interactions(moment), strict=True)}
        left_out = set(map(tuple, batch.left_out.T.tolist()))
        pairs = set(map(tuple, batch.pairs.T.tolist()))
        for row, one in enumerate(entity.tolist()):
            _, right = links.right(np.array([own[one]]))
            taken = batch.right[1][batch.right[0] == row].tolist()
            assert 1 <= len(taken) <= 2
            assert set(columns[taken].tolist()) <= set(right.tolist())
            for place, candidate in enumerate(columns.tolist()):
                assert ((row, place) in pairs) == ((one, candidate) in before)
                hidden = candidate in right or (new_only and (one, candidate) in before)
                assert ((row, place) in left_out) == hidden


def _fits(batch: RankingBatch, links: RankedLinks, columns: np.ndarray, moment: int) -> bool:
    counts = np.log1p(links.popularity(columns, moment)).astype(np.float32)
    return bool(np.array_equal(counts, batch.popularity.numpy()))


def test_popularity_and_pasts_are_those_of_loops(tmp_path: Path) -> None:
    store = store_of(ranked_shop(tmp_path))
    links = RankedLinks(store)
    places = np.flatnonzero(store["edge_type"] == 0)
    product = np.searchsorted(store["csc_indptr"], places, side="right") - 1
    customer, time = np.asarray(store["csc_indices"])[places], np.asarray(store["edge_time"])[places]
    moment = MOMENTS[3]
    for column, node in enumerate(links.candidates.tolist()):
        mine = time[product == node]
        wanted = [(mine < moment).sum(), ((mine < moment) & (mine >= moment - HORIZON)).sum()]
        assert links.popularity(np.array([column]), moment)[0].tolist() == wanted
    entities = np.unique(customer)[[3, 0, 7]]
    moments = np.array([MOMENTS[2], MOMENTS[0] - 10**9, MOMENTS[4]])
    indptr, column, counts, newest = links.past(entities, moments)
    for row, (entity, at) in enumerate(zip(entities.tolist(), moments.tolist(), strict=True)):
        seen = (customer == entity) & (time < at)
        some = slice(indptr[row], indptr[row + 1])
        assert links.candidates[column[some]].tolist() == np.unique(product[seen]).tolist()
        for node, count, last in zip(links.candidates[column[some]], counts[some], newest[some], strict=True):
            assert count == (product[seen] == node).sum()
            assert last == time[seen][product[seen] == node].max()
    assert indptr[1] == indptr[2]


@pytest.mark.parametrize("draw", ["uniform", "popularity"])
def test_chances_to_be_in_a_batch_are_what_draws_say(tmp_path: Path, draw: str) -> None:
    """The log of the chance is about the share of batches of a moment in which another seed or a draw brings it."""
    store = store_of(ranked_shop(tmp_path))
    loader = loader_of(store, batch_size=16, negatives=12, draw=draw)
    of, rounds = 3, 4000
    there, asked_for = np.zeros((2, loader.links.num_candidates))
    chance = np.full(loader.links.num_candidates, np.nan)
    random = np.random.default_rng(0)
    everyone = loader.seeds[loader._starts[of] : loader._starts[of + 1]]
    for key in range(rounds):
        tasks = random.choice(everyone, 16, replace=False)
        asked = loader._ask(np.sort(tasks), of, key)
        without = np.ones(loader.links.num_candidates, np.bool_)
        without[loader.links.right(tasks[:1])[1]] = False  # one seed, and what is not right for it
        asked_for += without
        there[asked.columns] += without[asked.columns]
        chance[asked.columns] = np.exp(asked.log_inclusion)
    known = there > 0
    assert known.sum() == 30
    assert asked_for.min() > 500
    np.testing.assert_allclose(chance[known], (there / np.maximum(1, asked_for))[known], atol=0.02)
    young = ~loader.links.there(int(loader.moments[of]))
    assert young.any()
    assert not there[young].any()


def test_few_candidates_are_all_there(tmp_path: Path) -> None:
    loader = loader_of(store_of(ranked_shop(tmp_path)), negatives=31)
    batch = loader.epoch_batch(0, 0, 0)
    assert batch.log_inclusion is None
    assert len(batch.candidate_rows) in (30, 31)


def test_some_of_each_row_are_distinct_and_all_come() -> None:
    indptr, columns = np.array([0, 1, 6, 8]), np.array([5, 0, 1, 2, 3, 4, 9, 7])
    seen: set[int] = set()
    for seed in range(40):
        row, chosen = _some_of_each(indptr, columns, 2, np.random.default_rng(seed))
        assert row.tolist() == [0, 1, 1, 2, 2]
        assert len(set(zip(row.tolist(), chosen.tolist(), strict=True))) == 5
        seen |= set(chosen[row == 1].tolist())
    assert seen == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("score", ["dot", "mlp"])
def test_scores_of_a_batch_and_their_gradients_are_those_of_loops(score: str) -> None:
    torch.manual_seed(0)
    head = RankingHead(7, (3, 5), RankingHeadConfig(score=score, dim=6), 0.0).double()
    for parameter in (head.popularity, head.past):
        torch.nn.init.normal_(parameter)
    x, y = torch.randn(4, 7, dtype=torch.float64), torch.randn(9, 7, dtype=torch.float64, requires_grad=True)
    ids = torch.randn(4, 3, dtype=torch.float64), torch.randn(9, 5, dtype=torch.float64)
    batch = RankingBatch(
        [], None, torch.zeros(5, dtype=torch.int64), 4, 0,  # type: ignore[arg-type]
        popularity=torch.rand(9, 2, dtype=torch.float64),
        pairs=torch.tensor([[0, 0, 3], [2, 8, 1]]),
        pair_feat=past_features(torch.tensor([1, 3, 2]), torch.tensor([0.5, 9.0, 0.0])).double(),
        right=torch.tensor([[0, 1, 1, 2, 3], [2, 0, 4, 4, 7]]),
        left_out=torch.tensor([[0, 1, 1, 2, 3, 3], [2, 0, 4, 4, 7, 6]]),
        log_inclusion=torch.log(torch.rand(9, dtype=torch.float64)),
    )  # fmt: skip
    source, candidate = head.towers((x, y), ids)
    found = head.of_batch(source, candidate, batch)
    loss = torch.nn.functional.cross_entropy(found, batch.target)
    [gradient] = torch.autograd.grad(loss, y)

    again = y.detach().clone().requires_grad_()
    source, candidate = head.towers((x, again), ids)
    past = {tuple(pair): feat for pair, feat in zip(batch.pairs.T.tolist(), batch.pair_feat, strict=True)}
    masked = set(map(tuple, batch.left_out.T.tolist()))

    def scored(i: int, j: int) -> torch.Tensor:
        product = source[i] * candidate[j]
        own = product.sum() / 6**0.5 if head.mlp is None else head.mlp(product)[0]
        return own + batch.popularity[j] @ head.popularity + (past[i, j] @ head.past if (i, j) in past else 0.0)

    losses = []
    for i, j in batch.right.T.tolist():
        others = [scored(i, c).exp() / batch.log_inclusion[c].exp() for c in range(9) if (i, c) not in masked]
        own = scored(i, j)
        losses.append(torch.log(own.exp() + sum(others)) - own)
    wanted = torch.stack(losses).mean()
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-6)
    [other] = torch.autograd.grad(wanted, again)
    torch.testing.assert_close(gradient, other, rtol=1e-5, atol=1e-7)


def test_nothing_later_than_the_moment_changes_what_is_ranked(tmp_path: Path) -> None:
    moment = MOMENTS[3]
    one, other = (store_of(ranked_shop(tmp_path / name, changed_after=at)) for name, at in (("a", None), ("b", moment)))
    near = [RankedNeighborhoods(store, TypedNeighborhoods(store, (4, 3), newest=True)) for store in (one, other)]
    tasks = np.asarray(one["train_idx"], np.int64)
    entities = near[0].links.entities(tasks[near[0].links.moments(tasks) == moment])
    columns = np.arange(20)

    def read(at: int) -> list[list[np.ndarray]]:
        found = []
        for one_near in near:
            nodes = np.concatenate([entities, one_near.links.candidates[columns]])
            inputs, blocks, rows = one_near.typed.around(nodes, np.full(len(nodes), at), 5)
            edges = [relation.indices.numpy() for block in blocks for relation in block.relations]
            popularity = one_near.popularity(columns, at).numpy()
            past = one_near.links.past(entities, np.full(len(entities), at))
            found.append([*edges, rows, popularity, *past, *(x.node_ids.numpy() for x in inputs.types)])
        return found

    for a, b in zip(*read(moment), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not all(np.array_equal(a, b) for a, b in zip(*read(moment + HORIZON), strict=True))


@pytest.mark.parametrize(
    "model", ["heterosage", pytest.param("rgat", marks=pytest.mark.slow), pytest.param("hgt", marks=pytest.mark.slow)]
)
def test_a_model_learns_whose_style_is_which(tmp_path: Path, model: str) -> None:
    parent = ranked_shop(tmp_path / "graph")
    job = make_job(recipe("train.epochs=6", name=model), parent, tmp_path / "work")
    train_here(job)
    metrics = json.loads((tmp_path / "work" / RESULT).read_text())
    store = GraphStore.open(parent.folder)
    controls = {
        name: measure_ranked(one.ranked, 10)["map@10"]
        for name, one in RecommendationControls(store).predictions("valid", Prediction())
    }
    assert metrics["best_metric"] > 1.3 * max(controls["popular"], controls["popular_recent"]), controls
    trained = load_model(tmp_path / "work" / BEST)
    predictor = Predictor(store)
    again = measure_ranked(predict(predictor, trained, "valid").ranked, 10)["map@10"]
    assert again == pytest.approx(metrics["best_metric"], abs=1e-6)
    tasks = np.asarray(store["test_idx"], np.int64)
    with evaluating(trained):
        vectors = predictor.node_vectors(trained, tasks)
    assert vectors.shape == (len(tasks), trained.head_dim)


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_rows_are_learnt_on_node_tasks_too(tmp_path: Path, kind: str) -> None:
    """A step changes the rows of its batch, and with a table in CPU memory no others."""
    parent = shop_graph(tmp_path / "graph", num_customers=40)
    options = {
        "name": "small",
        "dataset": {"name": "synthetic_shop"},
        "model": {
            "name": "heterosage",
            "hidden_dim": 8,
            "id_embedding": {"types": ["products"], "dim": 4, "dropout": 0},
        },
        "train": {"epochs": 1, "threads": 1, "loader": {"batch_size": 4, "fanout": [1, 1]}, "embeddings": kind},
    }
    engine = make_engine(make_job(build_recipe(options), parent, tmp_path / "work"))
    table = engine.model.encoder.embedding
    assert isinstance(table, SparseEmbedding) == (kind == "sparse")
    assert tuple(table.weight.shape) == (25, 4)
    before = table.weight.detach().clone()
    batch = engine.batches.make(0)
    rows = batch.inputs.types[2].number
    assert len(set(rows.tolist())) < 25
    engine.model.train()
    engine.optimization.backward(batch, 1.0, last=True)
    engine.optimization.step(1)
    changed = (table.weight.detach() != before).any(1).nonzero().flatten().tolist()
    assert changed
    assert set(changed) <= set(rows.tolist())
    ids = np.asarray(GraphStore.open(parent.folder)["node_ids"])[batch.inputs.types[2].node_ids.numpy()]
    np.testing.assert_array_equal(rows.numpy(), ids - parent.manifest.type_offsets[2])


def test_a_table_in_cpu_memory_learns_what_a_parameter_learns(tmp_path: Path) -> None:
    """SparseAdam on one row a step is Adam, as long as every row has a gradient in each step."""
    parent = ranked_shop(tmp_path / "graph")
    losses = {}
    for kind in ("sparse", "dense"):
        changes = [f"train.embeddings.name={kind}", "model.id_embedding.types=products", "model.id_embedding.dropout=0"]
        if kind == "sparse":
            changes += ["train.embeddings.optimizer=sparse_adam", "train.embeddings.learning_rate=0.003"]
        engine = make_engine(make_job(recipe(*changes), parent, tmp_path / kind))
        engine.model.encoder.embedding.weight.data.copy_(torch.arange(31 * 64).view(31, 64).sin() / 10)
        torch.manual_seed(1)
        for name, parameter in engine.model.named_parameters():
            if name != "encoder.embedding.weight":
                with torch.no_grad():
                    parameter.copy_(torch.randn_like(parameter) / 4)
        found = []
        for number in range(6):
            engine.model.train()
            found.append(engine.optimization.backward(engine.batches.make(number), 1.0, last=True).item())
            engine.optimization.step(number + 1)
        losses[kind] = found
    np.testing.assert_allclose(losses["sparse"], losses["dense"], rtol=2e-4)
    assert losses["sparse"][0] != losses["sparse"][1]


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_rows_that_come_after_training_have_no_vector(tmp_path: Path, kind: str) -> None:
    """Validation and test see products that no batch of the training saw."""
    parent = ranked_shop(tmp_path / "graph")
    store = store_of(parent)
    time, ids = np.load(parent.folder / "node_time.npy"), np.asarray(store["node_ids"])
    last = int(time[store["train_idx"]].max())
    products = {number: int(np.flatnonzero(ids == parent.manifest.type_offsets[1] + number)[0]) for number in range(4)}
    time[products[0]], time[products[1]], time[products[2]] = last - 1, last, last + 5 * DAY
    np.save(parent.folder / "node_time.npy", time)
    changes = [f"train.embeddings.name={kind}", "model.id_embedding.types=customers,products"]
    engine = make_engine(make_job(recipe(*changes), parent, tmp_path / "work"))
    weight = engine.model.encoder.embedding.weight.detach()
    assert len(weight) == 61 + 31
    assert (weight == 0).all(1).nonzero().flatten().tolist() == [61 + 1, 61 + 2]


def test_rows_that_a_table_does_not_know_have_no_vector(tmp_path: Path) -> None:
    store = store_of(ranked_shop(tmp_path))
    facts = replace(graph_facts(store.manifest), fanouts=((4, 3),) * 6, newest=True)
    model = MODELS.create(recipe().model, facts).eval()
    assert model.embedded == (1,)
    unknown = np.arange(31)
    unknown[5:] = -1
    model.row_numbers[1] = unknown
    near = RankedNeighborhoods(store, TypedNeighborhoods(store, (4, 3), newest=True, numbered=model.numbered))
    batch = near.batch(np.asarray(store["test_idx"], np.int64)[:3], np.arange(31), MOMENTS[-1], 0)
    found = model.encoder.look_up(batch.inputs)[1]
    number = np.asarray(store["node_ids"])[batch.inputs.types[1].node_ids.numpy()] - store.manifest.type_offsets[1]
    wanted = torch.where(torch.from_numpy(number < 5)[:, None], model.encoder.embedding.weight[number], 0.0)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model.id_embedding.types": "product"}, r"no table 'product' \(did you mean 'products'\?\)"),
        ({"model.id_embedding.types": "task"}, "rows of task are what is predicted, each once"),
        ({"train.loader": "relational", "train.loader.negatives": "4"}, "unknown key 'negatives'"),
        ({"train.loader.fanout": "3"}, "fanout has 1 numbers and the model has 2 layers"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    store = store_of(ranked_shop(tmp_path))

    def build() -> None:
        made = recipe(*(f"{key}={value}" for key, value in changes.items()))
        resolve_loader(made.train, made.model, store.manifest)
        MODELS.create(made.model, graph_facts(store.manifest))

    with pytest.raises(RecipeError, match=message):
        build()


def test_loaders_are_resolved_by_what_is_predicted(tmp_path: Path) -> None:
    ranked, labelled = store_of(ranked_shop(tmp_path / "a")), shop_graph(tmp_path / "b")
    made = recipe("train.loader=relational", "train.loader.batch_size=7")
    found = resolve_loader(made.train, made.model, ranked.manifest)
    assert isinstance(found, RankingLoaderConfig)
    assert (found.name, found.batch_size, found.fanouts(2)) == ("ranking", 7, (12, 4))
    with pytest.raises(RecipeError, match=r"train\.loader=ranking is for recommendations"):
        resolve_loader(recipe().train, made.model, labelled.manifest)


def test_learnt_rows_are_found_by_ids(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tasks.apply.model.row_ids import FILE, find_rows, write_row_ids

    class Data:
        def __init__(self, ids: list[str]) -> None:
            self.ids = ids

        def __contains__(self, table: str) -> bool:
            return table == "ids/products"

        def read(self, table: str, columns: list[str]) -> pa.Table:
            return pa.table({"original_id": self.ids})

    facts = replace(graph_facts(store_of(ranked_shop(tmp_path)).manifest), fanouts=((4, 3),) * 6)
    model = MODELS.create(recipe().model, facts)
    known = [f"p{i}" for i in range(31)]
    with pytest.raises(OtherGraphError, match="without the ids"):
        find_rows(model, tmp_path, Data(known))  # type: ignore[arg-type]
    write_row_ids(tmp_path, recipe().model, facts, Data(known))  # type: ignore[arg-type]
    assert pq.read_table(tmp_path / FILE)["id"].to_pylist() == known
    notes = find_rows(model, tmp_path, Data(["p9", "new", "p0"]))  # type: ignore[arg-type]
    assert model.numbered[1].tolist() == [9, -1, 0]
    assert notes == [
        "1 of 3 rows of products were not in the training's data: they are scored by their columns and neighbours alone"
    ]
