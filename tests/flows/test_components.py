"""The lists of what recipes can name, and what they say of one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from configs.errors import RecipeError
from configs.registry import REGISTRIES
from flows.commands.recipes.components import components_json, show_component, show_components
from tests.flows.conftest import graphmill


@pytest.mark.parametrize("plural", REGISTRIES)
def test_what_is_shown_of_a_component_can_stand_in_a_recipe(plural: str, capsys: pytest.CaptureFixture[str]) -> None:
    registry = REGISTRIES[plural]
    for name in registry.names():
        show_component(plural, name)
        shown = capsys.readouterr().out
        options = yaml.safe_load(shown)
        for key in registry.place.split("."):
            options = options[key]
        options = options[0] if isinstance(options, list) else options
        fields = registry.config_class(name).model_fields
        assert options.keys() == fields.keys()
        needed = {key for key, field in fields.items() if field.is_required() and key != "name"}
        assert needed == {line.strip().partition(":")[0] for line in shown.splitlines() if "# has to be given" in line}
        if not needed and (name, plural) != ("triples", "datasets"):  # which wants one of two options, and says so
            assert registry.config(options) == registry.config(name)


@pytest.mark.parametrize("plural", REGISTRIES)
def test_lists_have_a_line_for_each_component(plural: str, capsys: pytest.CaptureFixture[str]) -> None:
    show_components(plural)
    _, *rows = capsys.readouterr().out.splitlines()
    names = REGISTRIES[plural].names()
    assert [row.split()[0] for row in rows] == names
    assert [each["name"] for each in json.loads(json.dumps(components_json(plural)))] == names


def test_a_wrong_name_is_told_with_the_right_ones() -> None:
    with pytest.raises(RecipeError, match=r"unknown loader 'neighbour' \(did you mean 'neighbor'\?\); known: auto, "):
        show_component("loaders", "neighbour")


def test_an_error_in_a_user_s_own_file_is_said_to_be_there(tmp_path: Path) -> None:
    model = tmp_path / "mine.py"
    model.write_text(
        "from configs.registry import MODELS\n"
        "from models.base import GraphModel, ModelConfig\n"
        "@MODELS.register('mine')\n"
        "class Mine(GraphModel):\n"
        "    'Mine.'\n"
        "    class Config(ModelConfig):\n"
        "        'Options.'\n"
        "        def check_recipe(self, recipe):\n"
        "            {}['missing']\n"
    )
    done = graphmill(tmp_path / "home", "plan", "quickstart", "model.name=mine", f"model.file={model}")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "error: KeyError: 'missing'\n" in done.stderr
    assert f"(it arose in {model}, line 9: if that file is yours" in done.stderr
