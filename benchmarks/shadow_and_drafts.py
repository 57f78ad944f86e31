"""Two ideas that need more rows or positions in a pass than a rule can ask for, on one network.

    python benchmarks/shadow_and_drafts.py --model builtin --task mini-math --items 200 --out found.json

*Shadow* (after WINO): every open position is computed twice in one pass, as its soft token, which the others see, and
as a [MASK] that sees everything but that soft token. The second one decides. No prediction is made from its own guess.
*Drafts* (after FreeDave): the next d commits of one-at-a-time decoding are guessed and checked in one pass of d rows.
The answer is that of one token a step. The guess is the order of the last pass, or of a row with soft tokens.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src")]

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

import softdlm  # noqa: E402
from softdlm import Canvas, EntropyBound, Slerp  # noqa: E402
from softdlm.commit import order  # noqa: E402
from softdlm.generation import encode  # noqa: E402
from softdlm.models.attention import attention_pattern  # noqa: E402
from softdlm.predict import Sampling, reduce_logits  # noqa: E402
from softdlm.tasks import load_task  # noqa: E402
from softdlm.types import Context, Embeddings, Prediction  # noqa: E402

ANSWER = 64


class Loop:
    """A plain loop over canvases of one batch."""

    def __init__(self, model: Any, prompts: list[str]) -> None:
        self.model = model
        ids = [encode(model, each) for each in prompts]
        canvas = Canvas.pack(ids, [len(each) + ANSWER for each in ids], model.mask_id, model.eos_ids[0])
        self.canvas = canvas.to(model.device)
        self.embeddings = Embeddings(model.embedding, model.embedding[model.mask_id])
        starts = torch.tensor([len(each) for each in ids], device=model.device)
        self.places = starts[:, None] + torch.arange(ANSWER, device=model.device)

    def predict(self, hidden: Tensor) -> Prediction:
        """On "B A", every position of the answer."""
        flat = reduce_logits(self.model.head(hidden.flatten(0, 1)), Sampling(self.model.mask_id, k=3))
        everywhere = torch.ones(hidden.shape[:2], dtype=torch.bool, device=hidden.device)
        return flat.on(everywhere)

    def soften(self, rule: Any, prediction: Prediction, embeds: Tensor, open: Tensor) -> Tensor:
        """Embeddings of the answer with soft tokens at its open positions."""
        nothing = Context(*[torch.zeros(1, device=open.device)] * 5)
        flat = prediction.at(torch.ones_like(open))
        soft = rule(flat, self.embeddings, nothing).view(*open.shape, -1)
        return torch.where(open[..., None], soft, embeds)

    def texts(self, answers: Tensor) -> list[str]:
        ends = self.model.eos_ids
        found = []
        for row in answers.tolist():
            cut = next((place for place, token in enumerate(row) if token in ends), len(row))
            found.append(self.model.tokenizer.decode(row[:cut]))
        return found


@torch.no_grad()
def shadow(loop: Loop, rule: Any, commit: Any) -> tuple[Tensor, Tensor]:
    """Answers and passes, early finish included, when each prediction is made without its own soft token."""
    model, canvas, places = loop.model, loop.canvas, loop.places
    batch, length = canvas.ids.shape
    rows = torch.arange(batch, device=places.device)[:, None]
    positions = torch.cat([canvas.positions, canvas.positions.gather(1, places)], 1)
    real = torch.cat([canvas.real, torch.zeros_like(places, dtype=torch.bool)], 1)
    pattern = attention_pattern(real, positions, None)
    pattern[rows, 0, length + torch.arange(ANSWER, device=places.device), places] = False
    ids, embeds = canvas.ids.gather(1, places), model.embed(canvas.ids)
    open = torch.ones_like(places, dtype=torch.bool)
    passes = torch.zeros(batch, dtype=torch.long, device=places.device)
    running = torch.ones_like(passes, dtype=torch.bool)
    hidden_mask = loop.embeddings.mask.expand(batch, ANSWER, -1)
    while running.any():
        both = torch.cat([embeds, torch.where(open[..., None], hidden_mask, embeds[rows, places])], 1)
        states = model.network.model(
            inputs_embeds=both, attention_mask=pattern, position_ids=positions, use_cache=False
        )
        prediction = loop.predict(states.last_hidden_state[:, length:])
        left = open.sum(1, keepdim=True)
        context = Context(passes[:, None], passes[:, None], left, left, left)
        chosen = commit(prediction, open, context) & open & running[:, None]
        ids, open = torch.where(chosen, prediction.token, ids), open & ~chosen
        passes += running
        answer = loop.soften(rule, prediction, model.embed(ids), open)
        embeds[rows, places] = answer
        ended = torch.isin(ids, torch.tensor(model.eos_ids, device=ids.device)) & ~open
        before = (open.cumsum(1) == 0) & ended
        running = open.any(1) & ~before.any(1)
    eos = torch.full_like(ids, model.eos_ids[0])
    return torch.where(open, eos, ids), passes


@torch.no_grad()
def drafts(loop: Loop, depth: int, rule: Any | None) -> tuple[Tensor, Tensor]:
    """Answers and passes of one-at-a-time decoding with `depth` guessed commits checked in each pass."""
    model, places = loop.model, loop.places
    batch = len(places)
    rows = torch.arange(batch, device=places.device)[:, None]
    embeds, real, positions = model.embed(loop.canvas.ids), loop.canvas.real, loop.canvas.positions

    def look(answers: Tensor) -> Prediction:
        """Predictions for embeddings "B M A D" of the answer, flattened to "B*M A"."""
        many = answers.shape[1]
        whole = embeds[:, None].expand(-1, many, -1, -1).clone()
        whole[rows[:, :, None], torch.arange(many, device=rows.device)[None, :, None], places[:, None]] = answers
        spread = [each.repeat_interleave(many, 0) for each in (real, positions, places)]
        states = model.hidden(whole.flatten(0, 1), attention_mask=spread[0], position_ids=spread[1])
        return loop.predict(states.gather(1, spread[2][..., None].expand(-1, -1, states.shape[-1])))

    ids = torch.full((batch, ANSWER), model.mask_id, device=places.device)
    open = torch.ones_like(ids, dtype=torch.bool)
    now = look(model.embed(ids)[:, None])
    chain, tokens = order(now, open, "confidence"), now.token
    guess = now
    passes = torch.ones(batch, dtype=torch.long, device=places.device)
    while open.any():
        running = open.any(1)
        steps = [(ids, open)]
        for number in range(depth):
            place = chain[:, number : number + 1]
            still = steps[-1][1].gather(1, place)
            token = torch.where(still, tokens.gather(1, place), steps[-1][0].gather(1, place))
            steps.append((steps[-1][0].scatter(1, place, token), steps[-1][1].scatter(1, place, False)))
        branches, opens = (torch.stack([each[part] for each in steps[1:]], 1) for part in (0, 1))
        answers = model.embed(branches)
        if rule is not None:
            soft = loop.soften(rule, _repeat(guess, depth), answers.flatten(0, 1), opens.flatten(0, 1))
            answers = torch.cat([answers, soft.view_as(answers)], 1)
        found = look(answers)
        many = answers.shape[1]
        hard = _rows(found, batch, many, slice(0, depth))
        after = order(hard, opens.flatten(0, 1), "confidence").view(batch, depth, -1)
        accepted = torch.zeros(batch, dtype=torch.long, device=ids.device)
        good = torch.ones_like(running)
        for number in range(depth - 1):
            ahead = after[:, number, 0]
            predicted = hard.token.view(batch, depth, -1)[:, number].gather(1, ahead[:, None])[:, 0]
            wanted = chain[:, number + 1]
            same = (ahead == wanted) & (predicted == tokens.gather(1, wanted[:, None])[:, 0])
            good &= same & opens[:, number].any(1)
            accepted += good
        pick = accepted[:, None, None].expand(-1, 1, ANSWER)
        ids, open = branches.gather(1, pick)[:, 0], opens.gather(1, pick)[:, 0]
        passes += running
        chosen_hard = _pick(hard, batch, depth, accepted)
        first = order(chosen_hard, open, "confidence")[:, :1]
        guess = chosen_hard
        chain, tokens = order(chosen_hard, open, "confidence"), chosen_hard.token
        if rule is not None:
            guess = _pick(_rows(found, batch, many, slice(depth, None)), batch, depth, accepted)
            tokens = torch.where(torch.zeros_like(open).scatter(1, first, True), chosen_hard.token, guess.token)
            later = order(guess, open.scatter(1, first, False), "confidence")
            chain = torch.cat([first, later], 1)
    return ids, passes


def _repeat(prediction: Prediction, many: int) -> Prediction:
    return Prediction(**{name: value.repeat_interleave(many, 0) for name, value in prediction._values().items()})


def _rows(prediction: Prediction, batch: int, many: int, which: slice) -> Prediction:
    values = prediction._values().items()
    return Prediction(**{name: value.unflatten(0, (batch, many))[:, which].flatten(0, 1) for name, value in values})


def _pick(prediction: Prediction, batch: int, many: int, number: Tensor) -> Prediction:
    rows = torch.arange(batch, device=number.device)
    return Prediction(
        **{name: value.unflatten(0, (batch, many))[rows, number] for name, value in prediction._values().items()}
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="builtin")
    parser.add_argument("--task", default="mini-math")
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--drafts", type=int, default=60, help="items for the drafts, which take many rows")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    model = softdlm.load(asked.model, device=asked.device, dtype="float32")
    task = load_task(asked.task, split="validation", size=asked.items)
    items = list(task)
    loop, rows = Loop(model, [item.prompt for item in items]), []
    for k, lam in ((1, 0.3), (1, 0.4), (1, 0.5), (3, 0.5)):
        for gamma in (0.02, 0.1, 0.3):
            answers, passes = shadow(loop, Slerp(k=k, lam=lam), EntropyBound(gamma))
            right = task.score_all(items, loop.texts(answers))
            row = {"idea": "shadow", "k": k, "lam": lam, "gamma": gamma, "items": len(items)}
            rows.append(row | {"accuracy": 100 * sum(right) / len(right), "passes": passes.double().mean().item()})
            print(rows[-1], flush=True)
    few = Loop(model, [item.prompt for item in items[: asked.drafts]])
    first = None
    for depth in (1, 4, 8):
        for rule in (None, Slerp(k=1, lam=0.5), Slerp(k=3, lam=0.3)):
            answers, passes = drafts(few, depth, rule)
            first = answers if first is None else first
            same = (answers == first).all(1).double().mean().item()
            row = {"idea": "drafts", "depth": depth, "drafter": str(rule), "items": len(few.places)}
            rows.append(row | {"same": same, "passes": passes.double().mean().item()})
            print(rows[-1], flush=True)
    asked.out.write_text(json.dumps({"model": asked.model, "task": asked.task, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
