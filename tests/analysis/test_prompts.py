"""Which prompts fit which tokenizer, and what a file of one's own may hold."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import softdlm
from softdlm.analysis.prompts import (
    Alternatives,
    encode_case,
    encode_cases,
    figure1_prompt,
    paper_prompts,
    read_alternatives,
)
from softdlm.analysis.questions import Question, batches, read_questions, task_questions
from softdlm.errors import TokenizerError, UsageError
from tests.conftest import tiny
from tests.tokenizers import checkpoint


def test_all_70_prompts_fit_the_built_in_model_and_so_does_figure_1() -> None:
    model = softdlm.load("builtin", device="cpu")
    cases = encode_cases(model, paper_prompts())
    assert sum(case.qualifies for case in cases) == 70
    assert [sum(len(case.span.places) == masks for case in cases) for masks in (2, 3, 4)] == [30, 20, 20]
    assert encode_case(model, figure1_prompt()).qualifies


@pytest.mark.parametrize(("chat", "lead", "space"), [(False, "none", " "), (True, "none", ""), (True, "space", " ")])
def test_raw_text_keeps_its_leading_space_and_masks_follow_the_prompt(chat: bool, lead: str, space: str) -> None:
    model = softdlm.load("builtin", device="cpu")
    prompt = paper_prompts()[0]
    case = encode_case(model, prompt, chat, lead)
    assert model.tokenizer.decode(case.a) == f"{space}New York"
    assert model.tokenizer.decode(case.b) == f"{space}San Diego"
    own = encode_case(model, replace(prompt, lead=" "), chat, lead)
    assert model.tokenizer.decode(own.a) == " New York", "a prompt's own lead stays"
    text = model.tokenizer.decode(case.span.ids[:-2])
    assert text.endswith(prompt.prompt) != chat
    assert prompt.prompt in text
    assert case.span.ids[-2:] == (model.mask_id,) * 2
    assert case.span.places == (len(case.span.ids) - 2, len(case.span.ids) - 1)


def test_another_tokenizer_fits_only_what_it_cuts_into_as_many_tokens_as_masks(tmp_path: Path) -> None:
    """Letter by letter the paper's prompts do not fit, and a word of one letter takes two tokens with its space."""
    model = softdlm.load(checkpoint(tmp_path / "llada", "llada"), device="cpu")
    assert sum(case.qualifies for case in encode_cases(model, paper_prompts())) == 0
    assert encode_case(model, Alternatives("a or b:", "a", "b", 2)).qualifies
    assert not encode_case(model, Alternatives("a or b:", "a", "b", 1)).qualifies
    assert encode_case(model, Alternatives("a or b:", "a", "b", 1, lead="")).qualifies


def test_words_need_a_tokenizer() -> None:
    with pytest.raises(TokenizerError, match="has no tokenizer"):
        encode_case(tiny("llada"), figure1_prompt())


def write(path: Path, *lines: object) -> Path:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


def test_own_prompts(tmp_path: Path) -> None:
    file = write(
        tmp_path / "own.jsonl",
        {"prompt": "Tea or milk?", "a": "green tea", "b": "oat milk"},
        "",
        {"prompt": "p", "a": "x y z", "b": "w", "masks": 3, "lead": ""},
    )
    assert read_alternatives(file) == [
        Alternatives("Tea or milk?", "green tea", "oat milk", 2),
        Alternatives("p", "x y z", "w", 3, ""),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1: not JSON"),
        ([1], "line 1: must be a JSON object"),
        ({"prompt": "p", "a": "x"}, "line 1: 'b' must be a text, not None"),
        ({"prompt": " ", "a": "x", "b": "y"}, "'prompt' must be a text"),
        ({"prompt": "p", "a": "x", "b": "x"}, "'a' and 'b' must differ, both are 'x'"),
        ({"prompt": "p", "a": "x", "b": "y z"}, "'masks' must be a whole number from 1, not None"),
        ({"prompt": "p", "a": "x", "b": "y", "masks": 0}, "'masks' must be a whole number from 1, not 0"),
        ({"prompt": "p", "a": "x", "b": "y", "masks": True}, "not True"),
        ({"prompt": "p", "a": "x", "b": "y", "mask": 2}, "unknown field mask; known are prompt, a, b, masks, lead"),
        ({"prompt": "p", "a": "x", "b": "y", "lead": 1}, "'lead' must be a text"),
    ],
)
def test_lines_that_cannot_be_meant(tmp_path: Path, line: object, message: str) -> None:
    with pytest.raises(UsageError) as error:
        read_alternatives(write(tmp_path / "own.jsonl", line))
    assert message in str(error.value)


def test_files_that_are_not_there_or_empty(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_alternatives(tmp_path / "none.jsonl")
    with pytest.raises(UsageError, match="is empty: put one JSON object per line"):
        read_alternatives(write(tmp_path / "empty.jsonl", ""))


def test_questions_from_tasks_and_files(tmp_path: Path) -> None:
    found = task_questions("mini-math", 2, "validation")
    items = softdlm.tasks.load_task("mini-math", split="validation", size=2)
    assert [(each.item, each.prompt, each.max_new_tokens) for each in found] == [
        (item.id, item.prompt, items.max_new_tokens) for item in items
    ]
    file = write(tmp_path / "gsm.jsonl", {"prompt": "1 + 1?", "id": "x"}, {"prompt": "2 + 2?"})
    assert read_questions(file, 9) == [Question("gsm", "x", "1 + 1?", 9), Question("gsm", "1", "2 + 2?", 9)]
    with pytest.raises(UsageError, match="need max_new_tokens"):
        read_questions(file, None)
    with pytest.raises(UsageError, match="unknown task 'maths'"):
        task_questions("maths")
    for empty in (0, -1):
        with pytest.raises(UsageError, match=f"max_new_tokens must be at least 1, not {empty}"):
            task_questions("mini-math", 2, "validation", max_new_tokens=empty)
        with pytest.raises(UsageError, match=f"max_new_tokens must be at least 1, not {empty}"):
            read_questions(file, empty)


def test_batches_keep_the_order_and_never_mix_tasks() -> None:
    questions = [Question("a", str(i), "p", 4) for i in range(3)] + [Question("b", "0", "p", 8)]
    assert [[(each.task, each.item) for each in batch] for batch in batches(questions, 2)] == [
        [("a", "0"), ("a", "1")],
        [("a", "2")],
        [("b", "0")],
    ]
    with pytest.raises(UsageError, match="batch_size must be at least 1, not 0"):
        list(batches(questions, 0))
