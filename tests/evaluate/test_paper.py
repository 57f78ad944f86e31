"""The paper's appendix A, row by row."""

import pytest

from softdlm import Steps, TopN, UsageError
from softdlm.evaluate import paper
from softdlm.evaluate.cell import Rate
from softdlm.models.denoiser import Strength

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
    assert paper.setting("llada", "mini-math") == paper.Setting(k=3, lam=0.3)
    assert paper.setting("llada", "mini-math", own=Strength(4, 0.6)) == paper.Setting(k=4, lam=0.6)
    assert paper.setting("llada", "gsm8k", own=Strength(4, 0.6)) == paper.setting("llada", "gsm8k")


def test_dreams_readings() -> None:
    four = Rate("tokens_per_step", 4)
    dllm = paper.setting("Dream", "gsm8k")
    assert (dllm.reading, dllm.temperature, dllm.top_p) == ("dream-dllm", 0.1, 0.9)
    assert paper.commit(four, None, dllm.reading, 256) == Steps(64, schedule="eps", rank="entropy")
    greedy = paper.setting("Dream", "gsm8k", "dream-greedy")
    assert (greedy.temperature, greedy.top_p) == (0.0, None)
    assert paper.commit(four, None, greedy.reading, 256) == TopN(4, "confidence")
    with pytest.raises(UsageError, match="'dream-dllm' is Dream's, not of the family llada"):
        paper.setting("llada", "gsm8k", "dream-dllm")
