"""Checkpoints are input from outside: whatever is wrong with one is a single line, at once, before memory is taken."""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import softdlm
from softdlm.errors import CheckpointError, SoftDLMError
from softdlm.models import tensor_file
from softdlm.models.folder import CheckpointFolder
from softdlm.models.llada import FAMILY
from softdlm.models.tensor_file import FLOATS, largest
from softdlm.models.weights import INDEX, Precision, Weights, digest
from tests.conftest import DATA, IDS
from tests.damage import CONFIG, WEIGHTS, damages, whole

SHARE = 6
"""Of the damages one in so many is tried here; benchmarks/fuzz.py tries all."""
NORM = "model.transformer.ln_f.weight"


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """The stock networks are imported once; that is no part of the time that a refusal takes."""
    for family, special in IDS.items():
        softdlm.load(DATA / family, **special)


def refusal(folder: Path, **options: Any) -> str:
    """The one line with which a folder is refused; empty where it loads."""
    began = time.monotonic()
    try:
        softdlm.load(folder, device="cpu", **options)
        message = ""
    except SoftDLMError as error:
        message = str(error)
        assert message
        assert message.isprintable()
    assert time.monotonic() - began < 5
    return message


@pytest.mark.parametrize("family", ["llada", "dream", "llada2", "llada-sharded"])
@pytest.mark.parametrize("part", range(2))
def test_a_damaged_checkpoint_loads_or_is_refused_with_one_line(tmp_path: Path, family: str, part: int) -> None:
    chosen = damages(family)
    chosen = chosen[part::2] if family == "llada-sharded" else chosen[part * 3 :: SHARE]
    refused = 0
    for number, damage in enumerate(chosen):
        folder = whole(tmp_path / str(number), family)
        damage.do(folder)
        try:
            refused += bool(refusal(folder, **IDS[family.removesuffix("-sharded")]))
        except BaseException as error:
            raise AssertionError(damage.name) from error
    assert len(chosen) / 3 < refused


def changed(folder: Path, config: Mapping[str, Any] = {}, tensors: Mapping[str, torch.Tensor] = {}) -> Path:
    whole(folder, "llada")
    save_file(load_file(folder / WEIGHTS) | {**tensors}, folder / WEIGHTS)
    (folder / CONFIG).write_text(json.dumps(json.loads((folder / CONFIG).read_text()) | {**config}))
    return folder


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"n_layers": 10**9}, "n_layers = 1000000000; it must be a whole number from 1 to 10,000"),
        ({"n_layers": 10_000}, r"missing model.transformer.blocks.4.attn_norm.weight; .*; [0-9,]+ or more"),
        ({"n_layers": "4"}, "n_layers = '4'; it must be a whole number"),
        ({"vocab_size": 10**7, "embedding_size": 10**7}, r"misshapen model.transformer.wte.weight: \(192, 64\)"),
        ({"d_model": 2**20 - 2**18, "n_heads": 4}, "misshapen"),
        ({"n_heads": 5}, "5 heads for a width of 64, which they do not divide"),
        ({"n_kv_heads": 3}, "3 key heads for 4 heads, which they do not divide"),
        ({"rope_theta": float("nan")}, "rope_theta = nan; it must be a finite number above 0"),
        ({"rope_theta": 0}, "rope_theta = 0; "),
        ({"rope_theta": -1.0}, "rope_theta = -1.0; "),
        ({"weight_tying": "no"}, "weight_tying = 'no'; it must be true or false"),
        ({"mask_token_id": "<mask>"}, "mask_token_id = '<mask>'; it must be a whole number from 0"),
        ({"vocab_size": None, "embedding_size": None}, "lacks 'embedding_size' and 'vocab_size'"),
        ({"model_type": ["llada"]}, r"unknown model_type \['llada'\]"),
    ],
)
def test_sizes_that_cannot_be_meant_are_named(tmp_path: Path, config: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        softdlm.load(changed(tmp_path / "it", config), device="cpu", eos_ids=[181])


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (torch.ones(64, dtype=torch.int8), f"{NORM} is of type I8; weights must be F64, F32, F16, BF16"),
        (torch.ones(64, dtype=torch.bool), f"{NORM} is of type BOOL"),
        (torch.tensor([1.0] * 63 + [float("nan")]), f"{NORM} holds values that are not finite"),
        (torch.tensor([1.0] * 63 + [float("inf")]), f"{NORM} holds values that are not finite"),
        (torch.tensor([float("inf"), -float("inf")] * 32).bfloat16(), f"{NORM} holds values that are not finite"),
    ],
)
def test_what_is_no_network_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tensor: torch.Tensor, words: str
) -> None:
    """In whichever of its blocks it lies."""
    monkeypatch.setattr(tensor_file, "BLOCK", 64)
    assert words in refusal(changed(tmp_path / "it", tensors={NORM: tensor}))


