"""Recipes: overrides, components, messages."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from configs.base import ComponentConfig, cache_view
from configs.errors import RecipeError, UserError
from configs.load import build_recipe, dump_recipe, load_recipe, shipped_recipes
from configs.registry import EVALUATORS, MODELS, Registry
from configs.schema import STAGES, Recipe
from configs.training import TrainConfig
from flows.commands.recipes.components import commented_yaml
from tasks.calls import load_stage
from tests.flows.conftest import TINY
from tests.registered import models_of


def tiny(*overrides: str, **changes: Any) -> Recipe:
    return build_recipe(copy.deepcopy({**TINY, **changes}), overrides)


@pytest.mark.parametrize("name", list(shipped_recipes()))
def test_every_shipped_recipe_reads_and_survives_a_round_trip(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.description
    again = build_recipe(json.loads(json.dumps(dump_recipe(recipe))))
    assert again == recipe
    assert dump_recipe(again) == dump_recipe(recipe)


@pytest.mark.parametrize("name", ["quickstart", "ogbg-molhiv"])
def test_show_prints_yaml_that_reads_back(name: str) -> None:
    recipe = load_recipe(name)
    text = commented_yaml(recipe)
    assert build_recipe(yaml.safe_load(text)) == recipe
    assert "# Passes over the training split." in text


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.epoch=3", r"unknown key 'epoch' \(did you mean 'epochs'\?\)"),
        ("model=graphsag", r"unknown model 'graphsag' \(did you mean 'graphsage'\?\)"),
        ("train.epochs=many", r"train\.epochs: .*\(got 'many'\)"),
        ("train.epochs", r"override 'train\.epochs' is not of the form"),
        ("name.low=1", r"name is a value, not a section"),
        ("train.loader={name: neighbor, fanout: [3, 0]}", r"fanout needs a number a layer"),
        ("evaluate.splits=valid,tset", r"splits are train, valid and test, not tset"),
        ("tracking.gate_metric=test/accuracy", r"test/accuracy is not of the form valid/METRIC: the champion"),
        ("tracking.gate_metric=accuracy", r"accuracy is not of the form valid/METRIC"),
        ("tracking.gate_metric=valid/", r"valid/ is not of the form valid/METRIC"),
        ("tracking.gate_metric=valid/auc", r"tracking\.gate_metric: unknown metric 'auc' .*'rocauc'.* accuracy, f1, "),
        ("partition=nosuch", r"override partition: unknown partitioner 'nosuch'; known: auto, "),
        (f"train.{'x' * 5000}=1", r"train: unknown key 'x{100}\.\.\.x{100}'; known"),
        (f"train.epochs=[{'1,' * 3000}]", r"train\.epochs: .* \(got .{203}\)$"),
        ("x" * 5000, r"override 'x{100}\.\.\.x{100}' is not of the form"),
        ("train.num_machines=2", r"num_machines is no option any more: .*--cluster auto .*num_ranks counts the ranks"),
        ("train={hosts: [a, b]}", r"hosts is no option any more: .*`graphmill cluster start`"),
        ("train.shared_home=false", r"shared_home is no option any more"),
        ("train.class_weight=balanced", r"class_weight is no option any more: .*train\.loss\.class_weight"),
        ("preprocess={runner: dask}", r"preprocess: runner is no option any more: .*--cluster auto"),
        ("cluster.address=node1", r"cluster\.address: .*'node1' is neither auto nor host:port of a cluster's head"),
        ("cluster.address=ray://node1:10001", r"'ray://node1:10001' is neither .*; ray:// is the way of a process out"),
        ("cluster.address=-x:1", r"'-x:1' is neither"),
        ("cluster.address='node1:6379 --x'", r"'node1:6379 --x' is neither"),
        ("tracking={model_name: a:b}", r"tracking\.model_name: String should match"),
        (
            f"train.loader={{name: neighbor, fanout: [{2**70}, 5]}}",
            r"loader: fanout: 11805916\d+ is beyond the largest",
        ),
        ("train.epochs=true", r"train: epochs: true is no number"),
        ("train.loader={name: neighbor, fanout: [5, false]}", r"train\.loader: fanout: false is no number"),
        ("train.loader.batch_size=5", r"train\.loader: unknown key 'batch_size'"),
        ("train.loader={fanout: [5, 5]}", r"train\.loader: unknown key 'fanout'; known: balance, batch_size, name"),
        (f"train.patience={'9' * 900}", r"is not valid YAML: a number of 900 characters"),
        ("train.clip_norm=1e300", r"train: clip_norm=1e\+300 is not a number between"),
        ("train.learning_rate=1e300", r"train\.learning_rate: .*less than or equal to 10{30} "),
        ("model.hidden_dim=1000000000", r"model\.hidden_dim: .*less than or equal to 65536"),
        ("train.epochs=null", r"train\.epochs: null is no value of it; leave it out, or give one$"),
        ("train.clip_norm=[", r"override 'train.clip_norm=\[' is not valid YAML"),
    ],
)
def test_mistakes_are_named_with_a_way_out(override: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        tiny(override)


@pytest.mark.parametrize("address", ["auto", "node1:6379", "10.0.0.1:6379", "[fd00::1]:6379"])
def test_a_cluster_changes_no_result(address: str) -> None:
    recipe = tiny(f"cluster.address={json.dumps(address)}")
    assert recipe.cluster.address == address
    assert [load_stage(name).config(recipe) for name in STAGES] == [load_stage(name).config(tiny()) for name in STAGES]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ("model=deepgcn", "model.reversible=true", "model.norm=batch", "train.precision=bfloat16"),
            r"cannot be undone in train\.precision=bfloat16: take model\.norm=layer",
        ),
        (
            ("model.label_reuse=true", "evaluate.splits=train,test"),
            r"leave train out of evaluate\.splits or set model\.label_reuse=false",
        ),
        (("model.norm_first=true", "model.residual=true"), r"model\.residual cannot be used with model\.norm_first"),
        (("model.decoder=dot", "model.decoder_layers=2"), r"model\.decoder_layers does nothing with decoder=dot"),
        (
            ("dataset.task=link", "train.loader=full_edge", "train.loader=neighbor"),
            r"train\.loader=neighbor does not fit synthetic, a link task; use auto or edge or full_edge",
        ),
        (
            ("train.loader=edge",),
            r"train\.loader=edge does not fit synthetic, a node task; use auto or cluster or full or neighbor",
        ),
    ],
)
def test_sections_that_cannot_work_together_are_refused_when_read(overrides: tuple[str, ...], message: str) -> None:
    tiny(*overrides[:-1])
    with pytest.raises(RecipeError, match=message):
        tiny(*overrides)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (f"dataset.metric=hits@{'9' * 29}", r"metric: unknown metric 'hits@9{29}'; known: acc, .*hits@K with K"),
        ("dataset.metric=acuracy", r"unknown metric 'acuracy' \(did you mean 'accuracy'\?\)"),
        ("dataset.metric=precision@0", "'precision@0': '0' is neither a number of rows from 1 on"),
        ("tracking.gate_metric=valid/a.lift@200%", "gate_metric: 'lift@200%': '200%' is neither a number of rows"),
        ("tracking.gate_metric=valid/lift@0%", "gate_metric: 'lift@0%': '0%' is neither a number of rows"),
        ("dataset.metric=recall@200%", "'recall@200%': '200%' is neither .* nor a share below 100 %"),
        ("dataset.num_classes=2147483647", r"num_classes: .*less than or equal to 1000000"),
    ],
)
def test_mistakes_in_tables_are_named_when_they_are_read(override: str, message: str) -> None:
    dataset = {"name": "tables", "nodes": {"files": "n.csv", "label": "y"}, "edges": {"files": "e.csv"}}
    tiny("dataset.metric=f1", "dataset.num_classes=1000", dataset=dataset)
    with pytest.raises(RecipeError, match=message):
        tiny(override, dataset=dataset)


def test_overrides_are_typed_by_the_schema() -> None:
    loader = ("train.loader=neighbor", "train.loader.fanout=7,3")
    recipe = tiny(*loader, "train.clip_norm=1", "train.patience=null", "evaluate.splits=test")
    assert recipe.train.loader.fanout == (7, 3)  # type: ignore[attr-defined]
    assert recipe.train.clip_norm == 1.0
    assert recipe.train.patience is None
    assert recipe.evaluate.splits == ("test",)
    assert recipe.train.epochs == TINY["train"]["epochs"]  # the rest of the section stays


def test_another_component_keeps_the_options_that_it_knows() -> None:
    options = {"name": "graphsage", "hidden_dim": 24, "num_layers": 2}
    # Of its own family: the recipe's loader is for no other.
    both = [n for n in models_of("gnn") if n != "graphsage" and "hidden_dim" in MODELS.get(n).Config.model_fields]
    assert both
    for name in both:
        for override in (f"model={name}", f"model.name={name}"):
            model = tiny(override, model=options).model
            assert model.name == name
            assert model.hidden_dim == 24  # type: ignore[attr-defined]


def test_a_component_override_does_not_depend_on_the_order() -> None:
    recipe = tiny("partition.num_parts=3", "partition.name=random")
    assert recipe.partition.name == "random"
    assert recipe.partition.num_parts == 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("file", ["edges.csv", "data/my edges.txt.gz", "s3/part-*.parquet", "./edges", "-.csv"])
def test_an_edge_list_takes_the_place_of_the_data_set(file: str) -> None:
    recipe = load_recipe("deepwalk", [f"dataset={file}"])
    dataset: Any = recipe.dataset
    assert (dataset.name, dataset.task) == ("tables", "link")
    assert [edges.files for edges in dataset.edges] == [(file,)]
    assert dataset.title
    assert load_recipe("deepwalk", [f"dataset={file}", "dataset.edges.source=from"]).dataset != recipe.dataset
    assert load_recipe("deepwalk", ["dataset=synthetic"]).dataset == load_recipe("deepwalk").dataset


def test_a_description_goes_with_the_data_and_the_model_that_it_is_about() -> None:
    def kept(*overrides: str, name: str = "deepwalk") -> bool:
        return load_recipe(name, overrides).description == load_recipe(name).description

    assert not kept("dataset=edges.csv")
    assert not kept("dataset.name=ogb", "dataset.dataset=ogbn-arxiv")
    assert not kept("model=fastrp", name="prone")
    assert kept("seed=2", "model.dim=16")
    assert kept("dataset.nodes.files=new.csv", name="my-graph")  # the user's own words of the user's own data
    assert load_recipe("deepwalk", ["dataset=edges.csv", "description=My edges"]).description == "My edges"


def test_variables_are_taken_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.yaml"
    text = yaml.safe_dump({**TINY, "description": "${PLACE:-here} and ${PLACE}"})
    path.write_text(text)
    monkeypatch.delenv("PLACE", raising=False)
    with pytest.raises(RecipeError, match="needs the environment variable PLACE"):
        load_recipe(str(path))
    monkeypatch.setenv("PLACE", "there")
    assert load_recipe(str(path)).description == "there and there"


TABLES = {"name": "tables", "nodes": {"files": "n.csv", "label": "y"}, "edges": {"files": "e.csv"}}


def test_half_of_a_character_is_refused_wherever_it_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lone surrogate can be in no file: not in a table, and not in what a run keeps of its recipe."""
    half = "\\ud800 is half of a character"

    def refused(*overrides: str, **nodes: Any) -> str:
        with pytest.raises(RecipeError) as found:
            tiny(*overrides, dataset={**TABLES, "nodes": {**TABLES["nodes"], **nodes}})  # type: ignore[dict-item]
        return str(found.value)

    assert f"recipe: dataset.nodes.features.1: {half}" in refused(features=["a", "\ud800"])
    assert f"recipe: dataset.nodes.missing_values.0: {half}" in refused(missing_values=["\ud800"])
    assert f"recipe: dataset.nodes.\\ud800: {half}" in refused(**{"\ud800": 1})
    said = refused('dataset.nodes.features=["\\ud800"]')
    assert said.startswith("override 'dataset.nodes.features=")
    assert half in said
    assert "\\udcff" in refused("dataset.nodes.\udcff=1"), "a byte of a command line that is not UTF-8"
    assert refused("dataset.nodes.label=\udcff").startswith("override 'dataset.nodes.label=")

    path = tmp_path / "r.yaml"
    path.write_text(yaml.safe_dump({**TINY, "description": "${PLACE}"}))
    monkeypatch.setenv("PLACE", "a\udcff")
    with pytest.raises(RecipeError, match=r"r\.yaml: description: \\udcff is half of a character"):
        load_recipe(str(path))


