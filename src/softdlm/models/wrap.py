"""softdlm.wrap: a network that is in memory already becomes a Denoiser, without a copy of its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from softdlm.errors import CheckpointError, UsageError
from softdlm.models.attention import Attention, bidirectional
from softdlm.models.called import CalledNetwork, call_dream, call_encoder, call_llada, call_llada2
from softdlm.models.denoiser import Denoiser, NetworkDenoiser, Source
from softdlm.models.dream import USABLE_CONTEXT
from softdlm.models.family import Family, published
from softdlm.models.kv_memory import KVMemory
from softdlm.models.load import FAMILIES, family_of
from softdlm.models.special_ids import check_special_ids, check_vocabulary, find_eos_ids, find_mask_id
from softdlm.parsing import one_of

ENCODER = "encoder"
"""The family of networks that look both ways by themselves and take a mask of the padding, such as BERT."""
CALLS = {"llada": call_llada, "Dream": call_dream, "llada2_moe": call_llada2, ENCODER: call_encoder}
"""How the forward pass of a network is called that is not of a stock class."""
CONTEXT = ("max_sequence_length", "max_position_embeddings")
ELSEWHERE = "to make a Denoiser of your own network see docs/own-model.md"


def wrap(
    network: Any,
    tokenizer: Any = None,
    *,
    family: str | None = None,
    mask_id: int | None = None,
    eos_ids: Sequence[int] | None = None,
    shift: bool | None = None,
    attention: Attention = "auto",
    max_length: int | None = None,
) -> Denoiser:
    """A loaded transformers model as a Denoiser: stock, with the remote code of LLaDA, Dream or LLaDA-2, quantised,
    sharded or with LoRA.

    `family` says what a stock class is as a diffusion model ("llada", "Dream", "a2d-qwen3" ...; "encoder" for one that
    looks both ways by itself): a causal network looks both ways from then on, and is in eval mode; nothing else of it
    changes, and its weights are not copied. `shift` says whether the output at j - 1 predicts the token at j. What is
    left out is taken from the network's configuration and the tokenizer; what these do not say is asked for.
    """
    one_of(Attention)("attention", attention)
    base = base_network(network)
    about = base.config.to_dict()
    kind = find_kind(base, about, family)
    name = about.get("_name_or_path") or getattr(base, "name_or_path", "") or type(base).__name__
    with _asking():
        mask = find_mask_id(about, kind, tokenizer) if mask_id is None else mask_id
        ends = find_eos_ids(about, kind, tokenizer) if eos_ids is None else tuple(eos_ids)
    check_special_ids(tokenizer, kind, mask, ends)
    check_vocabulary(mask, ends, base.get_input_embeddings().num_embeddings)
    kind.check_attention(attention)
    found: Denoiser = _denoiser(
        base,
        kind,
        attention=attention,
        mask_id=mask,
        eos_ids=ends,
        tokenizer=_with_template(tokenizer, kind),
        max_length=max_length or _context(about, kind),
        source=Source(name, f"{kind.name} in memory"),
    )
    found.own, found.first_open = published(kind, name), kind.denoiser.first_open if shift is None else int(shift)
    check_both_ways(found)
    return found


def base_network(network: Any) -> Any:
    """The network itself, without what LoRA puts around it; whatever is none is refused with the remedy."""
    given = f"{type(network).__module__}.{type(network).__qualname__}".removeprefix("builtins.")
    if isinstance(network, Denoiser):
        raise UsageError(f"this {given} is a Denoiser already: use it as it is")
    if isinstance(network, str | Path):
        raise UsageError(
            f"wrap takes a network that is in memory, not a name: softdlm.load({str(network)!r}) reads files"
        )
    for inside in ("module", "_orig_mod"):
        if isinstance(network, nn.Module) and inside in network._modules:
            raise UsageError(f"this is a network inside a {given}: pass its .{inside}")
    if hasattr(network, "get_base_model"):  # of peft
        if any(getattr(each, "is_prompt_learning", False) for each in network.peft_config.values()):  # type: ignore[operator]
            raise UsageError(
                "a learned prompt is no part of the network: only adapters inside it, such as LoRA, can be wrapped"
            )
        network = network.get_base_model()  # type: ignore[operator]
    needed = ("config", "get_input_embeddings", "get_output_embeddings")
    if not isinstance(network, nn.Module) or not all(hasattr(network, each) for each in needed):
        raise UsageError(f"network must be a transformers model with an LM head, not {given}; {ELSEWHERE}")
    _check_ends(network, given)
    return network


def _check_ends(network: Any, given: str) -> None:
    """Refuse a network without head, and one whose embeddings in cannot equal ids in."""
    if network.get_output_embeddings() is None:
        raise UsageError(f"{given} has no LM head: load it with AutoModelForCausalLM or AutoModelForMaskedLM")
    table = network.get_input_embeddings()
    if type(table) is not nn.Embedding:
        raise UsageError(
            f"the input embedding is a {type(table).__name__}, which does more than look up rows: merge an adapter on "
            f"it first (merge_and_unload), or keep it from being quantised; {ELSEWHERE}"
        )
    if table.weight.device.type == "meta" or not table.weight.is_floating_point():
        raise UsageError("the input embedding is offloaded or quantised: keep it whole on a device (device_map)")
    if getattr(network.config, "input_emb_norm", False):
        raise UsageError("input_emb_norm = True rescales embeddings: ids in and embeddings in would differ")


def find_kind(base: Any, about: Mapping[str, Any], family: str | None) -> Family:
    """The family that was given, or that the configuration names; one whose code this is."""
    kind, name = about.get("model_type"), type(base).__name__
    if family is None and kind not in FAMILIES:
        fitting = [each for each in FAMILIES if is_stock(base, family_of(each))]
        what = f"is causal by itself: pass family= to say that it is a diffusion model ({', '.join(fitting)})"
        other = f"is of no known family: pass family= ({', '.join([*FAMILIES, ENCODER])}); {ELSEWHERE}"
        raise UsageError(f"{name}, model_type {kind!r}, {what if fitting else other}")
    one_of_names = [*FAMILIES, ENCODER]
    if family is not None and family not in one_of_names:
        raise UsageError(f"family must be one of {', '.join(one_of_names)}, not {family!r}")
    if family == ENCODER:
        return _encoder(name)
    found = family_of(family or str(kind))
    if is_stock(base, found):
        return (
            found
            if kind == found.name
            else replace(found, mask_id=None, eos_id=None, end_of_turn=(found.end_of_turn[0], None))
        )
    if kind != found.name or found.name not in CALLS:
        raise UsageError(f"family {found.name!r} is a {found.stock} of transformers, or its own code; this is a {name}")
    return found


def _encoder(name: str) -> Family:
    blank: Any = family_of("modernbert")
    return replace(blank, name=ENCODER, stock="", denoiser=NetworkDenoiser, chat_template="")


def is_stock(base: Any, family: Family) -> bool:
    """Whether the network is of the class of transformers that the family is built on."""
    lineage = [each for each in type(base).__mro__ if each.__module__.startswith("transformers.")]
    return any(each.__name__ == family.stock for each in lineage)


def _denoiser(base: Any, kind: Family, **identity: Any) -> Denoiser:
    if not is_stock(base, kind):
        return CalledNetwork(base, CALLS[kind.name], kind.denoiser, **identity)
    layers = getattr(base.config, "layer_types", None) or []
    if "sliding_attention" in layers and kind.name != "modernbert":
        raise UsageError("the network has layers with a sliding window, which diffusion models of this family have not")
    look_both_ways(base)
    return in_memory(kind.denoiser)(base, **identity)


def look_both_ways(base: Any) -> None:
    """From now on the network has our masks and no other."""
    settings = bidirectional()
    base.config.is_causal = False
    base.set_attn_implementation(settings["attn_implementation"])
    for module in base.modules():
        if hasattr(module, "is_causal"):
            module.is_causal = False


@cache
def in_memory(kind: type[NetworkDenoiser]) -> type[NetworkDenoiser]:
    """The family's denoiser for a network that somebody else made and may go on using."""
    return type(f"{kind.__name__}InMemory", (InMemory, kind), {})


