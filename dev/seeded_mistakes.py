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
        "draws follow the request",
        "generation.py",
        "for request, each in zip(numbers, prompts, strict=True)",
        "for request, each in enumerate(prompts)",
        "tests/test_generation.py",
    ),
    Mistake(
        "harness: protocol knows the method",
        "evaluate/identity.py",
        'if name != "batch_size"}',
        'if name not in ("batch_size", "lam")}',
        "tests/evaluate/test_settings.py",
    ),
    Mistake(
        "harness: cache prefix holds the protocol",
        "lm_eval.py",
        'return f"{prefix}-{digest(protocol(Settings.parse(model_args)))[:16]}"',
        'return f"{prefix}-{digest({})[:16]}"',
        "tests/test_lm_eval.py::test_methods_never_share_answers_and_runs_resume",
    ),
    Mistake(
        "harness: a cache of other settings is refused",
        "evaluate/harness.py",
        "if theirs is not None and digest(theirs) != digest(ours):",
        "if False:",
        "tests/evaluate/test_harness.py::test_a_cache_of_other_settings_is_refused",
    ),
    Mistake(
        "harness: answers are stored one by one",
        "evaluate/harness.py",
        'self.cache_hook.add_partial("generate_until", requests[request.index].args, text)',
        "pass",
        "tests/test_lm_eval.py::test_methods_never_share_answers_and_runs_resume",
    ),
    Mistake(
        "harness: seeded by the prompt",
        "evaluate/harness.py",
        "requests=[request.number for request in batch],",
        "requests=[request.index for request in batch],",
        "tests/evaluate/test_harness.py::test_answers_keep_their_order_in_any_batches tests/evaluate/test_harness.py::test_all_four_benchmarks_run_end_to_end[dream]",
    ),
    Mistake(
        "harness: answers in order",
        "evaluate/harness.py",
        "texts[request.index] = text",
        "texts[texts.index('')] = text",
        "tests/evaluate/test_harness.py::test_answers_keep_their_order_in_any_batches",
    ),
    Mistake(
        "harness: requests of one batch share their limit",
        "evaluate/harness.py",
        "groups.setdefault((request.stops, request.decoding), [])",
        "groups.setdefault((request.stops,), [])",
        "tests/evaluate/test_harness.py::test_answers_keep_their_order_in_any_batches",
    ),
    Mistake(
        "harness: HumanEval forbids EOS",
        "evaluate/settings.py",
        '{"eos": "allow", "forbid": model.eos_ids[:1]}',
        '{"eos": "forbid"}',
        "tests/evaluate/test_settings.py",
    ),
    Mistake(
        "harness: the user goes before the task",
        "evaluate/settings.py",
        "return own if own is not None else task.get(name, default)",
        "return task.get(name, own if own is not None else default)",
        "tests/evaluate/test_settings.py",
    ),
    Mistake(
        "harness: steps of Dream's schedule",
        "evaluate/settings.py",
        "-(-(self.block_length or limit) // exact.n)",
        "limit",
        "tests/evaluate/test_settings.py",
    ),
    Mistake(
        "harness: an answer begun is continued",
        "evaluate/harness_task.py",
        "continue_final_message=not add_generation_prompt",
        "continue_final_message=False",
        "tests/evaluate/test_harness.py::test_an_answer_already_begun_is_continued",
    ),
    Mistake(
        "harness: turns are the task's",
        "evaluate/harness_task.py",
        "many != self.turns",
        "False",
        "tests/evaluate/test_harness.py::test_shots_are_laid_out_as_the_tasks_name_says",
    ),
    Mistake(
        "likelihood: weight L / l",
        "evaluate/likelihood.py",
        "total * length / mask.sum(1)",
        "total",
        "tests/evaluate/test_likelihood.py",
    ),
    Mistake(
        "likelihood: l is uniform",
        "evaluate/likelihood.py",
        "(offset + torch.arange(samples, dtype=torch.float64) / samples) % 1",
        "torch.arange(samples, dtype=torch.float64) / samples",
        "tests/evaluate/test_likelihood.py",
    ),
    Mistake(
        "likelihood: masked tokens are hidden",
        "evaluate/likelihood.py",
        "ids.masked_fill(mask, model.mask_id)",
        "ids",
        "tests/evaluate/test_likelihood.py",
    ),
    Mistake(
        "likelihood: spaces at the border",
        "evaluate/harness.py",
        "continuation = context[len(kept) :] + continuation",
        "continuation = continuation",
        "tests/evaluate/test_harness.py::test_log_likelihoods_come_from_the_estimator",
    ),
    Mistake(
        "scoring: test_setup_code runs",
        "evaluate/scoring.py",
        'setup = [] if compatible else [doc["test_setup_code"]]',
        "setup = []",
        "tests/evaluate/test_scoring.py",
    ),
    Mistake(
        "scoring: flexible is the headline of GSM8K",
        "evaluate/scoring.py",
        '"correct": metrics["flexible"]',
        '"correct": metrics["strict"]',
        "tests/evaluate/test_scoring.py",
    ),
    Mistake(
        "scoring: gold in a box",
        "evaluate/math_worker.py",
        'verify(gold=parse(rf"\\boxed{{{gold}}}"), target=parse(answer))',
        "verify(gold=parse(gold), target=parse(answer))",
        "tests/evaluate/test_maths.py tests/evaluate/test_scoring.py",
    ),
    Mistake(
        "scoring: a hanging worker is replaced",
        "evaluate/maths.py",
        "                self.timeouts += 1\n                self.close()",
        "                self.timeouts += 1",
        "tests/evaluate/test_maths.py",
    ),
    Mistake(
        "extraction: what the tests call is kept",
        "evaluate/extract.py",
        "            todo += _names(node)",
        "            pass",
        "tests/evaluate/test_extract.py",
    ),
    Mistake(
        "extraction: a stub gives way",
        "evaluate/extract.py",
        "return [node.name] if any(isinstance(inner, ast.Return) for inner in ast.walk(node)) else []",
        "return [node.name]",
        "tests/evaluate/test_extract.py",
    ),
    Mistake(
        "extraction: a string at the end stays",
        "evaluate/extract.py",
        'return text if _parse(text) is not None else text.removesuffix("\'")',
        'return text.removesuffix("\'")',
        "tests/evaluate/test_extract.py",
    ),
    Mistake(
        "data: no hub behind a folder",
        "evaluate/data.py",
        '    if file is None:\n        raise UsageError(f"{folder} holds',
        '    if file is None:\n        return []\n        raise UsageError(f"{folder} holds',
        "tests/evaluate/test_data.py",
    ),
    Mistake(
        "benchmarks: drawn shots repeat",
        "evaluate/benchmarks.py",
        "    found.set_fewshot_seed(_FEWSHOT_SEED)\n",
        "",
        "tests/evaluate/test_benchmarks.py",
    ),
    Mistake(
        "only the nonce passes",
        "evaluate/sandbox.py",
        'report.end == "answered" and report.words == nonce',
        'report.end == "answered" and ":" not in report.words',
        "tests/evaluate/test_sandbox.py",
    ),
    Mistake(
        "an early exit is no pass",
        "evaluate/sandbox.py",
        '"closed": ("failed"',
        '"closed": ("passed"',
        "tests/evaluate/test_sandbox.py -k exit",
    ),
    Mistake(
        "half of the nonce stays in the pipe",
        "evaluate/sandbox.py",
        "halves[0]))) + halves[1].encode()",
        "''.join(halves)[:-1]))) + b'\\n'",
        "tests/evaluate/test_sandbox.py -k memory",
    ),
    Mistake(
        "half of the nonce stays in memory",
        "evaluate/sandbox.py",
        "halves[0]))) + halves[1].encode()",
        "''))) + ''.join(halves).encode()",
        "tests/evaluate/test_sandbox.py -k echo",
    ),
    Mistake(
        "the stages are out of the candidate's reach",
        "evaluate/sandbox_driver.py",
        "any(map(exec, stages, repeat(fresh_scope())))",
        "scope = fresh_scope()\n        for stage in stages:\n            exec(stage, scope)",
        "tests/evaluate/test_sandbox.py -k patching",
    ),
    Mistake(
        "only the first process answers",
        "evaluate/sandbox_driver.py",
        "if pid() == owner:",
        "if True:",
        "tests/evaluate/test_sandbox.py -k child",
    ),
    Mistake(
        "hashes do not change",
        "evaluate/sandbox_backends.py",
        'FLAGS = ("-s", "-S", "-P", "-B")',
        'FLAGS = ("-I", "-S", "-B")',
        "tests/evaluate/test_sandbox.py -k hash",
    ),
    Mistake(
        "bubblewrap: no network",
        "evaluate/sandbox_backends.py",
        '"pid", "net", "uts"',
        '"pid", "uts"',
        "tests/evaluate/test_sandbox.py -k network",
    ),
    Mistake(
        "bubblewrap: the root is not writable",
        "evaluate/sandbox_backends.py",
        '"--remount-ro", "/", ',
        "",
        "tests/evaluate/test_sandbox.py -k writing",
    ),
    Mistake(
        "bubblewrap: shared memory has a bound",
        "evaluate/sandbox_backends.py",
        'for path in ("/tmp", "/dev/shm") for word',
        'for path in ("/tmp",) for word',
        "tests/evaluate/test_sandbox.py -k bubblewrap",
    ),
    Mistake(
        "unshare: no network",
        "evaluate/sandbox_backends.py",
        '"--pid", "--net", "--ipc"',
        '"--pid", "--ipc"',
        "tests/evaluate/test_sandbox.py -k network",
    ),
    Mistake(
        "unshare: views are read-only",
        "evaluate/sandbox_jail.py",
        'protect("/", RDONLY | NOSUID | NODEV, 0)',
        'protect("/", NOSUID | NODEV, 0)',
        "tests/evaluate/test_sandbox.py -k writing",
    ),
    Mistake(
        "unshare: no capability is left",
        "evaluate/sandbox_jail.py",
        'call("capset", header, none)',
        "pass",
        "tests/evaluate/test_sandbox.py -k unshare",
    ),
    Mistake(
        "unshare: no namespaces inside",
        "evaluate/sandbox_jail.py",
        'file.write("0")',
        'file.write("9")',
        "tests/evaluate/test_sandbox.py -k namespace",
    ),
    Mistake(
        "the tree ends with its owner",
        "evaluate/sandbox_backends.py",
        '"--pdeathsig", "KILL"',
        '"--pdeathsig", "clear"',
        "tests/evaluate/test_sandbox.py -k started",
    ),
    Mistake(
        "nothing outlives a run",
        "evaluate/sandbox_process.py",
        "kill(os.kill, first)",
        "pass",
        "tests/evaluate/test_sandbox.py -k bubblewrap",
    ),
    Mistake(
        "root is nobody in a jail (noticed as root only)",
        "evaluate/sandbox_backends.py",
        "if os.geteuid() != 0 or",
        "if True or",
        "tests/evaluate/test_sandbox.py -k kernel",
    ),
    Mistake(
        "answers are bounded",
        "evaluate/sandbox_process.py",
        "if len(heard) >= REPORT_BYTES:",
        "if False:",
        "tests/evaluate/test_sandbox.py -k flood",
    ),
    Mistake(
        "the limited process starts nothing",
        "evaluate/sandbox.py",
        "self.limits.processes if self.isolated else 0",
        "self.limits.processes",
        "tests/evaluate/test_sandbox.py -k starts",
    ),
    Mistake(
        "a sandbox that does not start is no verdict",
        "evaluate/sandbox.py",
        '"unstarted": ("error"',
        '"unstarted": ("failed"',
        "tests/evaluate/test_sandbox.py -k start",
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
            env={**os.environ, "PYTHONPATH": str(copy / "src"), "SOFTDLM_REQUIRE_BUBBLEWRAP": "1"},
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
