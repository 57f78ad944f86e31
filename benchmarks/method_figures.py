"""Draw the two pictures of docs/method.md, from one decode of the built-in model: that of examples/soft_tokens.ipynb.

python benchmarks/method_figures.py
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.patches import Arc, FancyBboxPatch

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src")]

import softdlm  # noqa: E402
from softdlm.feedback import aggregate  # noqa: E402
from softdlm.generation import encode  # noqa: E402
from softdlm.report.figures import LOOKS, STYLE  # noqa: E402

OUT = ROOT / "docs" / "figures"
PROMPT = (
    "Noah has 32 buttons. Then Noah gives away 15. Next, Noah wins 39 buttons. "
    "Ivy has 51 buttons. By how many does he lead?"
)
SLERP, EUCLIDEAN = softdlm.Slerp(k=3, lam=0.5), softdlm.Euclidean(k=3, lam=0.5)
BLUE, ORANGE, GREY = LOOKS["slerp"][0], LOOKS["euclidean"][0], "#777777"
PLACES, PASS = range(23, 31), 15
"""The second equation of the answer, and the pass that the first picture shows."""
PLACE, EARLY = 23, 8
"""The position and the pass of the second picture."""
ROWS = (
    ("1  read", f"committed tokens, and soft tokens of pass {PASS - 1}"),
    ("2  predict", "candidates of every open position"),
    ("3  commit", "the surest become tokens"),
    ("4  feed back", f"what is still open: soft tokens for pass {PASS + 1}"),
)
HEIGHT = 1.3
"""Of a row, with its title."""


class Point(NamedTuple):
    """An arrow's end in units of the [MASK] norm, its colour, and where its name stands beside it."""

    place: tuple[float, float]
    colour: str
    beside: tuple[float, float]


@dataclass(frozen=True)
class Decode:
    """One answer, pass by pass. Places count from its first token, passes from 1."""

    model: softdlm.Denoiser
    start: int
    steps: list[softdlm.Step]

    @staticmethod
    def made() -> Decode:
        model = softdlm.load("builtin", device="cpu")
        prompt = encode(model, PROMPT)
        canvas = softdlm.Canvas.pack([prompt], [len(prompt) + 64], model.mask_id, model.mask_id)
        passes = softdlm.denoise(model, canvas, commit=softdlm.TopN(4), feedback=SLERP, candidates=3)
        return Decode(model, len(prompt), list(passes))

    def token(self, number: int, place: int) -> str | None:
        """What is committed at a place after a pass; None where it is open."""
        canvas, at = self.steps[number - 1].canvas, self.start + place
        return None if canvas.open[0, at] else self.model.tokenizer.decode([int(canvas.ids[0, at])])

    def leaning(self, number: int, place: int) -> list[tuple[str, float]]:
        """The two likeliest tokens at an open place, with their probabilities."""
        said, at = self.steps[number - 1].prediction, self.start + place
        pairs = zip(said.topk_ids[0, at, :2].tolist(), said.topk_probs[0, at, :2].tolist(), strict=True)
        return [(self.model.tokenizer.decode([token]), share) for token, share in pairs]

    def points(self, number: int, place: int) -> dict[str, Point]:
        """[MASK], the candidates' mean and two soft tokens, in the plane that holds them; [MASK] is (0, 1)."""
        step = self.steps[number - 1]
        here = torch.zeros_like(step.requested)
        here[0, self.start + place] = True
        prediction, context = step.prediction.at(here), step.context.at(here)
        embeddings = softdlm.Embeddings(self.model.embedding, self.model.embedding[self.model.mask_id])
        mask, mean = embeddings.mask, aggregate(prediction, embeddings, SLERP.k)[0]
        up = mask / mask.norm()
        side = mean - (mean @ up) * up
        side /= side.norm()
        arc = SLERP(prediction, embeddings, context)[0]
        line = EUCLIDEAN(prediction, embeddings, context)[0]
        ends = {"[MASK]": (mask, "black", (0.04, 0.07)), "mean of the\ncandidates": (mean, "black", (0.05, 0.0))}
        soft = {
            "SLERP: half of the angle,\nthe length of [MASK]": (arc, BLUE, (0.05, 0.07)),
            "Euclidean: half\nof the straight line": (line, ORANGE, (-0.17, -0.33)),
        }
        return {
            name: Point((float(point @ side / mask.norm()), float(point @ up / mask.norm())), colour, beside)
            for name, (point, colour, beside) in (ends | soft).items()
        }


