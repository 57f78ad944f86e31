"""Laws of all tasks: splits are disjoint, everything is a function of the seed, references score."""

import re
import subprocess
import sys
from functools import cache
from hashlib import blake2b
from itertools import islice

import pytest

from softdlm.sandbox.run import Sandbox
from softdlm.tasks import TASKS, Task, load_task, runs_code, training_stream
from softdlm.tasks.load import _source
from softdlm.tasks.task import stream

OFFICIAL = {"mini-math": (1000, 500), "mini-code": (300, 150), "either-or": (70, 300)}
PINNED = {
    "mini-math": ("d83d37c64e38bdd5", "f4a6a6c82961df72"),
    "mini-code": ("d6c464a117ee63c9", "25639826f9a8e328"),
    "either-or": ("7d45ee812c81b6d0", "465e0518f5394eea"),
}


@cache
def official(name: str, split: str) -> Task:
    return load_task(name, split=split)


def digest(*texts: str) -> str:
    return blake2b("\0".join(texts).encode(), digest_size=8).hexdigest()


@pytest.mark.parametrize("name", TASKS)
def test_training_never_meets_held_out_problems(name):
    trained = list(islice(stream(_source(name), "disjoint"), 4000))
    held_out = [*official(name, "test"), *official(name, "validation")]
    assert {digest(item.key) for item in trained}.isdisjoint(digest(item.key) for item in held_out)
    assert {digest(item.prompt) for item in trained}.isdisjoint(digest(item.prompt) for item in held_out)


@pytest.mark.parametrize("name", TASKS)
def test_validation_and_test_are_disjoint_under_any_seed(name):
    test = {item.prompt for seed in range(3) for item in load_task(name, seed=seed, size=60)}
    assert test.isdisjoint(item.prompt for item in official(name, "validation"))


@pytest.mark.parametrize("name", TASKS)
def test_split_is_a_function_of_the_key(name):
    source = _source(name)
    for split in ("train", "validation", "test"):
        items = load_task(name, size=50, split=split)
        assert all(source.split_of(item.key) == split for item in items)


@pytest.mark.parametrize("name", TASKS)
def test_official_sets_are_full_and_without_repeats(name):
    for split, size in zip(("test", "validation"), OFFICIAL[name], strict=True):
        items = official(name, split)
        assert len(items) == size
        assert len({item.id for item in items}) == size
        assert len({item.key for item in items}) == size


@pytest.mark.parametrize("name", TASKS)
def test_official_sets_never_change_unnoticed(name):
    """The same on every platform and Python; other sets would make old results void."""
    for split, pinned in zip(("test", "validation"), PINNED[name], strict=True):
        texts = [text for item in official(name, split) for text in (item.id, item.prompt, item.target)]
        assert digest(*texts) == pinned


@pytest.mark.parametrize("name", TASKS)
def test_same_seed_same_items_and_smaller_is_a_prefix(name):
    items = load_task(name, seed=7, size=60).items
    assert load_task(name, seed=7, size=60).items == items
    assert load_task(name, seed=7, size=20).items == items[:20]


@pytest.mark.parametrize("name", ["mini-math", "mini-code"])
def test_other_seed_other_items_but_the_same_problem_keeps_its_id(name):
    ours, theirs = load_task(name, seed=1, size=60), load_task(name, seed=2, size=60)
    assert ours.items != theirs.items
    ids = {item.prompt: item.id for item in ours}
    assert all(ids.get(item.prompt, item.id) == item.id for item in theirs)


@pytest.mark.parametrize("name", TASKS)
def test_streams_repeat_with_their_seed_only(name):
    first, again, other = (list(islice(training_stream(name, seed=s), 50)) for s in (3, 3, "3/worker-1"))
    assert first == again
    assert first != other


@pytest.mark.parametrize("name", ["mini-math", "either-or"])
def test_every_reference_scores(name):
    task = official(name, "test")
    assert all(task.score_all(task.items, [item.target for item in task]))


@pytest.mark.parametrize("name", ["mini-math", "mini-code"])
def test_levels_are_balanced(name):
    items = official(name, "test").items
    levels = sorted({item.level for item in items})
    counts = [sum(item.level == level for item in items) for level in levels]
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("name", TASKS)
def test_only_either_or_responses_start_with_a_space(name):
    for prompt, response in islice(training_stream(name), 500):
        assert prompt == prompt.strip()
        assert response.startswith(" ") == (name == "either-or")
        assert response.strip() == response.removeprefix(" ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "gsm8k"}, "unknown task 'gsm8k': one of mini-math, mini-code, either-or"),
        ({"name": "mini-math", "split": "dev"}, "unknown split 'dev': one of train, validation, test"),
        (
            {"name": "mini-math", "sandbox": Sandbox("unshare")},
            "mini-math runs no code: leave sandbox='unshare' out",
        ),
        ({"name": "mini-math", "size": 0}, "size must be at least 1, not 0"),
        (
            {"name": "mini-math", "size": 10**30},
            f"size {10**30} is more than a generated task may have: use at most 1000000",
        ),
        ({"name": "either-or", "size": 71}, "size 71 is more than the paper's 70 prompts: use at most 70"),
    ],
)
def test_bad_requests_name_the_value_and_the_remedy(options, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        load_task(options.pop("name"), **options)


def test_only_mini_code_runs_code():
    assert [name for name in TASKS if runs_code(name)] == ["mini-code"]


def test_scores_need_one_text_per_item():
    task = load_task("either-or")
    with pytest.raises(ValueError, match="70 items but 1 texts"):
        task.score_all(task.items, ["x"])


def test_tasks_import_neither_torch_nor_transformers_nor_tokenizers():
    code = "import sys, softdlm.tasks; print({'torch', 'transformers', 'tokenizers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
