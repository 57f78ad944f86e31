"""--model_args and task files in, rules out."""

from typing import Any

import pytest
from softdlm.methods import METHODS

from softdlm import EntropyBound, Mask, Slerp, Steps, Threshold, TopN, UsageError
from softdlm.evaluate.cell import eos_options
from softdlm.evaluate.fingerprint import code_digest, protocol, request_number, weights_identity
from softdlm.evaluate.harness_settings import Settings
from softdlm.records.canonical import digest
from tests.conftest import DATA, tiny

DREAM = {"temperature": 0.1, "top_p": 0.9, "ranking": "entropy", "schedule": "eps", "eos": "allow"}


def test_strings_become_numbers_lists_and_rules() -> None:
    words = {"method": "slerp", "k": "2", "lam": "0.1", "tokens_per_step": "4", "eos_ids": "[181;190]", "seed": "7"}
    settings = Settings.parse({**words, "max_new_tokens": 64.0, "batch_size": "8", "check_greedy": "True"})
    assert (settings.k, settings.lam, settings.eos_ids, settings.batch_size) == (2, 0.1, (181, 190), 8)
    assert settings.check_greedy is True
    decoding = settings.for_request({})
    assert decoding.feedback == Slerp(2, 0.1)
    assert decoding.commit == TopN(4)
    assert (decoding.max_new_tokens, decoding.seed) == (64, 7)
    assert Settings.parse({"eos_ids": [1, 2], "top_p": "none"}).eos_ids == (1, 2)
    cached = Settings.parse({"cache": "prefix", "refresh": "4"}).for_request({}).options(tiny("llada"))
    assert (cached.get("cache"), cached.get("refresh"), cached.get("renew")) == ("prefix", 4, 1)
    renewed = Settings.parse({"cache": "dual", "renew": "2"}).for_request({}).options(tiny("llada"))
    assert (renewed.get("cache"), renewed.get("renew")) == ("dual", 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metod": "slerp"}, "unknown model_args metod; known are pretrained"),
        ({"method": "sleep"}, "unknown method 'sleep'"),
        ({"k": "2.5"}, "k must be a whole number, not '2.5'"),
        ({"lam": "much"}, "lam must be a number, not 'much'"),
        ({"lam": "1.5"}, "1.5"),
        ({"tokens_per_step": 0}, "at least 1, not 0"),
        ({"tokens_per_step": 2, "threshold": 0.9}, "exclude each other"),
        ({"schedule": "eps", "threshold": 0.9}, "schedule says how tokens_per_step is kept"),
        ({"ranking": "margin", "threshold": 0.9}, "ranking says how tokens_per_step is kept"),
        ({"eos": "never"}, "eos must be one of allow, last, forbid, forbid-first, not 'never'"),
        ({"ranking": "luck"}, "ranking must be one of confidence, margin, entropy"),
        ({"batch_size": "auto"}, "batch_size 'auto' is not supported: give a number"),
        ({"temperature": -1}, "temperature must be at least 0"),
        ({"top_p": 2}, r"top_p must lie in \(0, 1\]"),
        ({"revision": 1234567}, "revision must be text, not 1234567"),
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1"),
        ({"check_greedy": "perhaps"}, "check_greedy must be true or false"),
        ({"k": True}, "k must be a number, not True"),
        ({"cache": "suffix"}, "cache must be one of prefix, dual, not 'suffix'"),
        ({"refresh": 2}, "refresh 2 is of a cache"),
        ({"renew": 2}, "renew 2 is of a cache"),
        ({"cache": "dual", "renew": 0}, "renew must be at least 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Settings.parse(arguments)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_its_name(method: str) -> None:
    rule = Settings.parse({"method": method}).for_request({}).feedback
    assert isinstance(rule, Mask) == (method == "vanilla")


def test_the_task_fills_in_what_was_left_open_and_no_more() -> None:
    task = {**DREAM, "max_new_tokens": 768}
    decoding = Settings.parse({"tokens_per_step": 2}).for_request(task)
    assert decoding.commit == Steps(384, "eps", rank="entropy")
    assert (decoding.temperature, decoding.top_p, decoding.max_new_tokens) == (0.1, 0.9, 768)
    greedy = Settings.parse({"tokens_per_step": 2, "temperature": 0, "ranking": "confidence", "schedule": "top"})
    assert greedy.for_request(task).commit == TopN(2)
    assert greedy.for_request(task).temperature == 0
    assert Settings.parse({"max_new_tokens": 10, "eos": "last"}).for_request(task).max_new_tokens == 10
    assert Settings.parse({"eos": "last"}).for_request(task).eos == "last"


def test_steps_are_those_of_a_block() -> None:
    settings = Settings.parse({"tokens_per_step": 3, "schedule": "even", "block_length": 32})
    assert settings.for_request({"max_new_tokens": 256}).commit == Steps(11, "even")


def test_adaptive_rules_replace_the_tasks_schedule() -> None:
    assert Settings.parse({"threshold": 0.9}).for_request(DREAM).commit == Threshold(0.9)
    assert Settings.parse({"entropy_bound": 0.1}).for_request(DREAM).commit == EntropyBound(0.1)
    by_margin = Settings.parse({"entropy_bound": 0.1, "ranking": "margin"})
    assert by_margin.for_request(DREAM).commit == EntropyBound(0.1, rank="margin")


def test_humanevals_rule_forbids_eos_and_allows_the_end_of_turn() -> None:
    model = tiny("llada")
    assert eos_options("forbid-first", model.eos_ids) == {"eos": "allow", "forbid": (181,)}
    assert eos_options("last", model.eos_ids) == {"eos": "last"}
    options = Settings.parse({}).for_request({"eos": "forbid-first"}).options(model)
    assert options.get("forbid") == (181,)


CHANGES = [
    {"method": "vanilla"},
    {"lam": 0.1},
    {"k": 2},
    {"tokens_per_step": 2},
    {"seed": 1},
    {"eos": "last"},
    {"block_length": 4},
    {"max_new_tokens": 9},
    {"temperature": 0.1},
    {"dtype": "float64"},
    {"pretrained": str(DATA / "llada" / "sharded")},
    {"mc_samples": 4},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_the_protocol_knows_every_setting(change: dict[str, Any]) -> None:
    base = {"pretrained": str(DATA / "llada"), "device": "cpu"}
    ours = protocol(Settings.parse(base))
    assert digest(ours) == digest(protocol(Settings.parse(base)))
    assert digest(ours) != digest(protocol(Settings.parse({**base, **change})))


def test_batches_are_no_part_of_the_protocol() -> None:
    base = {"pretrained": str(DATA / "llada"), "device": "cpu"}
    assert protocol(Settings.parse(base)) == protocol(Settings.parse({**base, "batch_size": 9}))


def test_a_folder_is_known_by_its_files(tmp_path: Any) -> None:
    import shutil

    folder = tmp_path / "model"
    shutil.copytree(DATA / "llada", folder, ignore=shutil.ignore_patterns("sharded", "decode.json"))
    before = weights_identity(str(folder), None)
    assert weights_identity(str(folder), None) == before
    (folder / "model.safetensors").write_bytes(b"other")
    assert weights_identity(str(folder), None) != before


def test_code_and_requests_have_digests() -> None:
    assert len(code_digest()) == 64
    assert request_number("a", "0") != request_number("a", "1") != request_number("a1", "")
    assert request_number("a", "0") == request_number("a", "0")
