"""Explanations as a file under the users' own ids, and a page."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from configs.errors import DataError, RecipeError, UserError
from tasks.apply.completion.asked import ENDS
from tasks.apply.completion.names import RELATIONS, EntityNames, Refusal, find_names
from tasks.apply.given import read_ids, why_unknown
from tasks.apply.job import ServeJob
from tasks.arrays import Array
from tasks.explain.answers import Answer
from tasks.explain.asked import ExplainRequest
from tasks.explain.explained import explain
from tasks.explain.page import MOST_ON_PAGE, render_page
from tasks.inference.opened import Opened
from tasks.kinds.judged import Deciding
from tasks.storage.ids import find_rows, relation_names
from tasks.storage.manifests import EDGE_IDS
from tasks.storage.outputs.tables import ParquetOutput
from tasks.supervise import report_progress

_FILE, _PAGE = "explanations.parquet", "explanations.html"
_MOST_SHOWN = 5
"""Explanations whose sentences a terminal shows."""


def asked_items(opened: Opened, job: ServeJob, what: str) -> Array:
    """Return the nodes or edges (n,), pairs (n, 2) or triples (n, 3) that are named on the command line, or triples of
    a file.

    Raises UserError: one is not in the data.
    """
    asked, manifest, path = job.explained, opened.store.manifest, job.given.get(what)
    if what == "triples":
        return _triples(opened, asked, path)
    if what == "nodes":
        return _nodes(opened, asked.nodes, manifest.target_type, "--node")
    if what == "edges":
        return np.array([_edge(opened, named) for named in asked.edges])
    types = (manifest.node_types[0],) * 2
    if len(manifest.node_types) > 1:
        edges = opened.dataset.manifest.edge_types[0]
        types = edges.source, edges.target
    columns = zip(zip(*asked.pairs, strict=True), types, strict=True)
    return np.stack([_nodes(opened, list(ids), kind, "--pair") for ids, kind in columns], 1)


def _nodes(opened: Opened, ids: list[str], kind: str, option: str) -> Array:
    nodes = opened.ids.find(pa.array(ids, pa.string()), kind)
    for name, node in zip(ids, nodes.tolist(), strict=True):
        if node < 0:
            raise RecipeError(f"{option} {name}: {why_unknown(node)}")
    return nodes


def _edge(opened: Opened, named: str) -> int:
    """Return the number of a labelled edge by its id, else by `source,target` or `source,target,row`."""
    store, kind = opened.store, opened.dataset.manifest.labelled_edges
    kept, table = store.get("edge_rows"), f"{EDGE_IDS}/{kind.name}"
    if table in opened.dataset and "," not in named:
        [place] = find_rows(opened.dataset, table, kind.num_edges, pa.array([named]))
        at = np.array([place]) if kept is None else np.flatnonzero(kept == place)
        if place < 0 or not len(at):
            raise RecipeError(f"--edge {named}: is not in the data, or left out of the graph")
        return int(at[0])
    parts = named.split(",")
    if len(parts) not in (2, 3):
        raise RecipeError(f"--edge {named}: name it by SOURCE,TARGET or SOURCE,TARGET,ROW, or by --edges FILE")
    ends = np.concatenate(
        [_nodes(opened, [parts[end]], kind, "--edge") for end, kind in enumerate((kind.source, kind.target))]
    )
    there = np.asarray(store["edge_ends"])
    joins = (there == ends).all(1)
    if not opened.dataset.manifest.directed:
        joins |= (there == ends[::-1]).all(1)
    at = np.flatnonzero(joins)
    rows = opened.ids.edge_columns(at)["row"].to_pylist()
    found = [place for place, row in zip(at.tolist(), rows, strict=True) if parts[2:] in ([], [str(row)])]
    if len(found) != 1:
        listed = (
            f"{len(rows)} edges join these, in rows {', '.join(map(str, rows[:10]))}"
            if rows
            else "no edge that could have a label joins these"
        )
        raise RecipeError(f"--edge {named}: {listed}" + ("; add ,ROW" if rows else ""))
    return found[0]


def _triples(opened: Opened, asked: ExplainRequest, path: Path | None) -> Array:
    if path is None:
        texts = [pa.array(column, pa.string()) for column in zip(*asked.triples, strict=True)]
    else:
        texts = [column.cast(pa.string()) for column in read_ids(path, dict.fromkeys(ENDS, True))]

    def refusal(place: int) -> Refusal:
        def refuse(row: int, message: str) -> UserError:
            said = f"{texts[place][row].as_py()!r} {message}"
            return RecipeError(f"--triple {said}") if path is None else DataError(said, path=path, row=row)

        return refuse

    entities = EntityNames(opened.ids, opened.dataset, opened.store.manifest.node_types)
    heads, tails = (entities.find(texts[place], refusal(place)) for place in (0, 2))
    relations = find_names(texts[1], relation_names(opened.dataset), RELATIONS, refusal(1))
    return np.stack([heads, relations, tails], 1)


def write_explanations(opened: Opened, job: ServeJob, items: Array) -> dict[str, Any]:
    """Write a file and a page into the work folder; returns the files, rows and the first sentences."""
    asked = job.explained
    answers = explain(opened, items, asked.options, Deciding(job.classes, threshold=job.threshold), asked.of_class)
    kept, rows = list[Answer](), 0
    with ExitStack() as stack:
        writer = stack.enter_context(ParquetOutput(job.work / _FILE))
        for number, answer in enumerate(answers, 1):
            table = answer.table
            writer.write(table)
            rows += len(table)
            if len(kept) < MOST_ON_PAGE:
                kept.append(answer)
            report_progress(number, len(items), "explained", job.what)
    title = f"Why? Scores of {asked.model or opened.model.config.name}"
    page = render_page(kept, title, kept[0].method, len(items) - len(kept))
    (job.work / _PAGE).write_text(page, encoding="utf-8")
    told = [
        {"head": answer.head, "sentences": answer.sentences(), "notes": answer.explanation.notes}
        for answer in kept[:_MOST_SHOWN]
    ]
    return {"files": [_FILE, _PAGE], "rows": rows, "explained": told}
