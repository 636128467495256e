"""From a folder of tables to a trained model: `inspect` proposes a recipe, `check` reads the data, `run` trains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from configs.errors import UserError
from configs.registry import DATASETS
from flows.cli import app
from tasks.ingest.synthetic.shop import write_shop
from tests.flows.conftest import graphmill

SIZES = {"num_customers": 1500, "num_products": 100, "reviews_a_quarter": 1000, "num_quarters": 7}
SMALL = {"name": "synthetic_shop", **SIZES}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop") / "tables"
    write_shop(DATASETS.config(SMALL), folder)
    return folder


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["--home", "home", *arguments])


def test_inspect_prints_a_recipe_that_check_takes(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = invoke("inspect", str(shop))
    assert shown.exit_code == 0, shown.output
    Path("shop.yaml").write_text(shown.stdout)
    told = invoke("check", "shop.yaml", "--json")
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout.splitlines()[-1])
    assert found["mistakes"] == []
    assert found["nodes"]["customers"] == 1500
    assert found["edges"]["orders__items__products"] > 1500
    files = sorted(str(path) for path in shop.glob("*.parquet"))
    assert yaml.safe_load(invoke("inspect", *files).stdout)["dataset"]["tables"].keys() == {
        *("customers", "items", "orders", "products", "reviews"),
    }


def test_inspect_tells_tables_from_runs(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop").mkdir()
    for arguments, message in (
        ([str(shop), "--verify"], "--verify is for runs and artifacts; of tables a recipe is printed"),
        (["shop"], "no run 'shop'"),  # a folder without tables that is called like a recipe
        (["./shop"], "there is no table"),
        ([str(shop / "orders.parquet"), "train"], "no run"),
        (["none.csv"], "none.csv: there is no such file"),
        (["a", "train", "c"], "give one name and one stage at most, not a train c"),
    ):
        shown = invoke("inspect", *arguments)
        assert isinstance(shown.exception, UserError), arguments
        assert message in str(shown.exception)


def test_check_names_what_is_wrong_with_tables(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = yaml.safe_load(invoke("inspect", str(shop)).stdout)
    recipe["dataset"]["tables"]["orders"]["key"] = "customer_id"
    del recipe["dataset"]["tables"]["orders"]["foreign"]
    Path("shop.yaml").write_text(yaml.safe_dump(recipe))
    told = invoke("check", "shop.yaml")
    assert isinstance(told.exception, UserError)
    assert "predict.target: orders has no foreign key to customers" in str(told.exception)


@pytest.mark.slow
def test_a_folder_of_tables_becomes_a_model(shop: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    proposed = graphmill(home, "inspect", str(shop))
    (tmp_path / "shop.yaml").write_text(proposed.stdout)
    options = ["train.epochs=1", "model.hidden_dim=16", "tracking.system_metrics=false"]
    done = graphmill(home, "run", str(tmp_path / "shop.yaml"), *options, "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout.splitlines()[-1])
    assert record["status"] == "completed"
    assert 0.4 < record["metrics"]["test"]["rocauc"] <= 1
