"""From batches to better weights: forward, backward, accumulation, clipping, the optimizers and their learning rate."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from configs.errors import RecipeError
from configs.registry import SCHEDULES
from configs.training import TrainConfig
from models.base import GraphModel
from models.block import StepBatch
from models.kernels.backends import has_triton, take_triton
from models.kernels.dense.products import products_in
from models.losses.chosen import make_loss
from models.losses.configs import chosen_loss
from models.relational.ranking import RankingHead
from tasks.train.embeddings.host_tables import sparse_embedding
from tasks.train.job import ClassWeights, scaled_learning_rate
from tasks.train.ranks.collectives import average_, sum_over_ranks
from tasks.train.schedules.base import Schedule, ScheduleConfig
from tasks.train.strategies.base import Ranks


class Optimization:
    """Optimizers of a model on one rank, and what a step of them takes."""

    def __init__(
        self,
        train: TrainConfig,
        model: GraphModel,
        wrapped: nn.Module,
        task_type: str,
        ranks: Ranks,
        total_steps: int,
        class_weights: ClassWeights = (),
    ) -> None:
        """Make the optimizers; `wrapped` is the model, on its device, as the strategy wraps it.

        Raises RecipeError: a warm-up that is longer than the run, or a model without parameters.
        """
        self.train, self.model, self.wrapped, self.ranks = train, model, wrapped, ranks
        parameter = next(model.parameters(), None)
        if parameter is None:
            raise RecipeError(
                f"model.name={model.config.name} has nothing to learn with these options"
                + (" but sparse embeddings: take train.embeddings=dense, " if sparse_embedding(model) else ": take ")
                + "another decoder or norm, or another model"
            )
        self.device = parameter.device
        self.embedding = sparse_embedding(model)
        kinds = zip(model.facts.head_types or (task_type,), class_weights, strict=False)
        weights = [
            torch.tensor(own[0] if kind == "multiclass" else own, device=self.device) if own else None
            for kind, own in kinds
        ]
        self._loss = make_loss(train.loss, task_type, model.facts, weights)
        if isinstance(model.head, RankingHead):
            model.head.take_loss(chosen_loss(train.loss, task_type))
        self.log_prior: Tensor | None = None
        """What scores have of the classes' shares, float32 (out_dim,), where seeds are balanced: not in the loss."""
        self.optimizer = make_optimizer(train, model.parameters(), ranks.world_size)
        self.scheduler = make_scheduler(train, self.optimizer, total_steps)
        # Batch norm's running statistics differ by rank; they are averaged after each step.
        saved = model.state_dict().keys()  # other buffers are constants
        self._statistics = [b for name, b in model.named_buffers() if name in saved and b.is_floating_point()]

    @property
    def rate(self) -> float:
        """Learning rate of the next step."""
        return float(self.optimizer.param_groups[0]["lr"])

    def backward(self, batch: StepBatch, share: float, *, last: bool) -> Tensor:
        """Add a batch's gradient, of its mean loss times `share`; return the mean loss, without waiting for a GPU.

        The model runs in `train.precision`, the loss in float32. Ranks average gradients with the `last` batch of a
        step, and `step` divides by what the shares come to; a batch without labels adds zeros, so that no rank waits
        for another.
        """
        with contextlib.nullcontext() if last or self.wrapped is self.model else self.wrapped.no_sync():  # type: ignore[operator]
            loss = self.loss(batch)
            (loss * share).backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def loss(self, batch: StepBatch) -> Tensor:
        """Return the batch's mean loss; that of a regression counts errors in the labels' standard deviations."""
        with autocast(self.train, self.device):
            scores = self.wrapped(batch)
        scores = scores.float()
        if not batch.num_seeds:
            return 0.0 * scores.sum()
        if self.model.facts.head_types:
            return self._loss(scores, batch.target, batch.num_seeds)
        if self.log_prior is not None:
            scores = scores - self.log_prior
        return self._loss(self.model.standardized(scores), self.model.standardized(batch.target), batch.num_seeds)

    def step(self, number: int, divisor: float = 1.0) -> None:
        """Apply the gradients over `divisor` as step `number` of the run, from 1, and move on in the schedule."""
        rows = None if self.embedding is None else self.embedding.take_gradients()
        if divisor != 1:  # without any label the gradient is zero, and stays
            grads = [p.grad for p in self.model.parameters() if p.grad is not None]
            for grad in [*grads, *([] if rows is None else [rows[1]])]:
                grad.mul_(1 / divisor if divisor else 1.0)
        if self.train.clip_norm is not None:
            self.clip(self.train.clip_norm, rows)
        if self.embedding is not None and rows is not None:
            # The same schedule and scaling by ranks as for the dense parameters.
            factor = self.rate / self.train.learning_rate
            self.embedding.step(*rows, self.embedding.learning_rate * factor, number)
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad(set_to_none=True)
        average_(self._statistics)

    def clip(self, limit: float, rows: tuple[Tensor, Tensor] | None) -> None:
        """Clip the norm of the whole gradient, rows of sparse embeddings included."""
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        if rows is not None:
            assert self.embedding is not None
            square = sum_over_ranks([float(rows[1].square().sum())])[0] / self.embedding.copies
            norm = torch.sqrt(norm.square() + square)
            rows[1].mul_(min(1.0, limit / (float(norm) + 1e-6)))  # as torch clips the others
        nn.utils.clip_grads_with_norm_(parameters, limit, norm)

    # ---- checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Return all that a run needs to go on, the model's parameters and tables of embeddings apart."""
        return {"optimizer": self.optimizer.state_dict(), "scheduler": self.scheduler.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])


