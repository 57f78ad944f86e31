"""The paper's appendix A, row by row."""

from dataclasses import replace

import pytest

from softdlm import Decoding, Slerp, TopN
from softdlm.evaluate import paper
from softdlm.evaluate.cell import ModelSpec, TaskSpec
from softdlm.evaluate.paper import Recipe
from softdlm.evaluate.readings import Readings
from softdlm.models.own_settings import OwnSettings
from softdlm.registry import build

APPENDIX_A = [
    ("llada", "gsm8k", 2, 0.3, 5, 512, "last"),
    ("llada", "math500", 2, 0.3, 4, 512, "last"),
    ("llada", "humaneval", 3, 0.3, 0, 512, "forbid-first"),
    ("llada", "mbpp", 3, 0.3, 3, 256, "last"),
    ("llada2_moe", "mbpp-sanitized", 3, 0.3, 3, 256, "last"),
    ("Dream", "gsm8k", 3, 0.1, 0, 256, "allow"),
    ("Dream", "math500-hendrycks", 3, 0.1, 0, 512, "allow"),
    ("Dream", "humaneval", 2, 0.3, 0, 768, "allow"),
    ("Dream", "mbpp", 2, 0.3, 0, 1024, "allow"),
]


def read(family: str, **readings: str) -> Recipe:
    return Recipe(family, Readings.of(readings))


@pytest.mark.parametrize(("family", "task", "k", "lam", "shots", "length", "eos"), APPENDIX_A)
def test_settings(family: str, task: str, k: int, lam: float, shots: int, length: int, eos: str) -> None:
    found = paper.setting(family, task)
    assert (found.k, found.lam, found.shots, found.max_new_tokens, found.eos) == (k, lam, shots, length, eos)


def test_the_built_in_tasks_keep_their_own_lengths_and_take_the_models_strength() -> None:
    assert paper.setting("llada", "mini-math") == paper.Setting()
    own = OwnSettings(k=4, lam=0.6)
    soft = Decoding(feedback="slerp")
    assert soft.settled(paper.setting("llada", "mini-math").fields, own).feedback == Slerp(4, 0.6)
    assert soft.settled(paper.setting("llada", "gsm8k").fields, own).feedback == Slerp(2, 0.3)


def test_dreams_readings() -> None:
    four = Decoding(commit="topn(4)")
    sampled = read("Dream").settled(four, "gsm8k")
    assert (sampled.commit, sampled.temperature, sampled.top_p) == (TopN(4, "entropy"), 0.1, 0.9)
    assert read("Dream", dream="dream-dllm").settled(four, "gsm8k") == sampled
    greedy = read("Dream", dream="dream-greedy").settled(four, "gsm8k")
    assert (greedy.commit, greedy.temperature, greedy.top_p) == (TopN(4), 0.0, None)
    for spelled in ("topn(4)", TopN(4, "entropy"), "topn(4, rank='entropy')"):
        eps = read("Dream", dream="dream-eps").settled(Decoding(commit=spelled), "gsm8k")
        assert eps.commit == build("commit", "topn-eps(4, rank='entropy')")
        assert replace(eps, commit=sampled.commit) == sampled
    unsaid = read("Dream", dream="dream-eps").settled(Decoding(), "gsm8k", [OwnSettings(commit="topn(2)")])
    assert str(unsaid.commit) == "2 a step"
    assert unsaid.commit != TopN(2, "entropy")


ADAPTIVE = ("threshold(0.9)", "entropy(0.1)", "factor(1.0)", "lead_in(threshold(0.9))")
FIXED = ("topn(4)", "steps(8)", "lead_in(topn(2))")


