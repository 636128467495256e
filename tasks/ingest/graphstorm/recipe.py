"""GraphStorm's description of a graph as a recipe of the data set `tables`, and tables that had to be written anew.

What it says and a recipe cannot is collected as a sentence each, so that nothing is lost in silence.
"""

from __future__ import annotations

import copy
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from configs.errors import DataError, readable
from configs.load import build_recipe
from configs.matching import did_you_mean, listed
from configs.source_files import user_path
from tasks.ingest.graphstorm import gconstruct
from tasks.ingest.graphstorm.gconstruct import read_description
from tasks.ingest.tables.paths import files_of
from tasks.readers.streams import read_lines
from tasks.storage.artifacts import disk_errors, write_atomic
from tasks.storage.file_names import file_name
from tasks.storage.manifests import SPLITS
from tasks.storage.outputs.tables import ParquetOutput


def import_graphstorm(given: str, out: str | None, task: int) -> tuple[Path, list[str]]:
    """Write a recipe into a folder, by default beside the JSON; return where, and what was not taken over.

    Nothing is written where anything is wrong. Raises DataError: the JSON is none, or not as it has to be, a table of
    it cannot be read, or the folder has a recipe already; RecipeError: what it says is refused in recipes.
    """
    path = user_path(given)
    folder = (path.parent / f"{path.stem}-graphmill" if out is None else user_path(out)).resolve()
    place = folder / "recipe.yaml"
    if place.exists():
        raise DataError("is there already; remove it, or give another folder (--out)", path=place)
    importer = Importer(path, folder / "tables")
    dataset = importer.read(read_description(path), task)
    recipe = _recipe(importer, dataset, task)
    build_recipe(copy.deepcopy(recipe), source=f"{path}, as a recipe")
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".tables-") as draft:
            for table, (files, names) in importer.json_files.items():
                _write_parquet(Path(draft, table.name), files, names)
            for table in importer.json_files:
                table.parent.mkdir(exist_ok=True)
                Path(draft, table.name).replace(table)
        write_atomic(place, _text(importer, recipe).encode())
    return place, importer.notes


def _recipe(made: Importer, dataset: dict[str, Any], task: int) -> dict[str, Any]:
    types = {one[end] for one in dataset["edges"] for end in ("source_type", "target_type")}
    is_link, is_typed = dataset["task"] == "link", len(types) > 1 or len(dataset["edges"]) > 1
    model = {"name": "rgcn" if is_typed else "graphsage", "hidden_dim": 64, "num_layers": 2, "dropout": 0.1}
    model |= {"decoder": "dot"} if is_link else {}  # all targets are one matrix product
    loaders = {"link": "edge", "edge": "labelled_edge", "node": "neighbor"}
    loader: dict[str, Any] = {"name": loaders[dataset["task"]], "fanout": [10, 10], "batch_size": 1024}
    own = f"-{task}" if task > 1 else ""  # its model is another one, and no version of the first task's
    recipe: dict[str, Any] = {"name": file_name(f"{dataset['title']}{own}"), "dataset": dataset}
    if made.transforms:
        recipe["preprocess"] = {"transforms": [{"name": made.transforms[0]}]}
    return recipe | {"model": model, "train": {"loader": loader, "epochs": 20, "learning_rate": 0.005}}


def _text(made: Importer, recipe: dict[str, Any]) -> str:
    notes = "".join(f"#   {note}\n" for note in made.notes)
    head = f"# Made of {one_line(made.path.name)} (GraphStorm) by `graphmill import graphstorm`."
    said = f"{head} Not taken over, or otherwise:\n{notes}" if notes else f"{head}\n"
    return said + str(yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True, width=120))


def _write_parquet(place: Path, patterns: list[str], names: list[str]) -> None:
    """Write JSON lines as Parquet, a block at a time: objects, or an id or a pair under `names`. Raises DataError."""
    with ParquetOutput(place) as writer:
        for path in files_of(patterns):
            for first, lines in read_lines(path):
                numbered = [(first + n, line) for n, line in enumerate(lines.to_pylist(), 1) if line.strip()]
                rows = [_row(path, number, line, names) for number, line in numbered]
                if not rows:
                    continue
                try:
                    writer.write(pa.Table.from_pylist(rows))
                except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
                    raise DataError(f"a column holds values of several kinds: {error}", path=path) from None
    if not writer.num_rows:
        raise DataError("there are no rows", path=Path(patterns[0]))


