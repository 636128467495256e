"""Labels of edges on public data: makes tables and recipes, and measures gradient boosting on both ends beside them.

`python -m benchmarks.edges FOLDER` writes `email.yaml` (will a message of email-Eu be answered within a day?) and
`swissprot.yaml` (does an annotation rest on more than one piece of evidence? 200,000 of 4.5 M are asked about), for
`graphmill run`, and prints what LightGBM reaches. On messages it sees counts and shares of answers of both ends and of
the pair, counted on older training rows than it is fitted to; on annotations the columns of both ends and the edge,
terms and aspects as categories, and how many annotations both ends have. Data: see `shared/data/README.md`.
"""

from __future__ import annotations

import gzip
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DATA = Path(os.environ.get("GRAPHMILL_DATA", "../shared/data"))
_MODEL = """model: {name: graphsage, hidden_dim: 64, num_layers: 2, dropout: 0.2}
train: {epochs: %d, learning_rate: 0.003, loader: {name: labelled_edge, batch_size: %d, fanout: [15, 10]}}
evaluate: {evaluator: {name: rocauc}}
"""
_EMAIL = """name: email-answered
dataset:
  name: tables
  task: edge
  task_type: binary
  directed: true
  edges: {files: mails.parquet, source: from, target: to, time: time, features: [sin, cos], categorical: [day],
    label: answered}
  split: {by: time}
"""
_SWISSPROT = """name: swissprot-evidence
dataset:
  name: tables
  task: edge
  task_type: binary
  nodes:
    - {type: protein, files: proteins.parquet, id: id, features: [length, aa]}
    - {type: term, files: terms.parquet, id: id, categorical: [term]}
  edges:
    - {files: annotations.parquet, source: protein, target: term, source_type: protein, target_type: term,
       relation: has, categorical: [aspect], label: label}
    - {files: ontology.parquet, source: child_or_src, target: parent_or_dst, source_type: term, target_type: term,
       relation_column: relation}
  split: {by: column, column: split}
"""


