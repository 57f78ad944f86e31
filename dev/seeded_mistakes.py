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
        "a torn tail is cut off",
        "evaluate/journal.py",
        "            if kept < os.fstat(file).st_size:",
        "            if kept > os.fstat(file).st_size:",
        "tests/evaluate/test_journal.py",
    ),
    Mistake(
        "a missing end of line is completed",
        "evaluate/journal.py",
        '                _write_all(file, b"\\n")',
        "                pass",
        "tests/evaluate/test_journal.py",
    ),
    Mistake(
        "a failed write leaves whole lines",
        "evaluate/journal.py",
        "                os.ftruncate(self._file, start)",
        "                pass",
        "tests/evaluate/test_journal.py",
    ),
    Mistake(
        "damage in the middle is no torn tail",
        "evaluate/journal.py",
        "        elif torn:",
        "        elif False:",
        "tests/evaluate/test_journal.py",
    ),
    Mistake(
        "a summary is whole or not at all",
        "evaluate/journal.py",
        '    part = path.with_name(f"{path.name}.part")',
        "    part = path",
        "tests/evaluate/test_journal.py",
    ),
    Mistake(
        "one writer a cell",
        "evaluate/journal.py",
        "            self._lock.acquire(timeout=0)",
        "            pass",
        "tests/evaluate/test_journal.py",
    ),
    Mistake(
        "finished samples are not decoded again",
        "evaluate/run.py",
        "if item not in journal.samples)",
        "if True)",
        "tests/evaluate/test_run.py",
    ),
    Mistake(
        "a finished cell is left alone",
        "evaluate/run.py",
        "            if self.is_finished(key):",
        "            if False:",
        "tests/evaluate/test_run.py",
    ),
    Mistake(
        "the seed names the cell",
        "evaluate/cell.py",
        '"temperature", "top_p", "seed")',
        '"temperature", "top_p")',
        "tests/evaluate/test_cell.py",
    ),
    Mistake(
        "the prompts name the cell",
        "evaluate/cell.py",
        "items = [[item.id, item.prompt, list(item.stop)] for",
        "items = [[item.id, list(item.stop)] for",
        "tests/evaluate/test_task.py",
    ),
    Mistake(
        "a folder counts by its content",
        "models/weights.py",
        "    files = {*checkpoint_files(folder), *(",
        "    files = {*(",
        "tests/evaluate/test_cell.py",
    ),
    Mistake(
        "a nested rule names the cell",
        "evaluate/cell.py",
        "name: rule_record(value) if is_dataclass(value) else value",
        "name: type(value).__name__ if is_dataclass(value) else value",
        "tests/evaluate/test_cell.py",
    ),
    Mistake(
        "draws follow the item",
        "evaluate/executors.py",
        "requests=[request_number(item.id) for item in items]",
        "requests=list(range(len(items)))",
        "tests/evaluate/test_run.py",
    ),
    Mistake(
        "draws follow the request number",
        "generation.py",
        "for request, each in zip(numbers, prompts, strict=True)",
        "for request, each in enumerate(prompts)",
        "tests/test_generation.py",
    ),
    Mistake(
        "recovery is against vanilla at one a step",
        "evaluate/summary.py",
        'return self.is_vanilla and (rate["name"]',
        'return (rate["name"]',
        "tests/evaluate/test_summary.py",
    ),
    Mistake(
        "methods are compared at the same rate",
        "evaluate/summary.py",
        "vanilla.get((each.comparison, each.rate))",
        "single.get(each.comparison)",
        "tests/evaluate/test_summary.py",
    ),
    Mistake(
        "only the same settings are compared",
        "evaluate/summary.py",
        '("softdlm_protocol", "model", "task", "decoding")',
        '("softdlm_protocol", "model", "task")',
        "tests/evaluate/test_summary.py",
    ),
    Mistake(
        "seconds add up to the time spent",
        "evaluate/executors.py",
        "seconds * each.forwards / passes",
        "seconds",
        "tests/evaluate/test_run.py",
    ),
    Mistake(
        "the longest come first",
        "evaluate/executors.py",
        "-lengths[item.id]",
        "lengths[item.id]",
        "tests/evaluate/test_run.py",
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
        "tests/evaluate/test_sandbox_choice.py -k start",
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
