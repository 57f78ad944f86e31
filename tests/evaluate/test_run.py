"""Runs: resumed they end as undisturbed ones do, and one failure costs one cell."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import softdlm
from softdlm import Decoding
from softdlm.errors import CheckpointError, ResultsError
from softdlm.evaluate.cell import Cell, ModelSpec, TaskSpec
from softdlm.evaluate.executors import LocalExecutor, answer, batches
from softdlm.evaluate.grid import Grid, prompt_lengths
from softdlm.evaluate.grid import plan as plan_grid
from softdlm.evaluate.run import Progress, expected_passes, run
from softdlm.evaluate.task import load_eval_task
from softdlm.models.pace import Paced
from softdlm.records.journal import MANIFEST, SAMPLES, SUMMARY, Journal, Sample, read_samples
from tests.evaluate.cells import Scripted, cell, plan
from tests.tokenizers import checkpoint

VANILLA, SLERP = cell(), cell("slerp", "topn(4)")


def samples(out: Path) -> dict[str, dict[str, Sample]]:
    return {file.parent.name: read_samples(file)[0] for file in out.glob(f"*/{SAMPLES}")}


def answers(out: Path) -> dict[str, dict[str, Any]]:
    """What must not depend on how a run went: all but the seconds."""
    return {
        key: {item: replace(each, seconds=0.0) for item, each in found.items()} for key, found in samples(out).items()
    }


def test_a_run_answers_every_item_and_finishes_every_cell(tmp_path: Path) -> None:
    seen: list[Progress] = []
    chosen = plan(VANILLA, SLERP)
    assert run(chosen, tmp_path, Scripted(wrong=("b",)), seen.append) == {}
    for planned in chosen.cells:
        assert set(samples(tmp_path)[planned.key]) == {"a", "b", "c"}
        summary = json.loads((tmp_path / planned.key / SUMMARY).read_text())
        assert (summary["items"], summary["correct"], summary["reasons"]) == (3, 2, {"solved": 2, "wrong": 1})
        manifest = json.loads((tmp_path / planned.key / MANIFEST).read_text())
        assert manifest["sessions"][0]["executor"] == "scripted"
        assert {"softdlm", "torch", "python"} <= set(manifest["sessions"][0]["versions"])
    assert [(now.cell, now.cells, now.done, now.items) for now in seen] == [
        (number, 2, done, 3) for number in (1, 2) for done in (1, 2, 3)
    ]
    assert seen[-1].seconds_left == 0
    assert "66.7 % right" in str(seen[-1])


@pytest.mark.parametrize("stop", range(7))
def test_nothing_is_decoded_again_and_nothing_is_lost(tmp_path: Path, stop: int) -> None:
    first, second = Scripted(stop_after=stop), Scripted()
    if stop < 6:
        with pytest.raises(KeyboardInterrupt):
            run(plan(VANILLA, SLERP), tmp_path / "out", first)
    else:
        run(plan(VANILLA, SLERP), tmp_path / "out", first)
    before = {key: set(found) for key, found in samples(tmp_path / "out").items()}
    assert sum(map(len, before.values())) == stop
    run(plan(VANILLA, SLERP), tmp_path / "out", second)
    assert sum(len(items) for _, items in second.asked) == 6 - stop
    run(plan(VANILLA, SLERP), tmp_path / "undisturbed", Scripted())
    assert answers(tmp_path / "out") == answers(tmp_path / "undisturbed")


def test_killed_before_the_summary_a_cell_is_finished_without_an_answer(tmp_path: Path) -> None:
    chosen = plan(VANILLA)
    run(chosen, tmp_path, Scripted())
    file = tmp_path / chosen.cells[0].key / SUMMARY
    text = file.read_text()
    file.unlink()
    again = Scripted()
    run(chosen, tmp_path, again)
    assert again.asked == []
    assert file.read_text() == text


def test_a_finished_cell_that_lost_samples_is_completed(tmp_path: Path) -> None:
    chosen = plan(VANILLA)
    run(chosen, tmp_path, Scripted())
    file = tmp_path / chosen.cells[0].key / SAMPLES
    first, *_ = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(first)
    again = Scripted()
    run(chosen, tmp_path, again)
    assert again.asked == [("vanilla", ("a", "b"))]
    assert set(samples(tmp_path)[chosen.cells[0].key]) == {"a", "b", "c"}


@pytest.mark.parametrize("finished", [True, False])
def test_answers_to_items_of_another_task_are_not_counted(tmp_path: Path, finished: bool) -> None:
    chosen = plan(VANILLA)
    run(chosen, tmp_path, Scripted())
    folder = tmp_path / chosen.cells[0].key
    first, *_ = (folder / SAMPLES).read_text().splitlines(keepends=True)
    with (folder / SAMPLES).open("a") as file:
        file.write(first.replace('"id": "c"', '"id": "x"'))
    if not finished:
        (folder / SUMMARY).unlink()
    with pytest.raises(ResultsError, match=r"samples\.jsonl: line 4 answers x, which is no item of its task"):
        run(chosen, tmp_path, Scripted())


def test_a_failing_cell_keeps_what_it_did_and_costs_no_other(tmp_path: Path) -> None:
    chosen = plan(SLERP, VANILLA)
    failures = run(chosen, tmp_path, Scripted(broken=("slerp",)))
    slerp, vanilla = (each.key for each in chosen.cells)
    assert {key: failure.reason for key, failure in failures.items()} == {slerp: "it broke"}
    assert set(samples(tmp_path)[slerp]) == {"c"}
    assert not (tmp_path / slerp / SUMMARY).exists()
    assert (tmp_path / vanilla / SUMMARY).exists()
    again = Scripted()
    assert run(chosen, tmp_path, again) == {}
    assert again.asked == [("slerp", ("a", "b"))]


def test_a_cell_that_another_process_writes_ends_the_run(tmp_path: Path) -> None:
    chosen = plan(VANILLA, SLERP)
    held = chosen.cells[1]
    with Journal(tmp_path / held.key, held.protocol, held.cell.labels), pytest.raises(ResultsError, match="another"):
        run(chosen, tmp_path, Scripted())
    assert (tmp_path / chosen.cells[0].key / SUMMARY).exists()
    assert not samples(tmp_path)[held.key]


def test_a_changed_protocol_reuses_nothing(tmp_path: Path) -> None:
    run(plan(VANILLA), tmp_path, Scripted())
    changed = replace(VANILLA, decoding=replace(VANILLA.decoding, seed=1))
    asked = Scripted()
    run(plan(changed), tmp_path, asked)
    assert asked.asked == [("vanilla", ("a", "b", "c"))]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return ModelSpec.of(str(checkpoint(tmp_path_factory.mktemp("run") / "llada", "llada")), device="cpu")


def decode(out: Path, tiny: ModelSpec, batch_size: int, limit: int = 5, **fields: Any) -> dict[str, Any]:
    decoding = Decoding.of(feedback="slerp", tokens_per_step=4, max_new_tokens=16, **fields)
    chosen = plan_grid(Grid((tiny,), (TaskSpec("mini-math", limit=limit),), (decoding,), single=False))
    assert run(chosen, out, LocalExecutor(batch_size)) == {}
    (found,) = answers(out).values()
    return {item: each.text for item, each in found.items()}


def test_answers_are_those_of_generate(tmp_path: Path, tiny: ModelSpec) -> None:
    texts = decode(tmp_path, tiny, batch_size=2)
    model, task = tiny.load(), softdlm.tasks.load_task("mini-math", size=5)
    for item in task:
        alone = softdlm.generate(
            model, item.prompt, feedback=softdlm.Slerp(), commit=softdlm.TopN(4), max_new_tokens=16
        )
        assert texts[item.id] == alone.text


@pytest.mark.parametrize(("worth", "expected"), [(32, True), (33, False)])
def test_passes_are_compiled_at_once_where_there_will_be_enough(
    worth: int, expected: bool, tmp_path: Path, tiny: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr("softdlm.models.denoiser.passes_worth", lambda weights: worth)
    monkeypatch.setattr(Paced, "warm", lambda model: asked.append(model))
    decode(tmp_path / "one", tiny, batch_size=1, limit=16)  # 4 passes each: 64 in all
    assert bool(asked) is expected
    decode(tmp_path / "two", tiny, batch_size=2, limit=16)  # at once, half as many
    assert len(asked) == expected


def test_draws_depend_on_the_seed_and_the_item_only(tmp_path: Path, tiny: ModelSpec) -> None:
    base = decode(tmp_path / "one", tiny, 1, temperature=1.0)
    assert decode(tmp_path / "four", tiny, 4, temperature=1.0) == base
    fewer = decode(tmp_path / "fewer", tiny, 2, limit=3, temperature=1.0)
    assert fewer == {item: text for item, text in base.items() if item in fewer}
    assert decode(tmp_path / "other", tiny, 1, temperature=1.0, seed=1) != base
    assert len(set(base.values())) > 1


def test_the_built_in_model_gives_the_same_in_any_batch(tmp_path: Path) -> None:
    spec = ModelSpec.of("builtin", device="cpu")
    grid = Grid((spec,), (TaskSpec("mini-math", limit=6),), (Decoding.of(tokens_per_step=8),), single=False)
    for size in (1, 32):
        run(plan_grid(grid), tmp_path / str(size), LocalExecutor(size))
    assert answers(tmp_path / "1") == answers(tmp_path / "32")
    (found,) = samples(tmp_path / "32").values()
    assert sum(each.correct for each in found.values()) > 0


def test_batches_hold_like_lengths_longest_first_and_survive_an_interruption(tiny: ModelSpec) -> None:
    found = tiny.checkpoint()
    task = load_eval_task(TaskSpec("mini-math", limit=7), found)
    lengths = prompt_lengths(found.tokenizer, task)
    whole = [[item.id for item in batch] for batch in batches(task, lengths, 3, set(lengths))]
    assert [len(batch) for batch in whole] == [3, 3, 1]
    in_order = [lengths[item] for batch in whole for item in batch]
    assert in_order == sorted(in_order, reverse=True)
    left = set(whole[1][1:] + whole[2])
    assert [[item.id for item in batch] for batch in batches(task, lengths, 3, left)] == [whole[1][1:], whole[2]]


def test_seconds_are_shares_of_the_time_spent_by_forwards(tiny: ModelSpec) -> None:
    model = tiny.load()
    task = load_eval_task(TaskSpec("mini-math", limit=5), model)
    one = replace(SLERP, decoding=replace(SLERP.decoding, max_new_tokens=32))
    start = time.perf_counter()
    found = list(answer(model, task, one, task.items))
    spent = time.perf_counter() - start
    assert len({each.forwards for each in found}) > 1
    assert spent / 2 < sum(each.seconds for each in found) <= spent
    rates = [each.seconds / each.forwards for each in found]
    assert rates == pytest.approx([rates[0]] * 5, rel=0.01)


def test_a_model_that_fails_to_load_costs_its_cells_only(tmp_path: Path, tiny: ModelSpec) -> None:
    good = plan_grid(Grid((tiny,), (TaskSpec("either-or", limit=2),), (Decoding(commit="topn(4)"),)))
    bad_cell: Cell = replace(good.cells[0].cell, model=replace(tiny, name="/no/where"))
    bad = replace(good.cells[0], key="bad", cell=bad_cell)
    failures = run(replace(good, cells=(bad, *good.cells)), tmp_path, LocalExecutor())
    assert list(failures) == ["bad"]
    assert "no such folder" in failures["bad"].reason
    assert failures["bad"].trace == ""
    assert all((tmp_path / each.key / SUMMARY).exists() for each in good.cells)


def two_models(folder: Path) -> Any:
    """A plan of two cells, each of a model of its own; the second is `folder`/b."""
    specs = tuple(ModelSpec.of(str(checkpoint(folder / name, "llada")), device="cpu") for name in "ab")
    other = json.loads((folder / "b" / "config.json").read_text()) | {"rope_theta": 20_000.0}
    (folder / "b" / "config.json").write_text(json.dumps(other))
    decoding = Decoding.of(max_new_tokens=4, tokens_per_step=4, feedback="vanilla")
    return plan_grid(Grid(specs, (TaskSpec("mini-math", limit=2),), (decoding,), single=False))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer_config.json"])
def test_a_checkpoint_that_is_swapped_after_the_plan_answers_nothing(tmp_path: Path, name: str) -> None:
    """The second folder changes while the first one's cell runs: its answers would be another model's."""
    chosen = two_models(tmp_path)

    def swap(now: Progress) -> None:
        if now.done > 1:
            return
        data = (tmp_path / "b" / name).read_bytes()
        changed = data[:-1] + bytes([data[-1] ^ 1]) if name.startswith("model") else data + b" "
        (tmp_path / "new").write_bytes(changed)
        (tmp_path / "new").replace(tmp_path / "b" / name)

    failures = run(chosen, tmp_path / "out", LocalExecutor(), swap)
    assert list(failures) == [chosen.cells[1].key]
    assert "b has changed since its digest was taken: it was " in failures[chosen.cells[1].key].reason
    assert {key: len(found) for key, found in samples(tmp_path / "out").items()} == {
        chosen.cells[0].key: 2,
        chosen.cells[1].key: 0,
    }


def test_a_model_that_was_loaded_before_its_files_changed_answers_nothing(tmp_path: Path) -> None:
    """It is held under the record of its files; a record of others is not taken on trust."""
    folder = checkpoint(tmp_path / "it", "llada")
    spec, executor = ModelSpec.of(str(folder), device="cpu"), LocalExecutor()
    executor.keep(spec, softdlm.load(folder, device="cpu", dtype="float32"))
    executor.model(spec, spec.record(spec.checkpoint()))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"rope_theta": 20_000.0}))
    with pytest.raises(CheckpointError, match="has changed since it was loaded: load it again"):
        executor.model(spec, spec.record(spec.checkpoint()))


def test_an_answer_to_another_prompt_is_not_counted(tmp_path: Path) -> None:
    """Though its cell is finished: the journal says which line it is."""
    chosen = two_models(tmp_path)
    run(chosen, tmp_path / "out", LocalExecutor())
    file = tmp_path / "out" / chosen.cells[0].key / SAMPLES
    first, second = file.read_text().splitlines(keepends=True)
    file.write_text(first + json.dumps(json.loads(second) | {"prompt_digest": "0" * 16}) + "\n")
    with pytest.raises(ResultsError, match=r"line 2 answers .*, to another prompt: remove the line"):
        run(chosen, tmp_path / "out", LocalExecutor())
    file.write_text(first)
    assert run(chosen, tmp_path / "out", LocalExecutor()) == {}
    assert len(file.read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("commit", "fields", "passes"),
    [
        ("topn(3)", {}, 3),
        ("topn(3)", {"block_length": 5}, 2 + 1),
        ("topn-eps(3)", {}, 3),
        ("steps(3)", {}, 3),
        ("steps(3, schedule='power')", {"block_length": 4}, 2 * 3),
        ("steps(30, schedule='cosine')", {"block_length": 5}, 5 + 3),
        ("steps(30, schedule='eps')", {}, 30),
        ("hard_only(topn(2))", {}, 4),
        ("lead_in(hard_only(steps(3)))", {}, 3),
        ("entropy(0.1)", {}, 2),
        ("hard_only(threshold(0.9))", {}, 2),
    ],
)
def test_the_passes_that_a_time_left_is_guessed_from(commit: str, fields: dict[str, Any], passes: float) -> None:
    """On a canvas of 8: those of the rule, also inside another one; of an adaptive rule a quarter of the canvas."""
    (one,) = plan(cell("slerp", commit, **fields)).cells
    assert expected_passes(one.cell.decoding) == passes


def test_a_resumed_cell_goes_on_with_its_engine_unless_another_is_named(tmp_path: Path) -> None:
    """The engine is no part of the protocol: the same folder, whatever runs the passes."""

    class Noted(Scripted):
        def run(self, works: Any) -> Any:
            def watched() -> Any:
                for work in works:
                    engines.append(work.cell.model.engine)
                    yield work

            return super().run(watched())

        def record(self, cell: Cell) -> dict[str, Any]:
            return {"engine": cell.model.engine}

    engines: list[str] = []
    for named in ("static", "auto", "dynamic", "auto"):
        one = replace(VANILLA, model=replace(VANILLA.model, engine=named))
        run(plan(one), tmp_path, Noted())
        (folder,) = tmp_path.iterdir()
        for file in (SAMPLES, SUMMARY):
            (folder / file).unlink()
    assert engines == ["static", "static", "dynamic", "dynamic"]
