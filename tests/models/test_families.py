"""The A2D and ModernBERT families on tiny random checkpoints in their published format.

No reference outputs of these exist here. The reference is the stock class with an explicit mask, which it obeys
whatever its own attention is, and samplers written below from the published description.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import softdlm
from softdlm import CheckpointError, Steps, TokenizerError, UsageError
from softdlm.cli.main import app
from softdlm.models.known import known_models
from softdlm.models.load import find_family
from softdlm.models.weights import skeleton
from tests.conftest import tiny
from tests.small_checkpoints import SMALL, small_checkpoint, stock_network

A2D = tuple(name for name in SMALL if name.startswith("a2d"))
PROMPTS = [[5, 9, 33, 70], list(range(20, 31)), [44, 3, 8]]
WINDOW = 4
"""Half of the tiny ModernBERT's local attention."""


@cache
def folder(family: str) -> Path:
    return small_checkpoint(Path(mkdtemp()) / "small", family)


@cache
def small(family: str, attention: Any = "auto", dtype: Any = torch.float32) -> Any:
    return softdlm.load(folder(family), attention=attention, dtype=dtype, device="cpu")


def stock_logits(network: Any, ids: Tensor, sees: Tensor, positions: Tensor) -> Tensor:
    """The stock class under an explicit mask: `sees[b, i, j]` says whether i attends to j."""
    mask: Any = torch.zeros(sees.shape).masked_fill(~sees, torch.finfo(torch.float32).min)[:, None]
    if network.config.model_type == "modernbert":
        index = torch.arange(ids.shape[1])
        near = (index[:, None] - index).abs() <= WINDOW
        mask = {"full_attention": mask, "sliding_attention": mask.masked_fill(~near, torch.finfo(mask.dtype).min)}
    with torch.no_grad():
        return network(input_ids=ids, attention_mask=mask, position_ids=positions).logits


@pytest.mark.parametrize("padded", ["", "right", "left"])
@pytest.mark.parametrize("family", SMALL)
def test_logits_are_those_of_the_stock_class_under_an_explicit_full_mask(family: str, padded: str) -> None:
    model, ids = small(family), torch.randint(0, 150, (2, 24), generator=torch.Generator().manual_seed(3))
    real = torch.ones_like(ids, dtype=torch.bool)
    if padded:
        real[1, slice(17, None) if padded == "right" else slice(0, 7)] = False
    positions = (real.long().cumsum(1) - 1).clamp(min=0)
    expected = stock_logits(stock_network(family), ids, real[:, None, :].expand(-1, 24, -1), positions)
    found = model.logits(ids, attention_mask=real)
    torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=1e-5)
    assert model.logits(embeds=model.embed(ids), attention_mask=real).equal(found)
    causal = torch.ones(24, 24).tril().bool() & real[:, None, :]
    other = stock_logits(stock_network(family), ids, causal | torch.eye(24).bool(), positions)
    assert (found[real] - other[real]).abs().max() > 0.1  # the comparison has power


def test_modernberts_windows_are_those_of_its_own_code() -> None:
    ids, real = torch.arange(10, 50).repeat(2, 1), torch.ones(2, 40, dtype=torch.bool)
    real[1, 31:] = False
    with torch.no_grad():
        expected = stock_network("modernbert")(input_ids=ids, attention_mask=real.long()).logits
    found = small("modernbert").logits(ids, attention_mask=real)
    torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=1e-5)


