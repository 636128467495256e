"""Change the data from a moment on, prepare it again, and compare what seeds read that are not later."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from configs.errors import RecipeError, UserError
from configs.registry import PARTITIONERS
from configs.schema import Recipe
from tasks.arrays import Array
from tasks.calls import load_stage
from tasks.ingest.database.configs import DatabaseConfig
from tasks.ingest.database.moments import time_text
from tasks.ingest.stage import open_dataset
from tasks.leak_check.changed_data import change_from, known_rows
from tasks.leak_check.changed_tables import change_tables
from tasks.leak_check.inputs import SeedInputs, differences
from tasks.leak_check.same_rows import same_ids
from tasks.leak_check.telling_columns import telling_columns
from tasks.sampling.relational.batches import SeedMoments
from tasks.stage import Listener, Parent, StageContext, run_stage
from tasks.storage.caching import PickleCache
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.storage.manifests import GraphManifest
from tasks.storage.temporary import own_folder
from tasks.train.loaders.config_base import resolve_loader
from tasks.train.loaders.configs import RelationalConfig

_PREPARED = ("preprocess", "components", "partition")
_SPLITS = ("valid", "test")
_OF_ROWS = ("mean", "links", "together")
LABELS = "labels of splits that end before the moment"


class NoMomentsError(RecipeError):
    """The data set predicts nothing at moments: there is nothing to check."""


@dataclass
class LeakCheck:
    """What came of a check."""

    unit: str
    """Of moments: `seconds` since 1970, or another `number`."""
    moments: list[int] = field(default_factory=list)
    """From which on the data was changed."""
    seeds: int = 0
    """Whose inputs were compared, over all moments."""
    changed: dict[str, int] = field(default_factory=dict)
    """What of the inputs was not the same: to the number of seeds."""
    columns: list[str] = field(default_factory=list)
    """Columns that tell the label by themselves, in words."""
    timeless: list[str] = field(default_factory=list)
    """Tables without times: their rows were always there, and nothing of them was changed."""

    own_files: bool = False
    """Whether the user's own files were changed, not what ingest made."""

    @property
    def ok(self) -> bool:
        """Whether no leak was found."""
        return not self.changed and not self.columns


def check_leaks(recipe: Recipe, home: Home, num_seeds: int, listener: Listener | None = None) -> LeakCheck:
    """Look for what a recipe's model would learn from the future.

    For the first moment of the validation split, and of the test split: every cell, edge and label from then on is
    changed, the graph is prepared again, and the inputs of seeds of that moment and of earlier ones have to be equal to
    the bit; of tables in files these are changed themselves, with rows that go and come, and ingested again. What stays
    of then are the seeds' own rows and what their foreign keys name. The labels of splits whose horizon ends by the
    moment have to be the same. And a column of the predicted entities, or of rows that are one to one with them, that
    orders the labels nearly as they are is told.

    The graph is not split into parts for this, so that nodes keep their numbers.

    Args:
        recipe: of a data set whose rows are predicted at moments.
        home: where the prepared graph is found or made; what is changed lies in its `work` folder and is removed.
        num_seeds: seeds for each moment, half of them of that moment.
        listener: is told what runs.

    Raises:
        NoMomentsError: the data set is of another kind.
        RecipeError: the model reads no typed batches.
    """
    recipe = recipe.model_copy(update={"partition": PARTITIONERS.config({"name": "none", "num_parts": 1})})
    data = run_stage(load_stage("ingest"), recipe, {}, home, listener=listener).parent
    if data.manifest.fit_before is None:
        raise NoMomentsError(
            f"{data.manifest.dataset} predicts nothing at moments, so there is no later and earlier to tell apart; "
            "check-leaks is for data sets such as `database` (dataset.predict.at)"
        )
    state = _State(recipe, data, home, listener)
    found = LeakCheck(data.manifest.time_unit, timeless=_timeless(data), own_files=_own_files(recipe) is not None)
    found.columns = telling_columns(state.inputs.store, DatasetStore(data.folder, data.manifest))
    changed: Counter[str] = Counter()
    for moment in _moments(state.inputs.store):
        found.moments.append(moment)
        nodes = _seeds(state.inputs.store, moment, num_seeds)
        with own_folder(home) as folder:
            other = state.changed(moment, nodes, folder)
            if _needs_rows(recipe):  # within the horizon, and those were changed: who has none is no seed any more
                nodes = nodes[other.nodes_of(state.inputs.ids[nodes]) >= 0]
            changed.update(_compare(state.inputs, other, nodes, moment))
            found.seeds += len(nodes)
    found.changed = dict(changed.most_common())
    return found


