"""The lm-eval adapter: requests in, answers out, the same as `generate` gives."""

import json
from pathlib import Path
from typing import Any

import pytest

import softdlm
from softdlm import Alternate, EntropyBound, NoEos, PromptError, Slerp, TopN, UsageError
from softdlm.evaluate.benchmarks import load_benchmark
from softdlm.evaluate.fingerprint import weights_identity
from tests.conftest import BENCHMARKS, DATA
from tests.evaluate.harness_runs import MODELS, UNJAILED, adapter, benchmarks, evaluate, folder, paper_run
from tests.tokenizers import checkpoint

pytestmark = pytest.mark.filterwarnings("ignore:generated code will run without a sandbox")
POLICY = {"gsm8k": "last", "math500": "last", "humaneval": "forbid-first", "mbpp": "last"}


def request(text: str, **said: Any) -> Any:
    from lm_eval.api.instance import Instance

    return Instance("generate_until", {}, (text, {"until": [], **said}), 0)


def pair(context: str, continuation: str) -> Any:
    from lm_eval.api.instance import Instance

    return Instance("loglikelihood", {}, (context, continuation), 0)


@pytest.mark.parametrize("model", MODELS)
def test_all_four_benchmarks_run_end_to_end(model: str) -> None:
    results = paper_run(model)
    loaded = softdlm.load(folder(model), max_length=4096, device="cpu")
    for name in benchmarks(model):
        task = "softdlm_" + name.replace("-", "_")
        ours = load_benchmark(name, loaded, data_dir=BENCHMARKS, limit=1, **UNJAILED)
        (sample,) = results["samples"][task]
        (item,) = ours.items
        prompt, said = sample["arguments"][0]
        assert prompt == item.prompt  # the exact prompt is in the saved samples, and is the one our own runner uses
        text = sample["resps"][0][0]
        assert text == direct(loaded, model, name, item, said)
        score = ours.score(item, text)
        for metric in ours.metrics:
            assert results["results"][task][f"{metric},none"] == sample[metric] == float(score[metric])


def direct(loaded: Any, model: str, name: str, item: Any, said: dict[str, Any]) -> str:
    """The same answer without the harness, in the words of protocol and paper."""
    options: dict[str, Any] = {"commit": TopN(4), "eos": POLICY.get(name, "allow")}
    if model == "dream":
        options |= {"commit": TopN(4, "entropy"), "temperature": 0.1, "top_p": 0.9}
    answer = softdlm.generate(
        loaded,
        [item.prompt],
        chat=False,
        feedback=Slerp(2, 0.3),
        max_new_tokens=8,
        stop=said["until"],
        requests=[item.request],
        **options,
    )
    return answer[0].text