@pytest.mark.parametrize("commit", [*ADAPTIVE, *FIXED])
def test_adaptive_rules_read_the_untempered_distribution_and_fixed_ones_do_not(commit: str) -> None:
    asked, wanted = Decoding(commit=commit), "untempered" if commit in ADAPTIVE else "tempered"
    assert read("Dream").settled(asked, "gsm8k").confidence == wanted
    assert read("Dream", adaptive="tempered").settled(asked, "gsm8k").confidence == "tempered"
    for family, readings in (("Dream", {"dream": "dream-greedy"}), ("llada", {})):
        assert read(family, **readings).settled(asked, "gsm8k").confidence == "tempered", "its temperature is 0"
    assert read("Dream").settled(replace(asked, temperature=0.0), "gsm8k").confidence == "tempered"
    assert read("Dream").settled(replace(asked, confidence="tempered"), "gsm8k").confidence == "tempered"


@pytest.mark.parametrize("family", ["llada", "llada2_moe"])
@pytest.mark.parametrize("commit", [*ADAPTIVE, *FIXED])
def test_eos_follows_the_commit_rule_on_gsm8k_only(family: str, commit: str) -> None:
    asked = Decoding(commit=commit)
    assert read(family).settled(asked, "gsm8k").eos == ("allow" if commit in ADAPTIVE else "last")
    assert read(family, **{"adaptive-eos": "last"}).settled(asked, "gsm8k").eos == "last"
    assert read(family).settled(asked, "math500").eos == "last"
    assert read(family).settled(asked, "mini-math").eos == "allow"
    assert read(family).settled(replace(asked, eos="forbid"), "gsm8k").eos == "forbid"
    freed = read(family, **{"llada2-eos": "allow"}).settled(asked, "humaneval").eos
    assert freed == ("allow" if family == "llada2_moe" else "forbid-first")


def test_what_commits_last_is_hidden_from_feedback_only_where_asked_and_where_something_is_last() -> None:
    hidden, four = read("llada", **{"last-candidates": "no"}), Decoding(commit="topn(4)")
    assert read("llada").settled(four, "gsm8k").last_candidates is True
    assert [hidden.settled(four, task).last_candidates for task in ("gsm8k", "humaneval")] == [False, True]
    assert hidden.settled(Decoding(commit="threshold(0.9)"), "gsm8k").last_candidates is True, "EOS is allowed there"


def test_llada2_has_full_attention_unless_read_or_chosen_otherwise() -> None:
    spec = ModelSpec("a/b", "cpu", "float32")
    blocks = read("llada2_moe", **{"llada2-attention": "block-causal"})
    assert read("llada2_moe").model(spec).attention == "full"
    assert blocks.model(spec).attention == "block-causal"
    assert blocks.model(replace(spec, attention="full")).attention == "full"
    assert read("llada", **{"llada2-attention": "block-causal"}).model(spec) == spec
    assert replace(blocks, used=False).model(spec) == spec


def test_turns_are_a_variant_of_tasks_with_shots() -> None:
    many = read("llada", turns="many")
    found = [many.task(TaskSpec(name)).name for name in ("gsm8k", "math500", "mbpp", "humaneval", "gsm8k-drawn")]
    assert found == ["gsm8k-turns", "math500-turns", "mbpp-turns", "humaneval", "gsm8k-drawn"]
    assert read("llada").task(TaskSpec("gsm8k")).name == "gsm8k"
    assert read("Dream", turns="many").task(TaskSpec("gsm8k")).name == "gsm8k-dream"


def test_without_the_recipe_only_the_headline_of_math500_is_read() -> None:
    plain = Recipe("Dream", Readings.of(["math500=math-verify", "dream=dream-eps"]), used=False)
    assert plain.settled(Decoding(commit="topn(4)"), "gsm8k") == Decoding(commit="topn(4)").settled()
    assert plain.task(TaskSpec("math500")) == TaskSpec("math500", math500="math-verify")
    assert plain.task(TaskSpec("gsm8k")) == TaskSpec("gsm8k")
    spec = ModelSpec("a/b", "cpu", "float32")
    assert plain.applied(spec, TaskSpec("math500"), Decoding()) == {"math500": "math-verify"}