def block_sees(length: int, start: int, block: int) -> Tensor:
    """BD3LM's mask on a row whose answer begins at `start`: the prompt is padded in front to whole blocks."""
    place = torch.arange(length) + -start % block
    return (place[None, :] // block <= place[:, None] // block)[None]


@pytest.mark.parametrize("family", A2D)
def test_block_causal_logits_are_those_of_the_stock_class_under_an_explicit_block_mask(family: str) -> None:
    model, ids, start = small(family, "block-causal"), torch.arange(30, 51)[None], 6
    found = model.head(model.hidden(model.embed(ids), block_length=4, block_start=torch.tensor([[start]])))
    expected = stock_logits(stock_network(family), ids, block_sees(21, start, 4), torch.arange(21)[None])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    other = stock_logits(stock_network(family), ids, block_sees(21, 0, 4), torch.arange(21)[None])
    assert (found - other).abs().max() > 0.1


def commit_surest(logits: Tensor, window: Tensor, count: int, mask_id: int) -> None:
    """Low-confidence remasking: the `count` open places with the most probable tokens; [MASK] is never one."""
    chances = torch.log_softmax(logits, -1)
    chances[:, mask_id] = -torch.inf
    best, open = chances.max(-1), (window == mask_id).nonzero()[:, 0]
    surest = open[best.values[open].sort(descending=True, stable=True).indices[:count]]
    window[surest] = best.indices[surest]


def plain_sampler(
    network: Any, prompt: list[int], new: int, block: int, steps: int, mask_id: int, blockwise: bool
) -> list[int]:
    """Low-confidence remasking as dLLM's samplers describe it, for one prompt.

    MDLM: the whole canvas is there from the start and seen in full. BD3LM: a block is appended when the one before is
    done, and attention is block-causal with the prompt padded in front to whole blocks.
    """
    first = len(prompt)
    row = torch.tensor([*prompt, *[mask_id] * new])
    for start in range(first, first + new, block):
        end = min(start + block, first + new)
        length = end if blockwise else first + new
        sees = block_sees(length, first, block) if blockwise else torch.ones(1, length, length, dtype=torch.bool)
        size, passes = end - start, min(steps, end - start)
        for number in range(passes):
            logits = stock_logits(network, row[None, :length], sees, torch.arange(length)[None])[0]
            count = size // passes + (number < size % passes)
            commit_surest(logits[start:end], row[start:end], count, mask_id)
    return row[first:].tolist()


@pytest.mark.parametrize("family", SMALL)
@pytest.mark.parametrize(("block", "steps"), [(18, 18), (8, 4)])
def test_full_attention_decodes_equal_a_plain_sampler(family: str, block: int, steps: int) -> None:
    model, network = small(family), stock_network(family)
    found = softdlm.generate(
        model, PROMPTS, max_new_tokens=18, block_length=block, commit=Steps(steps), early_finish=False
    )
    expected = [plain_sampler(network, prompt, 18, block, steps, model.mask_id, False) for prompt in PROMPTS]
    assert [each.canvas_ids for each in found] == expected


@pytest.mark.parametrize("cache", [None, "prefix", "dual"])
@pytest.mark.parametrize("family", A2D)
def test_block_causal_decodes_equal_a_plain_sampler_with_and_without_a_cache(family: str, cache: Any) -> None:
    """Nothing goes stale under block-causal attention, so keys and values may be reused without a difference."""
    model, network = small(family, "block-causal"), stock_network(family)
    how: Any = {"max_new_tokens": 18, "block_length": 4, "commit": Steps(2), "early_finish": False, "cache": cache}
    expected = [plain_sampler(network, prompt, 18, 4, 2, model.mask_id, True) for prompt in PROMPTS]
    assert [each.canvas_ids for each in softdlm.generate(model, PROMPTS, **how)] == expected


def test_soft_tokens_under_block_causal_attention_do_not_depend_on_the_cache() -> None:
    model, soft = small("a2d-qwen3", "block-causal", torch.float64), softdlm.Slerp(k=2, lam=0.4)
    how: Any = {"max_new_tokens": 16, "block_length": 4, "commit": Steps(2), "feedback": soft, "early_finish": False}
    answers = [softdlm.generate(model, PROMPTS, cache=cache, **how) for cache in (None, "prefix", "dual")]
    assert len({str([each.canvas_ids for each in row]) for row in answers}) == 1


def test_a_model_without_keys_and_values_refuses_a_cache() -> None:
    with pytest.raises(UsageError, match="has no KV cache: leave cache out"):
        softdlm.generate(small("modernbert"), [3, 4], max_new_tokens=4, block_length=2, cache="prefix")


@pytest.mark.parametrize("family", SMALL)
def test_special_ids_are_those_of_tokenizer_and_configuration(family: str) -> None:
    model = small(family)
    expected = {"a2d-llama": (201, (191, 194)), "modernbert": (194, (192, 193))}.get(family, (201, (195, 193)))
    assert (model.mask_id, model.eos_ids) == expected
    assert (model.first_open, model.blocks_from_zero) == (0, False)


RENDERED = {
    "a2d-qwen3": "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "a2d-qwen2": "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "a2d-llama": "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "modernbert": "[Question]\nHi\n[/Question]\n\n[Answer]\n",
}


@pytest.mark.parametrize("family", SMALL)
def test_a_chat_template_stands_in(family: str) -> None:
    message = [{"role": "user", "content": "Hi"}]
    text = small(family).tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False)
    assert text == RENDERED[family]