def test_plain_values_are_no_deeper_than_yaml_s() -> None:
    around: list[Any] = []
    around += [around, around]
    with pytest.raises(RecipeError, match="recipe: description: more than 50 levels"):
        tiny(description=around)


def test_characters_beyond_16_bits_are_text_like_any() -> None:
    for text in ("\U0001f600", json.dumps("\U0001f600")):
        assert tiny(f"description={text}").description == "\U0001f600"


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"[1, 2]", "must hold sections"), (b"a: [", "is not valid YAML"), (b"\xff\xfe\x00", "is not valid YAML")],
)
def test_broken_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_bytes(content)
    with pytest.raises(RecipeError, match=message):
        load_recipe(str(path))


def test_an_unknown_recipe_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"no recipe 'quickstar' \(did you mean 'quickstart'\?\)"):
        load_recipe("quickstar")
    with pytest.raises(RecipeError, match="is a folder"):
        load_recipe(str(tmp_path))


def test_missing_sections_are_named() -> None:
    with pytest.raises(RecipeError, match="dataset: is missing"):
        build_recipe({"name": "x", "model": "graphsage"})


def test_runtime_options_stay_out_of_cache_keys() -> None:
    fast, slow = tiny("train.prefetch=9", "train.checkpoint_every=7"), tiny()
    assert cache_view(fast.train) == cache_view(slow.train)
    assert cache_view(tiny("train.epochs=9").train) != cache_view(slow.train)


