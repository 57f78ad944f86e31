"""What a training run changes: weights, their averages, the optimiser's moments; and how that is kept on disk."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from softdlm.errors import UsageError
from softdlm.models import llada
from softdlm.train.recipe import Recipe

STATE = "state.safetensors"
RECENT = 100
"""Steps over which the loss is averaged wherever it is shown."""


@dataclass(frozen=True)
class Progress:
    """How far a run is. `steps` is the length of its schedule, once known for good (`planned`)."""

    step: int
    steps: int
    planned: bool
    seconds: float


class Student:
    def __init__(self, recipe: Recipe, config: Mapping[str, Any], device: torch.device) -> None:
        self.recipe = recipe
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            self.network: Any = llada.network(config)  # initialised on the CPU: the same weights for every device
        self.network.to(device).train()
        self.optimizer = _optimizer(recipe, self.network, device)
        self.average = None if recipe.ema is None else [weight.detach().clone() for weight in self.weights.values()]
        self.losses = torch.zeros(RECENT, device=device)

    @property
    def weights(self) -> dict[str, Tensor]:
        return dict(self.network.named_parameters())

    def learn(self, loss: Tensor, step: int, rate: float) -> None:
        """One update. Nothing here waits for the device."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.recipe.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.losses[step % RECENT] = loss.detach()
        if self.average is not None:
            assert self.recipe.ema is not None
            decay = min(self.recipe.ema, (1 + step) / (10 + step))  # the first weights are soon forgotten
            for average, weight in zip(self.average, self.weights.values(), strict=True):
                average.lerp_(weight.detach(), 1 - decay)

    def recent_loss(self, step: int) -> float:
        """Mean over the last steps, `step` of them done; waits for the device."""
        return self.losses[: min(step, RECENT)].mean().item()

    def best_weights(self) -> dict[str, Tensor]:
        """The averages where there are any."""
        return self.weights if self.average is None else dict(zip(self.weights, self.average, strict=True))

    def save(self, folder: Path, progress: Progress) -> None:
        """One file, replaced at once: a run that is killed finds either the old state or the new one."""
        tensors = {name: tensor.detach().contiguous() for name, tensor in self._tensors(progress.step).items()}
        about = {"progress": json.dumps(asdict(progress)), "recipe": json.dumps(self.recipe.record())}
        fresh = folder / f"{STATE}.part"
        save_file(tensors, fresh, metadata=about)
        os.replace(fresh, folder / STATE)

    def restore(self, folder: Path) -> Progress:
        file = folder / STATE
        if not file.exists():
            raise UsageError(f"nothing to resume: {file} does not exist; leave out --resume to start")
        with safe_open(file, framework="pt") as stored:
            about = stored.metadata()
            if json.loads(about["recipe"]) != self.recipe.record():
                raise UsageError(f"{file} is of another recipe: {about['recipe']}; repeat its settings to resume")
            progress = Progress(**json.loads(about["progress"]))
            self.optimizer.load_state_dict(self._blank_moments(progress.step))
            for name, tensor in self._tensors(progress.step).items():
                tensor.data.copy_(stored.get_tensor(name))
        return progress

    def _tensors(self, step: int) -> dict[str, Tensor]:
        tensors = {f"weight.{name}": weight for name, weight in self.weights.items()} | {"losses": self.losses}
        if self.average is not None:
            tensors |= {f"average.{name}": each for name, each in zip(self.weights, self.average, strict=True)}
        for name, weight in self.weights.items() if step else ():
            moments = self.optimizer.state[weight]
            tensors |= {f"{moment}.{name}": moments[moment] for moment in ("exp_avg", "exp_avg_sq")}
        return tensors

    def _blank_moments(self, step: int) -> dict[str, Any]:
        """An optimiser that has taken `step` steps, its moments still to be filled in."""
        state = self.optimizer.state_dict()
        ordered = [weight for group in self.optimizer.param_groups for weight in group["params"]]
        for number, weight in enumerate(ordered if step else ()):
            zeros = {name: torch.zeros_like(weight) for name in ("exp_avg", "exp_avg_sq")}
            state["state"][number] = {"step": torch.tensor(float(step)), **zeros}
        return state


def _optimizer(recipe: Recipe, network: Any, device: torch.device) -> torch.optim.AdamW:
    weights = list(network.parameters())
    groups = [
        {"params": [weight for weight in weights if weight.ndim > 1], "weight_decay": recipe.weight_decay},
        {"params": [weight for weight in weights if weight.ndim == 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=recipe.lr, betas=recipe.betas, fused=device.type == "cuda")
