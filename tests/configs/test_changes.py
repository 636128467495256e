"""Options that are not at their defaults."""

from __future__ import annotations

import json

import pytest

from configs.changes import all_options, all_rows, changed_options, changed_rows
from configs.load import build_recipe, load_recipe, shipped_recipes

LEAST = {"name": "demo", "dataset": {"name": "synthetic"}, "model": {"name": "graphsage"}}


def test_a_recipe_of_defaults_says_what_it_had_to_choose() -> None:
    assert changed_options(build_recipe(dict(LEAST))) == {"dataset.name": "synthetic", "model.name": "graphsage"}


def test_components_differ_by_name_and_by_their_own_options() -> None:
    loader = ["train.loader=neighbor", "train.loader.fanout=5,5"]
    overrides = [*loader, "train.epochs=20", "preprocess.transforms=[degree]"]
    changed = changed_options(build_recipe(dict(LEAST), overrides))
    assert changed["train.loader.name"] == "neighbor"
    assert changed["train.loader.fanout"] == "[5, 5]"
    assert changed["preprocess.transforms"] == '[{"name": "degree"}]'
    assert "train.epochs" not in changed, "20 is the default"
    assert "partition.name" not in changed


def test_sections_within_a_section_differ_from_what_that_one_has() -> None:
    """The neighbours of a map are by cosine, those of data by distance."""
    recipe = build_recipe(dict(LEAST), ["evaluate.layout={method: umap, neighbors: {metric: euclidean}}"])
    assert {key: value for key, value in changed_options(recipe).items() if "layout" in key} == {
        "evaluate.layout.method": "umap",
        "evaluate.layout.neighbors.metric": "euclidean",
    }
    recipe = build_recipe(dict(LEAST), ["evaluate.layout={color: label, neighbors: {metric: cosine}}"])
    assert {key for key in changed_options(recipe) if "layout" in key} == {"evaluate.layout.color"}


def test_rows_for_people_take_lists_of_sections_apart() -> None:
    tables = {
        "name": "tables",
        "nodes": [{"files": "a.csv", "label": "kind"}, {"files": "b.csv", "type": "shop"}],
        "edges": [{"files": "[{.csv"}],
    }
    recipe = build_recipe({**LEAST, "dataset": tables, "preprocess": {"transforms": ["degree"]}})
    changed = dict(changed_rows(recipe))
    assert changed["dataset.nodes.0.label"] == '["kind"]'
    assert changed["dataset.nodes.1.files"] == '["b.csv"]'
    assert changed["dataset.edges.0.files"] == '["[{.csv"]'
    assert changed["preprocess.transforms.0.name"] == "degree"
    assert "dataset.nodes.0.type" not in changed
    assert changed.items() <= dict(all_rows(recipe)).items()


@pytest.mark.parametrize("name", list(shipped_recipes()))
def test_changes_are_few_and_among_all_options(name: str) -> None:
    recipe = load_recipe(name)
    changed, every = changed_options(recipe), all_options(recipe)
    assert changed.items() <= every.items()
    assert len(changed) < len(every) / 3


def test_maps_of_sections_are_taken_apart_and_written_as_json() -> None:
    tables = {
        "shops": {"files": "a.csv", "key": "id"},
        "visits": {"files": "b.csv", "time": "at", "foreign": {"shop": "shops"}},
    }
    dataset = {
        "name": "database",
        "tables": tables,
        "predict": {
            "table": "shops",
            "target": {"none": "visits"},
            "at": ["2024-01-01", "2024-04-01", "2024-07-01"],
            "horizon": "90d",
        },
    }
    recipe = build_recipe({**LEAST, "dataset": dataset, "model": "heterosage", "preprocess": {"deduplicate": False}})
    rows = dict(changed_rows(recipe))
    assert rows["dataset.tables.shops.key"] == "id"
    assert rows["dataset.tables.visits.foreign"] == '{"shop": "shops"}'
    assert json.loads(all_options(recipe)["dataset.tables"])["visits"]["foreign"] == {"shop": "shops"}