def _row(path: Path, number: int, line: str, names: list[str]) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"line {number} is no JSON: {error}", path=path) from None
    if isinstance(value, dict):
        return value
    values = value if isinstance(value, list) else [value]
    if len(values) != len(names):
        needed = f"an object, or of {' and '.join(names)}" if names else "an object"
        raise DataError(f"line {number} is no JSON of {needed}: {readable(line, 100)}", path=path)
    return dict(zip(names, values, strict=True))


_NUMBERS = {
    "max_min_norm": "min_max",
    "standard": "standardize",
    "rank_gauss": "standardize",
    "bucket_numerical": "standardize",
}
"""Transforms of numbers, and what does most like it here."""
_TEXTS = ("texts", "a column of texts, encoded by preprocess.texts (tfidf; sentence takes such a model)")
_LEFT_OUT = (None, "nothing: the column is left out")
_OTHERS = {
    "to_categorical": ("categorical", "categories, numbered as they come"),
    "tokenize_hf": _TEXTS,
    "bert_hf": _TEXTS,
    "edge_dst_hard_negative": _LEFT_OUT,
}
"""Other transforms: the option for their columns, None for none, and what is made of them."""
_AS_IT_IS = {"max_min_norm", "standard", "to_categorical"}
_TASK_TYPES = {"classification": "multiclass", "regression": "regression"}
_NOT_A_WORD = re.compile(r"[^A-Za-z0-9_.-]+")
_Task = tuple[str, gconstruct.Label, dict[str, Any]]
"""Where it is said, the task, and the options of its table."""