def test_a_recipe_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        tiny().seed = 3  # type: ignore[misc]


@settings(max_examples=60, deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=8), lambda x: st.lists(x, max_size=3)))
def test_any_value_anywhere_is_a_recipe_or_a_clear_refusal(value: Any) -> None:
    for section in ("train", "model", "dataset", "seed", "evaluate", "partition"):
        try:
            recipe = build_recipe(copy.deepcopy({**TINY, section: value}))
        except UserError:
            continue
        assert isinstance(recipe, Recipe)


def test_registry_refuses_what_users_could_not_read() -> None:
    registry = Registry("thing", "tests")

    class Bare:
        class Config(ComponentConfig):
            size: int = Field(default=1)

    with pytest.raises(TypeError, match="needs a docstring"):
        registry.register("bare")(Bare)
    with pytest.raises(TypeError, match="needs a nested class Config"):
        registry.register("plain")(int)


def test_only_the_module_that_options_name_may_leave_its_config_out() -> None:
    class Options(ComponentConfig):
        """Options that stand apart."""

    class Component:
        """A component."""

    registry = Registry("thing", "tests")
    registry.options("other", "elsewhere")(Options)
    with pytest.raises(TypeError, match="needs a nested class Config"):
        registry.register("other")(Component)
    assert not hasattr(Component, "Config")
    Component.__module__ = "tests.elsewhere"
    assert registry.register("other")(Component).Config is Options
    assert EVALUATORS.get("mae").Config is EVALUATORS.config_class("mae")