class _OfCopies(Listener):
    """Passes on how far changed copies are read, and not what is said of them: it was said of the data, and of these
    it would name files that are gone."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def progress(self, stage: str, done: float, total: float, unit: str, note: str = "") -> None:
        self._listener.progress(stage, done, total, unit, note)

    def message(self, stage: str, text: str) -> None:
        pass

    def warning(self, stage: str, text: str) -> None:
        pass


class _State:
    """The data as it is, prepared and opened as the recipe's loader does."""

    def __init__(self, recipe: Recipe, data: Parent, home: Home, listener: Listener | None) -> None:
        self._recipe, self._data, self._listener = recipe, data, listener
        store = _prepare(recipe, data, home, listener)
        self._options = _loader(recipe, store.manifest)
        if _own_files(recipe) is not None:  # draws go by nodes' numbers, which change where rows come
            self._options = self._options.model_copy(update={"choose": "recent"})
        self.inputs = SeedInputs(recipe, self._options, store)

    def changed(self, moment: int, nodes: Array, folder: Path) -> SeedInputs:
        """Return the same with other data from a moment on; `nodes` are the seeds, and `folder` is there for it."""
        recipe, data, config = self._recipe, self._data, _own_files(self._recipe)
        home, names = Home.open(folder / "home"), None
        since = time_text(moment, self._data.manifest.time_unit)
        listener = None if self._listener is None else _OfCopies(self._listener)
        if self._listener is not None:
            self._listener.message("check-leaks", f"reading the tables again, with other rows from {since} on")
        spared = _known_rows(self._data, self.inputs.store, nodes, moment)
        if config is None:
            data = change_from(data, moment, folder / "data", spared)
        else:
            context = StageContext("check-leaks", folder / "data", home, PickleCache(home))
            try:
                dataset = change_tables(config, context, moment, spared)
                now = recipe.snapshot.model_copy(update={"as_of": None})  # copies of tables as they were
                recipe = recipe.model_copy(update={"dataset": dataset, "snapshot": now})
                data = run_stage(load_stage("ingest"), recipe, {}, home, listener=listener).parent
            except UserError as error:
                raise RecipeError(
                    f"check-leaks: the tables are refused once rows from {since} on are others, of the same kinds: "
                    f"{error}"
                ) from error
            before = DatasetStore(self._data.folder, self._data.manifest)
            names = same_ids(before, DatasetStore(data.folder, data.manifest), config, moment)
        return SeedInputs(recipe, self._options, _prepare(recipe, data, home, listener), names)


def _own_files(recipe: Recipe) -> DatabaseConfig | None:
    """Return the data set's options where it is tables in the user's own files."""
    options = open_dataset(recipe).config
    return options if isinstance(options, DatabaseConfig) else None


def _needs_rows(recipe: Recipe) -> bool:
    """Whether only entities that have rows within the horizon are predicted."""
    config = _own_files(recipe)
    targets = [] if config is None else list(config.predict.computed.values())
    return bool(targets) and all(target.figure in _OF_ROWS for target in targets)


