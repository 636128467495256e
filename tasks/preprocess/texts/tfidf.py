"""Encoder tfidf: terms by their hashes, weighted by how rare they are, and reduced by a truncated SVD.

Terms are words and pairs of words. Words are runs of letters, digits and whatever lies beyond ASCII; upper and lower
case are one. Of scripts without blanks between words (Chinese, Japanese, Thai), and of Korean, a sign is a word
(hashing: Weinberger et al., Feature Hashing for Large Scale Multitask Learning, ICML 2009).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from configs.registry import TEXTS
from tasks.arrays import Array, blocks
from tasks.preprocess.texts.base import State, TextEncoder

_BUCKETS = 1 << 20
_CHUNK = 4096
_EXTRA, _STEPS = 10, 4
"""Of the SVD: columns beside those that are asked for, and power iterations."""
# Thai, Lao; Burmese; Khmer; kana; Chinese signs; Korean syllables; rarer Chinese signs.
_SIGNS = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORDS = rf"[{_SIGNS}]|[^\x00-/:-`{{-\x7f{_SIGNS}]+"


@TEXTS.register("tfidf")
class Tfidf(TextEncoder):
    """x = normalised(w V): w of weights (1 + log tf) (1 + log((1 + n) / (1 + df))) and length 1, V the SVD's axes.

    Latent semantic analysis (Deerwester et al., Indexing by Latent Semantic Analysis, JASIS 1990), the axes by a
    randomised SVD (Halko, Martinsson, Tropp, SIAM Review 2011). Weights are scikit-learn's.
    """

    version = 2

    @property
    def rows(self) -> int:
        """So many training texts."""
        return int(self.config.rows)

    def learn(self, texts: pa.Array) -> State:
        """Return `buckets`, int32 (F,) ascending, `idf`, float32 (F,), and `axes`, float16 (F, dim)."""
        from sklearn.utils.extmath import randomized_svd

        parts = [count_terms(texts.slice(rows.start, _CHUNK)) for rows in blocks(len(texts), _CHUNK)]
        counts = sp.vstack(parts, format="csr") if parts else sp.csr_matrix((0, _BUCKETS), dtype=np.float32)
        frequency = np.bincount(counts.indices, minlength=_BUCKETS)
        least = 2 if len(texts) > 1 else 1
        often = np.argsort(-frequency, kind="stable")[: self.config.terms]
        buckets = np.sort(often[frequency[often] >= least]).astype(np.int32)
        idf = (1 + np.log((1 + len(texts)) / (1 + frequency[buckets]))).astype(np.float32)
        dim = min(self.config.dim, len(texts), len(buckets))
        axes = np.zeros((1, 0))
        if dim < 1:  # no training text, or no term of two
            buckets, idf = buckets[:0], idf[:0]
        else:
            extra = {"n_oversamples": _EXTRA, "n_iter": _STEPS, "random_state": 0}
            _, _, axes = randomized_svd(self._weighted(counts, buckets, idf), dim, **extra)
        return {"dim": len(axes), "buckets": buckets, "idf": idf, "axes": axes.T.astype(np.float16)}

    def encode(self, texts: pa.Array, state: State) -> Array:
        """Return float32 (n, dim) of length 1; 0 where no term is known."""
        axes, out = state["axes"].astype(np.float32), np.zeros((len(texts), state["dim"]), np.float32)
        if not len(axes):
            return out
        for rows in blocks(len(texts), _CHUNK):
            counts = count_terms(texts.slice(rows.start, rows.stop - rows.start))
            x = self._weighted(counts, state["buckets"], state["idf"]) @ axes
            out[rows] = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
        return out

    @staticmethod
    def _weighted(counts: Any, buckets: Array, idf: Array) -> Any:
        """Return the weights of the terms that count, float32 (n, F)."""
        from sklearn.feature_extraction.text import TfidfTransformer

        transformer = TfidfTransformer(sublinear_tf=True)
        transformer.idf_ = idf
        return transformer.transform(counts[:, buckets], copy=False)


def count_terms(texts: pa.Array) -> Any:
    """Return how often texts, large_string (n,), have terms: float32 (n, 2**20), a term in the bucket of its hash."""
    from sklearn.feature_extraction.text import HashingVectorizer

    options = {"n_features": _BUCKETS, "alternate_sign": False, "norm": None, "dtype": np.float32}
    return HashingVectorizer(token_pattern=_WORDS, ngram_range=(1, 2), **options).transform(texts.to_pylist())
