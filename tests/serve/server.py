"""The real application on a free port of this machine, in a thread of the test's process."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import uvicorn

import softdlm
from softdlm.decoding import Decoding
from softdlm.engine.answer import Generation
from softdlm.models.denoiser import Denoiser
from softdlm.serve.app import make_app
from softdlm.serve.run import configuration
from softdlm.serve.settings import Limits

NAMES = ("builtin", "the-same")
SMALL = Limits(max_concurrency=4, queue=16, max_new_tokens=64, choices=8)
PATIENCE = 30.0
"""Seconds until a server must be ready, or gone."""
QUESTION = "Tom has 3 apples and buys 4 more. How many apples does Tom have?"
CHAT: list[Any] = [{"role": "user", "content": QUESTION}]
FAST: dict[str, Any] = {"tokens_per_step": 4, "block_length": 16}
"""A Decoding of few passes whose text still comes in several pieces."""


@cache
def model() -> Denoiser:
    """The built-in model, loaded once in a process: servers and references share it."""
    return softdlm.load("builtin", dtype="float32", device="cpu")


def direct(prompt: Any, chat: bool = True, *, number: int = 0, **words: Any) -> Generation:
    """The answer of the library itself, without a server; `number` is the sample's among those of one prompt."""
    record = words.pop("record_candidates", False)
    how: Any = {"decoding": Decoding.of(**words), "requests": [number], "record_candidates": record}
    prompts: list[Any] = [prompt]
    found: Any = softdlm.generate(model(), prompts, chat=chat, **how)
    return found[0]


@contextmanager
def running(
    limits: Limits = SMALL,
    names: Sequence[str] = NAMES,
    keys: Sequence[str] = (),
    sent_ahead: int = 0,
    traces: Path | None = None,
) -> Iterator[str]:
    """The address of a server that is ready; it is shut down afterwards, with its threads. `sent_ahead`: about how many
    bytes of an answer the kernel keeps for a client that does not read.
    """
    app = make_app(model, names, limits, keys=keys, local=True, traces=traces)
    server = uvicorn.Server(configuration(app, limits, "127.0.0.1", 0))
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        if sent_ahead:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, sent_ahead)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="server-of-the-test")
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        try:
            wait_ready(url)
            yield url
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
    assert not thread.is_alive(), "the server did not shut down"
    assert not app.state.service.worker.thread.is_alive(), "the engine's thread did not end"


def wait_ready(url: str) -> None:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            if httpx.get(f"{url}/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < end, "the server is not ready"
        time.sleep(0.02)
