"""Swiss-Prot's Gene Ontology annotations as a typed graph: in which part of a cell is a protein found?

    python -m benchmarks.swissprot DATA FOLDER      # DATA: annotations, ontology, proteins, terms .parquet and the .npz
    cd FOLDER && graphmill run swissprot.yaml

Writes a table for each type of nodes and relation, and the recipe. Proteins have the share of each amino acid and their
length as features. Labels are eight parts of a cell, each with all terms below it (is_a, part_of); the annotations that
say so are the labels and in no relation. A protein without one has no label. Splits are drawn at random, and Swiss-Prot
holds many relatives of each protein: scores say how much the graph adds to the features, not how well a protein without
relatives would be placed.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PARTS = (
    "nucleus",
    "cytoplasm",
    "plasma membrane",
    "mitochondrion",
    "ribosome",
    "extracellular region",
    "endoplasmic reticulum",
    "chloroplast",
)
_PROCESS, _FUNCTION, _COMPONENT = 0, 1, 2

RECIPE = """\
name: swissprot
description: Tell in which parts of a cell a protein is found, from its processes and functions
dataset:
  name: tables
  title: swissprot
  task: node
  task_type: multilabel
  directed: true
  nodes:
    - {type: protein, files: protein.parquet, id: accession, features: [length, NAMES], label: [LABELS]}
    - {type: term, files: term.parquet, id: id}
  edges:
    - files: process.parquet
      relation: process
      source: protein
      source_type: protein
      target: term
      target_type: term
    - files: function.parquet
      relation: function
      source: protein
      source_type: protein
      target: term
      target_type: term
    - files: ontology.parquet
      relation_column: relation
      source: child
      source_type: term
      target: parent
      target_type: term
  split: {by: ratio, train: 0.8, valid: 0.1, test: 0.1}
preprocess:
  symmetrize: true
  self_loops: remove
  transforms: [{name: standardize}]
model: {name: heterosage, hidden_dim: 64, num_layers: 2, dropout: 0.1}
train:
  loader: {name: relational, fanout: [10, 10], batch_size: 1024}
  epochs: 3
  learning_rate: 0.003
"""


def below(ontology: pa.Table, root: int, num_terms: int) -> Any:
    """Return bool (num_terms,): the term and all terms that are it or part of it."""
    found = np.zeros(num_terms, bool)
    found[root] = True
    relation = ontology["relation"].to_numpy(zero_copy_only=False)
    kept = (relation == "is_a") | (relation == "part_of")
    parent, child = (ontology[name].to_numpy()[kept] for name in ("parent_or_dst", "child_or_src"))
    while True:
        reached = found.copy()
        reached[child[found[parent]]] = True
        if (reached == found).all():
            return found
        found = reached


def write(data: Path, folder: Path) -> None:
    """Write tables and recipe."""
    folder.mkdir(parents=True, exist_ok=True)
    annotations, ontology, proteins, terms = (
        pq.read_table(data / f"{name}.parquet") for name in ("annotations", "ontology", "proteins", "terms")
    )
    names = terms["name"].to_pylist()
    accession, ids = (table.column(0).to_numpy(zero_copy_only=False).astype(object) for table in (proteins, terms))
    protein, term, aspect = (annotations[name].to_numpy() for name in ("protein", "term", "aspect"))
    placed = np.bincount(protein[aspect == _COMPONENT], minlength=len(accession)) > 0
    labels = {}
    for part in PARTS:
        chosen = below(ontology, names.index(part), len(names))[term] & (aspect == _COMPONENT)
        label = pa.array(np.bincount(protein[chosen], minlength=len(accession)) > 0).cast(pa.int8())
        labels[part.replace(" ", "_")] = pa.array(label.to_numpy(), mask=~placed)
    with np.load(data / "protein_aa_frac_x500.npz") as found:
        shares = {f"share_{name}": found["x"][:, i] for i, name in enumerate(found["columns"])}
    pq.write_table(
        pa.table({**dict(zip(proteins.column_names, proteins.columns, strict=True)), **shares, **labels}),
        folder / "protein.parquet",
    )
    pq.write_table(terms, folder / "term.parquet")
    for name, number in (("process", _PROCESS), ("function", _FUNCTION)):
        rows = aspect == number
        pq.write_table(
            pa.table({"protein": accession[protein[rows]], "term": ids[term[rows]]}), folder / f"{name}.parquet"
        )
    parent, child = (ids[ontology[name].to_numpy()] for name in ("parent_or_dst", "child_or_src"))
    pq.write_table(
        pa.table({"parent": parent, "child": child, "relation": ontology["relation"]}), folder / "ontology.parquet"
    )
    recipe = RECIPE.replace("NAMES", ", ".join(shares)).replace("LABELS", ", ".join(labels))
    (folder / "swissprot.yaml").write_text(recipe)


def main() -> None:
    """Write what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    write(arguments.data, arguments.folder)
    print(f"{arguments.folder / 'swissprot.yaml'}: graphmill run it there")


if __name__ == "__main__":
    main()