def loop(decode: Decode) -> Figure:
    """One pass, row by row; columns are positions."""
    figure, axes = plain(5.2, 3.9)
    for row, (name, about) in enumerate(ROWS):
        axes.text(-0.4, 0.52 - HEIGHT * row, name, fontsize=10, fontweight="bold")
        axes.text(1.6, 0.52 - HEIGHT * row, about, fontsize=9, color=GREY)
    for column, place in enumerate(PLACES):
        before, after = decode.token(PASS - 1, place), decode.token(PASS, place)
        if before is not None:
            for row in (0, 2, 3):
                hard(axes, column, row, before)
            continue
        soft = decode.leaning(PASS, place)
        mixture(axes, column, 0, decode.leaning(PASS - 1, place))
        bars(axes, column, 1, soft)
        if after is None:
            box(axes, column, 2, edge=GREY, dash=":")
            mixture(axes, column, 3, soft)
        else:
            hard(axes, column, 2, after, edge=BLUE, width=2.2)
            hard(axes, column, 3, after)
    again = {"arrowstyle": "->", "connectionstyle": "arc3,rad=0.35", "color": GREY}
    axes.annotate("", (len(PLACES) - 0.5, 0), (len(PLACES) - 0.5, -3 * HEIGHT), arrowprops=again)
    axes.text(len(PLACES) + 0.55, -1.5 * HEIGHT, "next\npass", fontsize=9, color=GREY, va="center")
    axes.set(xlim=(-0.5, len(PLACES) + 1.2), ylim=(-3 * HEIGHT - 0.4, 0.85))
    return figure


def box(axes: Any, column: int, row: int, *, edge: str, width: float = 0.9, dash: str = "-") -> None:
    shape = FancyBboxPatch((column - 0.4, -HEIGHT * row - 0.36), 0.8, 0.72, boxstyle="round,pad=0,rounding_size=0.08")
    shape.set(facecolor="white", edgecolor=edge, linewidth=width, linestyle=dash)
    axes.add_patch(shape)


def hard(axes: Any, column: int, row: int, text: str, *, edge: str = "black", width: float = 0.9) -> None:
    box(axes, column, row, edge=edge, width=width)
    axes.text(column, -HEIGHT * row, text, ha="center", va="center", fontsize=12)


def mixture(axes: Any, column: int, row: int, soft: list[tuple[str, float]]) -> None:
    """A soft token: its candidates, the likelier one larger."""
    box(axes, column, row, edge=BLUE, dash=":", width=1.4)
    (first, _), (second, _) = soft
    axes.text(column - 0.1, -HEIGHT * row, first, ha="center", va="center", fontsize=12, color=GREY)
    axes.text(column + 0.2, -HEIGHT * row - 0.14, second, ha="center", va="center", fontsize=8, color=GREY)


def bars(axes: Any, column: int, row: int, soft: list[tuple[str, float]]) -> None:
    for line, (text, share) in enumerate(soft):
        height = 0.18 - HEIGHT * row - 0.36 * line
        axes.barh(height, 0.58 * share, left=column - 0.16, height=0.26, color="#9CC4DD")
        axes.text(column - 0.28, height, text, ha="center", va="center", fontsize=9)
        axes.text(column - 0.13, height, f"{share:.2f}", va="center", fontsize=7)


def plane(points: dict[str, Point]) -> Figure:
    figure, axes = plain(5.0, 3.4)
    axes.add_patch(Arc((0, 0), 2, 2, theta1=0, theta2=97, color=GREY, linewidth=0.9))
    (left, top), (right, bottom), *_ = (point.place for point in points.values())
    axes.plot([left, right], [top, bottom], color=ORANGE, linestyle="--", linewidth=1.0)
    for name, point in points.items():
        look = {"arrowstyle": "-|>", "color": point.colour, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", point.place, (0, 0), arrowprops=look)
        x, y = (a + b for a, b in zip(point.place, point.beside, strict=True))
        axes.text(x, y, name, fontsize=9, va="center", linespacing=1.15)
    axes.set(xlim=(-0.2, 1.75), ylim=(-0.03, 1.2), aspect="equal")
    return figure


def plain(width: float, height: float) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.set_axis_off()
    return figure, axes


def main() -> None:
    decode = Decode.made()
    with style.context(STYLE):
        for name, figure in {"method-loop": loop(decode), "method-plane": plane(decode.points(EARLY, PLACE))}.items():
            figure.savefig(OUT / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