def count_labels(batch: StepBatch) -> int:
    """Return how many labels a batch's mean loss is the mean of."""
    target = batch.target
    if not batch.num_seeds:
        return 0
    return int((~torch.isnan(target) if target.is_floating_point() else target >= 0).sum())


def make_optimizer(train: TrainConfig, parameters: Iterable[nn.Parameter], world_size: int) -> torch.optim.Optimizer:
    """Return the optimizer of the recipe.

    On CPUs a parameter's step is one pass. Over 3.3 M parameters on one core Adam's takes 5.6 ms so and 14.6 ms as ten
    operations (Emerald Rapids, November 2026); they round differently. On GPUs one launch moves all parameters (not yet
    run on a GPU).
    """
    rate = scaled_learning_rate(train, world_size)
    options: dict[str, Any] = {"lr": rate, "weight_decay": train.weight_decay, "fused": True}
    if train.optimizer == "sgd":
        return torch.optim.SGD(parameters, momentum=0.9, **options)
    kind = torch.optim.AdamW if train.optimizer == "adamw" else torch.optim.Adam
    return kind(parameters, **options)


def make_scheduler(
    train: TrainConfig, optimizer: torch.optim.Optimizer, total_steps: int
) -> torch.optim.lr_scheduler.LambdaLR:
    """Return the schedule, by step: a linear warm-up from 0, then `train.schedule` over the steps that are left.

    Raises RecipeError: the warm-up is longer than the training.
    """
    schedule: Schedule = SCHEDULES.create(train.schedule)
    warmup = schedule.config.warmup_steps
    if warmup >= total_steps and warmup:
        raise RecipeError(
            f"train.schedule.warmup_steps={warmup} leaves nothing of the run's {total_steps} steps; lower it or raise "
            "train.epochs"
        )
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: schedule.share(step, total_steps, warmup))


def describe_rate(train: TrainConfig, world_size: int, total_steps: int) -> str:
    """Say in a line how the learning rate comes about and moves."""
    schedule = train.schedule
    assert isinstance(schedule, ScheduleConfig)
    warmup = f"{schedule.warmup_steps:,} steps of warm-up, then " if schedule.warmup_steps else ""
    return (
        f"learning rate {scaled_learning_rate(train, world_size):g} (lr_scaling={train.lr_scaling}, ranks: "
        f"{world_size}); {warmup}{schedule.name} over {total_steps:,} steps"
    )


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