def test_qwen3s_own_template_is_rendered_without_thinking(tmp_path: Path) -> None:
    small_checkpoint(tmp_path, "a2d-qwen3")
    (tmp_path / "chat_template.jinja").write_text("{{ enable_thinking is defined and enable_thinking is false }}")
    template = softdlm.load(tmp_path).tokenizer.apply_chat_template
    assert template([{"role": "user", "content": "Hi"}], tokenize=False) == "True"
    assert template([{"role": "user", "content": "Hi"}], tokenize=False, enable_thinking=True) == "False"


def test_tied_weights_share_one_table() -> None:
    for family in ("a2d-qwen3", "a2d-qwen2", "modernbert"):
        network = small(family).network
        assert network.get_output_embeddings().weight is network.get_input_embeddings().weight


def doubled(tensors: dict[str, Tensor]) -> None:
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()


@pytest.mark.parametrize(
    ("family", "change", "config", "words"),
    [
        ("a2d-qwen3", doubled, {}, "ties the LM head to the embedding, but the weights hold lm_head.weight as well"),
        ("a2d-qwen3", None, {"tie_word_embeddings": False}, r"does not fit its config.json: missing lm_head.weight"),
        ("a2d-qwen2", None, {"right_shift_logits": True}, "right_shift_logits = True; only False is supported"),
        ("a2d-qwen2", None, {"use_sliding_window": True}, "use_sliding_window = True"),
        ("a2d-qwen3", None, {"rope_scaling": {"rope_type": "yarn"}}, "rope_type = 'yarn'; only"),
        ("a2d-llama", None, {"mlp_bias": True}, "mlp_bias = True; only False"),
        ("modernbert", None, {"hidden_activation": "relu"}, "hidden_activation = 'relu'; only 'gelu'"),
        ("modernbert", None, {"global_rope_theta": 0}, "global_rope_theta = 0; it must be"),
    ],
)
def test_what_does_not_fit_is_one_line(tmp_path: Path, family: str, change: Any, config: Any, words: str) -> None:
    small_checkpoint(tmp_path, family, change, **config)
    with pytest.raises(CheckpointError, match=words) as caught:
        softdlm.load(tmp_path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_the_mask_is_asked_for_by_name(tmp_path: Path) -> None:
    small_checkpoint(tmp_path, "a2d-qwen3")
    with pytest.raises(
        TokenizerError, match=r"<\|mask\|> is 201 in the tokenizer but 7 in the checkpoint: pass mask_id="
    ):
        softdlm.load(tmp_path, mask_id=7)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).unlink()
    with pytest.raises(
        CheckpointError, match=r"no mask token: the configuration has no mask_token_id, .* pass mask_id="
    ):
        softdlm.load(tmp_path)
    assert softdlm.load(tmp_path, mask_id=201).mask_id == 201


def test_blocks_of_an_unknown_length_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"does not say how long they are: give block_length \(32 in the published"):
        softdlm.generate(small("a2d-qwen3", "block-causal"), [5, 6], max_new_tokens=4)
    small_checkpoint(tmp_path / "bd3lm", "a2d-qwen3", decoding={"block_length": 2})
    with pytest.raises(UsageError, match=r"is called bd3lm, .*: pass attention='block-causal'"):
        softdlm.load(tmp_path / "bd3lm")
    model = softdlm.load(tmp_path / "bd3lm", attention="block-causal")
    assert model.own.block_length == 2
    assert len(softdlm.generate(model, [5], max_new_tokens=4).canvas_ids) == 4