@pytest.mark.parametrize("family", ["llada", "dream"])
def test_a_model_that_answers_with_the_references_gets_full_marks(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = adapter(family)
    known = {}
    for name in benchmarks(family):
        ours = load_benchmark(name, lm.tokenizer, data_dir=BENCHMARKS, **UNJAILED)
        known |= {item.prompt: ours.reference(item) for item in ours.items}
    monkeypatch.setattr(lm, "generate_until", lambda requests: [known[each.args[0]] for each in requests])
    results = evaluate(lm, benchmarks(family), limit=9)["results"]
    for row in results.values():
        metrics = {name.split(",")[0]: value for name, value in row.items() if name.endswith(",none")}
        scores = {name: value for name, value in metrics.items() if not name.endswith("_stderr")}
        assert scores == {name: 0.0 if name == "timeout" else 1.0 for name in scores}


def test_results_record_the_whole_protocol() -> None:
    config = paper_run("llada")["config"]["softdlm"]
    assert config["decoding"] == {"commit": "topn(4)", "feedback": "slerp", "k": 2, "lam": 0.3, "max_new_tokens": 8}
    assert {"weights", "code", "torch", "dtype", "mc_samples"} <= config.keys()


def test_the_checkpoints_own_settings_count_where_model_args_leave_them_out() -> None:
    from softdlm.evaluate import harness

    make: Any = harness.SoftDLM
    lm = make(pretrained="builtin", device="cpu")
    (asked,) = lm._requests([request("Ava has 3 apples and buys 4 more. How many has she?")])
    own = NoEos(Alternate(Slerp(1, 0.5)))
    assert asked.decoding.feedback == own
    assert asked.decoding.max_new_tokens == 64
    lm = make(pretrained="builtin", device="cpu", tokens_per_step=8)
    prompt = lm.apply_chat_template([{"role": "user", "content": "What is 17 + 25?"}])
    alone = softdlm.generate(lm.model, "What is 17 + 25?", feedback=own, commit=TopN(8), max_new_tokens=64)
    assert lm.generate_until([request(prompt)]) == [alone.text]


def test_few_shot_prompts_do_not_fit_the_built_in_model() -> None:
    with pytest.raises(PromptError, match=r"the model's context is 512; fewer shots .* max_length= goes beyond"):
        evaluate(adapter("builtin", max_length=None), ("gsm8k",))


def test_shots_are_laid_out_as_the_tasks_name_says() -> None:
    with pytest.raises(UsageError, match="puts its shots into one turn: run it with --fewshot_as_multiturn false"):
        evaluate(adapter("llada"), ("gsm8k",), turns=True)
    with pytest.raises(UsageError, match="puts its shots into many turns: run it with --fewshot_as_multiturn true"):
        evaluate(adapter("llada"), ("gsm8k-turns",), turns=False)


TEXTS = ["the cat sat on the mat", "a dog", "not so long a text", "the end of it all", "a cat"]


@pytest.mark.parametrize("drawn", [{}, {"temperature": 1.0, "seed": 5}])
def test_answers_keep_their_order_in_any_batches(drawn: dict[str, Any]) -> None:
    limits = [8, 4, 8, 4, 8]
    asked = [request(text, max_gen_toks=limit) for text, limit in zip(TEXTS, limits, strict=True)]
    alone, batched = (
        adapter("llada", batch_size=size, max_new_tokens=None, **drawn).generate_until(asked) for size in (1, 3)
    )
    assert alone == batched
    single = adapter("llada", max_new_tokens=None, **drawn).generate_until(asked[3:4])
    assert single == alone[3:4]


def test_limits_are_each_requests_own_unless_the_user_says() -> None:
    asked = [request("cat", max_gen_toks=2), request("cat", max_gen_toks=5), request("cat")]
    for own, limits in ((None, [2, 5, 256]), (3, [3, 3, 3])):
        lm = adapter("llada", max_new_tokens=own)
        assert [each.decoding.max_new_tokens for each in lm._requests(asked)] == limits


@pytest.mark.parametrize(("worth", "warm"), [(4, True), (5, False)])
def test_passes_are_compiled_at_once_where_there_will_be_enough(
    worth: int, warm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four answers of 2 passes each, one at a time, 8 in all."""
    asked, lm = [], adapter("llada")
    lm.model.compile_after = worth
    monkeypatch.setattr(type(lm.model), "warm", lambda model: asked.append(model))
    lm.generate_until([request(text) for text in ("a", "b", "c", "d")])
    assert bool(asked) is warm


def test_repeats_of_one_prompt_draw_afresh() -> None:
    lm = adapter("llada", temperature=1.5, eos="forbid")
    first, second = lm.generate_until([request("the cat"), request("the cat")])
    assert first != second
    assert lm.generate_until([request("the cat")]) == [first]


def test_stop_strings_end_an_answer() -> None:
    lm = adapter("llada", eos="forbid")
    (whole,) = lm.generate_until([request("the cat")])
    stop = whole[len(whole) // 2]
    assert lm.generate_until([request("the cat", until=[stop, ""])]) == [whole.split(stop)[0]]


def test_words_of_other_backends_are_refused() -> None:
    with pytest.raises(UsageError, match="generation_kwargs num_beams mean nothing to softdlm"):
        adapter("llada").generate_until([request("the cat", num_beams=4)])


def test_an_answer_already_begun_is_continued() -> None:
    lm = adapter("llada")
    history = [{"role": "user", "content": "add"}, {"role": "assistant", "content": "Here:\n```python"}]
    text = lm.apply_chat_template(history, add_generation_prompt=False)
    assert text.endswith("<|start_header_id|>assistant<|end_header_id|>\n\nHere:\n```python")
    assert lm.apply_chat_template(history[:1]).endswith("assistant<|end_header_id|>\n\n")


def test_special_tokens_are_not_added_twice() -> None:
    lm = adapter("llada")
    text = lm.apply_chat_template([{"role": "user", "content": "the cat"}])
    ids = lm._requests([request(text)])[0].ids
    assert list(ids).count(lm.tokenizer.bos_token_id) == 1
    assert list(ids) == softdlm.generation.encode(lm.model, "the cat")


@pytest.mark.parametrize("model", ["llada", "dream", "llada2"])
def test_log_likelihoods_come_from_the_estimator(model: str) -> None:
    from softdlm.evaluate.likelihood import log_likelihood

    lm = adapter(model, mc_samples=6, seed=2)
    (value, greedy), (again, _), (other, _) = lm.loglikelihood(
        [pair("the cat ", "sat"), pair("the cat ", "sat"), pair("the cat", " ran")]
    )
    assert value == again != other
    assert greedy is False
    context, target = lm._split("the cat ", "sat")
    text = lm.tokenizer("the cat sat", add_special_tokens=False)["input_ids"]
    assert [*context, *target] == text
    assert lm.tokenizer.decode(target) == " sat"
    draws = [log_likelihood(lm.model, context, target, samples=6, seed=seed) for seed in range(30)]
    assert min(draws) <= value <= max(draws)
    bos = lm.tokenizer.bos_token_id
    assert lm._split("", "sat")[0] == [lm.model.eos_ids[0] if bos is None else bos]


def test_greedy_means_that_decoding_gives_the_continuation() -> None:
    lm = adapter("llada", mc_samples=1, check_greedy=True, max_new_tokens=None)
    context = lm.tokenizer("the cat", add_special_tokens=False)["input_ids"]
    target = softdlm.generate(lm.model, [context], max_new_tokens=3, early_finish=False)[0].canvas_ids
    assert lm._is_greedy(context, target)
    assert not lm._is_greedy(context, [*target[:-1], target[-1] - 1])


def test_rolling_likelihood_says_what_to_do_instead() -> None:
    with pytest.raises(NotImplementedError, match="choose a task with output_type loglikelihood"):
        adapter("llada").loglikelihood_rolling([])


def test_a_model_without_a_tokenizer_is_refused() -> None:
    with pytest.raises(softdlm.TokenizerError, match="has no tokenizer, which an evaluation needs"):
        adapter("llada", pretrained=str(DATA / "llada"))


def test_model_args_may_be_a_string_and_go_before_flags() -> None:
    from lm_eval.api.registry import get_model

    made: Any = get_model("softdlm").create_from_arg_string(
        f"pretrained={folder('llada')},feedback=slerp,k=2,lam=0.1,commit=entropy(0.1),eos_ids=[181;190],batch_size=2",
        {"batch_size": 9, "device": "cpu"},
    )
    assert (made.settings.batch_size, made.model.eos_ids) == (2, (181, 190))
    (asked,) = made._requests([request("the cat")])
    assert asked.decoding.rules == (EntropyBound(0.1), Slerp(2, 0.1))


def test_a_cache_of_other_settings_is_refused(tmp_path: Path) -> None:
    cache: dict[str, Any] = {"use_cache": str(tmp_path / "answers")}
    first = evaluate(adapter("llada"), ("gsm8k",), **cache)
    assert evaluate(adapter("llada"), ("gsm8k",), **cache)["samples"] == first["samples"]
    with pytest.raises(UsageError, match="holds answers made with other feedback, lam: use another prefix"):
        evaluate(adapter("llada", lam=0.1, feedback="euclidean"), ("gsm8k",), **cache)


def test_answers_are_not_filed_under_a_folder_that_was_swapped_after_loading(tmp_path: Path) -> None:
    from softdlm.evaluate.harness import SoftDLM

    place = checkpoint(tmp_path / "it", "llada")
    loaded: Any = SoftDLM.create_from_arg_obj({"pretrained": str(place), "device": "cpu"})
    before = weights_identity(str(place), None)
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps(config | {"rope_theta": 20_000.0}))
    assert loaded.protocol()["weights"] == before != weights_identity(str(place), None)


def test_a_cache_begun_by_another_model_is_refused(tmp_path: Path) -> None:
    from sqlitedict import SqliteDict

    with SqliteDict(str(tmp_path / "answers_rank0.db"), autocommit=True) as theirs:
        theirs["key"] = "answer"
    with pytest.raises(UsageError, match="not begun by softdlm"):
        evaluate(adapter("llada"), ("gsm8k",), use_cache=str(tmp_path / "answers"))
