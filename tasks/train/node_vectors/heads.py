"""The head of learnt vectors: a logistic model of the classes, a linear one of numbers, or a model of pairs."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from configs.errors import RecipeError
from models.layers.output_heads import LinkHead, NodeHead
from models.vectors.base import VectorModel
from models.vectors.logistic import fit_logistic
from tasks.arrays import Array, blocks, sample_rows
from tasks.processes.mapped import rows_at_random
from tasks.sampling.negatives import NegativeSampler
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.sampling.rows.labels import targets
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tasks.train.embeddings.host_tables import set_around_table
from tasks.train.job import BEST, AnyJob
from tasks.train.state import checkpoint
from tasks.train.state.journal import Journal
from tasks.train.state.validation import Validation
from tasks.train.strategies.base import Ranks

STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)
_MOST_ROWS, _MOST_BYTES = 200_000, 1 << 27
"""Rows that a head is fitted to, and their bytes; of more, so many are drawn."""
_ROWS_A_READ = 8192
_MOST_SCORES = 1 << 23
"""Scores that a threshold is chosen by; they are sorted once for each strength."""
_PAIR_SEED = 20_261_123

Score = Callable[[], float]
"""Returns how good the model is with the head that it has now; higher is better."""


def fit_head(
    model: VectorModel, store: GraphStore, strength: float | None, score: Score | None, *, for_f1: bool = False
) -> float | None:
    """Fit the model's head to its vectors and the training split.

    Of many labels each is rare, and a head that is right about its chance hardly ever gives it one above a half: few
    or none would be predicted. With `for_f1` the scores of such a task are moved as a whole, so that 0, from where on
    a label is predicted, lies where micro-F1 is best on the validation split; the order of rows stays as it is.

    Args:
        model: with its vectors; its head is set.
        store: the graph.
        strength: C of the L2 penalty; None: the one of STRENGTHS that `score` finds best, of equal ones the smallest.
        score: of the validation split; None: there is none, and 1 is taken.
        for_f1: whether scores of several label columns are moved; needs a validation split.

    Returns the strength that was taken; None: the head has none.
    """
    if isinstance(model.head, LinkHead):
        if model.head.mlp is None:
            return None
        if model.config.score == "mlp":
            fit_pair_mlp(model, store, score)
            return None
        x, y = _pairs(model, store)
        linear = model.head.mlp[0]
    else:
        x, y = _nodes(model, store)
        linear = model.head.linear
    label = store.manifest.label_type
    fit = _fit_numbers if label.is_number else _fit_members
    has_columns = label.is_yes_or_no and not label.one_column
    held_out = _nodes(model, store, "valid", _MOST_SCORES // y.shape[1]) if for_f1 and has_columns else None

    def set_head(chosen: float) -> None:
        weight, bias = fit(x, y, chosen)
        if held_out is not None:
            rows, truth = held_out
            bias = bias - best_threshold(torch.addmm(bias, rows, weight), truth)
        with torch.no_grad():
            linear.weight.copy_(weight.T)  # type: ignore[operator]
            linear.bias.copy_(bias)  # type: ignore[operator]

    chosen = strength or 1.0
    if not strength and score is not None:
        scores = []
        for each in STRENGTHS:
            set_head(each)
            scores.append(score())
        if np.isfinite(scores).any():
            chosen = STRENGTHS[int(np.nanargmax(scores))]
    set_head(chosen)
    return chosen


def best_threshold(scores: Tensor, truth: Tensor) -> float:
    """Return the number above which scores are to be called positive so that micro-F1 is best; both (n, C).

    Labels are 0 or 1, NaN where none is known. Halfway between two scores; of equally good ones the highest.
    """
    labelled = ~truth.isnan()
    by_score, order = scores[labelled].double().sort(descending=True)
    right = (truth[labelled] > 0.5)[order].double().cumsum(0)
    if not len(right) or not right[-1]:
        return 0.0
    f1 = 2 * right / (torch.arange(1, len(right) + 1) + right[-1])
    last_of_score = torch.cat([by_score[1:] != by_score[:-1], torch.tensor([True])])
    place = int(torch.where(last_of_score, f1, -1.0).argmax())
    following = by_score[min(place + 1, len(by_score) - 1)]
    return float((by_score[place] + following) / 2) - (1e-6 if place + 1 == len(by_score) else 0.0)


def _nodes(
    model: VectorModel, store: GraphStore, split: str = "train", most: int = _MOST_ROWS
) -> tuple[Tensor, Tensor]:
    """Return vectors (n, D) and labels (n, C) of a split: 0 or 1 for each class, or numbers; NaN: none."""
    assert isinstance(model.head, NodeHead)
    nodes = sample_rows(np.asarray(store[f"{split}_idx"]), max(1, min(most, _most_rows(model, 1))))
    label = targets(store.manifest, np.asarray(store["label"][nodes]))
    if label.dim() == 1:
        labelled = label >= 0
        nodes, label = nodes[labelled.numpy()], label[labelled]
        label = torch.nn.functional.one_hot(label, model.facts.out_dim).float()
    return _rows(model, nodes), label


def _pairs(model: VectorModel, store: GraphStore) -> tuple[Tensor, Tensor]:
    """Return products of the vectors of training edges' ends, and of as many other pairs', and 1 or 0 for each.

    The other pairs are no training edges. To avoid those that are held out too would tell the head where they are.
    """
    edges = sample_rows(np.asarray(store["train_edges"]), _most_rows(model, 2)).astype(np.int64)
    drawn = NegativeSampler(store, 1).draw(edges, derive_key(_PAIR_SEED))
    source, target = np.concatenate([edges, drawn]).T
    is_edge = torch.zeros(len(source), 1)
    is_edge[: len(edges)] = 1
    return _rows(model, source).mul_(_rows(model, target)), is_edge


def _most_rows(model: VectorModel, vectors_each: int) -> int:
    return max(1, min(_MOST_ROWS, _MOST_BYTES // (4 * model.table.shape[1] * vectors_each)))


def _rows(model: VectorModel, nodes: Array) -> Tensor:
    """Return a copy of nodes' vectors, float32 (n, D); read in the order of the table, which may lie in a file."""
    order = np.argsort(nodes, kind="stable")
    vectors = torch.empty(len(nodes), model.table.shape[1])
    for part in blocks(len(nodes), _ROWS_A_READ):
        place = order[part]
        vectors[torch.from_numpy(place)] = model.table[torch.from_numpy(nodes[place].astype(np.int64))].float()
    return vectors


