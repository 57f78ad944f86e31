"""A stock mixture of experts on our kernels. Importing this module imports transformers and Triton."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor
from transformers.integrations.moe import ExpertsInterface
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeTopkRouter

from softdlm.kernels.experts import fits, mix
from softdlm.kernels.router import route
from softdlm.kernels.tiles import LEAST, LEAST_8

EXPERTS = "softdlm"
"""Name under which transformers finds our experts."""


class Router(Glm4MoeTopkRouter):
    """Glm4Moe's router in two kernels instead of about twelve."""

    def forward(self, hidden_states: Float[Tensor, "*S D"]) -> tuple[Tensor, Tensor, Tensor]:
        groups, factor = (self.num_group, self.topk_group), float(self.routed_scaling_factor)
        flat, chosen = hidden_states.view(-1, self.hidden_dim), (self.top_k, self.norm_topk_prob, factor)
        return route(flat, self.weight, self.e_score_correction_bias, *groups, *chosen)


def experts(
    module: Any, hidden: Float[Tensor, "N D"], ids: Int[Tensor, "N k"], weights: Float[Tensor, "N k"]
) -> Float[Tensor, "N D"]:
    scales = (getattr(module, f"{name}_proj_scale", None) for name in ("gate_up", "down"))
    return mix(hidden, ids, weights, module.gate_up_proj, module.down_proj, *scales)


def fuse(network: Any) -> bool:
    """Run the network's experts on our kernels if its sizes allow it; its weights do not change or move."""
    routers = [module for module in network.modules() if isinstance(module, Glm4MoeTopkRouter)]
    config = network.config
    powers = (config.n_group, config.n_routed_experts // config.n_group)
    sides = config.hidden_size, config.moe_intermediate_size, config.n_routed_experts
    least = LEAST_8 if any(hasattr(module, "down_proj_scale") for module in network.modules()) else LEAST
    if not fits(network.dtype, *sides, least=least) or any(n & (n - 1) for n in powers):
        return False
    ExpertsInterface.register(EXPERTS, experts)
    network.set_experts_implementation(EXPERTS)
    for router in routers:
        router.__class__ = Router
    return True