def test_every_option_of_a_recipe_is_described() -> None:
    from configs.load import COMPONENT_PATHS
    from configs.registry import TRANSFORMS

    configs = [Recipe, TrainConfig]
    for registry in {*COMPONENT_PATHS.values(), TRANSFORMS}:
        configs += [registry.get(name).Config for name in registry.names()]
    for config in configs:
        for name, field in config.model_fields.items():
            assert name == "name" or field.description, f"{config.__qualname__} of {config.__module__}: {name}"


def test_stages_are_those_of_the_pipeline() -> None:
    from tasks.prefect_tasks import TASKS

    assert tuple(TASKS) == STAGES


@pytest.mark.parametrize(("section", "value"), [("train", [1]), ("model", 5), ("dataset", ["synthetic"])])
def test_a_component_of_what_is_no_section(section: str, value: Any) -> None:
    key = {"train": "train.strategy=data_parallel", "model": "model=gcn", "dataset": "dataset=synthetic"}[section]
    with pytest.raises(RecipeError, match=rf"override .*: {section} is a value, not a section"):
        build_recipe({"name": "x", section: value}, [key])


VECTORS = {"model": {"name": "skipgram", "dim": 8}, "train": {"samples": 1000}}


def test_shares_of_labels_are_read_from_a_line_and_stay_out_of_others_keys() -> None:
    recipe = tiny("evaluate.label_shares=0.01,0.1", **VECTORS)
    assert recipe.evaluate.label_shares == (0.01, 0.1)
    assert build_recipe(dump_recipe(recipe)) == recipe
    assert "label_shares" in stage_content("evaluate", recipe)["evaluate"]
    assert "label_shares" not in stage_content("train", recipe), "other shares are no other training"