def _fit_members(x: Tensor, y: Tensor, strength: float) -> tuple[Tensor, Tensor]:
    """Return weights (D, C) and bias (C,) of each class against the rest, of the rows whose label is known."""
    missing = y.isnan()
    if not missing.any():
        fitted = fit_logistic(x, y > 0.5, strength)
        return fitted.weight, fitted.bias
    weights, biases = x.new_zeros(x.shape[1], y.shape[1]), x.new_zeros(y.shape[1])
    for column in range(y.shape[1]):
        labelled = ~missing[:, column]
        if labelled.any():
            fitted = fit_logistic(x[labelled], y[labelled, column : column + 1] > 0.5, strength)
            weights[:, column], biases[column] = fitted.weight[:, 0], fitted.bias[0]
    return weights, biases


def _fit_numbers(x: Tensor, y: Tensor, strength: float) -> tuple[Tensor, Tensor]:
    """Return weights (D, C) and bias (C,) of least squares with an L2 penalty of 1 / C, in units of the spread of y."""
    weights, biases = x.new_zeros(x.shape[1], y.shape[1]), x.new_zeros(y.shape[1])
    for column in range(y.shape[1]):
        labelled = ~y[:, column].isnan()
        if labelled.any():
            rows, numbers = x[labelled].double(), y[labelled, column].double()
            mean = rows.mean(0)
            centred = rows - mean
            penalty = torch.eye(x.shape[1], dtype=torch.float64) / strength
            solved = torch.linalg.solve(centred.T @ centred + penalty, centred.T @ (numbers - numbers.mean()))
            weights[:, column] = solved.float()
            biases[column] = float(numbers.mean() - mean @ solved)
    return weights, biases


_TINY = 1e-30


def finish_vectors(job: AnyJob, store: GraphStore, vectors: Array | Tensor, journal: Journal) -> None:
    """Fit the head to vectors, float32 (N, dim), measure the validation split, and write the model.

    Raises RecipeError: vectors that are not finite.
    """
    progress, manifest = journal.progress, store.manifest
    journal.write_progress("fitting the head", force=True)
    table = torch.from_numpy(vectors) if isinstance(vectors, np.ndarray) else vectors
    lengths = table.norm(dim=1)
    bad = int((~lengths.isfinite()).sum())
    if bad:
        raise RecipeError(
            f"model.name={job.model.name} gave {bad:,} of {len(lengths):,} nodes vectors that are not finite, or too "
            f"long for float32: the training diverged. Lower train.learning_rate, which makes another training"
        )
    if getattr(job.model, "normalize", False):
        table /= lengths.clamp(min=_TINY)[:, None]
    model = set_around_table(job.model, graph_facts(manifest), table)
    assert isinstance(model, VectorModel)
    model.lengths = lengths
    validation = Validation(job, Ranks(), store, torch.device("cpu")) if manifest.splits.get("valid") else None

    def score() -> float:
        assert validation is not None
        return validation.evaluator.score(validation.measure(model))

    asked_strength: float | None = getattr(job.model, "strength", None)
    with rows_at_random(table):
        # Accuracy of label columns has its own threshold, and a half of the chance is right for that.
        for_f1 = validation is not None and validation.evaluator.metric != "accuracy"
        strength = fit_head(model, store, asked_strength, score if validation else None, for_f1=for_f1)
        metrics = validation.measure(model) if validation else {}
    if strength is not None:
        print(f"head: C = {strength:g}")
    progress.epoch = 1
    progress.take_score(validation.evaluator.score(metrics) if validation else -math.inf)
    if validation is not None:
        journal.record({f"valid/{name}": number for name, number in metrics.items()})
    state = checkpoint.best_state(model, job.digest, 1, progress.best_metric)
    checkpoint.save_atomic(state, job.work / BEST)