class Importer:
    """Reads one description."""

    def __init__(self, path: Path, tables: Path) -> None:
        """`path`: of the description; `tables`: folder of the tables that have to be written anew."""
        self.path, self.tables = path, tables
        self.notes: list[str] = []
        """What was not taken over, or otherwise."""
        self.transforms: list[str] = []
        """Names of transforms for numbers."""
        self.json_files: dict[Path, tuple[list[str], list[str]]] = {}
        """Parquet files to write, the files of JSON lines that become one, and the columns of lines without names."""
        self._tasks: list[_Task] = []

    def read(self, said: gconstruct.Description, task: int) -> dict[str, Any]:
        """Return the options of the data set `tables` for one task of those that can be, by its number from 1.

        Raises DataError.
        """
        if said.version != gconstruct.VERSION:
            self._note(f"version {said.version}: read as {gconstruct.VERSION}")
        self._note_others("", said)
        nodes = [self._nodes(one) for one in said.nodes]
        edges = [self._edges(one) for one in said.edges]
        types = {one["type"] for one in nodes}
        for one in edges:
            if {one["source_type"], one["target_type"]} & types:
                one["on_unknown_id"] = "drop"  # as construct_graph does unless it is told otherwise
        of_task = self._of_task(self._chosen(task), edges)
        for name in self.transforms[1:]:
            self._note(f"numbers that {name} was for: {self.transforms[0]}, as all others (preprocess.transforms)")
        kept = self._without_reverses(edges, of_task.get("target_relation"))
        title = _NOT_A_WORD.sub("_", self.path.stem).lstrip("_.-") or "x"
        return {"name": "tables", "title": title, "directed": True, **of_task, "nodes": nodes, "edges": kept}

    def _nodes(self, said: gconstruct.Nodes) -> dict[str, Any]:
        where = f"nodes {said.node_type}"
        table = {"type": self._word(said.node_type, "node_type"), **self._files(said, where), "id": said.node_id_col}
        if said.node_id_col is None:
            self._note(f"{where}: no node_id_col, so a node's id is its row's number")
        return self._with_columns(table, said, where)

    def _edges(self, said: gconstruct.Edges) -> dict[str, Any]:
        source, name, target = (self._word(one, "relation") for one in said.relation)
        table = {"relation": name, "source_type": source, "target_type": target}
        table |= {**self._files(said, f"edges {name}"), "source": said.source_id_col, "target": said.dest_id_col}
        return self._with_columns(table, said, f"edges {name}")

    def _with_columns(self, table: dict[str, Any], said: gconstruct.JsonTable, where: str) -> dict[str, Any]:
        """Add the columns of features, by what is made of them, and remember the labels."""
        self._note_others(where, said)
        for feature in said.features:
            what = f"{where}: {', '.join(feature.feature_col)}"
            role = "features" if feature.transform is None else self._role(feature.transform, what)
            self._note_others(what, feature)
            if role is not None:
                table[role] = list(dict.fromkeys([*table.get(role, []), *feature.feature_col]))
        for label in said.labels:
            if label.task_type in _TASK_TYPES or ("relation" in table and label.task_type == "link_prediction"):
                self._tasks.append((where, label, table))
            else:
                self._note(f"{where}: {label.task_type} is not taken over")
        return table

    def _role(self, transform: gconstruct.Transform, what: str) -> str | None:
        name, options = transform.name, transform.model_extra or {}
        if name not in (known := [*_NUMBERS, *_OTHERS]):
            raise self._error(f"{what}: unknown transform {name!r}{did_you_mean(name, known)}; known: {listed(known)}")
        role, made = ("features", _NUMBERS[name]) if name in _NUMBERS else _OTHERS[name]
        if name == "to_categorical" and options.get("separator"):
            role, made = _LEFT_OUT  # several categories in a cell
        if name in _NUMBERS and made not in self.transforms:
            self.transforms.append(made)
        if options or name not in _AS_IT_IS:
            given = ", ".join(f"{key}: {value}" for key, value in sorted(options.items()))
            self._note(f"{what}: {name}{readable(f' ({given})', 200) if given else ''} becomes {made}")
        return role

    def _files(self, said: gconstruct.JsonTable, where: str) -> dict[str, Any]:
        self._note_others(f"{where}: format", said.format)
        files = [self._place(one) for one in said.files]
        if said.format.name == "json":
            self._note(f"{where}: JSON is written as Parquet")
            return {"files": self._converted(where, files, []), "format": "parquet"}
        options = {"delimiter": said.format.separator} if said.format.name == "csv" else {}
        return {"files": files, "format": said.format.name, **options}

    def _place(self, given: str) -> str:
        """Return where a file lies: beside the JSON, unless it is there where the command runs."""
        path = user_path(given)
        beside = self.path.parent / path
        there = beside.exists() or (beside.parent.is_dir() and any(beside.parent.glob(beside.name)))
        return str(path if path.is_absolute() else beside if there else path.resolve())

    def _converted(self, what: str, files: list[str], names: list[str]) -> str:
        place = self.tables / f"{file_name(f'{len(self.json_files)}-{what}')}.parquet"
        self.json_files[place] = files, names
        return str(place)

    # ---- the task

    def _chosen(self, number: int) -> _Task:
        if not self._tasks:
            raise self._error("names no labels that can be predicted here: give a node or edge type `labels`")
        if not 1 <= number <= len(self._tasks):
            raise self._error(f"has {len(self._tasks)} tasks, and --task is {number}")
        for other, (where, label, _) in enumerate(self._tasks, 1):
            if other != number:
                column = f" of {label.label_col}" if label.label_col else ""
                self._note(f"{where}: {label.task_type}{column} is another task; --task {other} makes its recipe")
        return self._tasks[number - 1]

    def _of_task(self, task: _Task, edges: list[dict[str, Any]]) -> dict[str, Any]:
        where, label, table = task
        self._note_others(where, label)
        split = self._split(*task)
        if label.task_type not in _TASK_TYPES:
            if [one["relation"] for one in edges].count(table["relation"]) > 1:
                table["relation"] = "_".join((table["source_type"], table["relation"], table["target_type"]))
                self._note(f"{where}: called {table['relation']}, for another relation has its name")
            return {"task": "link", "target_relation": table["relation"], "split": split}
        column = label.label_col
        if column is None:
            raise self._error(f"{where}: label_col is missing")
        for role in ("features", "categorical", "texts"):
            if column in table.get(role, ()):
                table[role].remove(column)
                self._note(f"{where}: {column} is the label, and no longer a feature too")
        table["label"] = [column]
        of_kind = {"task": "edge"} if "relation" in table else {"task": "node", "target_type": table["type"]}
        return {**of_kind, "task_type": _TASK_TYPES[label.task_type], "split": split}

    def _split(self, where: str, label: gconstruct.Label, table: dict[str, Any]) -> dict[str, Any]:
        """Return the split: of files of ids, or shares, of which the rest trains."""
        if label.custom_split_filenames is not None:
            of_links = "relation" in table
            if label.task_type in _TASK_TYPES and of_links:
                raise self._error(
                    f"{where}: labelled edges are not split by files (custom_split_filenames); write the split as a "
                    "column of the edges and name it in the recipe, or give split_pct"
                )
            return self._split_of_files(where, label.custom_split_filenames, of_links)
        given = label.split_pct
        valid, test = given[1] or 0.1, given[2] or 0.1
        train = round(1 - valid - test, 6)
        if train <= 0 or sum(given) > 1 + 1e-6:
            raise self._error(f"{where}: split_pct {given} is not three shares of 1, of which some train")
        for name, share in zip(SPLITS[1:], given[1:], strict=True):
            if not share:
                self._note(f"{where}: split_pct has no {name} rows, which are needed: 0.1 of them")
        if sum(given) < 1 - 1e-6:
            self._note(f"{where}: split_pct adds up to {sum(given):g}; the rest trains too")
        return {"by": "ratio", "train": train, "valid": valid, "test": test}

    def _split_of_files(self, where: str, files: gconstruct.SplitFiles, of_links: bool) -> dict[str, Any]:
        self._note_others(f"{where}: custom_split_filenames", files)
        wanted, ends = (SPLITS[1:], ["source", "target"]) if of_links else (SPLITS, ["id"])
        if files.column and len(set(files.column)) != len(ends):
            columns = f"{listed(files.column)}; it needs the {' and the '.join(ends)} column"
            raise self._error(f"{where}: custom_split_filenames.column names {columns}")
        places = {name: self._place(file) for name in wanted for file in getattr(files, name)}
        if len(places) < len(wanted):
            raise self._error(f"{where}: custom_split_filenames needs a file each for {', '.join(wanted)}")
        if of_links and files.train:
            self._note(f"{where}: the train file is not read: all edges train that are not held out")
        as_json = {name: file for name, file in places.items() if file.endswith((".json", ".jsonl"))}
        names = files.column or ends
        places |= {name: self._converted(f"split {name}", [file], names) for name, file in as_json.items()}
        if not files.column and len(as_json) < len(places):
            self._note(f"{where}: no column, so ids are the first columns of the files of the split")
        return {"by": "files", "files": places, "header": True, **dict(zip(ends, files.column, strict=False))}

    def _without_reverses(self, edges: list[dict[str, Any]], target: str | None) -> list[dict[str, Any]]:
        """Leave relations out that are another one read backwards: preprocess makes reverses, and never of held-out."""
        seen: dict[tuple[str, ...], dict[str, Any]] = {}
        # What is predicted comes first, and stays.
        for one in sorted(edges, key=lambda one: one["relation"] != target and "label" not in one):
            source, target_end = ((one[end], one[f"{end}_type"]) for end in ("source", "target"))
            other = seen.get((str(one["files"]), *target_end, *source))
            if other is None:
                seen[str(one["files"]), *source, *target_end] = one
            else:
                self._note(f"edges {one['relation']}: {other['relation']} backwards, which preprocess makes itself")
                edges = [kept for kept in edges if kept is not one]
        return edges

    # ---- words

    def _word(self, text: str, what: str) -> str:
        word = _NOT_A_WORD.sub("_", text).lstrip("_.-") or "x"
        if word != text:
            self._note(f"{what} {text!r} is called {word}")
        return word

    def _note_others(self, where: str, said: gconstruct.JsonSection) -> None:
        for name in sorted(set(said.model_extra or ()) - {"feature_name"}):  # columns have their own names here
            near = did_you_mean(name, type(said).model_fields.keys() - said.model_fields_set)
            self._note(f"{where}: {name} is not taken over{near}".removeprefix(": "))

    def _note(self, text: str) -> None:
        if (note := one_line(text)) not in self.notes:
            self.notes.append(note)

    def _error(self, message: str) -> DataError:
        return DataError(message, path=self.path)


def one_line(text: str) -> str:
    """Return words of a foreign file as one line that neither a recipe nor a terminal takes for more."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
