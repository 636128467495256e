from __future__ import annotations

import json
from pathlib import Path

import pytest

from configs.errors import IntegrityError
from tasks.publish.tracking.records import flatten, metric_key, read_records, step_of, thin, unique_by_step, values_of


def test_flatten_is_what_mlflow_accepts() -> None:
    flat = flatten({"a": {"b": 1, "c": [1, 2]}, "d": "x" * 7000, "e@f": None, "g": {}})
    assert flat["a.b"] == "1"
    assert flat["a.c"] == "[1, 2]"
    assert len(flat["d"]) == 6000
    assert flat["d"].endswith("(7,000 characters in all)")
    assert flat["e_f"] == "null"
    assert flat["g"] == "{}"
    assert metric_key("valid/hits@20") == "valid/hits_at_20"


def test_a_torn_last_line_is_left_out_and_another_damaged_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert read_records(path) == []
    path.write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "lo')
    assert read_records(path) == [{"step": 1, "loss": 2.0}]
    path.write_text('{"step": 1}\nrubbish\n{"step": 2}\n')
    with pytest.raises(IntegrityError, match="line 2"):
        read_records(path)


def test_thinning_keeps_ends_and_evaluations() -> None:
    records = [{"step": s, "loss": 1.0} for s in range(5000)]
    records[123]["valid/accuracy"] = 0.5
    kept = thin(records, 100)
    assert 100 <= len(kept) <= 102
    assert (kept[0]["step"], kept[-1]["step"]) == (0, 4999)
    assert any("valid/accuracy" in record for record in kept)
    assert thin(records[:50], 100) == records[:50]


def test_of_a_repeated_step_the_last_word_counts() -> None:
    records = [{"step": 1, "seconds": 1, "loss": 3.0}, {"step": 1, "seconds": 9, "loss": 2.0}]
    assert unique_by_step(records) == {"loss": {1: (2.0, 9.0)}}
    assert step_of({"epoch": 4}) == 4
    assert values_of({"step": 1, "loss": 1, "done": True, "note": "x"}) == {"loss": 1.0}
    json.dumps(values_of({"loss": 1}))
