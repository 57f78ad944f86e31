"""The shipped model: small, as its card says, and able to do its sums."""

import hashlib
import json

import pytest

import softdlm
from softdlm.models.load import BUILTIN
from softdlm.train.recipe import RECIPES

LIMIT = 16e6


def test_it_is_what_its_card_says() -> None:
    card = json.loads((BUILTIN / "training.json").read_text())
    assert hashlib.sha256((BUILTIN / "model.safetensors").read_bytes()).hexdigest() == card["weights_sha256"]
    assert RECIPES["builtin"].record() == {**card["recipe"], "steps": card["steps"]}
    assert sum(file.stat().st_size for file in BUILTIN.iterdir()) < LIMIT


def test_it_loads_like_llada_and_solves_held_out_problems() -> None:
    """At 4 a step 19 of 20 are expected; 14 leaves room for another machine's rounding, not for a broken load."""
    model = softdlm.load("builtin", device="cpu")
    assert (model.source.family, model.own.k, model.own.lam) == ("llada", 3, 0.5)
    task = softdlm.tasks.load_task("mini-math", split="validation", size=20)
    answers = softdlm.generate(model, [item.prompt for item in task], commit=softdlm.TopN(4))
    assert answers[0].trace.method["feedback"] == "no_eos(alternate(slerp(k=1, lam=0.5)))"
    assert len(answers[0].canvas_ids) == task.max_new_tokens == 64
    assert sum(task.score(item, answer.text) for item, answer in zip(task, answers, strict=True)) >= 14


def test_its_own_decoding_is_adaptive_and_leaves_the_papers_rule_as_it_was() -> None:
    model = softdlm.load("builtin", device="cpu")
    own = softdlm.Decoding().settled(model.own)
    assert own.rules == (softdlm.EntropyBound(0.15), softdlm.NoEos(softdlm.Alternate(softdlm.Slerp(1, 0.5))))
    assert softdlm.Decoding(feedback="slerp").settled(model.own).rules[1] == softdlm.Slerp(3, 0.5)
    (item,) = softdlm.tasks.load_task("mini-math", split="validation", size=1)
    assert softdlm.generate(model, item.prompt).forwards < 32


@pytest.mark.parametrize("text", ["Zażółć gęślą jaźń\t¡π≈3.14!\n\n  x", "def f(x):\n    return x  # 数"])
def test_any_text_goes_in_and_out(text: str) -> None:
    tokenizer = softdlm.load("builtin", device="cpu").tokenizer
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text
