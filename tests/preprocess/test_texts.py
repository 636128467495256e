"""Encoders of texts against plain references, and the file that keeps their vectors."""

from __future__ import annotations

import hashlib
import itertools
import re
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.feature_extraction.text import TfidfTransformer

from configs.registry import TEXTS
from flows.commands.installation.clean import clean_home
from tasks.arrays import Array
from tasks.preprocess.texts import kept as kept_file
from tasks.preprocess.texts.base import TextEncoder, make_encoder
from tasks.preprocess.texts.kept import KeptVectors, remove_unused, text_keys
from tasks.preprocess.texts.tfidf import Tfidf, count_terms
from tasks.storage.home import Home

LETTERS = "abcXYZ019 .,-éßñжяЩ中文字한글😀\n"


def some_texts(count: int, seed: int = 0) -> list[str]:
    draw = np.random.default_rng(seed)
    return ["".join(draw.choice(list(LETTERS), draw.integers(0, 40))) for _ in range(count)]


def large(texts: list[str]) -> pa.Array:
    return pa.array(texts, pa.large_string())


def test_terms_are_words_and_pairs_and_signs_of_scripts_without_blanks() -> None:
    texts = [
        *some_texts(301),
        "",
        "word",
        "Straße straße STRASSE",
        "中文",
        "a b a b",
        "abc中文def",
        "हिन्दी भाषा",
        "ภาษา",
    ]
    words = [re.findall(r"[中文字한글ภาษ]|[a-z0-9éñßжязщё😀हिन्दीभाषा]+", text.lower()) for text in texts]
    terms = [some + [f"{one} {other}" for one, other in itertools.pairwise(some)] for some in words]
    counts = count_terms(large(texts))
    assert np.asarray(counts.sum(1)).ravel().tolist() == list(map(len, terms))
    assert np.diff(counts.indptr).tolist() == [len(set(some)) for some in terms]  # no two of them met in one bucket
    for one, other in itertools.pairwise(range(len(texts))):
        shared = set(counts[one].indices) & set(counts[other].indices)
        assert len(shared) == len(set(terms[one]) & set(terms[other])), (texts[one], texts[other])
    part = large(["x", *texts]).slice(1)  # a slice of Arrow's begins elsewhere
    assert (count_terms(part) != counts).nnz == 0


def tfidf(**options: Any) -> TextEncoder:
    return make_encoder(TEXTS.config({"name": "tfidf", **options}))


def test_tfidf_is_an_svd_of_sklearns_weights() -> None:
    draw = np.random.default_rng(1)
    texts = large([" ".join(draw.choice(["red", "green", "blue", "tiny", "house"], 6)) for _ in range(120)])
    encoder = tfidf(dim=4)
    state = encoder.learn(texts)
    counts = count_terms(texts)
    often = np.flatnonzero(np.bincount(counts.indices, minlength=1 << 20) >= 2)
    np.testing.assert_array_equal(state["buckets"], often)
    weights = TfidfTransformer(sublinear_tf=True).fit_transform(counts[:, often]).toarray()
    np.testing.assert_allclose(Tfidf._weighted(counts, often, state["idf"]).toarray(), weights, rtol=1e-5)
    left, values, _ = np.linalg.svd(weights, full_matrices=False)
    x = left[:, :4] * values[:4]
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = encoder.encode(texts, state)
    np.testing.assert_allclose(y @ y.T, x @ x.T, atol=0.01)  # axes may be turned, and have halves' precision
    unknown = encoder.encode(large(["quite other words"]), state)
    assert not unknown.any()


@pytest.mark.parametrize("texts", [[], ["alone"], ["same words", "same words"]])
def test_few_training_texts_say_little(texts: list[str]) -> None:
    encoder = tfidf()
    state = encoder.learn(large(texts))
    x = encoder.encode(large(["same words", "中文"]), state)
    assert x.shape == (2, state["dim"])
    assert np.isfinite(x).all()


def test_keys_are_digests_of_the_texts() -> None:
    texts = [*some_texts(50), "", "\0", "a\0"]
    keys = text_keys(large(["before", *texts]).slice(1))
    assert keys.tolist() == [hashlib.blake2b(t.encode(), digest_size=15).digest() + b"\1" for t in texts]
    assert not len(text_keys(large([])))


