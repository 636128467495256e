"""Texts from data in Markdown."""

from __future__ import annotations

import pytest

from configs.errors import DataError
from flows.apply.model_use import record_text
from flows.pipeline.pages import failure_text
from flows.records.run_record import RunRecord
from flows.records.tables import metric_table
from tasks.markdown import plain_markdown

HOSTILE = "a|b ![x](http://evil.example/p.png) <img src=//evil.example/p.png>\n# [y](javascript:z) `c` **d**"


def signs_unescaped(text: str) -> set[str]:
    return {sign for before, sign in zip(" " + text, text, strict=False) if sign in "<|[]`*_" and before != "\\"}


@pytest.mark.parametrize("text", [HOSTILE, "\\[x](y)", "&lt;b&gt;"])
def test_nothing_is_made_of_a_text(text: str) -> None:
    shown = plain_markdown(text)
    assert not signs_unescaped(shown.replace("\\\\", ""))
    assert "\n" not in shown


def test_a_text_without_signs_stays() -> None:
    text = "n.csv (row 3, column age): 1e+39 does not fit"
    assert plain_markdown(text) == text


def test_pages_of_runs_show_texts_of_data_as_they_are() -> None:
    began = "2026-01-01T00:00:00+00:00"
    record = RunRecord(id="x", recipe="r", started_at=began, metrics={HOSTILE: {HOSTILE: 1.0}})
    for page in (
        failure_text(record, DataError(HOSTILE, path="n.csv")),
        metric_table("", record.metrics, record.controls).markdown(),
        record_text({"what": "predictions", "output": HOSTILE, "model": "m", "version": "1", "seconds": 1.0}),
    ):
        assert "![" not in page
        assert "<img" not in page
        assert "[y](" not in page