@pytest.mark.parametrize(
    ("overrides", "changes", "message"),
    [
        ([], {}, r"label_shares is for models that are vectors of nodes .*, and graphsage is none"),
        (["dataset.task=link"], VECTORS, r"is for classes of nodes, and this is a link task; leave it out"),
        (["evaluate.label_shares=0.1,1.0"], VECTORS, r"evaluate\.label_shares: 1 is not a share between 0 and 1"),
        (["evaluate.label_shares=0.5,0.5"], VECTORS, r"a share stands twice"),
        (["evaluate.label_shares=[]"], VECTORS, r"no share is named; leave label_shares out"),
    ],
)
def test_shares_that_are_not_measured_are_refused(overrides: list[str], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        tiny("evaluate.label_shares=0.1", *overrides, **changes)


def stage_content(name: str, recipe: Recipe) -> dict[str, Any]:
    return load_stage(name).config(recipe)


@pytest.mark.parametrize("value", ["nan", ".nan", "NaN", "-nan"])
@pytest.mark.parametrize(
    "option", ["train.loader.p", "train.num_ranks", "train.learning_rate", "train.checkpoint_minutes"]
)
def test_a_number_that_is_none(option: str, value: str) -> None:
    data = {"name": "x", "dataset": "synthetic", "model": "skipgram", "train": {"loader": "walks"}}
    with pytest.raises(RecipeError, match=rf"{option.replace('.', '[.]')}.* is not a number") as caught:
        build_recipe(data, [f"{option}={value}"])
    assert "less than" not in str(caught.value)
    assert "greater than" not in str(caught.value)


@pytest.mark.parametrize("override", ["train.strategy.memory=", "train.epochs= ", "dataset.edges.weight="])
def test_an_override_without_a_value(override: str) -> None:
    """It would be null, and so the default, of which nobody spoke."""
    data = {"name": "x", "dataset": "synthetic", "model": "skipgram"}
    with pytest.raises(RecipeError, match=rf"override {override.strip()} has no value; give one, or say null"):
        build_recipe(data, [override])
    assert build_recipe(dict(data), ["train.strategy=block_grid", "train.strategy.memory=null"])
