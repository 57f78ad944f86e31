"""--model_args and task files in, rules out."""

from typing import Any

import pytest

from softdlm import Decoding, Dual, EntropyBound, Mask, Prefix, Slerp, Steps, Threshold, TopN, UsageError
from softdlm.evaluate.fingerprint import code_digest, protocol, request_number, weights_identity
from softdlm.evaluate.harness_settings import Settings
from softdlm.models.own_settings import OwnSettings
from softdlm.records.canonical import digest
from tests.conftest import DATA

DREAM = {"temperature": 0.1, "top_p": 0.9, "rank": "entropy", "eos": "allow"}


def test_strings_become_numbers_lists_and_rules() -> None:
    words = {"feedback": "slerp", "k": "2", "lam": "0.1", "commit": "topn(4)", "eos_ids": "[181;190]", "seed": "7"}
    settings = Settings.parse({**words, "max_new_tokens": 64.0, "batch_size": "8", "check_greedy": "True"})
    assert (settings.eos_ids, settings.batch_size, settings.check_greedy) == ((181, 190), 8, True)
    decoding = settings.for_request({})
    assert decoding.rules == (TopN(4), Slerp(2, 0.1))
    assert (decoding.max_new_tokens, decoding.seed) == (64, 7)
    assert Settings.parse({"eos_ids": [1, 2], "top_p": "none"}).eos_ids == (1, 2)
    assert Settings.parse({"cache": "prefix", "refresh": "4"}).decoding.cache == Prefix(refresh=4)
    assert Settings.parse({"cache": "dual(renew=2)"}).decoding.cache == Dual(renew=2)
    short = Settings.parse({"method": "slerp", "k": 2, "lam": 0.1, "tokens_per_step": 4})
    assert short.for_request({}).rules == decoding.rules


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metod": "slerp"}, "unknown model_args metod; known are pretrained"),
        ({"feedback": "sleep"}, "unknown feedback rule 'sleep'"),
        ({"feedback": "slerp(k=2", "lam": "0.3)"}, "splits --model_args at commas; write feedback=slerp,k=2,lam=0.3"),
        ({"tokens_per_step": 2, "threshold": 0.9}, "exclude each other"),
        ({"batch_size": "auto"}, "batch_size 'auto' is not supported: give a number"),
        ({"revision": 1234567}, "revision must be text, not 1234567"),
        ({"check_greedy": "perhaps"}, "check_greedy must be true or false"),
        ({"mc_samples": 0}, "mc_samples must be at least 1, not 0"),
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Settings.parse(arguments)


def test_the_task_fills_in_what_was_left_open_and_no_more() -> None:
    task = {**DREAM, "max_new_tokens": 768}
    decoding = Settings.parse({"tokens_per_step": 2}).for_request(task)
    assert decoding.commit == TopN(2, "entropy")
    assert (decoding.temperature, decoding.top_p, decoding.max_new_tokens) == (0.1, 0.9, 768)
    greedy = Settings.parse({"tokens_per_step": 2, "temperature": 0, "rank": "confidence"}).for_request(task)
    assert (greedy.commit, greedy.temperature) == (TopN(2), 0)
    assert Settings.parse({"max_new_tokens": 10, "eos": "last"}).for_request(task).max_new_tokens == 10
    assert Settings.parse({"eos": "last"}).for_request(task).eos == "last"


def test_the_checkpoint_fills_in_what_model_args_and_task_left_open() -> None:
    own = OwnSettings(max_new_tokens=64, feedback="slerp", commit="entropy(0.1)", k=1, lam=0.5)
    assert Settings.parse({}).for_request({}, own) == Decoding().settled(own)
    assert Settings.parse({}).for_request({"max_new_tokens": 9}, own).max_new_tokens == 9
    assert Settings.parse({"lam": 0.2}).for_request({"lam": 0.7, "k": 4}, own).feedback == Slerp(4, 0.2)
    assert Settings.parse({}).for_request(DREAM, own).commit == EntropyBound(0.1), "the task names a rank, not a rule"
    plain = Settings.parse({}).for_request({})
    assert (plain.rules, plain.max_new_tokens) == ((TopN(1), Mask()), 256)
    assert Settings.parse({}).for_request(DREAM).commit == TopN(1, "entropy")


def test_a_schedule_is_a_commit_rule() -> None:
    settings = Settings.parse({"commit": "steps(11)", "block_length": 32})
    assert settings.for_request({"max_new_tokens": 256}).commit == Steps(11, "even")


def test_adaptive_rules_replace_the_tasks_rate() -> None:
    assert Settings.parse({"threshold": 0.9}).for_request(DREAM).commit == Threshold(0.9)
    assert Settings.parse({"commit": "entropy(0.1)"}).for_request(DREAM).commit == EntropyBound(0.1)
    by_margin = Settings.parse({"entropy_bound": 0.1, "rank": "margin"})
    assert by_margin.for_request(DREAM).commit == EntropyBound(0.1, rank="margin")


CHANGES = [
    {"feedback": "vanilla"},
    {"feedback": "slerp", "lam": 0.1},
    {"feedback": "slerp", "k": 2},
    {"commit": "topn(2)"},
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
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert weights_identity(str(folder), None) != before


def test_code_and_requests_have_digests() -> None:
    assert len(code_digest()) == 64
    assert request_number("a", "0") != request_number("a", "1") != request_number("a1", "")
    assert request_number("a", "0") == request_number("a", "0")
