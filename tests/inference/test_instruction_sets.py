"""Tests of equal bits under several instruction sets: one machine stands for many."""

from __future__ import annotations

import pytest

from tests.flows.conftest import ROOT
from tests.instruction_sets import SETS, can_run, run_tests

QUICK = (
    "tests/kernels/test_row_products.py",
    "tests/inference/test_row_functions.py",
    "tests/inference/test_kept_layers.py::test_the_bits_of_a_row_do_not_follow_from_its_chunk",
    "tests/inference/test_kept_layers.py::test_wide_features_are_taken_over",
)
"""A dozen seconds each."""
ALL = (
    "tests/apply/test_kept_layers.py",
    "tests/inference/test_kept_layers.py",
    "tests/inference/test_kept_rows.py",
    "tests/inference/test_row_functions.py",
    "tests/kernels/test_row_products.py",
    "tests/kernels/test_similarity_threads.py",
    "tests/layout/test_place.py",
    "tests/layout/test_quality.py::test_threads_and_blocks_change_no_bit",
    "tests/leaks/test_training.py",
    "tests/sampling/test_parts.py",
    "tests/train/test_equal_bits.py",
    "tests/train/test_knowledge.py::test_as_many_threads_learn_the_same_again",
    "tests/train/test_knowledge.py::test_a_training_that_stopped_goes_on_to_the_same_rows",
    "tests/train/test_layouts.py::test_an_interrupted_layout_ends_with_the_same_bits",
    "tests/train/test_partitioned.py",
    "tests/train/test_run.py::test_a_run_that_ended_goes_on_to_the_same_files",
    "tests/train/test_sparse_embeddings.py::test_a_resumed_run_ends_with_the_same_bits",
    "tests/train/test_tables.py::test_an_interrupted_training_ends_with_the_same_bits",
    "tests/train/test_training.py::test_a_killed_run_ends_with_the_same_bits_and_leaves_no_process",
)
"""All that promise equal bits: rows taken over, threads, ranks, resumed runs, held-out data."""


@pytest.mark.parametrize("name", [*QUICK, *ALL])
def test_what_is_tried_is_there(name: str) -> None:
    path, _, function = name.partition("::")
    assert f"def {function}" in (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["avx2", "sse4", "avx512"])
def test_rows_have_bits_of_their_own(name: str) -> None:
    if not can_run(name):
        pytest.skip(f"this processor has no {name}")
    run_tests(name, *QUICK, timeout_seconds=600)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", list(SETS))
def test_all_that_promises_equal_bits(name: str) -> None:
    if not can_run(name):
        pytest.skip(f"this processor has no {name}")
    run_tests(name, *ALL, timeout_seconds=3600)
