"""In which precision a rank computes."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext

import torch

from configs.errors import RecipeError
from configs.training import TrainConfig
from models.kernels.backends import has_triton, take_triton
from models.kernels.dense.products import products_in


def check_precision(train: TrainConfig, device: torch.device) -> None:
    """Raise RecipeError where `train.precision` cannot work."""
    if train.precision == "tf32" and device.type != "cuda":
        raise RecipeError("train.precision=tf32 needs a GPU, and this rank computes on the CPU; take bfloat16")


def set_kernels(train: TrainConfig, device: torch.device) -> None:
    """Have the recipe's kernels pass messages. Raises RecipeError: Triton's are wanted and cannot be had."""
    by_triton = train.kernels == "triton"
    if by_triton and device.type != "cuda":
        raise RecipeError("train.kernels=triton needs a GPU, and this rank computes on the CPU; set train.kernels=auto")
    if by_triton and not has_triton():
        raise RecipeError("train.kernels=triton needs Triton, which is not installed; set train.kernels=auto")
    take_triton(by_triton)


def feature_dtype(train: TrainConfig) -> torch.dtype:
    """Return what loaders deliver numeric features as: bfloat16 where layers compute in it, else float32."""
    return torch.bfloat16 if train.precision == "bfloat16" else torch.float32


def autocast(train: TrainConfig, device: torch.device) -> torch.autocast:
    """Return the context in which the model runs while it trains. Validation and evaluation run in float32.

    So the best epoch is chosen by the numbers that evaluation reports, and those of two runs can be compared whatever
    each trained in.
    """
    return torch.autocast(device.type, torch.bfloat16, enabled=train.precision == "bfloat16")


def step_products(train: TrainConfig) -> AbstractContextManager[None]:
    """Return the context in which steps multiply float32 matrices. Validation and evaluation round no factors."""
    return products_in("tf32") if train.precision == "tf32" else nullcontext()


def set_determinism(train: TrainConfig) -> None:
    """Have torch take algorithms that give the same bits each time, in the whole process, or the fastest ones."""
    if train.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is not deterministic without
    torch.use_deterministic_algorithms(train.deterministic, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
