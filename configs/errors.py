"""The exception tree.

GraphmillError
├── UserError(ValueError)      what the user gave is wrong; the message names it and a way out (exit code 2)
│   ├── RecipeError            a recipe, an override or an option
│   │   └── UntrustedCodeError code that nobody has allowed to run
│   └── DataError              a file, a row, a column
├── IntegrityError             a stored file or pickle is not what was written; it is never trusted
│   └── CheckpointError        a checkpoint that a training was to go on from
└── StageError                 a stage could not finish (a rank died, the disk is full); a rerun goes on
"""

from __future__ import annotations


class GraphmillError(Exception):
    """Base of all errors that graphmill raises on purpose."""


_MAX_MESSAGE_CHARS = 8000
_MAX_PATH_CHARS = 400


class UserError(GraphmillError, ValueError):
    """Input that its user can mend: the message names what is wrong and a way out.

    A message may quote what a file holds: it is cut to a readable length, and bytes that are no UTF-8 are escaped.
    """

    def __init__(self, message: str) -> None:
        super().__init__(readable(message, _MAX_MESSAGE_CHARS))


class RecipeError(UserError):
    """A recipe, an override or an option is wrong."""


class OtherGraphError(RecipeError):
    """The model knows only the graph that it was trained on, and this is another one."""


class UntrustedCodeError(RecipeError):
    """A file of code that nobody has allowed to run; the message shows it and says how to let it."""

    def __init__(self, message: str, digest: str = "") -> None:
        """`digest` is what would have to be allowed; empty where the message comes from another process."""
        super().__init__(message)
        self.digest = digest


class DataError(UserError):
    """A data file is wrong. The message names the file and, where they exist, the row and the column."""

    def __init__(self, message: str, *, path: object = None, row: int | None = None, column: object = None) -> None:
        """`row` counts data rows from 0, as the library that read the file does."""
        where = ", ".join(f"{word} {value}" for word, value in (("row", row), ("column", column)) if value is not None)
        name = "" if path is None else readable(str(path), _MAX_PATH_CHARS)
        prefix = f"{name}{' (' + where + ')' if where else ''}: " if path is not None else ""
        super().__init__(prefix + message)
        self.column = column


class IntegrityError(GraphmillError):
    """A stored file is not what was written: wrong size, wrong digest or wrong signature."""


class CheckpointError(IntegrityError):
    """A training cannot go on from its last checkpoint; without that it begins anew."""


class StageError(GraphmillError):
    """A stage could not finish through no fault of the input; running again continues."""


def kind_of(error: GraphmillError) -> str:
    """Return the name under which another process can raise an error again: that of the next class in this file."""
    return next(one.__name__ for one in type(error).__mro__ if one.__module__ == __name__)


def error_of(kind: str, message: str) -> GraphmillError:
    """Return the error that another process told of (`kind_of`); a StageError where it is none of ours."""
    error_class = globals().get(kind)
    if isinstance(error_class, type) and issubclass(error_class, GraphmillError):
        return error_class(message)
    return StageError(message)


def readable(text: str, most: int) -> str:
    """Return a text that can be shown anywhere: its middle is left out beyond `most` characters, NUL is escaped."""
    if len(text) > most:
        text = f"{text[: most // 2]}...{text[-(most // 2) :]}"
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
