"""GraphStorm's JSON of graph construction (`gconstruct-v0.1`), read into the options of the data set `tables`.

What the JSON says and a recipe cannot is collected as a sentence each, so that nothing is lost in silence. The format:
https://graphstorm.readthedocs.io/en/latest/cli/graph-construction/single-machine-gconstruct.html
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.errors import DataError
from configs.source_files import user_path
from tasks.storage.manifests import SPLITS

_VERSION = "gconstruct-v0.1"
_FORMATS = {"parquet": "parquet", "csv": "csv"}
_NUMBERS = {
    "max_min_norm": "min_max",
    "standard": "standardize",
    "rank_gauss": "standardize",
    "bucket_numerical": "standardize",
}
"""Transforms of numbers, and what does most like it here."""
_AS_IT_IS = {"max_min_norm", "standard"}
_TASK_TYPES = {"classification": "multiclass", "regression": "regression"}
_TEXTS = {"tokenize_hf", "bert_hf"}
_READ = {
    "nodes": {"node_type", "files", "format", "node_id_col", "features", "labels"},
    "edges": {"source_id_col", "dest_id_col", "relation", "files", "format", "features", "labels"},
    "labels": {"task_type", "label_col", "split_pct", "custom_split_filenames"},
}
_NOT_A_WORD = re.compile(r"[^A-Za-z0-9_.-]+")
Convert = Callable[[str, Sequence[str]], str]
"""Writes JSON lines, some files of a table, as Parquet below the output folder and returns its path."""


@dataclass(frozen=True)
class Label:
    """A task that the description names."""

    where: str
    kind: str
    """`nodes` or `edges`."""
    place: int
    """Of the table among those of its kind."""
    said: Mapping[str, Any]

    @property
    def task_type(self) -> str:
        """`classification`, `regression` or `link_prediction`."""
        return str(self.said.get("task_type"))

    @property
    def can_be(self) -> bool:
        """Whether there is such a task here."""
        return self.task_type in _TASK_TYPES or (self.kind == "edges" and self.task_type == "link_prediction")


class Importer:
    """Reads one description."""

    def __init__(self, path: Path, said: Mapping[str, Any], convert: Convert) -> None:
        """`said`: what the file holds."""
        self.path, self.said, self.convert = path, said, convert
        self.notes: list[str] = []
        self.converted: list[str] = []
        """What was not taken over, or otherwise."""
        self.transforms: list[str] = []
        """Names of transforms for numbers."""
        self.labels: list[Label] = []

    def read(self, task: int | None = None) -> dict[str, Any]:
        """Return the options of the data set `tables` for one task, the first that can be, or by its number from 1.

        Raises DataError.
        """
        self._check_version()
        nodes = [self._nodes(one, place) for place, one in enumerate(self._entries("nodes"))]
        edges = [self._edges(one, place) for place, one in enumerate(self._entries("edges"))]
        types = Counter(one["type"] for one in nodes)
        for name in [name for name, count in types.items() if count > 1]:
            raise self._error(
                f"nodes of type {name} stand in {types[name]} blocks; join them into one table, by their ids"
            )
        for one in edges:
            if {one["source_type"], one["target_type"]} & types.keys():
                one["on_unknown_id"] = "drop"  # as construct_graph does unless it is told otherwise
        of_task = self._of_task(self._chosen(task), nodes, edges)
        self.transforms, others = self.transforms[:1], self.transforms[1:]
        for name in others:
            self.notes.append(
                f"numbers that {name} was for: {self.transforms[0]}, as all others (preprocess.transforms)"
            )
        kept = self._without_reverses(edges, of_task.get("target_relation"))
        title = self._word(self.path.stem, "title")
        return {"name": "tables", "title": title, "directed": True, **of_task, "nodes": nodes, "edges": kept}

    def _check_version(self) -> None:
        if "graph" in self.said:
            raise self._error("is of GSProcessing (`graph`); give the JSON of gconstruct, with `nodes` and `edges`")
        version = self.said.get("version", _VERSION)
        if version != _VERSION:
            self.notes.append(f"version {version}: read as {_VERSION}")
        for name in sorted(set(self.said) - {"version", "nodes", "edges"}):
            self.notes.append(f"{name}: not taken over")

    def _entries(self, kind: str) -> list[Mapping[str, Any]]:
        entries = self.said.get(kind, [])
        if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
            raise self._error(f"{kind} is not a list of objects")
        if kind == "edges" and not entries:
            raise self._error("has no edges")
        return entries

    def _nodes(self, said: Mapping[str, Any], place: int) -> dict[str, Any]:
        name = str(self._wanted(said, "node_type", f"nodes[{place}]"))
        table = {"type": self._word(name, "node_type"), **self._files(said, f"nodes {name}")}
        table["id"] = said.get("node_id_col")
        if table["id"] is None:
            self.notes.append(f"nodes {name}: no node_id_col, so a node's id is its row's number")
        return table | self._columns(said, "nodes", place, f"nodes {name}")

    def _edges(self, said: Mapping[str, Any], place: int) -> dict[str, Any]:
        relation = self._wanted(said, "relation", f"edges[{place}]")
        if not isinstance(relation, list) or len(relation) != 3:
            raise self._error(f"edges[{place}].relation is {relation!r}, not [source type, name, target type]")
        source, name, target = (self._word(str(one), "relation") for one in relation)
        where = f"edges {name}"
        table = {"relation": name, "source_type": source, "target_type": target, **self._files(said, where)}
        table["source"] = self._wanted(said, "source_id_col", where)
        table["target"] = self._wanted(said, "dest_id_col", where)
        return table | self._columns(said, "edges", place, where)

    def _columns(self, said: Mapping[str, Any], kind: str, place: int, where: str) -> dict[str, Any]:
        """Return the columns of features, by what is made of them, and remember the labels."""
        self._note_others(where, said, _READ[kind])
        columns: dict[str, list[str]] = {"features": [], "categorical": [], "texts": []}
        for feature in said.get("features") or ():
            names = feature.get("feature_col")
            names = [names] if isinstance(names, str) else list(names or ())
            role = self._role(feature.get("transform") or {}, f"{where}: {', '.join(names)}")
            if "out_dtype" in feature:
                self.notes.append(f"{where}: {', '.join(names)}: out_dtype is that of all (preprocess.feature_dtype)")
            if role is not None:
                columns[role] += [name for name in names if name not in columns[role]]
        self.labels += [Label(where, kind, place, one) for one in said.get("labels") or ()]
        return {role: names for role, names in columns.items() if names}

    def _role(self, transform: Mapping[str, Any], what: str) -> str | None:
        """Return what columns of a transform are here: `features`, `categorical` or `texts`; None: left out."""
        name, options = transform.get("name"), sorted(set(transform) - {"name"})
        if name in _TEXTS:
            model = transform.get("bert_model", "its model")
            self.notes.append(
                f"{what}: {name} of {model} becomes a column of texts, encoded by preprocess.texts (tfidf; sentence "
                f"takes a model such as {model})"
            )
            return "texts"
        if name == "to_categorical":
            if transform.get("separator"):
                self.notes.append(f"{what}: several categories in a cell (separator) cannot be; the column is left out")
                return None
            if transform.get("mapping"):
                self.notes.append(f"{what}: the mapping is not taken over; categories are numbered as they come")
            return "categorical"
        if name in _NUMBERS:
            if _NUMBERS[name] not in self.transforms:
                self.transforms.append(_NUMBERS[name])
            if name not in _AS_IT_IS or options:
                given = f" ({', '.join(options)})" if options else ""
                self.notes.append(f"{what}: {name}{given} becomes {_NUMBERS[name]}, fitted on training rows")
            return "features"
        if name == "edge_dst_hard_negative":
            self.notes.append(f"{what}: hard negatives are not taken over; the column is left out")
            return None
        if name is not None or options:
            said = name or ", ".join(options)
            self.notes.append(f"{what}: the transform {said} is not taken over; the numbers are read as they are")
        return "features"

    def _files(self, said: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Return the files of a table, and how they are read."""
        given = self._wanted(said, "files", where)
        files = [self._place(str(one)) for one in ([given] if isinstance(given, str) else given)]
        form = said.get("format") or {}
        name = str(form.get("name", Path(files[0]).suffix.lstrip("."))).lower()
        if name == "json":
            self.notes.append(f"{where}: JSON is written as Parquet")
            what = f"{where} {len(self.converted)}" if where in self.converted else where  # relations of one name
            self.converted.append(what)
            return {"files": self.convert(what, files), "format": "parquet"}
        if name not in _FORMATS:
            raise self._error(f"{where}: tables in {name} are not read; write them as Parquet or CSV")
        separator = form.get("separator")
        options = {"delimiter": separator} if name == "csv" and separator not in (None, ",") else {}
        return {"files": files if len(files) > 1 else files[0], "format": name, **options}

    def _place(self, given: str) -> str:
        """Return where a file lies: beside the JSON, unless it is there where the command runs."""
        path = user_path(given)
        beside = self.path.parent / path
        return str(path if path.is_absolute() else beside if any(_there(beside)) else path.resolve())

    # ---- the task

    def _chosen(self, task: int | None) -> Label:
        """Return the label that the recipe is for, and say which others there are."""
        labels = self.labels
        if not labels:
            raise self._error("names no labels, so nothing is predicted: give a node or edge type `labels`")
        if task is not None and not 1 <= task <= len(labels):
            raise self._error(f"has {len(labels)} tasks, and --task is {task}")
        usable = [number for number, one in enumerate(labels) if one.can_be]
        number = task - 1 if task is not None else usable[0] if usable else 0
        if number not in usable:
            where = labels[number].where if task is None else f"--task {task}"
            raise self._error(f"{where}: {labels[number].task_type} of {labels[number].kind} cannot be taken over")
        for other, one in enumerate(labels):
            if other != number:
                column = f" of {one.said['label_col']}" if one.said.get("label_col") else ""
                way_out = f"; --task {other + 1} makes its recipe" if other in usable else ""
                self.notes.append(f"{one.where}: {one.task_type}{column} is another task{way_out}")
        return labels[number]

    def _of_task(self, label: Label, nodes: list[dict[str, Any]], edges: list[dict[str, Any]]) -> dict[str, Any]:
        self._note_others(label.where, label.said, _READ["labels"])
        split = self._split(label)
        if label.task_type not in _TASK_TYPES:
            table = edges[label.place]
            if [one["relation"] for one in edges].count(table["relation"]) > 1:
                table["relation"] = "_".join((table["source_type"], table["relation"], table["target_type"]))
                self.notes.append(f"{label.where}: called {table['relation']}, for another relation has its name")
            return {"task": "link", "target_relation": table["relation"], "split": split}
        of_edges = label.kind == "edges"
        table = edges[label.place] if of_edges else nodes[label.place]
        column = str(self._wanted(label.said, "label_col", label.where))
        for role in ("features", "categorical", "texts"):
            if column in table.get(role, ()):
                table[role].remove(column)
                self.notes.append(f"{label.where}: {column} is the label, and no longer a feature too")
        table["label"] = [column]
        said = {"task_type": _TASK_TYPES[label.task_type], "split": split}
        return {"task": "edge", **said} if of_edges else {"task": "node", **said, "target_type": table["type"]}

    def _split(self, label: Label) -> dict[str, Any]:
        """Return the split: of files of ids, or shares, of which the rest trains."""
        files = label.said.get("custom_split_filenames")
        if files:
            return self._split_of_files(label, files)
        given = [float(one) for one in label.said.get("split_pct") or (0.8, 0.1, 0.1)]
        if len(given) != 3 or min(given) < 0 or sum(given) > 1 + 1e-6:
            raise self._error(f"{label.where}: split_pct {given} is not three shares of 1")
        _, valid, test = given
        for name, share in (("valid", valid), ("test", test)):
            if not share:
                self.notes.append(f"{label.where}: split_pct has no {name} rows, which are needed: 0.1 of them")
        valid, test = valid or 0.1, test or 0.1
        train = round(1 - valid - test, 6)
        if train <= 0:
            raise self._error(f"{label.where}: split_pct {given} leaves nothing to train")
        if sum(given) < 1 - 1e-6:
            self.notes.append(f"{label.where}: split_pct adds up to {sum(given):g}; the rest trains too")
        return {"by": "ratio", "train": train, "valid": valid, "test": test}

    def _split_of_files(self, label: Label, files: Mapping[str, Any]) -> dict[str, Any]:
        of_links = label.kind == "edges"
        if label.task_type in _TASK_TYPES and of_links:
            raise self._error(
                f"{label.where}: labelled edges are not split by files (custom_split_filenames); write the split as a "
                "column of the edges and name it in the recipe, or give split_pct"
            )
        wanted = ("valid", "test") if of_links else SPLITS
        missing = [name for name in wanted if not files.get(name)]
        if missing:
            raise self._error(f"{label.where}: custom_split_filenames lacks {', '.join(missing)}")
        if of_links and files.get("train"):
            self.notes.append(f"{label.where}: the train file is not read: all edges train that are not held out")
        places, as_json = {}, False
        for name in wanted:
            given = files[name]
            given = given[0] if isinstance(given, list) and len(given) == 1 else given
            if not isinstance(given, str):
                raise self._error(f"{label.where}: custom_split_filenames.{name} is not one file; join them")
            place = self._place(given)
            as_json |= place.endswith((".json", ".jsonl"))
            places[name] = self.convert(f"split {name}", [place]) if place.endswith((".json", ".jsonl")) else place
        names = [str(one) for one in files.get("column") or ()]
        split: dict[str, Any] = {"by": "files", "files": places, "header": True}
        if of_links and len(names) == 2 and not as_json:
            split |= {"source": names[0], "target": names[1]}
        elif names:
            self.notes.append(f"{label.where}: ids are the first columns of the files of the split")
        return split

    def _without_reverses(self, edges: list[dict[str, Any]], target: str | None) -> list[dict[str, Any]]:
        """Leave relations out that are another one read backwards: preprocess makes reverses, and never of held-out."""
        names = ("source", "target", "source_type", "target_type")
        backwards = ("target", "source", "target_type", "source_type")
        seen: dict[tuple[str, ...], dict[str, Any]] = {}
        # What is predicted comes first, and stays.
        for one in sorted(edges, key=lambda one: one["relation"] != target and "label" not in one):
            other = seen.get((str(one["files"]), *(one[name] for name in backwards)))
            if other is None:
                seen[str(one["files"]), *(one[name] for name in names)] = one
                continue
            self.notes.append(f"edges {one['relation']}: {other['relation']} backwards, which preprocess makes itself")
            edges = [kept for kept in edges if kept is not one]
        return edges

    # ---- words

    def _word(self, text: str, what: str) -> str:
        """Return a name that a recipe can have."""
        word = _NOT_A_WORD.sub("_", text).lstrip("_.-") or "x"
        if word != text and what != "title":
            note = f"{what} {text!r} is called {word}"
            self.notes += [] if note in self.notes else [note]
        return word

    def _note_others(self, where: str, said: Mapping[str, Any], read: set[str]) -> None:
        self.notes += [f"{where}: {name} is not taken over" for name in sorted(set(said) - read)]

    def _wanted(self, said: Mapping[str, Any], name: str, where: str) -> Any:
        if not said.get(name):
            raise self._error(f"{where}: {name} is missing")
        return said[name]

    def _error(self, message: str) -> DataError:
        return DataError(message, path=self.path)


def _there(path: Path) -> list[Path]:
    """Return the files that a path or a pattern names."""
    return [path] if path.exists() else list(path.parent.glob(path.name)) if path.parent.is_dir() else []