def make_email(folder: Path) -> None:
    """Write messages in the order of time, without those of the last day, whose answers nobody knows."""
    with gzip.open(DATA / "temporal" / "email-Eu-core-temporal.txt.gz") as file:
        events = np.loadtxt(file, dtype=np.int64)
    source, target, time = events[np.argsort(events[:, 2], kind="stable")].T
    count, moments = int(max(source.max(), target.max())) + 1, 1 << 30
    ordered = np.sort((source * count + target) * moments + time)
    back = target * count + source
    following = ordered[np.minimum(np.searchsorted(ordered, back * moments + time, "right"), len(ordered) - 1)]
    answered = (following // moments == back) & (following % moments - time <= 86_400) & (following % moments > time)
    known = time <= time.max() - 86_400
    hour = 2 * np.pi * (time % 86_400) / 86_400
    table = {"from": source, "to": target, "time": time, "sin": np.sin(hour), "cos": np.cos(hour)}
    table |= {"day": time // 86_400 % 7, "answered": answered.astype(np.int8)}
    pq.write_table(pa.table({name: column[known] for name, column in table.items()}), folder / "mails.parquet")
    (folder / "email.yaml").write_text(_EMAIL + _MODEL % (5, 1024))


def make_swissprot(folder: Path) -> None:
    """Write proteins, terms, the ontology, and annotations of which some have a label and a split."""
    place = DATA / "large"
    edges, proteins, terms = (pq.read_table(place / f"{name}.parquet") for name in ("annotations", "proteins", "terms"))
    archive = np.load(place / "protein_aa_frac_x500.npz")
    aa = archive[archive.files[0]].astype(np.float32) / 500
    chosen = np.random.default_rng(0).permutation(edges.num_rows)[:200_000]
    split, label = np.full(edges.num_rows, None, object), np.full(edges.num_rows, None, object)
    label[chosen] = (edges["n_evidence"].to_numpy()[chosen] > 1).astype(int)
    for name, rows in zip(("train", "valid", "test"), np.split(chosen, [120_000, 160_000]), strict=True):
        split[rows] = name
    lists = pa.FixedSizeListArray.from_arrays(pa.array(aa.ravel()), aa.shape[1])
    length = np.log1p(proteins["length"].to_numpy().astype(np.float32))
    pq.write_table(pa.table({"id": np.arange(len(aa)), "length": length, "aa": lists}), folder / "proteins.parquet")
    pq.write_table(pa.table({"id": np.arange(terms.num_rows), "term": terms["id"]}), folder / "terms.parquet")
    table = edges.select(["protein", "term", "aspect"]).append_column("label", pa.array(label, pa.int8()))
    pq.write_table(table.append_column("split", pa.array(split, pa.string())), folder / "annotations.parquet")
    pq.write_table(pq.read_table(place / "ontology.parquet"), folder / "ontology.parquet")
    (folder / "swissprot.yaml").write_text(_SWISSPROT + _MODEL % (6, 2048))


def main(folder: Path) -> None:
    """Write everything, and measure the peer."""
    folder.mkdir(parents=True, exist_ok=True)
    make_email(folder)
    print(f"email: rocauc {peer_of_email(folder):.4f}")
    make_swissprot(folder)
    print("swissprot: rocauc {:.4f}, without counts {:.4f}".format(*peer_of_swissprot(folder)))


def peer_of_email(folder: Path) -> float:
    """Return the peer's ROC-AUC on the newest fifth: fitted to the second half of training by counts of the first."""
    table = pq.read_table(folder / "mails.parquet")
    source, target, label = (table[name].to_numpy() for name in ("from", "to", "answered"))
    count, rows = int(max(source.max(), target.max())) + 1, np.arange(len(label))
    pair, others = source * count + target, np.stack([table[name].to_numpy() for name in ("sin", "cos", "day")], 1)
    first, train, both = (int(share * len(label)) for share in (0.3, 0.6, 0.8))

    def features(asked: Any, past: Any) -> Any:
        columns = []
        for key, size in ((source, count), (target, count), (pair, count * count)):
            seen = np.bincount(key[past], minlength=size)[key[asked]]
            good = np.bincount(key[past], label[past], minlength=size)[key[asked]]
            columns += [seen, (good + 3) / (seen + 10)]
        back = np.bincount(pair[past], minlength=count * count)[target[asked] * count + source[asked]]
        return np.column_stack([*columns, back, others[asked]])

    fitted, held, asked = rows[first:train], rows[train:both], rows[both:]
    past = {"train": rows[:first], "valid": rows[:train], "test": rows[:train]}
    splits = {"train": fitted, "valid": held, "test": asked}
    return rocauc_of_trees({name: (features(some, past[name]), label[some]) for name, some in splits.items()})


def peer_of_swissprot(folder: Path) -> tuple[float, float]:
    """Return the peer's ROC-AUC, with and without how many annotations protein and term have."""
    edges, proteins = (pq.read_table(folder / f"{name}.parquet") for name in ("annotations", "proteins"))
    protein, term, aspect = (edges[name].to_numpy() for name in ("protein", "term", "aspect"))
    split, label = (edges[name].to_numpy(zero_copy_only=False) for name in ("split", "label"))
    aa = proteins["aa"].combine_chunks().flatten().to_numpy().reshape(proteins.num_rows, -1)
    counts = [np.bincount(end)[end] for end in (protein, term)]
    scores = []
    for more in (counts, []):
        splits = {}
        for name in ("train", "valid", "test"):
            rows = np.flatnonzero(split == name)
            numbers = [proteins["length"].to_numpy()[protein[rows]], aa[protein[rows]], *(one[rows] for one in more)]
            x = np.column_stack([term[rows], aspect[rows], *numbers])
            splits[name] = x, label[rows].astype(np.int64)
        scores.append(rocauc_of_trees(splits, categorical_feature=[0, 1]))
    return scores[0], scores[1]


def rocauc_of_trees(splits: dict[str, tuple[Any, Any]], **options: Any) -> float:
    """Return the ROC-AUC on test of trees fitted to features and labels of train, as many as are best on valid."""
    import lightgbm
    from sklearn.metrics import roc_auc_score

    fitted = lightgbm.Dataset(*splits["train"], **options)
    held = fitted.create_valid(*splits["valid"])
    parameters = {"objective": "binary", "learning_rate": 0.05, "verbosity": -1, "metric": "auc", "num_threads": 2}
    ending = [lightgbm.early_stopping(30, verbose=False)]
    trees = lightgbm.train(parameters, fitted, 600, valid_sets=[held], callbacks=ending)
    return float(roc_auc_score(splits["test"][1], trees.predict(splits["test"][0])))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
