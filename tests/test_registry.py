"""Rules by name: what is spelled comes back, and a spelling is never run as code."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import softdlm
from softdlm import (
    KLASS,
    LRD,
    Additive,
    Alternate,
    Decoding,
    Dual,
    EntropyBound,
    Euclidean,
    Factor,
    HardOnly,
    LeadIn,
    LRDCommit,
    Mask,
    NormMix,
    Prefix,
    Prophet,
    ReMix,
    ReMixCommit,
    Slerp,
    SoftToken,
    Steps,
    Threshold,
    TopN,
    TopNEps,
)
from softdlm.errors import UsageError
from softdlm.registry import build, described, names, parameters, spell, title
from softdlm.rule_files import source_digest

shares = st.floats(0, 1)
ranks = st.sampled_from(["confidence", "margin", "entropy"])
top_n = st.builds(TopN, st.integers(1, 99), ranks)
schedules = st.sampled_from(["even", "eps"])
steps = st.builds(Steps, st.integers(1, 99), schedules, st.sampled_from(["masks", "block"]), st.floats(0, 0.9), ranks)
growing = st.builds(Steps, st.integers(1, 99), st.sampled_from(["power", "cosine"]), rank=ranks, power=st.floats(1, 9))
commits = st.one_of(
    top_n,
    steps,
    growing,
    st.builds(HardOnly, st.one_of(top_n, growing, st.builds(EntropyBound, shares, ranks))),
    st.builds(EntropyBound, shares, ranks),
    st.builds(Factor, shares, st.sampled_from(["original", "dllm"])),
    st.builds(Threshold, shares, st.one_of(top_n, steps), st.booleans(), st.one_of(st.none(), st.integers(1, 9))),
    st.builds(TopNEps, st.integers(1, 99), st.floats(0, 0.9), ranks),
    st.builds(Prophet, st.one_of(top_n, st.builds(TopNEps, st.integers(1, 99))), shares, shares, shares),
    st.builds(ReMixCommit, shares, shares, st.integers(1, 5), st.integers(5, 9)),
)
plain_feedbacks = st.one_of(
    st.builds(LRD, shares, st.floats(0.1, 1)), st.builds(ReMix, shares, shares, st.booleans()), st.builds(SoftToken),
    st.just(Mask()), st.builds(Additive), st.builds(NormMix, st.integers(1, 9)),
    st.builds(Slerp, st.integers(1, 9), shares, st.sampled_from(["mask", "candidate"])),
    st.builds(Euclidean, st.integers(1, 9), shares, st.sampled_from([None, "mask"])),
)  # fmt: skip
feedbacks = st.recursive(
    plain_feedbacks, lambda inner: st.builds(Alternate, inner, st.integers(3, 9), st.integers(1, 3)), max_leaves=2
)

RULES = """
from dataclasses import dataclass
import torch


@dataclass(frozen=True)
class Mine:
    k: int = 3
    share: float = 0.5

    def __call__(self, prediction, embeddings, context):
        return embeddings.mask.expand(len(prediction.token), -1)


def left_to_right(prediction, open, context):
    return open & (open.cumsum(1) <= 2)
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    (tmp_path / "rules.py").write_text(RULES)
    return tmp_path / "rules.py"


@given(commits, feedbacks)
def test_a_spelled_rule_is_the_rule(commit: Any, feedback: Any) -> None:
    assert build("commit", spell(commit)) == commit
    assert build("feedback", spell(feedback)) == feedback
    assert build("commit", spell(LeadIn(commit))) == LeadIn(commit)
    around = HardOnly(LeadIn(commit))
    assert build("commit", spell(around, full=True), {"rank": "margin"}) == around


@pytest.mark.parametrize("cache", [Prefix(), Dual(), Dual(refresh=3), Prefix(renew=4)])
def test_a_spelled_cache_policy_is_the_policy(cache: Any) -> None:
    assert build("cache", spell(cache)) == cache


