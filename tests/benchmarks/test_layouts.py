"""Benchmarks of layouts: their own sides, what they read and the pictures they draw."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import graph_layout_sides, graph_layouts, layout_peers, layout_sides


@pytest.mark.parametrize("sides", [layout_sides, graph_layout_sides])
def test_a_side_leaves_coordinates_and_says_what_they_took(
    sides: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "vectors.npy", np.zeros((2, 3), np.float32))
    np.save(tmp_path / "indptr.npy", np.array([0, 1, 2]))
    np.save(tmp_path / "indices.npy", np.array([1, 0], np.int32))
    monkeypatch.setitem(sides.SIDES, "toy", lambda *_: np.ones((2, 2)))
    words = ["toy", str(tmp_path)]
    if sides is layout_sides:
        words = ["toy", str(tmp_path / "vectors.npy"), str(tmp_path / "out.npy"), '{"threads": 2}']
    monkeypatch.setattr("sys.argv", ["", *words])
    sides.main()
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["cpu_seconds"] >= 0
    assert (np.load(tmp_path / "out.npy") == 1).all()


def test_images_and_labels_of_both_files_are_read_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vectors").mkdir()
    monkeypatch.setattr(layout_peers, "DATA", tmp_path)
    for name, value in (("train", 51), ("t10k", 255)):
        for kind, header, size in (("images-idx3", 16, 784), ("labels-idx1", 8, 1)):
            with gzip.open(tmp_path / "vectors" / f"{name}-{kind}-ubyte.gz", "wb") as file:
                file.write(bytes(header) + bytes([value]) * 2 * size)
    vectors, labels = layout_peers.fashion_mnist(3)
    assert vectors.shape == (3, 784)
    assert vectors[:, 0].tolist() == pytest.approx([0.2, 0.2, 1.0])
    assert labels.tolist() == [51, 51, 255]


def test_a_picture_is_dark_where_edges_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_layouts, "PIXELS", 100)
    corners = np.array([[0.0, 0], [1, 0], [1, 0.7], [0, 0.7]])
    pixels = graph_layouts.picture(corners, np.array([0, 1, 2, 3, 4]), np.array([1, 0, 3, 2]))
    dark = np.argwhere(pixels < 1)
    assert len(np.unique(dark[:, 0])) == 2  # two lines from the left to the right, and nothing between them
    assert np.ptp(dark[:, 1]) > 90
    assert (graph_layouts.picture(np.zeros((4, 2)), np.zeros(5, np.int64), np.zeros(0, np.int64)) == 1).all()