class InMemory(NetworkDenoiser):
    """Weights stay where and what they are: on several devices, quantised, with adapters beside them."""

    owned = False
    compiles = False

    @property
    def plain(self) -> bool:
        """Whether all weights are tensors of one device and of a floating-point type."""
        weights = self.weights()
        whole = all(type(each) in (nn.Parameter, nn.Buffer, Tensor) for each in weights)
        return (
            whole
            and all(each.device == self.device for each in weights)
            and all(map(is_float, self.network.parameters()))
        )

    @property
    def sync_free(self) -> bool:
        """A pass is captured only where nothing in it can wait: not with quantised, sharded or routed weights."""
        return self.plain and not hasattr(self.network.config, "n_routed_experts")

    def settle_weights(self) -> None:
        """They stay."""

    def weight_addresses(self) -> tuple[int, ...]:
        return super().weight_addresses() if self.plain else ()

    def compiled(self, **compiler: Any) -> NetworkDenoiser:
        raise UsageError(
            "compiled layers lay the weights anew, which are not ours: use another engine, or softdlm.load"
        )

    def memory(self, batch: int, length: int) -> KVMemory:
        if len({each.device for each in self.weights()}) > 1:
            raise UsageError("the network lies on several devices, and the KV cache on one: leave cache out")
        return super().memory(batch, length)

    def _states(self, embeds: Tensor, pattern: Tensor | None, places: Tensor, cache: Any = None) -> Tensor:
        return super()._states(embeds, pattern, places, cache).to(self.device)

    def head(self, hidden: Float[Tensor, "*S H"]) -> Float[Tensor, "*S V"]:
        return super().head(hidden).to(self.device)


def is_float(tensor: Tensor) -> bool:
    return tensor.is_floating_point()


@torch.no_grad()
def check_both_ways(model: Denoiser) -> None:
    """A causal network decodes to nonsense without an error: look whether the first position sees the last."""
    token = 0 if model.mask_id else 1
    ids = torch.full((1, 4), model.mask_id, device=model.device)
    other = ids.clone()
    other[0, -1] = token
    first = model.first_open
    if model.logits(ids)[0, first].equal(model.logits(other)[0, first]):
        raise UsageError(
            "the network is causal: its first position does not see the last; load it with its bidirectional code, or "
            "with the stock class and family="
        )


def _with_template(tokenizer: Any, kind: Family) -> Any:
    """The tokenizer, or a copy of it with the family's chat template where it has none."""
    if tokenizer is None or tokenizer.chat_template is not None or not kind.chat_template:
        return tokenizer
    other = copy(tokenizer)
    other.chat_template = kind.chat_template
    return other


def _context(about: Mapping[str, Any], kind: Family) -> int | None:
    stated = next((about[key] for key in CONTEXT if about.get(key)), None)
    return min(stated, USABLE_CONTEXT) if stated and kind.name == "Dream" else stated


@contextmanager
def _asking() -> Any:
    """What a checkpoint's configuration would be blamed for is asked of the caller."""
    try:
        yield
    except CheckpointError as error:
        raise UsageError(str(error)) from error
