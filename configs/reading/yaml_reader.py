"""YAML as recipes need it: nothing in it is silently lost, and a hostile file costs no more than an honest one.

PyYAML keeps the last of two equal keys, follows an anchor that holds itself until the stack ends, lets eight lines of
anchors stand for 10^8 values, and reads 12:30 as 750.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from configs.errors import RecipeError

# The largest recipe that we know has 150 lines. PyYAML reads about 100 kB a second.
MAX_BYTES = 1_000_000
MAX_DEPTH = 50
MAX_VALUES = 100_000
"""Values and keys, those that aliases repeat counted each time."""


MAX_NUMBER_CHARS = 100
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
# A day that is in no calendar, `!!bool x`, `!!timestamp x`, a character beyond Unicode: PyYAML lets them through.
_OF_CONSTRUCTORS = (ValueError, ArithmeticError, LookupError, AttributeError, TypeError)


class _Refused(yaml.MarkedYAMLError):
    """What PyYAML would accept and a recipe may not hold."""


class _RecipeLoader(yaml.SafeLoader):
    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        # PyYAML composes by recursion: a file of brackets would end the interpreter's stack.
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _Refused(problem=f"more than {MAX_DEPTH} levels", problem_mark=self.get_mark())
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def compose_scalar_node(self, anchor: Any) -> Any:
        node = super().compose_scalar_node(anchor)
        # JSON, which is YAML, writes a character beyond 16 bits as two escapes: they are that character here too.
        node.value = node.value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        wrong = half_character(node.value)
        if wrong:
            raise _Refused(problem=wrong, problem_mark=node.start_mark)
        return node


def half_character(text: str) -> str | None:
    """Say which half of a character (a lone surrogate) a text holds, which no file could; None where it has none."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"\\u{ord(text[error.start]):04x} is half of a character (a lone surrogate); write the whole one"
    return None


def read_yaml(path: Path) -> Any:
    """Return the values in a YAML file.

    Raises RecipeError: it cannot be opened, is too large, or is not YAML that `parse_yaml` takes.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise RecipeError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(content) > MAX_BYTES:
        raise RecipeError(f"{path} has more than {MAX_BYTES:,} bytes; a recipe is a few hundred lines of text")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RecipeError(
            f"{path} is not valid YAML: byte 0x{content[error.start]:02x} at position {error.start} is not UTF-8; save "
            "it as UTF-8"
        ) from error
    return parse_yaml(text, str(path))


def parse_yaml(text: str, source: str) -> Any:
    """Return the values in a YAML text; `source` is named in messages.

    Raises RecipeError: it is not YAML, names a key twice, holds itself or half of a character, is nested deeper than
    MAX_DEPTH, or stands for more than MAX_VALUES values.
    """
    if len(text) > MAX_BYTES:
        raise RecipeError(f"{source}: more than {MAX_BYTES:,} characters")
    try:
        loader = _RecipeLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _check(node)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except (yaml.YAMLError, *_OF_CONSTRUCTORS) as error:
        raise RecipeError(f"{source} is not valid YAML: {error}") from error


def _check(root: yaml.Node) -> None:
    """Refuse keys that stand twice, odd numbers, nodes that hold themselves, and trees that aliases make too large."""
    sizes: dict[int, tuple[int, int]] = {}  # node: (values, levels), what its aliases repeat included
    open_nodes: set[int] = set()

    def measure(node: yaml.Node) -> tuple[int, int]:
        known = sizes.get(id(node))
        if known is not None:
            return known
        if id(node) in open_nodes:
            raise _Refused(problem="an anchor that holds itself", problem_mark=node.start_mark)
        _check_number(node)
        open_nodes.add(id(node))
        inner = [measure(child) for child in _children(node)]
        open_nodes.discard(id(node))
        values = 1 + sum(count for count, _ in inner)
        levels = 1 + max((depth for _, depth in inner), default=0)
        if values > MAX_VALUES or levels > MAX_DEPTH:
            much = f"more than {MAX_VALUES:,} values" if values > MAX_VALUES else f"more than {MAX_DEPTH} levels"
            raise _Refused(problem=f"{much}, counting what aliases repeat", problem_mark=node.start_mark)
        sizes[id(node)] = (values, levels)
        return sizes[id(node)]

    measure(root)


def _check_number(node: yaml.Node) -> None:
    if not isinstance(node, yaml.ScalarNode) or node.tag not in _NUMBERS:
        return
    if len(node.value) > MAX_NUMBER_CHARS:
        raise _Refused(problem=f"a number of {len(node.value):,} characters", problem_mark=node.start_mark)
    if ":" in node.value:
        raise _Refused(
            problem=f"{node.value} is a number to the base of 60 in YAML; put it into quotes",
            problem_mark=node.start_mark,
        )


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        return list(node.value)
    if not isinstance(node, yaml.MappingNode):
        return []
    seen: dict[tuple[str, str], yaml.Node] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _Refused(problem="a key that is a list or a section", problem_mark=key.start_mark)
        first = seen.setdefault((key.tag, key.value), key)
        if first is not key:
            raise _Refused(
                problem=f"the key {key.value!r} stands twice, in lines {first.start_mark.line + 1} and "
                f"{key.start_mark.line + 1}; keep one",
                problem_mark=key.start_mark,
            )
    return [part for pair in node.value for part in pair]
