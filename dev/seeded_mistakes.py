"""Does each test fail when the code is wrong? Plant one mistake at a time and see.

Each row is (law or promise, file, text, mistake, tests that must notice). The sources are copied to a scratch folder,
so nothing here is touched.

    python dev/seeded_mistakes.py            # all, two at a time
    python dev/seeded_mistakes.py slerp      # those whose row mentions the word
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Mistake(NamedTuple):
    law: str
    file: str
    right: str
    wrong: str
    tests: str


MISTAKES = [
    Mistake(
        "lambda = 0 is vanilla",
        "feedback.py",
        "torch.cos(lam * theta) * mask",
        "torch.cos(lam * theta) * start",
        "tests/test_feedback.py",
    ),
    Mistake(
        "slerp keeps the mask norm",
        "feedback.py",
        "torch.sin(lam * theta) * length * (tangent / sine)",
        "torch.sin(lam * theta) * mean_length * (tangent / sine)",
        "tests/test_feedback.py",
    ),
    Mistake("slerp goes lam of the angle", "feedback.py", "torch.pi - 2 * half", "2 * half", "tests/test_feedback.py"),
    Mistake(
        "slerp is not linear interpolation",
        "feedback.py",
        "torch.where(sine > _DEGENERATE, arc",
        "torch.where(sine > 2, arc",
        "tests/test_feedback.py",
    ),
    Mistake(
        "parallel ends go straight",
        "feedback.py",
        "torch.where(cosine > 0, line, mask)",
        "mask",
        "tests/test_feedback.py",
    ),
    Mistake(
        "opposite aggregates stay mask",
        "feedback.py",
        "torch.where(cosine > 0, line, mask)",
        "line",
        "tests/test_feedback.py",
    ),
    Mistake(
        "vanishing aggregates stay mask",
        "feedback.py",
        "return torch.where(mean_length > _DEGENERATE * length, soft, mask)",
        "return soft",
        "tests/test_feedback.py",
    ),
    Mistake(
        "probabilities renormalise over k",
        "feedback.py",
        "weights = weights / weights.sum(-1, keepdim=True)",
        "weights = weights",
        "tests/test_feedback.py",
    ),
    Mistake(
        "k candidates, not all",
        "feedback.py",
        "prediction.topk_probs[..., :k]",
        "prediction.topk_probs[..., : k + 1]",
        "tests/test_feedback.py",
    ),
    Mistake(
        "euclidean mix",
        "feedback.py",
        "torch.lerp(mask.expand_as(mean), mean, self.lam)",
        "torch.lerp(mean, mask.expand_as(mean), self.lam)",
        "tests/test_feedback.py",
    ),
    Mistake("additive ramp stops", "feedback.py", ".clamp(max=self.stop)", "", "tests/test_feedback.py"),
    Mistake(
        "norm-mix keeps the rest on mask",
        "feedback.py",
        "rest = 1 - weights.sum(1)",
        "rest = 0 * weights.sum(1)",
        "tests/test_feedback.py",
    ),
    Mistake(
        "threshold > 1 is one at a time",
        "commit.py",
        "chosen = open & (sure | (place < self.floor.count(context)))",
        "chosen = open & sure",
        "tests/test_commit.py",
    ),
    Mistake(
        "threshold counts at the bar",
        "commit.py",
        "else prediction.log_confidence >= bar",
        "else prediction.log_confidence >= bar + 0.01",
        "tests/test_commit.py",
    ),
    Mistake(
        "budget caps",
        "commit.py",
        "return chosen & (place <",
        "return chosen | (place <",
        "tests/test_commit.py tests/test_parity.py",
    ),
    Mistake(
        "entropy bound leaves the maximum out",
        "commit.py",
        "torch.minimum(entropy, largest_before)",
        "entropy.clone()",
        "tests/test_commit.py",
    ),
    Mistake(
        "entropy bound takes at least one",
        "commit.py",
        "growth[:, 0] = 0",
        "growth[:, 0] = 1e9",
        "tests/test_commit.py",
    ),
    Mistake(
        "factor takes the first",
        "commit.py",
        "open & (place > 0) & (prediction.confidence",
        "open & (prediction.confidence",
        "tests/test_commit.py",
    ),
    Mistake(
        "factor quirk",
        "commit.py",
        "(first == context.left - 1)",
        "(first == context.left - 2)",
        "tests/test_commit.py",
    ),
    Mistake(
        "ties go left",
        "commit.py",
        "sort(dim=1, descending=True, stable=True).indices",
        "sort(dim=1, stable=True).indices.flip(1)",
        "tests/test_commit.py",
    ),
    Mistake(
        "only open positions",
        "commit.py",
        'return score.masked_fill(~open, float("-inf"))',
        "return score",
        "tests/test_commit.py",
    ),
    Mistake(
        "deferred come last",
        "commit.py",
        "masked_fill(prediction.deferred, torch.finfo(prediction.entropy.dtype).min)",
        "masked_fill(prediction.deferred, 0.0)",
        "tests/test_commit.py",
    ),
    Mistake(
        "even split, remainder first",
        "commit.py",
        "(context.block_passes < total % self.steps)",
        "(context.block_passes >= self.steps - total % self.steps)",
        "tests/test_commit.py",
    ),
    Mistake(
        "eps schedule",
        "commit.py",
        "times[step + 1] / times[step]",
        "times[step] / times[step] * 0.9",
        "tests/test_commit.py",
    ),
    Mistake(
        "LLaDA-2 counts the block's positions",
        "commit.py",
        'context.block_masks if self.over == "masks" else context.block_length',
        "context.block_masks",
        "tests/test_parity.py",
    ),
    Mistake(
        "mask never predicted",
        "predict.py",
        "token = _pick(_without(scores, (choice.mask_id,))",
        "token = _pick(scores",
        "tests/test_predict.py",
    ),
    Mistake(
        "mask no candidate",
        "predict.py",
        "candidates = _without(scores, (choice.mask_id,))",
        "candidates = scores",
        "tests/test_predict.py",
    ),
    Mistake(
        "forbidden ids leave",
        "predict.py",
        "scores = _without(logits, choice.forbid)",
        "scores = logits",
        "tests/test_predict.py",
    ),
    Mistake(
        "last ids leave the ranking",
        "predict.py",
        "_ranking_view(_without(scores, choice.last), token",
        "_ranking_view(scores, token",
        "tests/test_predict.py tests/test_parity.py",
    ),
    Mistake(
        "values near 1 stay distinct",
        "predict.py",
        "log_total = others.log1p()",
        "log_total = (1 + others).log()",
        "tests/test_predict.py",
    ),
    Mistake(
        "feedback is unscaled",
        "predict.py",
        "topk_ids, topk_probs, mean = _feedback_view(logits, candidates,",
        "topk_ids, topk_probs, mean = _feedback_view(logits / (choice.temperature or 1), candidates / (choice.temperature or 1),",
        "tests/test_predict.py",
    ),
    Mistake(
        "top-p keeps the one that exceeds",
        "predict.py",
        "before > top_p",
        "before + ranked.values.softmax(-1) > top_p",
        "tests/test_predict.py",
    ),
    Mistake(
        "draws follow the distribution",
        "predict.py",
        "cumulative <= uniforms[:, None]",
        "cumulative <= uniforms[:, None] ** 2",
        "tests/test_predict.py",
    ),
    Mistake(
        "draws per request", "predict.py", 'f"{seed}:{request}:{index}"', 'f"{seed}:{index}"', "tests/test_predict.py"
    ),
    Mistake(
        "confidence of Dream after the filters",
        "predict.py",
        "scores = _filter(scores, choice.mask_id, choice.top_p, choice.top_k)\n    token",
        "filtered = _filter(scores, choice.mask_id, choice.top_p, choice.top_k)\n    token",
        "tests/test_parity.py tests/test_predict.py",
    ),
    Mistake(
        "first pass sees hard masks",
        "decode.py",
        "embeds = model.embed(canvas.ids)  # the first pass sees hard masks",
        "embeds = model.embed(canvas.ids) * 1.01",
        "tests/test_decode.py",
    ),
    Mistake(
        "only open positions become soft",
        "decode.py",
        "soft = requested & canvas.open",
        "soft = requested",
        "tests/test_decode.py",
    ),
    Mistake(
        "commits stay within the block",
        "decode.py",
        "active = canvas.open & running & block.inside",
        "active = canvas.open & running",
        "tests/test_decode.py",
    ),
    Mistake(
        "LLaDA-2's blocks count from 0",
        "decode.py",
        "_first(canvas.real if self.from_zero else canvas.free)",
        "_first(canvas.free)",
        "tests/test_decode.py tests/test_parity.py",
    ),
    Mistake(
        "passes within the block",
        "decode.py",
        "torch.where(block_start == self.block_start, self.block_passes + 1, 0)",
        "self.block_passes + 1",
        "tests/test_parity.py",
    ),
    Mistake(
        "early finish waits for open positions",
        "decode.py",
        "return ends.any(1) & ~(canvas.open & before).any(1)",
        "return ends.any(1)",
        "tests/test_decode.py",
    ),
    Mistake(
        "early finish happens",
        "decode.py",
        "return ends.any(1) & ~(canvas.open & before).any(1)",
        "return ends.any(1) & False",
        "tests/test_decode.py",
    ),
    Mistake(
        "EOS of the prompt does not count",
        "decode.py",
        "& canvas.free & ~canvas.open\n",
        "& ~canvas.open\n",
        "tests/test_decode.py",
    ),
    Mistake(
        "later blocks are hidden",
        "decode.py",
        "visible = before_end if self.attention and self.length else canvas.real",
        "visible = canvas.real",
        "tests/test_decode.py tests/test_batches.py",
    ),
    Mistake(
        "batches are invariant",
        "predict.py",
        'rows.split(1 if embeds.device.type == "cpu" else len(rows))',
        "rows.split(len(rows))",
        "tests/test_batches.py",
    ),
    Mistake(
        "feedback is batch invariant",
        "feedback.py",
        "theta = _angle(sine, cosine)",
        "theta = torch.atan2(sine, cosine)",
        "tests/test_batches.py",
    ),
    Mistake(
        "rows keep their own schedule",
        "decode.py",
        "per_row(canvas.free & block.inside)",
        "per_row(canvas.free & block.inside).amax().expand(len(active), 1)",
        "tests/test_batches.py",
    ),
    Mistake(
        "padding is masked", "models/denoiser.py", "seen &= real[:, None, :]", "pass", "tests/models/test_parity.py"
    ),
    Mistake(
        "fully masked rows are safe",
        "models/denoiser.py",
        "seen |= torch.eye(length, dtype=torch.bool, device=positions.device)",
        "pass",
        "tests/models/test_parity.py",
    ),
    Mistake(
        "attention looks both ways",
        "models/family.py",
        '{"is_causal": False}',
        '{"is_causal": True}',
        "tests/models/test_parity.py",
    ),
    Mistake(
        "block-causal, not causal",
        "models/denoiser.py",
        "block[:, None, :] <= block[:, :, None]",
        "positions[:, None, :] <= positions[:, :, None]",
        "tests/models/test_parity.py",
    ),
    Mistake(
        "Dream's shift",
        "models/dream.py",
        "torch.cat([states[:, :1], states[:, :-1]], dim=1)",
        "states",
        "tests/models/test_parity.py",
    ),
    Mistake(
        "gate and up",
        "models/llada.py",
        '"ff_proj": "mlp.gate_proj"',
        '"ff_proj": "mlp.up_proj_"',
        "tests/models/test_parity.py",
    ),
    Mistake(
        "expert halves",
        "models/llada2.py",
        "(expert, slice(0, width))",
        "(expert, slice(width, 2 * width))",
        "tests/models/test_parity.py",
    ),
    Mistake(
        "a trace replays",
        "trace.py",
        "canvas[position] = token",
        "canvas[position - 1] = token",
        "tests/test_generation.py",
    ),
    Mistake(
        "streamed text never changes",
        "generation.py",
        'text = text.rstrip("\\ufffd")',
        "text = text",
        "tests/test_generation.py",
    ),
    Mistake(
        "stop strings cut",
        "generation.py",
        "cut = min([text.find(stop)",
        "cut = max([text.find(stop) + 1",
        "tests/test_generation.py",
    ),
    Mistake(
        "LLaDA-2's canvas rounds up",
        "generation.py",
        "-(-total // self.block) * self.block",
        "total",
        "tests/test_generation.py tests/test_parity.py",
    ),
    Mistake(
        "answers in order",
        "generation.py",
        "results = [answer.result(options) for answer in answers]",
        "results = [answer.result(options) for answer in by_length]",
        "tests/test_generation.py",
    ),
    Mistake(
        "mixtures: candidates are renormalised",
        "analysis/mixtures.py",
        "lam * shares / shares.sum(-1, keepdim=True)",
        "lam * shares",
        "tests/analysis/test_mixtures.py",
    ),
    Mistake(
        "mixtures: [MASK] keeps 1 - lam",
        "analysis/mixtures.py",
        "[(None, 1 - lam), *zip",
        "[(None, lam), *zip",
        "tests/analysis/test_mixtures.py",
    ),
    Mistake(
        "mixtures: realisations are weighted, additive",
        "analysis/mixtures.py",
        "math.log(weight) + log_probs",
        "math.log(1 / len(realisations)) + log_probs",
        "tests/analysis/test_mixtures.py",
    ),
    Mistake(
        "mixtures: realisations are weighted, multiplicative",
        "analysis/mixtures.py",
        "multiplicative + weight * log_probs",
        "multiplicative + log_probs / len(realisations)",
        "tests/analysis/test_mixtures.py",
    ),
    Mistake(
        "mixtures: the multiplicative one is normalised",
        "analysis/mixtures.py",
        "multiplicative.log_softmax(-1)",
        "multiplicative",
        "tests/analysis/test_mixtures.py",
    ),
    Mistake(
        "mixtures: every position is enumerated, the queried one too",
        "analysis/spans.py",
        "if token is not None:",
        "if token is not None and place != self.places[0]:",
        "tests/analysis/test_mixtures.py",
    ),
    Mistake(
        "mixtures: positions before prompts",
        "analysis/mixtures.py",
        "fmean([fmean(row.additive[rule]) for row in rows])",
        "fmean([value for row in rows for value in row.additive[rule]])",
        "tests/analysis/test_mixtures.py",
    ),
    Mistake(
        "JS: the middle is a mean",
        "analysis/divergence.py",
        "torch.logaddexp(log_p, log_q) - math.log(2)",
        "torch.logaddexp(log_p, log_q)",
        "tests/analysis/test_divergence.py",
    ),
    Mistake(
        "JS: half of both sides",
        "analysis/divergence.py",
        "(kl(log_p, log_m) + kl(log_q, log_m)) / 2",
        "kl(log_p, log_m)",
        "tests/analysis/test_divergence.py",
    ),
    Mistake(
        "reverse KL: direction",
        "analysis/divergence.py",
        "kl(conditional(log_q), conditional(log_reference))",
        "kl(conditional(log_reference), conditional(log_q))",
        "tests/analysis/test_divergence.py tests/analysis/test_consistency.py",
    ),
    Mistake(
        "reverse KL: conditioned on the support",
        "analysis/divergence.py",
        "kl(conditional(log_q), conditional(log_reference))",
        "kl(log_q, log_reference)",
        "tests/analysis/test_divergence.py tests/analysis/test_consistency.py",
    ),
    Mistake(
        "feedback: the first pass has number 0",
        "analysis/spans.py",
        "passes=none, block_passes",
        "passes=masks, block_passes",
        "tests/analysis/test_spans.py",
    ),
    Mistake(
        "analyses: attention of the decode",
        "analysis/spans.py",
        "block_length=model.attention_block(None)",
        "block_length=None",
        "tests/analysis/test_spans.py",
    ),
    Mistake(
        "consistency: orders are averaged",
        "analysis/consistency.py",
        "total[answer] - orders",
        "total[answer]",
        "tests/analysis/test_consistency.py",
    ),
    Mistake(
        "consistency: orders are summed, not the best of them",
        "analysis/consistency.py",
        "_log_add(total[grown], total[context] + score)",
        "max(total[grown], total[context] + score)",
        "tests/analysis/test_consistency.py",
    ),
    Mistake(
        "consistency: the support mixes both",
        "analysis/consistency.py",
        "product(*(dict.fromkeys(pair) for pair in zip(a, b, strict=True)))",
        "dict.fromkeys([a, b])",
        "tests/analysis/test_consistency.py",
    ),
    Mistake(
        "consistency: shared tokens count once",
        "analysis/consistency.py",
        "list(product(*(dict.fromkeys(pair) for",
        "list(product(*(tuple(pair) for",
        "tests/analysis/test_consistency.py",
    ),
    Mistake(
        "joint: sequential by confidence",
        "analysis/joint.py",
        'if order == "average":',
        'if order != "average":',
        "tests/analysis/test_joint.py",
    ),
    Mistake(
        "completions: the surest position first",
        "analysis/completions.py",
        "key=lambda index: highest[index])",
        "key=lambda index: -highest[index])",
        "tests/analysis/test_completions.py",
    ),
    Mistake(
        "completions: special tokens leave the support",
        "analysis/completions.py",
        '[scores.masked_fill(special, float("-inf")).topk(top)',
        "[scores.topk(top)",
        "tests/analysis/test_completions.py",
    ),
    Mistake(
        "completions: special tokens leave the beam",
        "analysis/completions.py",
        'log_probs.masked_fill(special, float("-inf")).topk(top)',
        "log_probs.topk(top)",
        "tests/analysis/test_completions.py",
    ),
    Mistake(
        "completions: width of the beam",
        "analysis/completions.py",
        "[: top**2]",
        "[:top]",
        "tests/analysis/test_completions.py",
    ),
    Mistake(
        "completions: the beam joins the support",
        "analysis/completions.py",
        "dict.fromkeys([*products, *beam])",
        "dict.fromkeys([*products])",
        "tests/analysis/test_completions.py",
    ),
    Mistake(
        "completions: tuples once",
        "analysis/completions.py",
        "list(dict.fromkeys([*products, *beam]))",
        "[*products, *beam]",
        "tests/analysis/test_completions.py",
    ),
    Mistake(
        "completions: chain rule",
        "analysis/completions.py",
        "scores[answer] += log_p",
        "scores[answer] = log_p",
        "tests/analysis/test_completions.py",
    ),
    Mistake(
        "completions: even places",
        "analysis/completions.py",
        "(room + 1) * (place + 1) //",
        "room * place //",
        "tests/analysis/test_completions.py",
    ),
    Mistake(
        "completions: spans before completions",
        "analysis/completions.py",
        "fmean([fmean(row.reverse_kl[rule]) for row in long])",
        "fmean([value for row in long for value in row.reverse_kl[rule]])",
        "tests/analysis/test_completions.py",
    ),
    Mistake(
        "geometry: absolute cosine",
        "analysis/geometry.py",
        "mask[None]).abs()",
        "mask[None])",
        "tests/analysis/test_geometry.py",
    ),
    Mistake(
        "geometry: Table 3 has its own k",
        "analysis/geometry.py",
        "aggregate(prediction, embeddings, k).double()",
        "aggregate(prediction, embeddings, line_k).double()",
        "tests/analysis/test_geometry.py",
    ),
    Mistake(
        "geometry: pairs of different candidates",
        "analysis/geometry.py",
        "offset=1",
        "offset=0",
        "tests/analysis/test_geometry.py",
    ),
    Mistake(
        "geometry: share of the angle",
        "analysis/geometry.py",
        "yield degrees(soft, mask) / angle",
        "yield degrees(soft, mean[0]) / angle",
        "tests/analysis/test_geometry.py",
    ),
    Mistake(
        "geometry: below both",
        "analysis/geometry.py",
        "torch.minimum(mean.norm",
        "torch.maximum(mean.norm",
        "tests/analysis/test_geometry.py",
    ),
    Mistake(
        "geometry: positions still open",
        "analysis/geometry.py",
        "still = step.requested & step.canvas.open",
        "still = step.requested",
        "tests/analysis/test_geometry.py",
    ),
    Mistake(
        "geometry: positions count the same",
        "analysis/geometry.py",
        "value * shape.positions for value",
        "value * positions / len(shapes) for value",
        "tests/analysis/test_geometry.py",
    ),
    Mistake(
        "agreement: best token against the next pass",
        "analysis/agreement.py",
        "best[place] != again[place]",
        "best[place] == again[place]",
        "tests/analysis/test_agreement.py",
    ),
    Mistake(
        "agreement: best token against the committed one",
        "analysis/agreement.py",
        "best[place] == final[place]",
        "best[place] != final[place]",
        "tests/analysis/test_agreement.py",
    ),
    Mistake(
        "agreement: earlier is earlier",
        "analysis/agreement.py",
        "sum(after[place] < before[place]",
        "sum(after[place] <= before[place]",
        "tests/analysis/test_agreement.py",
    ),
    Mistake(
        "prompts: leading space",
        "analysis/prompts.py",
        "tokenizer(prompt.lead + text,",
        "tokenizer(text,",
        "tests/analysis/test_prompts.py",
    ),
    Mistake(
        "prompts: both alternatives must fit",
        "analysis/prompts.py",
        "len(self.a) == len(self.b) == len(self.span.places)",
        "len(self.b) == len(self.span.places)",
        "tests/analysis/test_results.py",
    ),
    Mistake(
        "rows: a torn line is cut off",
        "analysis/results.py",
        'path.write_text("".join(_whole_lines(path)), encoding="utf-8")\n    return',
        "return",
        "tests/analysis/test_results.py",
    ),
    Mistake(
        "rows: other settings are refused",
        "analysis/results.py",
        "if differing:",
        "if False:",
        "tests/analysis/test_results.py",
    ),
]


def noticed(mistake: Mistake) -> str | None:
    """None if the tests fail with the mistake in, else what is wrong with the row."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch)
        for name in ("src", "tests"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        file = copy / "src" / "softdlm" / mistake.file
        source = file.read_text()
        if source.count(mistake.right) < 1:
            return "the text to change is not there"
        file.write_text(source.replace(mistake.right, mistake.wrong))
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mistake.tests.split()],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy / "src")},
            capture_output=True,
            text=True,
        )
    return "the tests passed" if done.returncode == 0 else None if done.returncode == 1 else done.stdout[-300:]


def main() -> int:
    chosen = [m for m in MISTAKES if all(word in " ".join(m) for word in sys.argv[1:])]
    missed = 0
    with ThreadPoolExecutor(2) as pool:
        for mistake, problem in zip(chosen, pool.map(noticed, chosen), strict=True):
            missed += problem is not None
            print(
                f"{'MISSED' if problem else 'seen  '}  {mistake.law}  ({mistake.file}){': ' + problem if problem else ''}",
                flush=True,
            )
    print(f"{len(chosen) - missed} of {len(chosen)} seeded mistakes were noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
