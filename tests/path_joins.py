"""Find where code joins something that is no constant to a path.

There are no types in a syntax tree, so a path is what is annotated as one (an argument of the same file; a field, a
function or a property of any), what is assigned from one, made by `Path(...)`, or joined to a text in the code.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

SAFE_CALLS = frozenset({"file_name", "table_folder", "inner_path", "getpid", "getuid", "get_native_id", "token_hex"})
"""What they return stays in its folder."""
SAFE_FIELDS = frozenset({"best_checkpoint", "last_checkpoint", "metrics_file", "predictions", "report_file"})
"""Fields of manifests that were checked when the manifest was read (`tasks.storage.manifests.InnerPath`)."""
_OF_PATH = frozenset({"resolve", "expanduser", "absolute", "with_name", "with_stem", "with_suffix", "joinpath"})
_TAKE_PARTS = frozenset({"joinpath", "with_name", "with_stem"})
_TAKE_TEXTS = _TAKE_PARTS | {"with_suffix", "glob", "rglob", "open", "Path", "beside"}


@dataclass(frozen=True)
class Join:
    """A join of a path with something that is no constant."""

    file: str
    line: int
    text: str


def find_in(root: Path, folders: Iterable[str]) -> list[Join]:
    files = [path for folder in folders for path in sorted((root / folder).rglob("*.py"))]
    return find_joins({path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in files})


def find_joins(sources: dict[str, str]) -> list[Join]:
    """Return all such joins in files (name to code)."""
    files = {name: list(ast.walk(ast.parse(code))) for name, code in sources.items()}
    paths = {name for nodes in files.values() for name in _annotated(nodes, ast.FunctionDef, ast.AnnAssign)}
    return [join for name, nodes in files.items() for join in _Finder(name, nodes, paths).joins()]


def _annotated(nodes: list[ast.AST], *kinds: type[ast.AST]) -> Iterator[str]:
    """Yield what is annotated as a path: functions and properties (by what they return), fields, arguments."""
    for node in (node for node in nodes if isinstance(node, kinds)):
        if isinstance(node, ast.FunctionDef) and _says_path(node.returns):
            yield node.name
        elif isinstance(node, ast.arg) and _says_path(node.annotation):
            yield node.arg
        elif isinstance(node, ast.AnnAssign) and _says_path(node.annotation):
            yield _last_name(node.target)


def _says_path(annotation: ast.expr | None) -> bool:
    return annotation is not None and ast.unparse(annotation) in ("Path", "Path | None", "Path | str")


class _Finder:
    def __init__(self, file: str, nodes: list[ast.AST], paths: set[str]) -> None:
        self.file, self.nodes = file, nodes
        self.paths = paths | set(_annotated(nodes, ast.arg))
        before = -1
        while before < len(self.paths):  # what is assigned from a path is one
            before = len(self.paths)
            for node in self.nodes:
                if isinstance(node, ast.Assign) and self._is_path(node.value):
                    self.paths |= {_last_name(target) for target in node.targets}
                elif isinstance(node, ast.For | ast.comprehension) and _lists_paths(node.iter):
                    self.paths.add(_last_name(node.target))
            self.paths -= {"", "_"}

    def joins(self) -> Iterator[Join]:
        for node in self.nodes:
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
                found = (self._is_path(node.left) or _is_made_text(node.right)) and not self._is_safe(node.right)
            elif isinstance(node, ast.Call):
                name = _last_name(node.func)
                unsafe = [each for each in node.args if not self._is_safe(each)]
                found = name in _TAKE_PARTS and bool(unsafe)
                found |= name in _TAKE_TEXTS and any(map(_is_made_text, unsafe))
            elif isinstance(node, ast.JoinedStr):
                found = self._is_path_as_text(node) and not self._is_safe_text(node.values[2:])
            elif isinstance(node, ast.Attribute):
                found = ast.unparse(node) == "os.path.join"
            else:
                continue
            if found:
                yield Join(self.file, node.lineno, ast.unparse(node))

    def _is_path(self, node: ast.expr) -> bool:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            return self._is_path(node.left) or _is_made_text(node.right) or _is_constant_text(node.right)
        if isinstance(node, ast.IfExp):
            return self._is_path(node.body) or self._is_path(node.orelse)
        if isinstance(node, ast.BoolOp):
            return any(map(self._is_path, node.values))
        if isinstance(node, ast.Call):
            name = _last_name(node.func)
            return name == "Path" or name in self.paths or (name in _OF_PATH and isinstance(node.func, ast.Attribute))
        return _last_name(node) in self.paths or (isinstance(node, ast.Attribute) and node.attr == "parent")

    def _is_path_as_text(self, node: ast.JoinedStr) -> bool:
        """Whether it is `{folder}/...`."""
        match node.values:
            case [ast.FormattedValue(value=first), ast.Constant(value=str(rest)), *_]:
                return rest.startswith("/") and self._is_path(first)
        return False

    def _is_safe_text(self, parts: list[ast.expr]) -> bool:
        made = [part for part in parts if isinstance(part, ast.FormattedValue)]
        return all(self._is_safe(part.value) or _is_number(part) for part in made)

    def _is_safe(self, node: ast.expr) -> bool:
        """Whether it is a text in the code, a constant of a module, a number, a safe name, or the name of a file."""
        if isinstance(node, ast.Constant):
            return True
        if isinstance(node, ast.JoinedStr):
            return self._is_safe_text(node.values)
        if isinstance(node, ast.Call):
            return _last_name(node.func) in SAFE_CALLS
        if isinstance(node, ast.Attribute) and node.attr in ("name", "stem"):
            return self._is_path(node.value)
        name = _last_name(node)
        return name in SAFE_FIELDS or (bool(name) and name.strip("_").isupper())


def _last_name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _lists_paths(node: ast.expr) -> bool:
    inner = node.args[0] if isinstance(node, ast.Call) and _last_name(node.func) == "sorted" else node
    return isinstance(inner, ast.Call) and _last_name(inner.func) in ("glob", "rglob", "iterdir")


def _is_made_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.BinOp) and _is_constant_text(node.left))


def _is_constant_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_number(part: ast.FormattedValue) -> bool:
    """Whether the format takes numbers only."""
    return part.format_spec is not None and ast.unparse(part.format_spec).strip("f'\"")[-1:] in ("d", "x", "f", "g")
