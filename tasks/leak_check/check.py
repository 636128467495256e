"""Change the data from a moment on, prepare it again, and compare what seeds read that are not later."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import RecipeError, UserError
from configs.registry import PARTITIONERS
from configs.schema import Recipe
from tasks.arrays import Array
from tasks.calls import load_stage
from tasks.ingest.database.configs import DatabaseConfig
from tasks.ingest.database.moments import time_text
from tasks.ingest.database.relbench.dataset import Relbench
from tasks.ingest.stage import open_dataset
from tasks.ingest.synthetic.shop import SyntheticShop, shop_database, write_shop
from tasks.leak_check.changed_tables import change_tables
from tasks.leak_check.inputs import SeedInputs, differences, known_rows, same_ids
from tasks.leak_check.telling_columns import telling_columns
from tasks.sampling.relational.batches import SeedMoments
from tasks.stage import InnerListener, Listener, Parent, StageContext, run_stage
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.storage.home_files.caching import PickleCache
from tasks.storage.home_files.temporary import own_folder
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

    @property
    def ok(self) -> bool:
        """Whether no leak was found."""
        return not self.changed and not self.columns


def check_leaks(recipe: Recipe, home: Home, num_seeds: int, listener: Listener | None = None) -> LeakCheck:
    """Look for what a recipe's model would learn from the future, and for columns that tell the label by themselves.

    For the first moment of the validation and of the test split the tables' files are written anew, where every cell,
    key and label from then on is another and rows go and come. The inputs of seeds of that moment and of earlier ones
    have to be equal to the bit, and so have the labels of splits whose horizon ends by then. What stays of that moment
    are the seeds' own rows and what their foreign keys name. The graph is one piece, so that nodes keep their numbers.

    What is changed lies in the home's `work` folder and is removed. Each moment has `num_seeds` seeds, half of
    them of that moment; `listener` is told what runs.

    Raises NoMomentsError: the data set is of another kind; RecipeError: the model reads no typed batches.
    """
    recipe = recipe.model_copy(update={"partition": PARTITIONERS.config({"name": "auto"})})
    data = run_stage(load_stage("ingest"), recipe, {}, home, listener=listener).parent
    if data.manifest.fit_before is None:
        raise NoMomentsError(
            f"{data.manifest.dataset} predicts nothing at moments, so there is no later and earlier to tell apart; "
            "check-leaks is for data sets such as `database` (dataset.predict.at)"
        )
    state = _CheckedRecipe(recipe, data, home, listener)
    manifest = data.manifest
    timeless = [one.name for one in manifest.node_types if "time" not in manifest.tables[f"nodes/{one.name}"].columns]
    check = LeakCheck(manifest.time_unit, timeless=timeless)
    check.columns = telling_columns(state.inputs.store, DatasetStore(data.folder, manifest))
    changed: Counter[str] = Counter()
    store = state.inputs.store
    held_out = [store[f"{split}_idx"] for split in _SPLITS if f"{split}_idx" in store]
    for moment in sorted({int(np.min(store["node_time"][nodes])) for nodes in held_out if len(nodes)}):
        check.moments.append(moment)
        nodes = _seeds(state.inputs.store, moment, num_seeds)
        with own_folder(home) as folder:
            other, config = state.changed(moment, nodes, folder)
            targets = list(config.predict.computed.values())
            if targets and all(target.figure in _OF_ROWS for target in targets):
                # Of rows within the horizon, and those were changed: who has none is no seed any more.
                nodes = nodes[other.nodes_of(state.inputs.ids[nodes]) >= 0]
            changed.update(_compare(state.inputs, other, nodes, moment))
            check.seeds += len(nodes)
    check.changed = dict(changed.most_common())
    return check


class _CheckedRecipe:
    """The data as it is, prepared and opened as the recipe's loader does."""

    def __init__(self, recipe: Recipe, data: Parent, home: Home, listener: Listener | None) -> None:
        self._recipe, self._data, self._listener = recipe, data, listener
        store = _prepare(recipe, data, home, listener)
        options = resolve_loader(recipe.train, recipe.model, store.manifest)  # type: ignore[arg-type]
        if not isinstance(options, RelationalConfig):
            raise RecipeError(
                f"train.loader={options.name} of model.name={recipe.model.name} does not read rows as of moments; take "
                "model.name=heterosage and train.loader=relational"
            )
        # Draws go by nodes' numbers, which change where rows come.
        self._options = options.model_copy(update={"choose": "recent"})
        self.inputs = SeedInputs(recipe, self._options, store)

    def changed(self, moment: int, nodes: Array, folder: Path) -> tuple[SeedInputs, DatabaseConfig]:
        """Return the same with other data, in `folder`, from a moment on, and its tables; `nodes` are the seeds."""
        recipe, home = self._recipe, Home.open(folder / "home")
        since = time_text(moment, self._data.manifest.time_unit)
        listener = Listener() if self._listener is None else self._listener
        listener.message("check-leaks", f"reading the tables again, with other rows from {since} on")
        inner = InnerListener(listener, "check-leaks", "other rows")
        source = open_dataset(recipe)
        if isinstance(source, SyntheticShop):  # what is generated is written
            write_shop(source.config, folder / "tables")
            config: Any = shop_database(source.config, folder / "tables")
        else:
            config = source.database.config if isinstance(source, Relbench) else source.config
        assert isinstance(config, DatabaseConfig), "no other data set has moments"
        context = StageContext("check-leaks", folder / "data", home, PickleCache(home))
        try:
            dataset = change_tables(config, context, moment, _known_rows(self._data, self.inputs.store, nodes, moment))
            now = recipe.snapshot.model_copy(update={"as_of": None})  # copies of tables as they were
            recipe = recipe.model_copy(update={"dataset": dataset, "snapshot": now})
            data = run_stage(load_stage("ingest"), recipe, {}, home, listener=inner).parent
        except UserError as error:
            raise RecipeError(
                f"check-leaks: the tables are refused once rows from {since} on are others, of the same kinds: {error}"
            ) from error
        before = DatasetStore(self._data.folder, self._data.manifest)
        names = same_ids(before, DatasetStore(data.folder, data.manifest), config, moment)
        return SeedInputs(recipe, self._options, _prepare(recipe, data, home, inner), names), config


