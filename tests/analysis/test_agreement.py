"""Agreement along a decode: counted by hand, and again from the Steps."""

from typing import Any

import pytest
import torch

import softdlm
from softdlm.analysis import agreement
from softdlm.analysis.agreement import Course, Reordering
from softdlm.analysis.questions import Question
from softdlm.errors import UsageError
from softdlm.trace import Pass, Trace
from tests.conftest import FAMILIES, tiny


def one(token: int) -> list[tuple[int, float]]:
    return [(token, 0.5), (99, 0.1)]


BASE = Trace(
    [9], 4, 50, 1,
    [
        Pass([2], [20], [0.9], [1, 3], [one(10), one(30)]),
        Pass([1], [11], [0.9], [3], [one(31)]),
        Pass([3], [31], [0.9]),
    ],
)  # fmt: skip
OTHER = Trace(
    [9], 4, 50, 1,
    [
        Pass([2], [20], [0.9], [1, 3], [one(10), one(30)]),
        Pass([3], [30], [0.9], [1], [one(10)]),
    ],
)  # fmt: skip


def test_a_course_counted_by_hand() -> None:
    assert agreement.course(BASE) == Course([2, 1, 0], [2, 0, 0], [2, 1, 0], [0, 1, 0], [2, 1, 3])
    assert agreement.course(OTHER) == Course([2, 0], [0, 0], [1, 0], [1, 0], [None, 1, 2])


def test_a_reordering_counted_by_hand() -> None:
    """Position 3 came a pass earlier, position 1 only in the first; they part in pass 2."""
    assert agreement.reordering(BASE, OTHER) == Reordering(2, 1, 0, 2)
    assert agreement.reordering(OTHER, BASE) == Reordering(2, 0, 1, 2)
    assert agreement.reordering(BASE, BASE) == Reordering(None, 0, 0, 3)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_course_counted_again_from_the_steps(family: str) -> None:
    model: Any = tiny(family, torch.float64)
    rule, commit, prompt = softdlm.Slerp(3, 0.3), softdlm.TopN(2), [5, 8, 13]
    decoding = softdlm.Decoding(commit=commit, early_finish=False)
    (row,) = agreement.measure_agreement(model, [Question("t", "0", prompt, 9)], {"slerp": rule}, decoding)
    canvas = softdlm.Canvas.pack([prompt], [12], model.mask_id, 0)
    steps = list(softdlm.denoise(model, canvas, commit=commit, feedback=rule))
    final = steps[-1].canvas.ids[0]
    changed, settled = [], []
    for now, following in zip(steps, [*steps[1:], None], strict=True):
        still = now.canvas.open[0]
        best = now.prediction.token[0]
        changed.append(int((best != following.prediction.token[0])[still].sum()) if following else 0)
        settled.append(int((best == final)[still].sum()))
    found = row.course["slerp"]
    assert (found.changed, found.settled) == (changed, settled)
    assert found.open == found.waiting == [7, 5, 3, 1, 0]
    assert sum(changed) > 0
    when = {place: step.index for step in steps for place in step.committed[0].nonzero().flatten().tolist()}
    assert found.committed_at == [when[place] for place in range(3, 12)]


def test_no_feedback_is_no_reordering() -> None:
    model = tiny("llada")
    rules = {"none": softdlm.Slerp(3, 0.0), "strong": softdlm.Slerp(3, 0.9)}
    question, decoding = Question("t", "0", [5, 8, 13], 12), softdlm.Decoding(commit=softdlm.TopN(2))
    rows = agreement.measure_agreement(model, [question], rules, decoding)
    assert rows[0].reordering["none"].first_difference is None
    assert rows[0].course["none"] == rows[0].course["vanilla"]
    assert rows[0].reordering["strong"].first_difference is not None


def test_the_summary_pools_positions_and_names_the_first_difference() -> None:
    rows = [
        agreement.AgreementRow("t", "0", {"vanilla": agreement.course(BASE), "soft": agreement.course(OTHER)},
                      {"vanilla": agreement.reordering(BASE, BASE), "soft": agreement.reordering(BASE, OTHER)}),
        agreement.AgreementRow("t", "1", {"vanilla": agreement.course(BASE), "soft": agreement.course(BASE)},
                      dict.fromkeys(("vanilla", "soft"), agreement.reordering(BASE, BASE))),
    ]  # fmt: skip
    vanilla, soft = agreement.summarise(rows)
    assert vanilla == agreement.AgreementSummary("t", "vanilla", 3, 4 / 6, 2 / 6, 0, None, 0, 0, 2)
    assert soft == agreement.AgreementSummary("t", "soft", 2.5, 2 / 5, 2 / 4, 1 / 2, 2, 1 / 5, 0, 2)


def test_draws_are_refused() -> None:
    with pytest.raises(UsageError, match="temperature 0"):
        agreement.measure_agreement(tiny("llada"), [], {}, softdlm.Decoding(temperature=0.5))
