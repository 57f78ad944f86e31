"""`python -m softdlm.lm_eval ...`: the command line of lm-evaluation-harness, with our models, tasks and cache keys.

Every flag is lm-eval's own and goes through to it. What this adds: the model `softdlm` (the default), our task files,
the first device there is instead of cuda:0, and a digest of the whole protocol behind --use_cache, because lm-eval's
key holds the prompt alone and would hand one method's answers to another.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from softdlm.errors import SoftDLMError


def main() -> None:
    try:
        from lm_eval.__main__ import HarnessCLI, setup_logging
    except ImportError as error:
        sys.exit(f"softdlm: lm-evaluation-harness is not installed ({error}): pip install 'softdlm[eval]'")
    import softdlm.evaluate.harness  # noqa: F401  (registers the model)

    setup_logging()
    parser = HarnessCLI()
    arguments = parser.parse_args()
    try:
        if getattr(arguments, "command", None) == "run":
            adapt(arguments)
        else:
            _add_tasks(arguments, {})
        parser.execute(arguments)
    except SoftDLMError as error:
        print(f"softdlm: {error}", file=sys.stderr)
        sys.exit(2)


def adapt(arguments: argparse.Namespace) -> None:
    """Fill in what was left open and make the cache safe, in place."""
    from lm_eval.config.evaluate_config import EvaluatorConfig
    from lm_eval.utils import simple_parse_args_string

    file = EvaluatorConfig.load_yaml_config(arguments.config) if arguments.config else {}

    def asked(name: str) -> Any:
        return getattr(arguments, name, None) or file.get(name)

    _add_tasks(arguments, file)
    arguments.model = asked("model") or "softdlm"
    if arguments.model != "softdlm":
        return
    from softdlm.models.load import find_device

    arguments.device = asked("device") or str(find_device(None))
    words = asked("model_args") or {}
    words = simple_parse_args_string(words) if isinstance(words, str) else words
    arguments.model_args = {"pretrained": "builtin", **words}  # named, or lm-eval makes up a folder for the results
    if asked("use_cache"):
        arguments.use_cache = safe_prefix(asked("use_cache"), {"device": arguments.device, **arguments.model_args})


def safe_prefix(prefix: str, model_args: dict[str, Any]) -> str:
    """The prefix with a digest of model, revision, settings and code."""
    from softdlm.evaluate.fingerprint import protocol
    from softdlm.evaluate.harness_settings import Settings
    from softdlm.records.canonical import digest

    return f"{prefix}-{digest(protocol(Settings.parse(model_args)), 16)}"


def _add_tasks(arguments: argparse.Namespace, file: dict[str, Any]) -> None:
    from softdlm.evaluate.benchmark_data import TASKS

    if not hasattr(arguments, "include_path"):
        return
    theirs = arguments.include_path or file.get("include_path") or []
    arguments.include_path = [str(TASKS), *([theirs] if isinstance(theirs, str) else theirs)]


if __name__ == "__main__":
    main()
