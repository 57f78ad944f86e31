"""either-or: the paper's prompts as printed, and training pairs that are never among them."""

from itertools import islice

from softdlm.tasks import load_task
from softdlm.tasks.either_or import SOURCE, figure1_item, paper_choices
from softdlm.tasks.task import stream


def test_the_paper_has_30_20_and_20_prompts_of_2_3_and_4_words():
    items = load_task("either-or").items
    assert [sum(item.level == masks for item in items) for masks in (2, 3, 4)] == [30, 20, 20]
    for item in items:
        assert len(item.meta["a"].split()) == len(item.meta["b"].split()) == item.level
        assert item.meta["a"] != item.meta["b"]


def test_prompts_follow_the_captions_of_the_tables():
    prompts = [item.prompt for item in load_task("either-or")]
    assert prompts[0] == "The location is either New York or San Diego. The answer is"
    assert prompts[24] == "The schedule has either morning meeting or evening class. The answer is"
    assert prompts[30] == "The answer is either red apple pie or green bean soup:"
    expected = "The answer is either secure cloud storage service or public mobile network provider:"
    assert prompts[69] == expected
    assert figure1_item().prompt == "Answer is either Harry Potter or Star Wars:"
    assert figure1_item().prompt not in prompts


def test_training_never_pairs_what_the_paper_pairs():
    groups = ("two", "three", "four", "figure1")
    paper = {frozenset((c.a, c.b)) for group in groups for c in paper_choices(group)}
    assert len(paper) == 70
    for item in islice(stream(SOURCE, "large sample"), 30_000):
        assert frozenset((item.meta["a"], item.meta["b"])) not in paper


def test_training_uses_the_words_of_the_paper_and_no_others():
    items = load_task("either-or").items
    words = {word for item in items for word in f"{item.meta['a']} {item.meta['b']}".split()}
    seen = {word for item in islice(stream(SOURCE, 1), 10_000) for word in item.target.split()}
    assert seen == words


def test_both_alternatives_are_answered_equally_often():
    items = list(islice(stream(SOURCE, 2), 10_000))
    first = sum(item.target == f" {item.meta['a']}" for item in items)
    assert abs(first / len(items) - 0.5) < 0.025


def test_either_alternative_scores_and_a_mixture_does_not():
    task = load_task("either-or")
    item = task[0]
    assert task.score(item, " New York")
    assert task.score(item, "San Diego")
    assert not task.score(item, " New Diego")
    assert not task.score(item, " San York")
    assert not task.score(item, " New")
    assert not task.score(item, "")
