"""What verbs that show answers share: answers with their seconds, the record of one, how long each pass is shown."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from softdlm.errors import UsageError

if TYPE_CHECKING:
    from softdlm.decoding import Decoding

LONGEST_PAUSE = 3600


def check_pause(pause: float) -> None:
    if not 0 <= pause <= LONGEST_PAUSE:
        raise UsageError(f"--pause must be a finite number of seconds, 0 or more, at most {LONGEST_PAUSE}, not {pause}")


def timed(model: Any, prompts: Any, decoding: Decoding, **options: Any) -> tuple[Any, float]:
    from softdlm.generation import generate

    start = time.perf_counter()
    return generate(model, prompts, decoding=decoding, **options), time.perf_counter() - start


def record(answer: Any, decoding: Decoding) -> dict[str, Any]:
    return {
        "text": answer.text,
        "ids": answer.ids,
        "forwards": answer.forwards,
        "tokens_per_forward": round(answer.tokens_per_forward, 4),
        "finish_reason": answer.finish_reason,
        "decoding": decoding.to_json(),
    }
