"""Recipes' YAML: what PyYAML loses, follows for ever or blows up is refused at once."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.errors import RecipeError
from configs.load import load_recipe
from configs.reading.yaml_reader import MAX_BYTES, MAX_DEPTH, parse_yaml, read_yaml

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers(), inner, max_size=4),
    max_leaves=20,
)


def ten_fold_anchors(levels: int) -> str:
    """A text of `levels` lines that stands for 10^levels values."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, levels)]
    return "\n".join(lines)


DEEP_BY_ALIASES = "\n".join(
    f"- &{name} {'[' * 20}{inner}{']' * 20}" for name, inner in (("a", "1"), ("b", "*a"), ("c", "*b"))
)


@settings(deadline=None)
@given(VALUES)
def test_reads_what_pyyaml_writes(value: object) -> None:
    text = yaml.safe_dump(value)
    assert parse_yaml(text, "text") == yaml.safe_load(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: 1\ntrain: {epochs: 3, epochs: 4}", "the key 'epochs' stands twice, in lines 2 and 2"),
        ("seed: 1\nname: t\n'seed': 2", "the key 'seed' stands twice, in lines 1 and 3"),
        ("x: &x {x: *x}", "an anchor that holds itself"),
        ("? [a, b]\n: 3", "a key that is a list or a section"),
        ("[" * 100_000, f"more than {MAX_DEPTH} levels"),
        ("{a: " * 60 + "1" + "}" * 60, f"more than {MAX_DEPTH} levels"),
        (DEEP_BY_ALIASES, "levels, counting what aliases repeat"),
        (ten_fold_anchors(8), "more than 100,000 values, counting what aliases repeat"),
        ("seed: " + "9" * 10_000, "a number of 10,000 characters"),
        ("a: 1" + ":1" * 300_000, "a number of 600,001 characters"),
        ("as_of: 12:30", "12:30 is a number to the base of 60 in YAML; put it into quotes"),
        ('a: "\\UFFFFFFFF"', "is not valid YAML"),
        ("a: !!timestamp x", "is not valid YAML"),
        ("a: 2023-02-30", "is not valid YAML"),
        ("a: 1\n---\na: 2", "is not valid YAML"),
        ('seed: 1\nfeatures: [a, "b\\ud800"]', "\\ud800 is half of a character"),
        ('a: "\\ude00\\ud83d"', "\\ude00 is half of a character"),
        ('a: &x "\\ud800"\nb: *x', "\\ud800 is half of a character"),
        ("a: b\udcff", "is not valid YAML"),
        ("a: \0", "is not valid YAML"),
        ("x" * (MAX_BYTES + 1), "characters"),
    ],
)  # fmt: skip
def test_refuses(text: str, message: str) -> None:
    with pytest.raises(RecipeError, match="recipe") as found:
        parse_yaml(text, "recipe")
    assert message in str(found.value)
    assert len(str(found.value)) < 1000


def test_aliases_and_merges_stay_allowed() -> None:
    assert parse_yaml("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: [*a, *a]", "text") == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 1, "y": 3},
        "c": [{"x": 1, "y": 2}] * 2,
    }
    assert len(parse_yaml(ten_fold_anchors(4), "text")["a3"]) == 10


def test_half_of_a_character_is_named_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text('name: x\ndataset:\n  missing_values: ["\\ud800"]\n')
    with pytest.raises(
        RecipeError, match=r"recipe\.yaml is not valid YAML: .*half of a character(.|\n)*line 3, column"
    ):
        read_yaml(path)


def test_both_halves_are_the_character_as_in_json() -> None:
    """JSON is YAML, and its writers write characters beyond 16 bits as two escapes."""
    value = {"\U0001f600": ["a\U0001f600b", "\U0010ffff\U00010000", "\ufeffx"]}
    assert parse_yaml(json.dumps(value), "text") == value
    with pytest.raises(RecipeError, match="stands twice"):
        parse_yaml('{"\\ud83d\\ude00": 1, "\U0001f600": 2}', "text")


def test_a_file_is_read_no_further_than_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a file with a hole: a tebibyte that takes no disk
    with pytest.raises(RecipeError, match="has more than 1,000,000 bytes"):
        read_yaml(path)


@pytest.mark.parametrize(("content", "at"), [("name: ü".encode("latin-1"), "byte 0xfc at position 6"),
                                             ("name: x".encode("utf-16"), "byte 0xff at position 0")])  # fmt: skip
def test_other_encodings_are_named(tmp_path: Path, content: bytes, at: str) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_bytes(content)
    with pytest.raises(RecipeError, match=f"{at} is not UTF-8; save it as UTF-8"):
        read_yaml(path)


def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    pipe, loop, hidden = tmp_path / "pipe", tmp_path / "loop", tmp_path / "hidden.yaml"
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    for name in (pipe, loop, "/dev/zero"):
        with pytest.raises(RecipeError, match="is no regular file"):
            load_recipe(str(name))
    for name in ("a" * 5000, "a/" * 3000, "a\0b", "~no-such-user/x.yaml", hidden):
        with pytest.raises(RecipeError, match="no recipe") as found:
            load_recipe(str(name))
        assert len(str(found.value)) < 700