@given(st.sampled_from(sorted(FLOATS)), st.lists(st.binary(min_size=8, max_size=8), min_size=1, max_size=20))
def test_the_largest_magnitude_is_found_and_whatever_is_not_finite(kind: str, words: list[bytes]) -> None:
    """Any bits at all, so NaN of both signs, infinities, zeros and subnormal values in any company."""
    block, dtype = bytearray(b"".join(words)), FLOATS[kind]
    values = torch.frombuffer(block, dtype=dtype)
    found = largest(memoryview(block), dtype)
    top = torch.frombuffer(bytearray(found.to_bytes(dtype.itemsize, "little")), dtype=dtype)[0]
    assert bool(top.isfinite()) == bool(values.isfinite().all())
    assert not top.isfinite() or top == values.abs().max()


def test_large_values_are_finite_unless_the_type_is_too_narrow(tmp_path: Path) -> None:
    """A sum may overflow though no value does."""
    folder = changed(tmp_path / "it", tensors={NORM: torch.full((64,), 3e38)})
    assert refusal(folder, dtype="float32") == ""
    assert "values too large for torch.float16" in refusal(folder, dtype="float16")


@pytest.fixture
def three_cores() -> Iterator[None]:
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(1)


@pytest.mark.parametrize("dtype", ["float32", "fp8-emulated"])
@pytest.mark.parametrize("family", sorted(IDS))
def test_blocks_and_cores_do_not_change_what_is_loaded(
    monkeypatch: pytest.MonkeyPatch, three_cores: None, family: str, dtype: str
) -> None:
    """Blocks of one row, on several cores and on one, where the file is hashed, beside blocks of whole tensors."""

    def load(digest: bool = False) -> Any:
        return softdlm.load(DATA / family, device="cpu", dtype=dtype, digest=digest, **IDS[family])

    whole = load(digest=True)
    monkeypatch.setattr(tensor_file, "BLOCK", 64)
    for other in (load(), load(digest=True)):
        assert other.digest in (None, whole.digest)
        for name, tensor in whole.network.state_dict().items():
            assert torch.equal(other.network.state_dict()[name].float(), tensor.float()), name


def test_names_of_tensors_steer_no_terminal(tmp_path: Path) -> None:
    message = refusal(changed(tmp_path / "it", tensors={"\x1b[2J\u202eevil\n": torch.ones(1)}))
    assert r"unexpected \x1b[2J\u202eevil\n (1,)" in message


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("model.safetensors cut at 0.3", "its header describes 481024 bytes of tensors, it holds"),
        ("model.safetensors is an LFS pointer", "it is a Git LFS pointer, run git lfs pull"),
        ("model.safetensors is a folder", "is not a regular file"),
        ("model.safetensors is a pipe", "is not a regular file"),
        ("model.safetensors is a link to /dev/zero", "leads out of the checkpoint, to /dev/zero"),
        ("config.json is a link to /dev/zero", "leads out of the checkpoint, to /dev/zero"),
        ("config.json is b'[]'", "must hold a JSON object, not a list"),
        ("config.json is b'{}\\xff'", "config.json is not JSON"),
        ("header of 2147483648 bytes", "it does not begin like a safetensors file"),
        ("header data_offsets=[0, 0]", "takes 0 bytes"),
    ],
)
def test_file_and_cause_are_named(tmp_path: Path, damage: str, words: str) -> None:
    (found,) = (each for each in damages("llada") if each.name == damage)
    found.do(whole(tmp_path / "it", "llada"))
    assert words in refusal(tmp_path / "it", **IDS["llada"])


