"""Figure 1 in closed form: two masks, two coherent answers, and what a soft token does to the other combinations.

The denoiser here is a table of probabilities (softdlm.models.toy), so there is nothing to download and nothing to
train. It reads soft tokens as multiplicative mixtures, which is what section 5.1 of the paper finds in real models;
how strongly a trained network does so is for the networks to say.
"""

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from torch import Tensor

import softdlm
from softdlm.feedback import FeedbackRule
from softdlm.models.toy import JointDenoiser, harry_potter

METHODS = {
    "parallel, vanilla": softdlm.Mask(),
    "parallel, Euclidean": softdlm.Euclidean(k=3, lam=0.3),
    "parallel, SLERP": softdlm.Slerp(k=3, lam=0.3),
}


@dataclass(frozen=True)
class InSecondPass:
    """A commit rule that waits for one pass and then commits everything."""

    may_wait = 1

    def __call__(self, prediction: softdlm.Prediction, open: Tensor, context: softdlm.Context) -> Tensor:
        return open & (context.passes > 0)


def joint(model: JointDenoiser, feedback: FeedbackRule) -> dict[str, float]:
    """The product of the marginals after one feedback pass, per combination of two words."""
    canvas = softdlm.Canvas.of(model.canvas_ids, model.mask_id)
    *_, step = softdlm.denoise(model, canvas, commit=InSecondPass(), feedback=feedback, candidates=8)
    first, second = (
        dict(zip(ids.tolist(), shares.tolist(), strict=True))
        for ids, shares in zip(step.prediction.topk_ids[0, -2:], step.prediction.topk_probs[0, -2:], strict=True)
    )
    return {f"{model.words[a]} {model.words[b]}": first[a] * second[b] for a in first for b in second}


def main() -> None:
    model = harry_potter()
    words = [model.words[choice] for choice in model.choices]
    sequential = {f"{a} {b}": float(model.joint[i, j]) for i, a in enumerate(words) for j, b in enumerate(words)}
    columns = ["Harry Potter", "Star Wars", "Harry Wars", "Star Potter"]
    table = Table("", *columns, title="Answer is either Harry Potter or Star Wars: [MASK] [MASK]")
    rows = {"sequential (the joint)": sequential} | {name: joint(model, rule) for name, rule in METHODS.items()}
    for name, shares in rows.items():
        best = max(shares, key=lambda answer: shares[answer])
        table.add_row(name, *(f"[bold]{shares[c]:.3f}[/]" if c == best else f"{shares[c]:.3f}" for c in columns))
    Console().print(table)


if __name__ == "__main__":
    main()