def _compare(before: SeedInputs, after: SeedInputs, nodes: Array, moment: int) -> Counter[str]:
    changed: Counter[str] = Counter()
    for node, twin in zip(nodes, after.nodes_of(before.ids[nodes]), strict=True):
        if twin < 0:
            changed["whether the seed is in the graph"] += 1
        else:
            changed.update(differences(before.named(int(node)), after.named(int(twin))))
    time = before.store["node_time"]
    splits = [np.asarray(before.store[f"{split}_idx"], np.int64) for split in ("train", "valid")]
    over = [seeds for seeds in splits if len(seeds) and int(np.max(time[seeds])) < moment]
    ended = np.concatenate([np.empty(0, np.int64), *over])  # what is to be known of these seeds is
    twins = after.nodes_of(before.ids[ended])
    label, other = before.store["label"][ended], after.store["label"][np.maximum(twins, 0)]
    same = (label == other) | ((label != label) & (other != other))  # NaN is no label
    wrong = np.count_nonzero((twins < 0) | ~same.reshape(len(ended), -1).all(axis=1))
    if wrong:
        changed[LABELS] += int(wrong)
    return changed


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


def _seeds(store: GraphStore, moment: int, count: int) -> Array:
    """Return seeds of a moment (every other row, for the rest changes) and, as many, of earlier ones, int64 (n,)."""
    random = np.random.default_rng(0)
    every = np.concatenate([np.asarray(store[f"{split}_idx"], np.int64) for split in ("train", *_SPLITS)])
    time = np.asarray(store["node_time"][every])
    now, earlier = every[time == moment], every[time < moment]
    first = random.permutation(now)[: min(count + 1, len(now) + 1) // 2]
    newest = np.argsort(time[time < moment], kind="stable")[::-1][: (count + 1) // 2 - len(first)]
    earlier, newest = np.delete(earlier, newest), earlier[newest]
    first = np.concatenate([first, newest])
    return np.concatenate([first, random.permutation(earlier)[: count - len(first)]])