@pytest.mark.parametrize(
    ("kind", "text", "rule"),
    [
        ("feedback", "slerp(k=1, lam=0.5)", Slerp(1, 0.5)),
        ("feedback", " slerp ( 2 ) ", Slerp(2)),
        ("feedback", "slerp-candidate-norm(k=2)", Slerp(2, norm="candidate")),
        ("feedback", "euclidean-mask-norm", Euclidean(norm="mask")),
        ("feedback", "vanilla", Mask()),
        ("feedback", "alternate(slerp)", Alternate(Slerp())),
        ("feedback", "alternate( vanilla , soft = 2 )", Alternate(Mask(), 2, 2)),
        ("feedback", "alternate(slerp(k=1, lam=0.5), period=3)", Alternate(Slerp(1, 0.5), 3)),
        ("feedback", "alternate(feedback=soft-token-5, period=3)", Alternate(SoftToken(), 3)),
        ("feedback", "alternate(alternate(norm-mix(2), 3, 2))", Alternate(Alternate(NormMix(2), 3, 2))),
        ("commit", "hard_only(entropy(0.1))", HardOnly(EntropyBound(0.1))),
        ("commit", "hard_only(then=lead_in(topn-eps(4)))", HardOnly(LeadIn(TopNEps(4)))),
        ("commit", "steps(8, schedule='power')", Steps(8, "power")),
        ("commit", 'steps(8, schedule="power", power=2)', Steps(8, "power", power=2)),
        ("commit", "steps(8, 'cosine')", Steps(8, "cosine")),
        ("commit", "entropy(0.1)", EntropyBound(0.1)),
        ("commit", "threshold(0.9, floor=steps(8, over='block'))", Threshold(0.9, Steps(8, over="block"))),
        ("commit", "threshold(0.9, strict=true)", Threshold(0.9, strict=True)),
        ("commit", "lead_in(threshold(0.9))", LeadIn(Threshold(0.9))),
        ("commit", "lrd(then=topn(4))", LRDCommit(TopN(4))),
        ("commit", "lrd", LRDCommit(TopN(1, "entropy"), 0.1, 20, 0.1)),
        ("commit", "lrd(topn-eps(4), stop=null)", LRDCommit(TopNEps(4), stop=None)),
        ("commit", "lead_in(topn-eps)", LeadIn(TopNEps(1))),
        ("commit", "prophet(then=entropy(0.1))", Prophet(EntropyBound(0.1))),
        ("commit", "klass(0.8, floor=steps(8))", KLASS(0.8, 0.01, 2, Steps(8))),
        ("commit", "threshold(0.9, floor=topn)", Threshold(0.9)),
        ("cache", "dual(refresh=4)", Dual(4)),
    ],
)  # fmt: skip
def test_spellings(kind: Any, text: str, rule: Any) -> None:
    assert build(kind, text) == rule


def test_what_a_spelling_leaves_out_is_filled_where_the_rule_has_it() -> None:
    assert build("feedback", "slerp(k=1)", {"k": 4, "lam": 0.7, "rank": "margin"}) == Slerp(1, 0.7)
    assert build("feedback", "norm-mix", {"k": 4, "lam": 0.7}) == NormMix(1), "its strength is its own"
    assert build("feedback", "norm-mix", {"k": 4}, {"k": 2}) == NormMix(2)
    assert build("feedback", "vanilla", {"k": 4, "lam": None}) == Mask()


def test_rules_inside_rules_are_filled_too() -> None:
    """From the checkpoint, and by k, lam and rank; what is spelled stays."""
    own, asked = {"k": 4, "lam": 0.7, "rank": "margin"}, {"lam": 0.1}
    assert build("feedback", "alternate(slerp)", own) == Alternate(Slerp(4, 0.7))
    assert build("feedback", "alternate(alternate(slerp(k=1), 3))", own, asked) == Alternate(
        Alternate(Slerp(1, 0.1), 3)
    )
    assert build("feedback", "alternate(norm-mix)", own) == Alternate(NormMix(1))
    assert build("commit", "hard_only(topn(4))", own) == HardOnly(TopN(4, "margin"))
    assert build("commit", "hard_only(topn(4, rank='entropy'))", own) == HardOnly(TopN(4, "entropy"))
    settled = Decoding(feedback="alternate(slerp)", commit="hard_only(topn(2))", k=2, rank="margin").settled(
        {"k": 5, "lam": 0.6}
    )
    assert settled.rules == (HardOnly(TopN(2, "margin")), Alternate(Slerp(2, 0.6)))
    assert Decoding.from_json(settled.to_json()) == settled
    with pytest.raises(UsageError, match=r"lam 0.4 has no effect on the feedback rule alternate\(vanilla\): drop it"):
        Decoding(feedback="alternate(vanilla)", lam=0.4).settled()


