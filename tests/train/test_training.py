"""Training: rows, masks, loss, resuming, and the way from a recipe to a checkpoint that decodes."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import softdlm
from softdlm.errors import UsageError
from softdlm.generation import encode
from softdlm.models.denoiser import NetworkDenoiser
from softdlm.models.load import BUILTIN
from softdlm.tasks import training_stream
from softdlm.train import loop
from softdlm.train.batches import Batch, read_tokens, stream_examples, to_device
from softdlm.train.examples import LENGTH, ExampleMaker
from softdlm.train.loop import Run
from softdlm.train.loss import LEAST, arguments, network_loss, noise
from softdlm.train.recipe import RECIPES, Recipe, find_recipe
from softdlm.train.student import Student

CPU = torch.device("cpu")
TOKENS = read_tokens(BUILTIN)
SMALL = replace(RECIPES["toy"], width=32, layers=2, heads=2, mlp=64, batch=8, steps=8, warmup=2, ema=0.9, muon=3e-3)
MIXTURE = Recipe().mixture
train = partial(loop.train, say=lambda text: None)


def maker(batch: int = 64, seed: int = 3) -> ExampleMaker:
    return ExampleMaker(TOKENS, MIXTURE, batch, seed)


def batch_of(step: int = 0, batch: int = 64) -> Batch:
    return to_device(maker(batch).rows(step), CPU)


def config_of(recipe: Recipe) -> dict[str, Any]:
    return recipe.config(TOKENS.size, TOKENS.mask_id, TOKENS.eos_id)


def quiet_run(out: Path, **settings: Any) -> Run:
    return Run(**{"out": out, "device": CPU, "validation_items": 0, **settings})


def weights_of(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_rows_are_the_prompt_as_generate_encodes_it_then_response_and_eos() -> None:
    rows = maker(1).rows(0)
    (name,) = [name for name in MIXTURE if _first(name)[0] in _decode(rows.ids[0])]
    prompt, response = _first(name)
    model: Any = Student(SMALL, config_of(SMALL), CPU)
    denoiser = NetworkDenoiser(model.network, mask_id=TOKENS.mask_id, tokenizer=_tokenizer())
    ids = encode(denoiser, prompt)
    start, answer = int(rows.prompt[0]), int(rows.answer[0])
    assert rows.ids[0, :start].tolist() == ids
    said = _tokenizer()(response, add_special_tokens=False)["input_ids"]
    assert rows.ids[0, start : start + len(said)].tolist() == said
    assert set(rows.ids[0, start + len(said) :].tolist()) <= {TOKENS.eos_id}
    assert len(said) <= answer <= 64


def test_rows_depend_on_seed_and_step_and_not_on_workers() -> None:
    alone = list(islice(stream_examples(maker(16), 5, 0, pool=100), 3))
    shared = stream_examples(maker(16), 5, 2, pool=100)
    for here, there in zip(alone, shared, strict=False):
        assert all((a == b).all() for a, b in zip(here, there, strict=True))
    shared.close()
    assert (maker(16).rows(5).ids == alone[0].ids).all()
    assert (maker(16).rows(6).ids != alone[0].ids).any()
    assert (maker(16, seed=4).rows(5).ids != alone[0].ids).any()


def test_batches_of_the_pool_come_round_from_wherever_a_run_starts() -> None:
    ids = [rows.ids for rows in islice(stream_examples(maker(4), 0, 0, pool=3), 7)]
    assert (ids[0] == ids[3]).all()
    assert (ids[0] != ids[1]).any()
    resumed = [rows.ids for rows in islice(stream_examples(maker(4), 2, 0, pool=3), 5)]
    assert all((a == b).all() for a, b in zip(ids[2:], resumed, strict=True))


def test_answer_regions_are_full_half_of_the_time_and_exact_for_either_or() -> None:
    batch = to_device(ExampleMaker(TOKENS, {"either-or": 1.0}, 2000, 0).rows(0), CPU)
    words = (batch.ids.gather(1, batch.places) != TOKENS.eos_id).sum(1)
    assert 0.45 < (batch.answer == words).float().mean() < 0.55
    assert 0.20 < (batch.answer == 64).float().mean() < 0.30
    full = batch_of(batch=1000).answer == 64
    assert 0.42 < full.float().mean() < 0.60


def test_half_of_either_or_is_raw_text_and_all_else_stands_in_the_chat_template() -> None:
    """The paper reads its prompts as raw text (tables 9 to 11)."""
    prefix = list(TOKENS.prefix)
    framed = {
        name: np.mean(
            [row[: len(prefix)].tolist() == prefix for row in ExampleMaker(TOKENS, {name: 1.0}, 400, 0).rows(0).ids]
        )
        for name in MIXTURE
    }
    assert 0.42 < framed.pop("either-or") < 0.58
    assert set(framed.values()) == {1.0}


def test_masks_touch_answers_only_at_the_right_rate() -> None:
    batch = batch_of(batch=512)
    noised = noise(batch, TOKENS.mask_id, torch.Generator().manual_seed(0))
    masked = noised.ids == TOKENS.mask_id
    region = batch.real & (batch.positions >= batch.prompt[:, None])
    assert not (masked & ~region).any()
    assert (noised.ids[~masked] == batch.ids[~masked]).all()
    assert 0.46 < masked[region].float().mean() < 0.54
    rate = masked.sum(1) / batch.answer
    t = (torch.arange(512) + 0.5) / 512
    assert (rate - t).abs().mean() < 0.08
    assert ((noised.weight > 0).sum(1) == masked.sum(1)).all()


def test_loss_is_the_closed_form() -> None:
    """Row by row, unpadded, without masks of attention: -log p summed over masked positions / p / R."""
    student = Student(SMALL, config_of(SMALL), CPU)
    batch = batch_of(batch=6)
    noised = noise(batch, TOKENS.mask_id, torch.Generator().manual_seed(1))
    got = network_loss(student.network, *arguments(batch, noised))
    u = torch.rand(6, 65, generator=torch.Generator().manual_seed(1))[:, 0]
    p = (1 - LEAST) * (torch.arange(6) + u) / 6 + LEAST
    total = sum(_row_loss(student.network, batch, noised.ids, row, p[row].item()) for row in range(6))
    torch.testing.assert_close(got, torch.as_tensor(total / 6))


def _row_loss(network: Any, batch: Batch, ids: Tensor, row: int, p: float) -> Tensor:
    start, answer = int(batch.prompt[row]), int(batch.answer[row])
    seen = ids[row : row + 1, : start + answer]
    nobody_hidden = torch.ones(1, 1, start + answer, start + answer, dtype=torch.bool)
    logs = network(input_ids=seen, attention_mask=nobody_hidden, use_cache=False).logits[0].log_softmax(-1)
    places = (seen[0] == TOKENS.mask_id).nonzero().flatten()
    return -logs[places, batch.ids[row, places]].sum() / p / answer


def test_padding_is_not_seen() -> None:
    student = Student(SMALL, config_of(SMALL), CPU)
    batch = batch_of(batch=4)
    scrambled = replace(batch, ids=torch.where(batch.real, batch.ids, 77))
    losses = [
        network_loss(student.network, *arguments(each, noise(each, TOKENS.mask_id, torch.Generator().manual_seed(2))))
        for each in (batch, scrambled)
    ]
    torch.testing.assert_close(losses[0], losses[1])


def test_export_loads_and_computes_the_same(tmp_path: Path) -> None:
    train(SMALL, quiet_run(tmp_path))
    model = softdlm.load(tmp_path, device="cpu")
    assert (model.mask_id, model.eos_ids[0]) == (5, 1)
    assert len(model.embedding) % 64 == 0
    student = Student(SMALL, config_of(SMALL), CPU)
    with torch.no_grad():
        for name, value in model.network.state_dict().items():  # type: ignore[attr-defined]
            student.network.state_dict()[name].copy_(value)
    ids = torch.randint(0, TOKENS.size, (2, 20))
    seen = torch.ones(2, 1, 20, 20, dtype=torch.bool)
    expected = student.network(input_ids=ids, attention_mask=seen, use_cache=False).logits
    torch.testing.assert_close(model.logits(ids), expected.detach())


def test_exported_weights_are_the_trained_ones_to_bfloat16(tmp_path: Path) -> None:
    from softdlm.train.export import export

    student = Student(SMALL, config_of(SMALL), CPU)
    export(tmp_path, config_of(SMALL), student.best_weights(), BUILTIN)
    model: Any = softdlm.load(tmp_path, device="cpu")
    for name, value in model.network.state_dict().items():
        torch.testing.assert_close(value, student.weights[name].detach(), rtol=2**-8, atol=0)


def test_resumed_run_equals_an_undisturbed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(SMALL, quiet_run(tmp_path / "whole"))
    cut = quiet_run(tmp_path / "cut", save_seconds=0)
    learn = Student.learn

    def fail_at_step_5(self: Student, loss: Tensor, step: int, share: float) -> None:
        if step == 5:
            raise InterruptedError
        learn(self, loss, step, share)

    monkeypatch.setattr(Student, "learn", fail_at_step_5)
    with pytest.raises(InterruptedError):
        train(SMALL, cut)
    monkeypatch.undo()
    with pytest.raises(UsageError, match="another recipe"):
        train(replace(SMALL, lr=1e-3), replace(cut, resume=True))
    card = train(SMALL, replace(cut, resume=True))
    assert weights_of(tmp_path / "whole") == weights_of(tmp_path / "cut")
    assert card["steps"] == 8
    steps = [json.loads(line)["step"] for line in (tmp_path / "cut" / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(set(steps))
    assert not (tmp_path / "cut" / "state.safetensors").exists()


def test_each_optimiser_keeps_its_own_rate() -> None:
    student = Student(replace(SMALL, lr=1e-3, muon=4e-3), config_of(SMALL), CPU)
    adam, muon = student.optimizers
    squares = [weight.square().sum() for weight in student.weights.values()]
    student.learn(torch.stack(squares).sum(), 0, share=0.5)
    assert {group["lr"] for group in adam.param_groups} == {5e-4}
    assert {group["lr"] for group in muon.param_groups} == {2e-3}
    inner = {id(weight) for group in muon.param_groups for weight in group["params"]}
    named = {name for name, weight in student.weights.items() if id(weight) in inner}
    assert named == {name for name, weight in student.weights.items() if ".layers." in name and weight.ndim == 2}
    whole = [weight for each in student.optimizers for group in each.param_groups for weight in group["params"]]
    assert len(whole) == len({id(weight) for weight in whole}) == len(student.weights)


def test_minutes_set_the_number_of_steps(tmp_path: Path) -> None:
    recipe = replace(SMALL, steps=100_000, warmup=20)
    card = train(recipe, quiet_run(tmp_path, minutes=0.05))
    assert 21 <= card["steps"] <= card["schedule_steps"] < 100_000
    assert card["minutes"] < 0.1
    with pytest.raises(UsageError, match="warmup of at least 20"):
        train(replace(recipe, warmup=5), quiet_run(tmp_path / "other", minutes=0.05))


def test_schedule_warms_up_and_ends_at_zero() -> None:
    recipe = replace(SMALL, warmup=2, steps=10)
    rates = [recipe.share(step, 10) for step in range(11)]
    assert rates[:3] == [0.5, 1.0, 1.0]
    assert rates[10] == pytest.approx(0)
    assert rates[2:] == sorted(rates[2:], reverse=True)


def test_toy_learns_and_decodes(tmp_path: Path) -> None:
    recipe = replace(RECIPES["toy"], steps=60, batch=16, warmup=10)
    records: list[dict[str, Any]] = []
    card = loop.train(recipe, quiet_run(tmp_path, validation_items=4), lambda text: None, records.append)
    assert card["final_loss"] < 5.8  # the mean over all 60 steps; ln 1344 is 7.2
    assert {result["tokens_per_step"] for result in card["validation"]} == {1, 4}
    assert json.loads((tmp_path / "training.json").read_text()) == card
    answer = softdlm.generate(softdlm.load(tmp_path, device="cpu"), "It is either A or B:", max_new_tokens=4)
    assert len(answer.canvas_ids) == 4
    assert records[-1]["step"] == 60


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("width=0", "width must be a whole number from 1, not 0"),
        ("heads=3", "heads must be such that width 64 / heads is whole and even .*, not 3"),
        ('lr="fast"', "lr must be above 0, not 'fast'"),
        ("lr=fast", "not JSON"),
        ("depth=3", "one of the keys width"),
        ("betas=[0.9]", "betas must be two numbers from 0 to below 1, not"),
        ("ema=1", "ema must be null or a number from 0 to below 1, not 1"),
        ('mixture={"gsm8k":1}', "weights of some of mini-math"),
        ("warmup=99999", "warmup must be 0 or a whole number below steps 500, not 99999"),
    ],
)
def test_bad_settings_say_what_would_work(setting: str, message: str, unchecked: None) -> None:
    with pytest.raises(UsageError, match=message):
        find_recipe("toy", [setting])


def test_settings_replace_a_recipe(tmp_path: Path) -> None:
    recipe = find_recipe("builtin", ["layers=4", "betas=[0.9,0.95]", "ema=0.999", 'mixture={"mini-math":1}'])
    assert (recipe.layers, recipe.betas, recipe.ema, recipe.width) == (4, (0.9, 0.95), 0.999, Recipe().width)
    assert json.loads(json.dumps(recipe.record())) == recipe.record()
    with pytest.raises(UsageError, match="one of builtin, toy"):
        find_recipe("large")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        train(SMALL, quiet_run(tmp_path))
    with pytest.raises(UsageError, match="nothing to resume"):
        train(SMALL, quiet_run(tmp_path, resume=True))


def _first(name: str) -> tuple[str, str]:
    return next(training_stream(name, seed="3/0"))


def _tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(BUILTIN, trust_remote_code=False)


def _decode(ids: Any) -> str:
    assert len(ids) == LENGTH
    return _tokenizer().decode(ids.tolist())
