"""The process of a server: from the command line's values to its end by SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import re
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from softdlm.engine.pick_engine import check_engine
from softdlm.errors import SoftDLMError, UsageError
from softdlm.serve.app import Service, make_app
from softdlm.serve.connections import patient
from softdlm.serve.engine_thread import EngineThread, Kind, Load
from softdlm.serve.settings import Limits
from softdlm.serve.worker import Worker

log = logging.getLogger("softdlm.serve")
ENDING_SECONDS = 5
"""For clients to take their last words, and for the engine's thread to end its pass."""


class DrainingServer(uvicorn.Server):
    """On the first SIGTERM or SIGINT it stays reachable, says 503, and ends when accepted requests are done.

    After a second signal it does not wait for them: they are told. A third one ends it whatever happens.
    """

    def __init__(self, config: uvicorn.Config, app: FastAPI, shutdown_timeout: float) -> None:
        super().__init__(config)
        self.service_app, self.shutdown_timeout, self.signals = app, shutdown_timeout, 0
        self.hurry = asyncio.Event()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.signals += 1
        if self.signals > 2 or not self.started:
            super().handle_exit(sig, frame)
        elif self.signals == 2:
            self.loop.call_soon_threadsafe(self.hurry.set)
        else:
            self.loop.call_soon_threadsafe(lambda: self.loop.create_task(self._drain()))

    async def startup(self, sockets: Any = None) -> None:
        self.loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started:
            self.watching = self.loop.create_task(self._watch())

    @property
    def worker(self) -> Worker:
        service: Service = self.service_app.state.service
        return service.worker

    async def _watch(self) -> None:
        """Say when the model is loaded; end where it cannot be."""
        await self.worker.ready.wait()
        if self.worker.state == "failed":
            self.should_exit = True
            return
        host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
        port = self.servers[0].sockets[0].getsockname()[1]
        print(f"softdlm: ready at http://{host}:{port}", file=sys.stderr, flush=True)

    async def _drain(self) -> None:
        log.warning("shutting down: %d answers are left", self.worker.held)
        waits = [asyncio.ensure_future(each) for each in (self.worker.drain(self.shutdown_timeout), self.hurry.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            each.cancel()
        if self.worker.held:
            log.warning("%d answers are given up", self.worker.held)
            await self.worker.stop()
        self.should_exit = True


def configuration(app: FastAPI, limits: Limits, host: str, port: int) -> uvicorn.Config:
    return uvicorn.Config(
        app, host=host, port=port, http=patient(limits), access_log=False, log_level="warning", server_header=False,
        timeout_graceful_shutdown=ENDING_SECONDS,
    )  # fmt: skip


def is_local(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def served_name(model: str) -> str:
    """What clients call a model: its hub id, or the name of its folder, not where it lies."""
    return Path(model).resolve().name if Path(model).expanduser().is_dir() else model


def check_options(
    host: str, port: int, keys: Sequence[str], engine: str, prefix: str, warm: Sequence[int]
) -> dict[str, Any]:
    """The options of `serve`, refused before anything is loaded."""
    if not 0 <= port < 2**16:
        raise UsageError(f"--port must lie between 0 and {2**16 - 1}, not {port}")
    if any(not key.isascii() or not key.isprintable() or not key.strip() for key in keys):
        raise UsageError("--api-key must be plain text that is not empty")
    check_engine(engine)
    if not re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", prefix):
        raise UsageError(f"--metrics-prefix must be letters, digits, _ and :, such as softdlm_, not {prefix!r}")
    if below := [each for each in warm if each < 1]:
        raise UsageError(f"--warm must be a number of tokens, prompt and answer together, not {below[0]}")
    return {"host": host, "port": port, "keys": tuple(keys), "engine": engine, "prefix": prefix, "warm": tuple(warm)}


def listen_on(host: str, port: int) -> socket.socket:
    """The socket, taken before the model is loaded."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (")[0]
        raise UsageError(f"cannot listen on {host}:{port}: {reason}; choose another place") from error


def end_thread(thread: EngineThread) -> None:
    """Wait for the engine's thread. One that does not end, such as one that still loads, ends with the process at once:
    Python may not tear down a process around a thread that computes.
    """
    thread.post(thread.stop)
    thread.join(ENDING_SECONDS)
    if thread.is_alive():
        sys.stderr.flush()
        os._exit(1)


def serve(
    load: Load,
    names: Sequence[str],
    limits: Limits,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    keys: Sequence[str] = (),
    engine: Kind = "auto",
    prefix: str = "softdlm_",
    traces: Path | None = None,
    warm: Sequence[int] = (),
) -> None:
    """Serve until a signal ends it; an error in loading the model is raised."""
    how: Any = {"keys": keys, "local": is_local(host), "engine": engine, "prefix": prefix}
    app = make_app(load, names, limits, **how, traces=traces, warm=warm)
    if not is_local(host) and not keys:
        print(f"softdlm: {host} can be reached by others and there is no --api-key", file=sys.stderr)
    with listen_on(host, port) as listening:
        DrainingServer(configuration(app, limits, host, port), app, limits.shutdown_timeout).run([listening])
    service: Service | None = getattr(app.state, "service", None)
    if service is not None:
        end_thread(service.worker.thread)
    failure = service.worker.thread.failure if service else None
    if isinstance(failure, SoftDLMError):
        raise failure
    if failure is not None:
        raise RuntimeError(f"the engine failed: {failure}") from failure