def test_rules_around_rules_have_both_names() -> None:
    assert title(Alternate(Slerp(norm="candidate"))) == "alternate-slerp-candidate-norm"
    assert title(Alternate(Alternate(Mask()))) == "alternate-alternate-vanilla"
    assert title(HardOnly(TopN())) == "hard_only"
    assert parameters(Alternate(Slerp(1), 3)) == ["period=3"]
    assert parameters(Slerp(1)) == ["k=1", "lam=0.3"]


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("feedback", "slurp", "unknown feedback rule 'slurp'; known are vanilla, euclidean"),
        ("feedback", "slerp(k=__import__('os').getpid())", "parameters are literals"),
        ("feedback", "slerp(k=open)", "parameters are literals"),
        ("commit", "topn(10**9)", r"\('10\*\*9' is neither a literal nor a rule\)"),
        ("feedback", "slerp(**{'k': 1})", "parameters are literals"),
        ("feedback", "slerp(k=1", "not the spelling of a feedback rule"),
        ("feedback", "slerp(3)(4)", "a rule is called once"),
        ("feedback", "slerp(1,, 0.5)", "parameters are literals"),
        ("feedback", "slerp(k=1, k=2)", "those with a name come last, each once"),
        ("feedback", "slerp(k=1, 0.5)", "those with a name come last, each once"),
        ("feedback", "slerp(k='1)", "parameters are literals"),
        ("feedback", "alternate(slerp(k=0))", "^candidates k must be at least 1, not 0"),
        ("feedback", "alternate(slurp)", "parameters are literals"),
        ("feedback", "alternate(slurp(1))", "unknown feedback rule 'slurp'"),
        ("feedback", "alternate('slerp')", "alternate needs a feedback rule inside, such as slerp.*, not 'slerp'"),
        ("feedback", "alternate(topn(1))", "unknown feedback rule 'topn'"),
        ("feedback", "alternate", "does not make a feedback rule: .*'feedback'"),
        ("feedback", "alternate(missing.py:Mine)", "rule file missing.py cannot be read"),
        ("commit", "hard_only(klass)", "klass.* has a memory and cannot stand inside another rule"),
        ("commit", "steps(8, schedule='power', power=0.5)", "power must be at least 1"),
        ("feedback", "slerp(strength=0.3)", "Slerp takes k, lam, norm, each once"),
        ("feedback", "slerp(1, k=2)", "each once"),
        ("feedback", "slerp(k=0)", "candidates k must be at least 1"),
        ("feedback", "slerp(k='a')", "does not make a feedback rule"),
        ("feedback", "slerp-candidate-norm(norm='mask')", "the name itself fixes norm"),
        ("commit", "slerp", "unknown commit rule 'slerp'; known are topn"),
        ("commit", "topn(4, 'confidence', 3)", "TopN takes n, rank, each once"),
        ("commit", "", "not the spelling of a commit rule, such as topn\\(4\\)"),
        ("commit", "lead_in(topn - 4)", "parameters are literals"),
        ("commit", "lead_in(topn(2) - eps(4))", "parameters are literals"),
        ("commit", "missing.py:Mine", "missing.py cannot be read"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_a_bad_spelling_is_one_clear_line(kind: Any, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        build(kind, text)


def test_rules_from_a_file(rules: Path) -> None:
    rule = build("feedback", f"{rules}:Mine(k=2)")
    assert (rule.k, rule.share) == (2, 0.5)
    assert spell(rule) == f"{rules}:Mine(k=2)"
    assert build("feedback", spell(rule)) == rule
    assert title(rule) == "Mine"
    assert build("feedback", f"{rules}:Mine(share='notes.py:1')").share == "notes.py:1", "text in quotes is no rule"
    plain = build("commit", f"{rules}:left_to_right")
    assert spell(plain) == f"{rules}:left_to_right"
    for bad, words in (
        ("Mine(j=1)", "Mine takes k, share"),
        ("left_to_right(2)", "takes no parameters"),
        ("RULES", "no dataclass"),
    ):
        with pytest.raises(UsageError, match=words):
            build("feedback", f"{rules}:{bad}")


def test_a_rule_from_a_file_inside_a_rule(rules: Path) -> None:
    rule = build("feedback", f"alternate({rules}:Mine(k=2, share=0.25), period=3)")
    assert (rule.k, rule.feedback.share, rule.period) == (2, 0.25, 3)
    assert spell(rule) == f"alternate({rules}:Mine(k=2, share=0.25), period=3)"
    assert build("feedback", spell(rule)) == rule
    assert title(rule) == "alternate-Mine"
    assert build("feedback", f"alternate({rules}:Mine)", {}, {"k": 7}).k == 7
    plain = build("commit", f"hard_only({rules}:left_to_right)")
    assert build("commit", spell(plain)) == plain
    for made in (rule, plain):
        assert source_digest(made) == source_digest(build("feedback", f"{rules}:Mine"))
    rules.write_text(RULES.replace("<= 2", "<= 3"))
    assert source_digest(build("commit", f"hard_only({rules}:left_to_right)")) != source_digest(plain)


def test_a_rule_from_a_file_around_a_rule(rules: Path) -> None:
    text = RULES.replace("class Mine:", "class Mine:\n    inner: object = None")
    rules.write_text(text)
    rule = build("feedback", f"{rules}:Mine(inner={rules}:Mine(inner=slerp, k=4))", {"lam": 0.6})
    assert (rule.k, rule.inner.k, rule.inner.inner) == (3, 4, Slerp(lam=0.6))
    assert build("feedback", spell(rule)) == rule


def test_a_class_in_a_notebook_has_its_cell_as_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook is a module without a file; the text of a cell is known under the cell's name."""
    notebook = ModuleType("a_notebook")
    monkeypatch.setitem(sys.modules, notebook.__name__, notebook)
    digests = []
    for number, text in enumerate([RULES, RULES, RULES.replace("<= 2", "<= 3")]):
        name = f"<cell {number}>"
        monkeypatch.setitem(linecache.cache, name, (len(text), None, text.splitlines(True), name))
        exec(compile(text, name, "exec"), notebook.__dict__)
        digests.append(source_digest(notebook.Mine()))
    assert digests[0] == digests[1] != digests[2]


def test_an_edited_file_is_another_rule(rules: Path) -> None:
    before = build("feedback", f"{rules}:Mine")
    rules.write_text(RULES.replace("share: float = 0.5", "share: float = 0.25"))
    after = build("feedback", f"{rules}:Mine")
    assert (before.share, after.share) == (0.5, 0.25)
    assert source_digest(before) != source_digest(after)
    assert source_digest(Slerp()) is None


def test_a_file_that_fails_is_one_clear_line(rules: Path) -> None:
    rules.write_text("1 / 0")
    for _ in range(2):
        with pytest.raises(UsageError, match=r"rules\.py cannot be run: ZeroDivisionError"):
            build("feedback", f"{rules}:Mine")


def test_every_rule_is_named_and_described() -> None:
    assert names("feedback")[:3] == ("vanilla", "euclidean", "euclidean-mask-norm")
    for kind in ("commit", "feedback", "cache"):
        for each in described(kind):
            assert each.about.strip()
            assert each.signature.startswith(each.name)
    public = {name for name in dir(softdlm) if hasattr(getattr(softdlm, name), "__dataclass_fields__")}
    assert {"TopN", "Slerp", "Dual"} <= public
    assert title(Slerp(norm="candidate")) == "slerp-candidate-norm"
    assert title(Slerp()) == "slerp"