def _compare(before: SeedInputs, after: SeedInputs, nodes: Array, moment: int) -> Counter[str]:
    """Return what differs, to the number of seeds."""
    changed: Counter[str] = Counter()
    for node, twin in zip(nodes, after.nodes_of(before.ids[nodes]), strict=True):
        if twin < 0:
            changed["whether the seed is in the graph"] += 1
        else:
            changed.update(differences(before.named(int(node)), after.named(int(twin))))
    known = _known_by(before.store, moment)
    twins = after.nodes_of(before.ids[known])
    label, other = before.store["label"][known], after.store["label"][np.maximum(twins, 0)]
    same = (label == other) | ((label != label) & (other != other))  # NaN is no label
    wrong = np.count_nonzero((twins < 0) | ~same.reshape(len(known), -1).all(axis=1))
    if wrong:
        changed[LABELS] += int(wrong)
    return changed


def _known_by(store: GraphStore, moment: int) -> Array:
    """Return the seeds of splits that end before a moment, int64 (n,): what is to be known of them is."""
    time = store["node_time"]
    splits = [np.asarray(store[f"{split}_idx"], np.int64) for split in ("train", "valid")]
    ended = [nodes for nodes in splits if len(nodes) and int(np.max(time[nodes])) < moment]
    return np.concatenate([np.empty(0, np.int64), *ended])


def _known_rows(data: Parent, store: GraphStore, nodes: Array, moment: int) -> dict[str, Array]:
    """Return the rows of a moment that its seeds see, by table: those that they ask about, and what these name."""
    if store.manifest.ranking is not None:
        return {}
    manifest, facts, time = store.manifest, graph_facts(store.manifest), store["node_time"]
    entities = SeedMoments(store, facts).entities(nodes[time[nodes] >= moment])
    kind = facts.seed_type
    rows = np.asarray(store["node_ids"])[entities] - manifest.type_offsets[kind]
    return known_rows(data, moment, manifest.node_types[kind], np.unique(rows))


def _prepare(recipe: Recipe, data: Parent, home: Home, listener: Listener | None) -> GraphStore:
    made = {"ingest": data}
    for name in _PREPARED:
        made[name] = run_stage(load_stage(name), recipe, dict(made), home, listener=listener).parent
    return GraphStore.open(made["partition"].folder)


def _loader(recipe: Recipe, manifest: GraphManifest) -> RelationalConfig:
    """Return the loader's options. Raises RecipeError: it makes no typed batches."""
    options = resolve_loader(recipe.train, recipe.model, manifest)  # type: ignore[arg-type]
    if not isinstance(options, RelationalConfig):
        raise RecipeError(
            f"train.loader={options.name} of model.name={recipe.model.name} does not read rows as of moments; take "
            "model.name=heterosage and train.loader=relational"
        )
    return options


def _moments(store: GraphStore) -> list[int]:
    """Return the first moment of each held-out split."""
    time = store["node_time"]
    held_out = [store[f"{split}_idx"] for split in _SPLITS if f"{split}_idx" in store]
    return sorted({int(np.min(time[nodes])) for nodes in held_out if len(nodes)})


def _seeds(store: GraphStore, moment: int, count: int) -> Array:
    """Return seeds of a moment and, as many, of earlier ones, int64 (n,): always the same.

    Of the very moment it is at most every other row, for the rest changes; the newest before it take the places left.
    """
    random = np.random.default_rng(0)
    every = np.concatenate([np.asarray(store[f"{split}_idx"], np.int64) for split in ("train", *_SPLITS)])
    time = np.asarray(store["node_time"][every])
    now, earlier = every[time == moment], every[time < moment]
    first = random.permutation(now)[: min(count + 1, len(now) + 1) // 2]
    newest = np.argsort(time[time < moment], kind="stable")[::-1][: (count + 1) // 2 - len(first)]
    earlier, newest = np.delete(earlier, newest), earlier[newest]
    first = np.concatenate([first, newest])
    return np.concatenate([first, random.permutation(earlier)[: count - len(first)]])


def _timeless(data: Parent) -> list[str]:
    """Return the node types whose rows have no time."""
    manifest = data.manifest
    return [one.name for one in manifest.node_types if "time" not in manifest.tables[f"nodes/{one.name}"].columns]