def random_keys(count: int, seed: int) -> Array:
    return text_keys(large([str(number) for number in np.random.default_rng(seed).integers(0, 3000, count)]))


def test_kept_vectors_are_those_that_were_added(home: Home) -> None:
    draw, known = np.random.default_rng(0), dict[bytes, Array]()
    kept = KeptVectors.of(home, "one", 3)
    for seed in range(5):
        keys = random_keys(701, seed)
        assert (~kept.missing(keys)).tolist() == [key in known for key in keys.tolist()]
        x, there = kept.find(keys)
        assert there.tolist() == [key in known for key in keys.tolist()]
        for row in np.flatnonzero(there):
            np.testing.assert_array_equal(x[row], known[keys.tolist()[row]])
        assert not x[~there].any()
        new = np.unique(keys[~there])
        vectors = draw.standard_normal((len(new), 3)).astype(np.float16)
        kept.add(new, vectors)
        known |= dict(zip(new.tolist(), vectors, strict=True))
    assert KeptVectors.of(home, "another", 3).missing(keys).all()


def test_several_writers_lose_nothing(home: Home) -> None:
    kept = KeptVectors.of(home, "one", 2)
    parts = [random_keys(300, seed) for seed in range(8)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda keys: kept.add(np.unique(keys), np.ones((len(np.unique(keys)), 2))), parts))
    assert not kept.missing(np.concatenate(parts)).any()


def test_a_damaged_file_begins_anew(home: Home) -> None:
    kept, keys = KeptVectors.of(home, "one", 2), random_keys(9, 0)
    kept.add(keys, np.ones((9, 2)))
    kept.path.write_bytes(b"no database at all, but long enough for a header" * 100)
    assert kept.missing(keys).all()
    kept.add(keys, np.ones((9, 2)))
    assert not kept.missing(keys).any()


def test_a_file_that_is_damaged_inside_begins_anew(home: Home) -> None:
    """Its head is whole, so that it opens."""
    kept, keys = KeptVectors.of(home, "one", 64), random_keys(900, 0)
    for ask in (kept.missing, lambda keys: ~kept.find(keys)[1]):
        kept.add(keys, np.ones((900, 64)))
        size = kept.path.stat().st_size
        with kept.path.open("r+b") as file:
            file.seek(4096)
            file.write(b"\xee" * (size - 4096))
        assert ask(keys).all()


def test_unused_vectors_go(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, day = KeptVectors.of(home, "one", 2), 86_400
    old, young, both = (text_keys(large([name])) for name in ("old", "young", "both"))
    now = time.time()
    monkeypatch.setattr(kept_file.time, "time", lambda: now - 9 * day)
    kept.add(np.concatenate([old, both]), np.ones((2, 2)))
    monkeypatch.undo()
    kept.add(young, np.ones((1, 2)))
    assert not kept.missing(both).any()  # it is asked for, and stays
    for dry_run in (True, False):
        [removed] = clean_home(home, 7 * day, dry_run=dry_run)
        assert (removed.what, removed.path, removed.num_bytes) == ("texts", kept.path, 16 + 4)
    assert not clean_home(home, 7 * day, dry_run=False)
    assert kept.missing(np.concatenate([old, young, both])).tolist() == [True, False, False]
    assert remove_unused(kept.path, now + 2 * day, dry_run=False) == 2 * (16 + 4)


def test_a_file_that_others_hold_is_waited_for(home: Home, tmp_path: Path) -> None:
    kept = KeptVectors.of(home, "one", 2)
    kept.add(random_keys(3, 0), np.ones((3, 2)))
    with sqlite3.connect(kept.path) as other, ThreadPoolExecutor(1) as pool:
        other.execute("BEGIN IMMEDIATE")
        waiting = pool.submit(kept.add, random_keys(3, 1), np.ones((3, 2)))
        time.sleep(0.2)
        assert not waiting.done()
        other.commit()
        waiting.result(10)
    assert not kept.missing(random_keys(3, 1)).any()