def test_an_index_that_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = whole(tmp_path / "it", "llada-sharded")
    (tmp_path / "secret.safetensors").write_bytes((folder / "model-00001-of-00002.safetensors").read_bytes())
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": "../secret.safetensors"}}))
    assert "leads out of the checkpoint" in refusal(folder)
    (folder / INDEX).write_text(json.dumps({"weight_map": 7}))
    assert f"{INDEX} has no weight_map from tensors to files" in refusal(folder)


def test_a_hubs_cache_links_to_its_own_blobs(tmp_path: Path) -> None:
    """And to nothing beyond its repository; a plain folder may link within itself only."""
    snapshot, blobs = tmp_path / "models--a--b" / "snapshots" / "0123", tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for name in (CONFIG, WEIGHTS):
        (blobs / name).write_bytes((DATA / "llada" / name).read_bytes())
        (snapshot / name).symlink_to(os.path.join("..", "..", "blobs", name))
    assert refusal(snapshot) == ""
    (snapshot / CONFIG).unlink()
    (snapshot / CONFIG).symlink_to(DATA / "llada" / CONFIG)
    assert "leads out of the checkpoint" in refusal(snapshot)
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / WEIGHTS).write_bytes((blobs / WEIGHTS).read_bytes())
    (plain / CONFIG).symlink_to(blobs / CONFIG)
    assert "leads out of the checkpoint" in refusal(plain)


def test_a_file_larger_than_such_files_are_is_not_read(tmp_path: Path) -> None:
    folder = whole(tmp_path / "it", "llada")
    os.truncate(folder / CONFIG, 1 << 40)
    assert "config.json is larger than 16 MiB" in refusal(folder)


def test_a_tokenizer_that_waits_or_leads_out_is_refused(tmp_path: Path) -> None:
    folder = whole(tmp_path / "it", "llada")
    os.mkfifo(folder / "tokenizer.json")
    assert "tokenizer.json is not a regular file" in refusal(folder)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").symlink_to("/etc/passwd")
    assert "leads out of the checkpoint" in refusal(folder)


def test_a_digest_is_of_the_bytes_that_were_loaded(tmp_path: Path) -> None:
    """Also of shards."""
    for family in ("llada", "llada-sharded"):
        folder = whole(tmp_path / family, family)
        softdlm.load(folder, device="cpu", digest=digest(folder), **IDS["llada"])
        with pytest.raises(CheckpointError, match=r"has changed since its digest was taken: it was 0000, what was"):
            softdlm.load(folder, device="cpu", digest="0000", **IDS["llada"])


def test_a_file_that_is_swapped_while_it_is_loaded_is_not_loaded(tmp_path: Path) -> None:
    """Another file in its place is never opened; a change in the file itself is in the digest."""
    folder = whole(tmp_path / "it", "llada")
    data, config = (folder / WEIGHTS).read_bytes(), json.loads((folder / CONFIG).read_text())
    changed = data[:-1] + bytes([data[-1] ^ 1])

    def load_after(swap: Callable[[], object]) -> str:
        (folder / WEIGHTS).write_bytes(data)
        with Weights(CheckpointFolder(folder)) as weights:
            swap()
            return weights.load(FAMILY, config, Precision(torch.float32), torch.device("cpu"), hashing=True)[1][WEIGHTS]

    (tmp_path / "other").write_bytes(changed)
    assert load_after(lambda: (tmp_path / "other").replace(folder / WEIGHTS)) == sha256(data).hexdigest()
    assert load_after(lambda: (folder / WEIGHTS).write_bytes(changed)) == sha256(changed).hexdigest()
    with pytest.raises(CheckpointError, match="is damaged: it ends too early; get the file again"):
        load_after(lambda: os.truncate(folder / WEIGHTS, 100_000))
