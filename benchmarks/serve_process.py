"""`softdlm serve` as a subprocess, seen from outside: over loopback HTTP, in /proc and in its log."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

PAGE, TICK = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """The command, started with a free port and a log of its own; ended with SIGTERM."""

    def __init__(self, *options: str, model: str = "builtin", key: str | None = None) -> None:
        self.port, self.key, self.options = free_port(), key, options
        self.log = Path(tempfile.mkstemp(prefix="serve-", suffix=".log")[1])
        keys = ["--api-key", key] if key else []
        command = [sys.executable, "-m", "softdlm", "serve", "--port", str(self.port), "-m", model, *keys, *options]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Server:
        self.wait_ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        self.log.unlink(missing_ok=True)

    def wait_ready(self, seconds: float = 60) -> float:
        """Seconds until /health says 200."""
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(self.url + "/health").status_code == 200:
                    return time.monotonic() - began
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(f"the server did not start: {self.log_text()[-2000:]}")

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def post(self, path: str, body: Any, **more: Any) -> httpx.Response:
        return httpx.post(self.url + path, json=body, headers=self.headers, timeout=120, **more)

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, headers=self.headers, timeout=30)

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def end(self, seconds: float = 60, signalled: bool = False) -> int:
        """The exit code; a server that does not end is killed. One that was `signalled` is only waited for."""
        if not signalled and self.process.poll() is None:
            self.signal()
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return -signal.SIGKILL

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def gauge(self, name: str) -> float:
        """One of our metrics, summed over its labels."""
        lines = re.findall(rf"^softdlm_{name}(?:\{{[^}}]*\}})? (\S+)$", self.get("/metrics").text, re.MULTILINE)
        return sum(map(float, lines))

    def idle_within(self, seconds: float) -> float | None:
        """Seconds until nothing runs and nothing waits; None where that does not come."""
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            if self.gauge("num_requests_running") + self.gauge("num_requests_waiting") == 0:
                return time.monotonic() - began
            time.sleep(0.05)
        return None

    def footprint(self) -> dict[str, float]:
        """MiB of memory, threads, open files and seconds of CPU."""
        base = Path(f"/proc/{self.process.pid}")
        pages, stat = int((base / "statm").read_text().split()[1]), (base / "stat").read_text().rpartition(")")[2]
        ticks = [int(each) for each in stat.split()[11:13]]
        return {
            "rss_mib": round(pages * PAGE / 2**20, 2),
            "threads": len(os.listdir(base / "task")),
            "files": len(os.listdir(base / "fd")),
            "cpu_s": sum(ticks) / TICK,
        }


def slope(times: list[float], values: list[float]) -> float:
    """Least-squares growth of the values per second."""
    count = len(times)
    if count < 2:
        return 0.0
    mid, level = sum(times) / count, sum(values) / count
    spread = sum((each - mid) ** 2 for each in times)
    return sum((when - mid) * (value - level) for when, value in zip(times, values, strict=True)) / spread


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return round(ordered[min(int(share * len(ordered)), len(ordered) - 1)], 4) if ordered else float("nan")


def versions() -> dict[str, Any]:
    import fastapi
    import torch
    import uvicorn

    import softdlm

    return {
        "softdlm": softdlm.__version__, "python": platform.python_version(), "torch": torch.__version__,
        "fastapi": fastapi.__version__, "uvicorn": uvicorn.__version__, "cores": len(os.sched_getaffinity(0)),
        "torch threads": torch.get_num_threads(), "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip


def write(path: Path | None, text: str) -> None:
    """All of it, or nothing."""
    if path is None:
        print(text)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def write_json(path: Path | None, value: Any) -> None:
    write(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def say(*words: Any) -> None:
    print(*words, file=sys.stderr, flush=True)
