"""The paper's appendix A, row by row."""

import pytest

from softdlm import Decoding, Slerp, TopN, UsageError
from softdlm.evaluate import paper
from softdlm.models.own_settings import OwnSettings

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
    sampled = four.settled(paper.setting("Dream", "gsm8k").fields)
    assert (sampled.commit, sampled.temperature, sampled.top_p) == (TopN(4, "entropy"), 0.1, 0.9)
    assert paper.setting("Dream", "gsm8k", "dream-dllm") == paper.setting("Dream", "gsm8k")
    greedy = four.settled(paper.setting("Dream", "gsm8k", "dream-greedy").fields)
    assert (greedy.commit, greedy.temperature, greedy.top_p) == (TopN(4), 0.0, None)
    with pytest.raises(UsageError, match="'dream-dllm' is for Dream, not for the family llada"):
        paper.setting("llada", "gsm8k", "dream-dllm")
