"""Loading: what goes wrong is named, what is overridden stays so, nothing is guessed."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file, save_file

import softdlm
from softdlm import CheckpointError, PromptError, TokenizerError, UsageError
from softdlm.errors import ResultsError
from softdlm.models import load as loading
from softdlm.models.own_settings import OwnSettings
from softdlm.models.weights import INDEX
from tests.conftest import DATA, FAMILIES, IDS, tiny
from tests.tokenizers import SPECIAL, checkpoint

WTE, NORM = "model.transformer.wte.weight", "model.transformer.ln_f.weight"


def altered(folder: Path, family: str, change: Any = None, **config: Any) -> Path:
    """A copy of the tiny checkpoint with its tensors or its configuration changed."""
    checkpoint(folder, family)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt"):
        (folder / name).unlink(missing_ok=True)
    tensors = load_file(folder / "model.safetensors")
    if change:
        change(tensors)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(json.loads((folder / "config.json").read_text()) | config))
    return folder


def test_every_wrong_tensor_is_named_at_once(tmp_path: Path) -> None:
    def spoil(tensors: dict[str, torch.Tensor]) -> None:
        del tensors[NORM]
        tensors["model.transformer.wpe.weight"] = torch.zeros(3, 4)
        tensors[WTE] = tensors[WTE][:-1].clone()

    with pytest.raises(CheckpointError) as caught:
        softdlm.load(altered(tmp_path, "llada", spoil))
    message = str(caught.value)
    assert f"missing {NORM} (64,)" in message
    assert "unexpected model.transformer.wpe.weight (3, 4)" in message
    assert f"misshapen {WTE}: (191, 64) where the configuration needs (192, 64)" in message
    assert "\n" not in message


def test_a_missing_expert_and_a_short_fused_projection_are_named(tmp_path: Path) -> None:
    expert, fused = "model.layers.2.mlp.experts.7.up_proj.weight", "model.layers.0.attention.query_key_value.weight"

    def spoil(tensors: dict[str, torch.Tensor]) -> None:
        del tensors[expert]
        tensors[fused] = tensors[fused][:-16].clone()

    with pytest.raises(CheckpointError, match=rf"missing {expert} \(16, 64\); misshapen {fused}: \(112, 64\)"):
        softdlm.load(altered(tmp_path, "llada2", spoil), **IDS["llada2"])


def test_an_absent_shard_is_named(tmp_path: Path) -> None:
    index = json.loads((DATA / "llada" / "sharded" / INDEX).read_text())
    (tmp_path / INDEX).write_text(json.dumps(index))
    (tmp_path / "config.json").write_text((DATA / "llada" / "config.json").read_text())
    with pytest.raises(CheckpointError, match=r"model-00001-of-00002.safetensors, model-00002-of-00002"):
        softdlm.load(tmp_path)


@pytest.mark.parametrize(
    ("family", "config", "words"),
    [
        ("llada", {"model_type": "gpt2"}, "unknown model_type 'gpt2'; known are llada, Dream, llada2_moe, a2d-qwen3, "),
        ("llada", {"alibi": True}, "alibi = True; only False is supported"),
        ("llada", {"block_type": "sequential"}, "block_type = 'sequential'; only 'llama'"),
        ("llada", {"n_layers": None}, "lacks 'n_layers'"),
        ("dream", {"use_sliding_window": True}, "use_sliding_window = True"),
        ("llada2", {"score_function": "softmax"}, "score_function = 'softmax'"),
        ("llada2", {"use_qk_norm": False}, "use_qk_norm = False"),
    ],
)
def test_configurations_we_cannot_honour_are_refused(
    tmp_path: Path, family: str, config: dict[str, Any], words: str
) -> None:
    with pytest.raises(CheckpointError, match=words):
        softdlm.load(altered(tmp_path, family, **config), **IDS[family])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("./nowhere", r"no such folder: ./nowhere; give a folder or a Hugging Face id such as GSAI-ML/LLaDA-8B"),
        ("llada", "no such folder: llada"),
    ],
)
def test_a_folder_that_is_not_there_is_named(name: str, words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        softdlm.load(name)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("model", "given"),
    [(object(), "object"), (None, "NoneType"), (7, "int"), (softdlm.Slerp(), "softdlm.feedback.Slerp")],
)
def test_what_is_no_name_of_a_model_is_refused_by_its_type(model: Any, given: str) -> None:
    with pytest.raises(UsageError, match=rf"model must be 'builtin', a folder or a Hugging Face id .*, not {given}$"):
        softdlm.load(model)


def test_a_folder_without_files_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"holds no config.json"):
        softdlm.load(tmp_path)
    (tmp_path / "config.json").write_text((DATA / "llada" / "config.json").read_text())
    with pytest.raises(CheckpointError, match=r"neither model.safetensors.index.json nor model.safetensors"):
        softdlm.load(tmp_path)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dtype": "int8"}, "not 'int8'"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"dtype": "float33"}, "not 'float33'"),
        ({"attention": "causal"}, "attention must be one of auto, full, block-causal, not 'causal'"),
        ({"mask_id": 500}, "mask_id 500 lies outside the vocabulary of 192: pass mask_id="),
        ({"eos_ids": [181, 192]}, "eos_ids 192 lies outside the vocabulary of 192"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        softdlm.load(DATA / "llada", **options)


def test_llada2_without_a_mask_id_says_what_to_pass() -> None:
    """Its config has none, and the published one does not fit a tiny vocabulary."""
    with pytest.raises(UsageError, match=r"mask_id 156895 lies outside the vocabulary of 160: pass mask_id="):
        softdlm.load(DATA / "llada2")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_without_tokenizer_decodes_ids_and_says_so_for_text(family: str) -> None:
    model = tiny(family)
    assert model.tokenizer is None
    assert len(softdlm.generate(model, [5, 6, 7], max_new_tokens=4).canvas_ids) == 4
    with pytest.raises(TokenizerError, match="has no tokenizer: give token ids"):
        softdlm.generate(model, "hello")


@pytest.mark.parametrize("family", FAMILIES)
def test_special_ids_come_from_checkpoint_and_tokenizer(tmp_path: Path, family: str) -> None:
    model = softdlm.load(checkpoint(tmp_path, family))
    special = SPECIAL[family]
    turn = {"llada": "<|eot_id|>", "dream": "<|im_end|>", "llada2": "<|role_end|>"}[family]
    mask = "<|mdm_mask|>" if family == "llada" else "<|mask|>"
    assert model.mask_id == special[mask]
    assert model.eos_ids == (special["<|endoftext|>"], special[turn])


def test_overrides_win() -> None:
    model = softdlm.load(DATA / "llada", mask_id=11, eos_ids=[12, 13], max_length=99)
    assert (model.mask_id, model.eos_ids, model.max_length) == (11, (12, 13), 99)


def test_a_tokenizer_that_contradicts_the_checkpoint_is_refused(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "llada")
    with pytest.raises(TokenizerError, match=r"is 187 in the tokenizer but 11 in the checkpoint: pass mask_id="):
        softdlm.load(folder, mask_id=11)
    with pytest.raises(TokenizerError, match=r"EOS id 181 is not among the EOS ids \[190\]"):
        softdlm.load(folder, eos_ids=[190])


def test_a_mask_that_ends_the_text_is_refused() -> None:
    with pytest.raises(TokenizerError, match=r"id 181 is both \[MASK\] and one of the EOS ids \[181, 190\]"):
        softdlm.load(DATA / "llada", mask_id=181, eos_ids=[181, 190])


def test_a_broken_tokenizer_is_one_line(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "llada")
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerError, match="cannot be loaded") as caught:
        softdlm.load(folder)
    assert "\n" not in str(caught.value)


RENDERED = {
    "llada": (
        "<|startoftext|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    "dream": "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\n",
    "llada2": (
        "<role>SYSTEM</role>Be brief.\ndetailed thinking off<|role_end|>"
        "<role>HUMAN</role> Hi <|role_end|><role>ASSISTANT</role>"
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_chat_templates_stand_in_where_the_checkpoint_has_none(tmp_path: Path, family: str) -> None:
    tokenizer = softdlm.load(checkpoint(tmp_path, family)).tokenizer
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " Hi "}]
    assert tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False) == RENDERED[family]


def test_dream_greets_itself_where_no_system_turn_is_given(tmp_path: Path) -> None:
    tokenizer = softdlm.load(checkpoint(tmp_path, "dream")).tokenizer
    text = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False)
    assert text == "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"


def test_llada2_refuses_turns_it_has_no_place_for(tmp_path: Path) -> None:
    model = softdlm.load(checkpoint(tmp_path, "llada2"))
    late = [{"role": "user", "content": "Hi"}, {"role": "system", "content": "Be brief."}]
    for messages in (late, [{"role": "tool", "content": "4"}]):
        with pytest.raises(PromptError, match="chat template refuses these messages: this chat template has no role"):
            softdlm.generate(model, messages)


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
def test_a_gpu_that_is_not_there_is_said_so() -> None:
    with pytest.raises(UsageError, match="sees no GPU: use cpu"):
        softdlm.load(DATA / "llada", device="cuda")


def test_the_checkpoints_own_chat_template_goes_first(tmp_path: Path) -> None:
    tokenizer = softdlm.load(checkpoint(tmp_path, "llada", chat_template="mine")).tokenizer
    assert tokenizer.chat_template == "mine"


def test_a_hub_id_is_fetched_at_its_revision_and_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = checkpoint(tmp_path / "snapshots" / "0123abc", "llada")
    asked: dict[str, Any] = {}

    def fetch(name: str, **options: Any) -> str:
        asked.update(options, name=name)
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    model = softdlm.load("GSAI-ML/LLaDA-8B-Instruct", revision="v1")
    assert (asked["name"], asked["revision"]) == ("GSAI-ML/LLaDA-8B-Instruct", "v1")
    assert not any(pattern.endswith((".py", ".bin")) for pattern in asked["allow_patterns"])
    assert (model.source.name, model.source.revision) == ("GSAI-ML/LLaDA-8B-Instruct", "0123abc")


def test_a_hub_that_cannot_be_reached_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, **options: Any) -> str:
        raise OSError("no route\nto host")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(CheckpointError, match="cannot get some/model from the Hugging Face hub: no route to host"):
        softdlm.load("some/model")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_any_floating_point_type(family: str, dtype: torch.dtype) -> None:
    """Weights take the type asked for, routers stay at least float32, and the decode closes the canvas."""
    model = tiny(family, dtype)
    kept = {name for name, value in model.network.state_dict().items() if value.dtype != dtype}
    routers = {name for name in model.network.state_dict() if ".mlp.gate." in name}
    assert kept == (set() if dtype == torch.float64 else routers)
    result = softdlm.generate(model, [5, 6, 7], max_new_tokens=8, feedback=softdlm.Slerp(), early_finish=False)
    assert model.mask_id not in result.canvas_ids


@pytest.mark.parametrize("has", [False, True])
def test_native_is_what_the_cpu_multiplies_in(has: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "cpu_has_bfloat16", lambda: has)
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert loading.find_dtype("native", cpu) == (torch.bfloat16 if has else torch.float32)
    assert loading.find_dtype("native", gpu) == loading.find_dtype(None, gpu) == torch.bfloat16
    assert loading.find_dtype(None, cpu) == torch.float32


def test_tied_weights_share_one_table(tmp_path: Path) -> None:
    head = "model.transformer.ff_out.weight"
    model: Any = softdlm.load(altered(tmp_path, "llada", lambda tensors: tensors.pop(head), weight_tying=True))
    assert model.network.lm_head.weight.data_ptr() == model.embedding.data_ptr()
    hidden = torch.randn(2, 64)
    torch.testing.assert_close(model.head(hidden), hidden @ model.embedding.T)


def test_a_checkpoint_may_name_the_settings_that_suit_it(tmp_path: Path) -> None:
    assert tiny("llada").own == OwnSettings()
    named = altered(tmp_path / "own", "llada", decoding={"lam": 0.45, "feedback": "slerp"})
    assert softdlm.load(named).own == OwnSettings(lam=0.45, feedback="slerp")
    for number, bad in enumerate(({"lambda": 0.4}, {"lam": 1.5}, {"lam": "0.5"}, {"k": 0}, [3, 0.5])):
        with pytest.raises(CheckpointError, match=r"config\.json says decoding"):
            softdlm.load(altered(tmp_path / str(number), "llada", decoding=bad))


@pytest.mark.parametrize(
    ("step", "place"), [("write_bytes", "the temporary folder .*softdlm-"), ("mkdir", "a temporary")]
)
def test_a_tokenizer_that_cannot_be_copied_names_the_place_and_the_reason(
    monkeypatch: pytest.MonkeyPatch, step: str, place: str
) -> None:
    """As under a limit on the size of files, whose error names no file."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))

    monkeypatch.setattr(*((Path, step) if step == "write_bytes" else (os, step)), refuse)
    with pytest.raises(ResultsError, match=f"^cannot write {place}.*: File too large; make room, or set TMPDIR"):
        loading.find_checkpoint("builtin")
