"""softdlm: parallel decoding of frozen masked diffusion language models with soft-token feedback."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from softdlm.version import __version__

if TYPE_CHECKING:
    from softdlm import tasks
    from softdlm.cache import Dual, Prefix
    from softdlm.commit import EntropyBound, Factor, Steps, Threshold, TopN
    from softdlm.decode import denoise
    from softdlm.decoding import Decoding
    from softdlm.engine.answer import Generation
    from softdlm.errors import CheckpointError, PromptError, ResultsError, SoftDLMError, TokenizerError, UsageError
    from softdlm.evaluate.api import evaluate
    from softdlm.evaluate.tune import tune
    from softdlm.feedback import Additive, Euclidean, Mask, NormMix, Slerp, SoftToken
    from softdlm.generation import generate
    from softdlm.models.contract import check_denoiser
    from softdlm.models.denoiser import Denoiser
    from softdlm.models.load import load
    from softdlm.models.wrap import wrap
    from softdlm.rival_commit import KLASS, LRDCommit, Prophet, ReMixCommit, TopNEps
    from softdlm.rival_feedback import LRD, ReMix
    from softdlm.trace import Trace
    from softdlm.types import Canvas, Context, Embeddings, Prediction, Step
    from softdlm.wrapped_commit import HardOnly, LeadIn
    from softdlm.wrapped_feedback import Alternate, NoEos

# public name -> module; resolved on first use, so that `import softdlm` stays light
_HOMES = {
    **dict.fromkeys(["Prefix", "Dual"], "softdlm.cache"),
    **dict.fromkeys(["TopN", "Steps", "Threshold", "Factor", "EntropyBound"], "softdlm.commit"),
    **dict.fromkeys(["Mask", "Euclidean", "Slerp", "Additive", "NormMix", "SoftToken"], "softdlm.feedback"),
    **dict.fromkeys(["KLASS", "LRDCommit", "Prophet", "ReMixCommit", "TopNEps"], "softdlm.rival_commit"),
    **dict.fromkeys(["Alternate", "NoEos"], "softdlm.wrapped_feedback"),
    **dict.fromkeys(["LeadIn", "HardOnly"], "softdlm.wrapped_commit"),
    **dict.fromkeys(["LRD", "ReMix"], "softdlm.rival_feedback"),
    **dict.fromkeys(["Canvas", "Context", "Embeddings", "Prediction", "Step"], "softdlm.types"),
    **dict.fromkeys(
        ["SoftDLMError", "UsageError", "CheckpointError", "TokenizerError", "PromptError", "ResultsError"],
        "softdlm.errors",
    ),
    "Decoding": "softdlm.decoding",
    "Denoiser": "softdlm.models.denoiser",
    "Generation": "softdlm.engine.answer",
    "Trace": "softdlm.trace",
    "check_denoiser": "softdlm.models.contract",
    "denoise": "softdlm.decode",
    "generate": "softdlm.generation",
    "load": "softdlm.models.load",
    "tune": "softdlm.evaluate.tune",
    "wrap": "softdlm.models.wrap",
}


def __getattr__(name: str) -> Any:
    if name in ("tasks", "evaluate"):  # packages; evaluate can also be called
        return import_module(f"softdlm.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'softdlm' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*_HOMES, "__version__", "evaluate", "tasks"])
