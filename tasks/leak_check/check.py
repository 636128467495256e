"""Change the data from a moment on, prepare it again, and compare what seeds read that are not later."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from configs.errors import RecipeError
from configs.registry import PARTITIONERS
from configs.schema import Recipe
from tasks.arrays import Array
from tasks.calls import load_stage
from tasks.leak_check.changed_data import change_from, known_rows
from tasks.leak_check.inputs import SeedInputs, differences
from tasks.leak_check.telling_columns import telling_columns
from tasks.stage import Listener, Parent, run_stage
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.storage.manifests import GraphManifest
from tasks.storage.temporary import own_folder
from tasks.train.loaders.config_base import resolve_loader
from tasks.train.loaders.configs import RelationalConfig

_PREPARED = ("preprocess", "components", "partition")
_SPLITS = ("valid", "test")


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
    """Look for what a recipe's model would learn from the future.

    For the first moment of the validation split, and of the test split: every cell, edge and label from then on is
    changed, the graph is prepared again, and the inputs of seeds of that moment and of earlier ones have to be equal to
    the bit. What stays of then are the seeds' own rows and what their foreign keys name. And a column of the predicted
    entities that orders the labels nearly as they are is told.

    The graph is not split into parts for this, so that nodes keep their numbers.

    Args:
        recipe: of a data set whose rows are predicted at moments.
        home: where the prepared graph is found or made; what is changed lies in its `work` folder and is removed.
        num_seeds: seeds for each moment, half of them of that moment.
        listener: is told what runs.

    Raises RecipeError: the data set is of another kind, or the model reads no typed batches.
    """
    recipe = recipe.model_copy(update={"partition": PARTITIONERS.config({"name": "none", "num_parts": 1})})
    data = run_stage(load_stage("ingest"), recipe, {}, home, listener=listener).parent
    if data.manifest.fit_before is None:
        raise RecipeError(
            f"{data.manifest.dataset} predicts nothing at moments, so there is no later and earlier to tell apart; "
            "check-leaks is for data sets such as `database` (dataset.predict.at)"
        )
    before, options = _prepare(recipe, data, home, listener)
    found = LeakCheck(data.manifest.time_unit, timeless=_timeless(data))
    found.columns = telling_columns(before.store, DatasetStore(data.folder, data.manifest))
    changed: Counter[str] = Counter()
    for moment in _moments(before.store):
        found.moments.append(moment)
        nodes = _seeds(before.store, moment, num_seeds)
        with own_folder(home) as folder:
            other = change_from(data, moment, folder / "data", known_rows(data, moment, *before.asked_about(nodes)))
            after, _ = _prepare(recipe, other, Home.open(folder / "home"), listener, options)
            for node, twin in zip(nodes, after.nodes_of(before.ids[nodes]), strict=True):
                found.seeds += 1
                if twin < 0:
                    changed["whether the seed is in the graph"] += 1
                else:
                    changed.update(differences(before.named(int(node)), after.named(int(twin))))
    found.changed = dict(changed.most_common())
    return found


def _prepare(
    recipe: Recipe, data: Parent, home: Home, listener: Listener | None, options: RelationalConfig | None = None
) -> tuple[SeedInputs, RelationalConfig]:
    """Prepare a graph, and open it as the recipe's loader does; `options` are resolved on the unchanged one."""
    made = {"ingest": data}
    for name in _PREPARED:
        made[name] = run_stage(load_stage(name), recipe, dict(made), home, listener=listener).parent
    store = GraphStore.open(made["partition"].folder)
    if options is None:
        options = _loader(recipe, store.manifest)
    return SeedInputs(recipe, options, store), options


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