def test_attention_is_refused_where_there_is_one_kind() -> None:
    with pytest.raises(UsageError, match="modernbert models have full attention, not 'block-causal'"):
        small("modernbert", "block-causal")


def test_a_published_bd3lm_needs_no_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention and block length of a checkpoint that is known by name."""
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(folder("a2d-qwen3")))
    model: Any = softdlm.load("dllm-hub/Qwen3-0.6B-diffusion-bd3lm-v0.1")
    assert (model.block_causal, model.own.block_length) == (True, 32)
    plain: Any = softdlm.load("dllm-hub/Qwen3-0.6B-diffusion-mdlm-v0.1")
    assert (plain.block_causal, plain.own.block_length) == (False, None)


@pytest.mark.parametrize("family", SMALL)
def test_a_family_is_evaluated(family: str, tmp_path: Path) -> None:
    """`softdlm eval` as the command line runs it: the protocol is recorded and the cell is whole."""
    words = ["eval", "-m", str(folder(family)), "--task", "mini-math", "--method", "slerp", "--k", "2", "--lam", "0.3"]
    words += ["--tokens-per-step", "4", "--limit", "1", "-n", "8", "--device", "cpu", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert len(list((tmp_path / "out").glob("*/summary.json"))) >= 1


QWEN_3 = {"head_dim": 128, "num_attention_heads": 16, "num_key_value_heads": 8, "tie_word_embeddings": True}
QWEN_2 = {"num_attention_heads": 14, "num_key_value_heads": 2, "tie_word_embeddings": True}
PUBLISHED: dict[str, dict[str, Any]] = {
    "llada": {"n_heads": 32, "mlp_hidden_size": 12288, "max_sequence_length": 4096},
    "Dream": {"num_attention_heads": 28, "num_key_value_heads": 4},
    "a2d-qwen3": QWEN_3,
    "a2d-qwen2": QWEN_2,
    "modernbert": {},
    "llada2_moe": tomllib.loads((Path(softdlm.__file__).parent / "bench" / "networks.toml").read_text())["llada2-mini"],
}


@pytest.mark.parametrize("known", known_models(), ids=lambda known: known.name)
def test_known_sizes_are_those_of_the_network(known: Any) -> None:
    """Counted on the meta device; heads, which are not in the table, are those of the published configurations."""
    sizes = {
        **{
            "d_model": known.width,
            "n_layers": known.layers,
            "hidden_size": known.width,
            "vocab_size": known.vocabulary,
        },
        **{"num_hidden_layers": known.layers, "intermediate_size": known.mlp, "max_position_embeddings": 4096},
        "num_attention_heads": known.width // 64,
        **{"rms_norm_eps": 1e-6, "rope_theta": 1e6, **PUBLISHED[known.model_type]},
    }
    family = find_family({"model_type": known.model_type}, Path())
    network = skeleton(family, sizes)
    counted = [
        *network.parameters(),
        *(each for name, each in network.named_buffers() if name.endswith("correction_bias")),
    ]
    assert sum(each.numel() for each in counted) == known.parameters


@pytest.mark.parametrize("family", ["llada", "dream", "llada2", *SMALL])
def test_a_model_says_whether_it_can_be_compiled(family: str) -> None:
    """`engine="auto"` goes by it, after many passes: an error there would come out of nowhere."""
    model = small(family) if family in SMALL else tiny(family)
    assert model.compiles == (family != "modernbert")
    if model.compiles:
        assert model.compiled() is not model
    else:
        with pytest.raises(UsageError, match="no layers to compile"):
            model.compiled()


@pytest.mark.parametrize("family", SMALL)
def test_small_families_decode_in_eight_bits(family: str) -> None:
    model = softdlm.load(folder(family), dtype="fp8-emulated", device="cpu")
    whole, ids = small(family), torch.arange(20, 44)[None]
    assert any(value.dtype == torch.float8_e4m3fn for value in model.weights())
    close = (model.logits(ids).float() - whole.logits(ids)).abs().max()
    assert 0 < close < whole.logits(ids).abs().max()
    assert len(softdlm.generate(model, PROMPTS[0], max_new_tokens=8, eos="forbid").ids) == 8
