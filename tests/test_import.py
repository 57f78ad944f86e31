"""Importing softdlm is light, and every public name is there."""

import subprocess
import sys

import softdlm

HEAVY = ["torch", "transformers", "fastapi", "matplotlib", "tokenizers", "rich", "lm_eval", "ray"]


def loaded_after(code: str) -> set[str]:
    report = f"{code}; import sys; print(*(name for name in {HEAVY} if name in sys.modules))"
    return set(
        subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True).stdout.split()
    )


def test_import_loads_nothing_heavy() -> None:
    assert loaded_after("import softdlm") == set()
    assert loaded_after("import softdlm.cli.main") <= {"rich"}
    assert loaded_after("import softdlm; softdlm.tasks.load_task('mini-math', size=1)") == set()


def test_rules_do_not_load_transformers() -> None:
    assert loaded_after("import softdlm; softdlm.Slerp(); softdlm.TopN(4); softdlm.denoise; softdlm.generate") == {
        "torch"
    }


def test_every_public_name_resolves_and_is_listed() -> None:
    for name in dir(softdlm):
        assert getattr(softdlm, name) is not None
    assert {"load", "generate", "denoise", "Slerp", "EntropyBound", "Canvas", "Trace"} <= set(dir(softdlm))


def test_generate_stays_a_function_after_its_module_was_imported() -> None:
    code = "import softdlm.generation, softdlm; assert callable(softdlm.generate) and callable(softdlm.denoise)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unknown_names_are_attribute_errors() -> None:
    assert not hasattr(softdlm, "slurp")
