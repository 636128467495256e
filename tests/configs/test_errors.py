"""Errors that a worker process tells its parent of."""

from __future__ import annotations

import pytest

from configs import errors
from configs.errors import DataError, GraphmillError, StageError, UntrustedCodeError, error_of, kind_of


class OwnDataError(DataError):
    """As packages have some."""


@pytest.mark.parametrize("error", [DataError("x"), StageError("x"), UntrustedCodeError("x"), OwnDataError("x")])
def test_an_error_keeps_its_class_and_its_words(error: GraphmillError) -> None:
    again = error_of(kind_of(error), str(error))
    assert type(again) is (DataError if isinstance(error, OwnDataError) else type(error))
    assert str(again) == "x"


@pytest.mark.parametrize("kind", ["nonsense", "readable", "annotations", "_MAX_PATH_CHARS", "__name__"])
def test_a_word_that_names_no_error_of_ours_is_a_stage_s(kind: str) -> None:
    assert not kind.startswith("_") or hasattr(errors, kind)
    assert type(error_of(kind, "x")) is StageError
