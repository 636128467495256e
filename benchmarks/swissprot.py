"""Writes Swiss-Prot's Gene Ontology annotations as a knowledge graph of 8 relations: which protein has which term.

    python -m benchmarks.swissprot [--out benchmarks/results/swissprot] [--held-out 20000]
    graphmill run benchmarks/recipes/swissprot.yaml

Triples join proteins (`P:ACCESSION`) to terms (`GO:...`) by the aspect of the term, and terms to terms by the five
relations of the ontology. --held-out annotations each make the validation and the test split, of proteins and terms
that training has, too; the ontology is all in training. entities.txt lists the names. Read from
GRAPHMILL_DATA/large (default ../shared/data).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.embeddings import RESULTS
from benchmarks.gnn_graphs import data_folder

ASPECTS = ("involved_in", "enables", "located_in")
"""Of codes 0 (biological process), 1 (molecular function) and 2 (cellular component)."""


def read(folder: Path) -> dict[str, pa.Table]:
    return {
        name: pq.read_table(folder / f"{name}.parquet") for name in ("annotations", "ontology", "proteins", "terms")
    }


def hold_out(proteins: np.ndarray, terms: np.ndarray, count: int, seed: int = 0) -> np.ndarray:
    """Draw annotations whose protein and term have another one that stays: numbers (count,)."""
    left = np.bincount(proteins), np.bincount(terms)
    chosen: list[int] = []
    for number in np.random.default_rng(seed).permutation(len(proteins)):
        protein, term = proteins[number], terms[number]
        if left[0][protein] > 1 and left[1][term] > 1:
            left[0][protein] -= 1
            left[1][term] -= 1
            chosen.append(int(number))
            if len(chosen) == count:
                return np.array(chosen)
    raise SystemExit(f"only {len(chosen):,} annotations can be held out")


def write(folder: Path, tables: dict[str, pa.Table], held_out: int) -> None:
    """Write train, valid and test as Parquet files of head, relation and tail."""
    proteins = np.array([f"P:{name}" for name in tables["proteins"]["accession"].to_pylist()], object)
    terms = np.array(tables["terms"]["id"].to_pylist(), object)
    own = {name: tables["annotations"][name].to_numpy() for name in ("protein", "term", "aspect")}
    splits: dict[str, Any] = {}
    drawn = hold_out(own["protein"], own["term"], 2 * held_out)
    splits["valid"], splits["test"] = drawn[:held_out], drawn[held_out:]
    stays = np.ones(len(own["protein"]), bool)
    stays[drawn] = False
    splits["train"] = np.flatnonzero(stays)
    relations = np.array(ASPECTS, object)
    ontology = tables["ontology"]
    folder.mkdir(parents=True, exist_ok=True)
    for split, chosen in splits.items():
        columns = [proteins[own["protein"][chosen]], relations[own["aspect"][chosen]], terms[own["term"][chosen]]]
        if split == "train":
            ends = [terms[ontology[name].to_numpy()] for name in ("child_or_src", "parent_or_dst")]
            more = ends[0], np.array(ontology["relation"].to_pylist(), object), ends[1]
            columns = [np.concatenate(pair) for pair in zip(columns, more, strict=True)]
        pq.write_table(
            pa.table(dict(zip(("head", "relation", "tail"), columns, strict=True))), folder / f"{split}.parquet"
        )
        print(f"{split}: {len(columns[0]):,} triples")
    print(f"written to {folder}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / "swissprot")
    parser.add_argument("--held-out", type=int, default=20_000, help="annotations of each of both splits")
    args = parser.parse_args(arguments)
    write(args.out, read(data_folder() / "large"), args.held_out)


if __name__ == "__main__":
    main()