_SEED = 20_261_124
_BATCH, _MOST_EDGES = 2048, 1 << 20
"""Edges of a step, and of an epoch; each against one drawn pair. Large batches take as long a pass and fit less."""
_SCALE_EDGES = 16_384
_RATE = 0.003


def fit_pair_mlp(model: VectorModel, store: GraphStore, score: Callable[[], float] | None) -> None:
    """Fit the MLP of a model's head to training edges against uniform pairs that are none, by Adam.

    In a dense graph many uniform pairs are training edges (of ogbl-ddi's one in nine). With these among the negatives
    the MLP learns little of what is sure: in ten epochs Hits@20 of the validation split is 0.08 there, 0.19 without.

    The rate falls to 0 over all epochs, and bad ones end nothing: metrics of the first ranks, such as Hits@20, go up
    and down by half from epoch to epoch.

    Args:
        model: with its vectors; its head is set. `mlp_epochs` of its options says how long.
        store: the graph.
        score: of the validation split, measured after each epoch: the best epoch's head stays; None: there is none, and
            the last one's does.
    """
    head, edges, table, num_epochs = model.head.mlp, store["train_edges"], model.table, model.config.mlp_epochs
    assert isinstance(head, nn.Sequential)
    random, negatives = np.random.default_rng(_SEED), NegativeSampler(store, 1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        for layer in head:
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()
    learnt, scale = copy.deepcopy(head), _scale(table, np.asarray(edges[:_SCALE_EDGES]))
    optimizer = torch.optim.Adam(learnt.parameters(), lr=_RATE)
    steps = num_epochs * -(-min(len(edges), _MOST_EDGES) // _BATCH)
    falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 1 / steps, steps)
    best, best_weights = -np.inf, learnt.state_dict()
    for epoch in range(num_epochs):
        for number, positive in enumerate(_batches(edges, random)):
            drawn = negatives.draw(positive, derive_key(_SEED, epoch, number))
            _step(learnt, optimizer, _products(table, positive) * scale, _products(table, drawn) * scale)
            falling.step()
        _set(head, learnt.state_dict(), scale)
        value = score() if score else 0.0
        if value > best or score is None:
            best, best_weights = value, copy.deepcopy(learnt.state_dict())
        print(f"head: epoch {epoch + 1} of {num_epochs}" + (f", {value:.4f}" if score else ""))
    _set(head, best_weights, scale)


def _batches(edges: Array, random: np.random.Generator) -> Iterator[Array]:
    """Yield the edges of an epoch, in an order of its own."""
    order = random.permutation(len(edges))[:_MOST_EDGES]
    for part in blocks(len(order), _BATCH):
        yield np.asarray(edges[np.sort(order[part])], np.int64)


def _step(learnt: nn.Sequential, optimizer: torch.optim.Optimizer, edges: Tensor, others: Tensor) -> None:
    logits = learnt(torch.cat([edges, others])).squeeze(1)
    target = torch.zeros(len(logits))
    target[: len(edges)] = 1
    optimizer.zero_grad()
    nn.functional.binary_cross_entropy_with_logits(logits, target).backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def _products(table: Tensor, pairs: Array) -> Tensor:
    source, target = (table[torch.from_numpy(pairs[:, column])].float() for column in (0, 1))
    return source.mul_(target)


def _scale(table: Tensor, pairs: Array) -> float:
    """Return what makes products about as large as an MLP's weights expect: those of wide unit vectors are tiny."""
    spread = float(_products(table, pairs.astype(np.int64)).std())
    return 1 / spread if np.isfinite(spread) and spread > 0 else 1.0


def _set(head: nn.Sequential, learnt: dict[str, Tensor], scale: float) -> None:
    """Set the head's weights to learnt ones, which expect products times `scale`."""
    with torch.no_grad():
        for name, own in head.state_dict().items():
            own.copy_(learnt[name] * scale if name == "0.weight" else learnt[name])
