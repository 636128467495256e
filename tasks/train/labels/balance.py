"""Seeds of which each class has as many, and what undoes it in the scores (`train.loader.balance=classes`)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from configs.errors import RecipeError
from tasks.arrays import Array, blocks
from tasks.train.loaders.base import LabelLoader

_CHUNK_ROWS = 1 << 18


class Balance:
    """Classes of a loader's seeds. Memory: 8 bytes a seed."""

    def __init__(self, loader: LabelLoader, num_classes: int) -> None:
        """Read the labels of all seeds, yes or no as two classes. Raises RecipeError: fewer than two classes occur."""
        code = np.empty(loader.num_seeds, np.int64)
        for part in blocks(loader.num_seeds, _CHUNK_ROWS):
            [label] = loader.labels_of([loader.seeds[part]])
            code[part] = np.nan_to_num(label.reshape(len(label)), nan=-1)
        count = np.bincount(code[code >= 0], minlength=num_classes)
        if np.count_nonzero(count) < 2:
            raise RecipeError("train.loader.balance=classes needs training rows of two classes; leave it out")
        self._positions = np.argsort(code, kind="stable")[np.count_nonzero(code < 0) :]
        """int64: positions of labelled seeds, by class."""
        self._classes = np.flatnonzero(count)
        self._first = np.concatenate([[0], np.cumsum(count)[:-1]])[self._classes]
        self._count = count[self._classes]
        self._share = count / count.sum()

    def positions(self, places: Array, key: int) -> Array:
        """Return positions of seeds, int64 (n,), for places in an epoch's random order, (n,).

        Classes take turns; any seed of a place's class is drawn from `key`.
        """
        number = places % len(self._classes)
        drawn = np.random.default_rng(key).random(len(places)) * self._count[number]
        return np.asarray(self._positions[self._first[number] + drawn.astype(np.int64)])

    def log_prior(self, num_scores: int) -> Tensor:
        """Return what scores have of the classes' shares, float32 (num_scores,); 0 for classes that do not occur.

        A model that learns from scores less this, on balanced seeds, scores by the shares that the training split has:
        log p(c | x) = log p(x | c) + log p(c) + constant (Menon et al. 2021, arXiv:2007.07314, section 4). One score is
        that of yes against no.
        """
        share = np.where(self._share > 0, self._share, 1.0)
        logs = np.log(share) if num_scores > 1 else np.log(share[1:]) - np.log(share[:1])
        return torch.from_numpy(logs.astype(np.float32))
