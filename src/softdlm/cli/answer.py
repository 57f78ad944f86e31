"""What `softdlm generate` and `softdlm compare` share: answers with their seconds, and the record of one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from softdlm.decoding import Decoding


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
