"""What the operator of a server decides."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from softdlm.errors import UsageError

MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """Bounds on what clients may ask for, and on what waits."""

    max_concurrency: int = 16
    """Answers of one decoding that share passes; further ones wait. Other decodings have as many of their own."""
    queue: int = 64
    """Further answers that are held, waiting or with rows of another decoding; beyond that a request gets 429."""
    max_new_tokens: int = 1024
    """The longest answer that a request may ask for."""
    deadline: float = 600.0
    """Seconds after which an answer ends with what was committed; waiting counts."""
    shutdown_timeout: float = 30.0
    """Seconds in which accepted requests may finish after SIGTERM."""
    body_bytes: int = 4 * MIB
    """Size of a request."""
    body_seconds: float = 30.0
    """Time for a client to send its request."""
    write_seconds: float = 60.0
    """Time for a client to take what it was sent; one that does not is disconnected."""
    choices: int = 16
    """Answers to one request: n times the number of prompts."""
    trace_bytes: int = 256 * MIB
    """Memory of the traces that are recorded at once."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value, least = getattr(self, each.name), 0 if each.name in ("queue", "shutdown_timeout") else 1e-3
            if not least <= value < math.inf:
                raise UsageError(f"{each.name} must be a finite number above 0, not {value}")

    @property
    def capacity(self) -> int:
        """Answers that are held at once, decoded or waiting."""
        return self.max_concurrency + self.queue
