"""The state of a training run: weights, their averages and the optimisers' moments; saved to and read from disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.optim.optimizer import Optimizer

from softdlm.errors import ResultsError, SoftDLMError, UsageError
from softdlm.models import llada
from softdlm.records.files import replacing
from softdlm.train.muon import Muon
from softdlm.train.recipe import Recipe

STATE = "state.safetensors"
RECENT = 100
"""Steps over which the reported loss is averaged."""


@dataclass(frozen=True)
class TrainingProgress:
    """How far a run is. `steps` is the length of the schedule; it is final once `planned` is true."""

    step: int
    steps: int
    planned: bool
    seconds: float


class Student:
    """The network in training, with its optimisers and averages."""

    def __init__(self, recipe: Recipe, config: Mapping[str, Any], device: torch.device) -> None:
        self.recipe = recipe
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            self.network: Any = llada.network(config)  # initialised on the CPU: the same weights for every device
        self.network.to(device).train()
        self.optimizers = _optimizers(recipe, self.network, device)
        self.average = None if recipe.ema is None else [weight.detach().clone() for weight in self.weights.values()]
        self.losses = torch.zeros(RECENT, device=device)

    @property
    def weights(self) -> dict[str, Tensor]:
        return dict(self.network.named_parameters())

    def learn(self, loss: Tensor, step: int, share: float) -> None:
        """One update at this share of the learning rates; does not synchronise with the device."""
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.recipe.clip)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = share * optimizer.defaults["lr"]
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.losses[step % RECENT] = loss.detach()
        if self.average is not None:
            assert self.recipe.ema is not None
            # small at first, so that the initial weights do not last
            decay = min(self.recipe.ema, (1 + step) / (10 + step))
            for average, weight in zip(self.average, self.weights.values(), strict=True):
                average.lerp_(weight.detach(), 1 - decay)

    def recent_loss(self, step: int) -> float:
        """Mean loss of the last steps when `step` steps are done; synchronises with the device."""
        return self.losses[: min(step, RECENT)].mean().item()

    def best_weights(self) -> dict[str, Tensor]:
        """The averaged weights if the recipe has an average, else the current ones."""
        return self.weights if self.average is None else dict(zip(self.weights, self.average, strict=True))

    def save(self, folder: Path, progress: TrainingProgress) -> None:
        """Write one file and replace the old one atomically: a killed run leaves the old state or the new one."""
        tensors = {name: tensor.detach().contiguous() for name, tensor in self._tensors(progress.step).items()}
        about = {"progress": json.dumps(asdict(progress)), "recipe": json.dumps(self.recipe.record())}
        with replacing(folder / STATE) as part:
            save_file(tensors, part, metadata=about)

    def restore(self, folder: Path) -> TrainingProgress:
        file = folder / STATE
        if not file.exists():
            raise UsageError(f"nothing to resume: {file} does not exist; leave out --resume to start")
        try:
            return self._restore(file)
        except (SafetensorError, OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
            if isinstance(error, SoftDLMError):
                raise
            raise ResultsError(f"{file} cannot be read: {error}; remove it, and leave out --resume to start") from error

    def _restore(self, file: Path) -> TrainingProgress:
        with safe_open(file, framework="pt") as stored:
            about = stored.metadata()
            if json.loads(about["recipe"]) != self.recipe.record():
                raise UsageError(
                    f"{file} was trained with another recipe: {about['recipe']}; use the same settings to resume"
                )
            progress = TrainingProgress(**json.loads(about["progress"]))
            for optimizer in self.optimizers if progress.step else ():
                _blank_moments(optimizer, progress.step)
            for name, tensor in self._tensors(progress.step).items():
                tensor.data.copy_(stored.get_tensor(name))
        return progress

    def _tensors(self, step: int) -> dict[str, Tensor]:
        tensors = {f"weight.{name}": weight for name, weight in self.weights.items()} | {"losses": self.losses}
        if self.average is not None:
            tensors |= {f"average.{name}": each for name, each in zip(self.weights, self.average, strict=True)}
        for name, weight in self.weights.items() if step else ():
            (moments,) = (each.state[weight] for each in self.optimizers if weight in each.state)
            tensors |= {f"{moment}.{name}": moments[moment] for moment in moments if moment != "step"}
        return tensors


def _blank_moments(optimizer: Optimizer, step: int) -> None:
    """Give the optimiser the state of `step` steps, with zero moments that the caller overwrites."""
    names = ("momentum_buffer",) if isinstance(optimizer, Muon) else ("exp_avg", "exp_avg_sq")
    for weight in (weight for group in optimizer.param_groups for weight in group["params"]):
        optimizer.state[weight] = {name: torch.zeros_like(weight) for name in names}
        if not isinstance(optimizer, Muon):
            optimizer.state[weight]["step"] = torch.tensor(float(step), device=weight.device)


def _optimizers(recipe: Recipe, network: Any, device: torch.device) -> list[Optimizer]:
    """AdamW for all weights, or Muon for the layers' matrices and AdamW for the others."""
    inner = [weight for weight in network.model.layers.parameters() if weight.ndim == 2 and recipe.muon is not None]
    outer = [weight for weight in network.parameters() if all(weight is not other for other in inner)]
    groups = [
        {"params": [weight for weight in outer if weight.ndim > 1], "weight_decay": recipe.weight_decay},
        {"params": [weight for weight in outer if weight.ndim == 1], "weight_decay": 0.0},
    ]
    adam = torch.optim.AdamW(groups, lr=recipe.lr, betas=recipe.betas, fused=device.type == "cuda")
    if recipe.muon is None:
        return [adam]
    shapes = dict.fromkeys(weight.shape for weight in inner)
    alike = [[weight for weight in inner if weight.shape == shape] for shape in shapes]
    return [adam, Muon(alike, recipe.muon, recipe.weight_decay)]
