"""Faults of processes and of the model: clients killed, signals, rules that raise, logits that are not numbers."""

from __future__ import annotations

import itertools
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from serve_checks import MARK, Group, beside, eventually, faults_of, must_fail, stream_error
from serve_process import Server, free_port

LONG: dict[str, Any] = {"prompt": "Tom has 3 apples.", "max_tokens": 400, "ignore_eos": True,
                        "softdlm": {"commit": "topn(1)", "feedback": "slerp(k=3, lam=0.3)"}}  # fmt: skip
"""Takes seconds, and always the same text."""
SECRET = "SECRET-OF-THE-RULE"
RULES = f'''
from dataclasses import dataclass

@dataclass(frozen=True)
class raises:
    n: int = 2

    def __call__(self, prediction, open, context):
        if int(context.passes.max()) >= self.n:
            raise RuntimeError("{SECRET}")
        return open & (open.long().cumsum(1) == 1)

def nothing(prediction, open, context):
    return open & ~open

def wrong_shape(prediction, open, context):
    return open[:, :1]
'''
CLIENT = """
import sys, urllib.request
request = urllib.request.Request(sys.argv[1], sys.argv[2].encode(), {"Content-Type": "application/json"})
with urllib.request.urlopen(request) as answer:
    for line in answer:
        print(line.decode(), flush=True)
"""


def killed_clients(rounds: int = 10) -> Iterator[Group]:
    group = Group("client killed (SIGKILL), streamed and not", "its rows are free within 2 s, others go on")
    with Server() as server, beside(group, server):
        took = []
        for number in range(rounds):
            body = json.dumps({**LONG, "stream": number % 2 == 0})
            command = [sys.executable, "-c", CLIENT, server.url + "/v1/completions", body]
            failed = server.gauge("request_failure_total") + 3
            clients = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(3)]
            began = eventually(lambda: server.gauge("num_requests_running") >= 3, 10)
            time.sleep(0.3)
            for each in clients:
                each.kill()
                each.wait()
            moment = time.monotonic()
            freed = eventually(lambda: server.gauge("request_failure_total") >= failed, 5)  # noqa: B023
            took.append(round(time.monotonic() - moment, 2))
            held = began and freed and took[-1] <= 2
            group.expect(
                f"{'streamed' if number % 2 == 0 else 'whole'}, round {number}", held, f"began {began}, {took[-1]} s"
            )
        group.notes["seconds until three rows were free"] = took
    yield group


def load(server: Server, body: dict[str, Any], count: int) -> tuple[ThreadPoolExecutor, list[Any]]:
    """Requests that are under way, streamed and not."""
    pool = ThreadPoolExecutor(count)
    asked = [{**body, "stream": number % 2 == 0} for number in range(count)]
    futures = [pool.submit(server.post, "/v1/completions", each) for each in asked]
    wanted = min(count, 16)
    eventually(lambda: server.gauge("num_requests_running") + server.gauge("num_requests_waiting") >= wanted, 15)
    time.sleep(0.3)
    return pool, futures


def said(answer: httpx.Response) -> str:
    """The text of an answer, streamed or not."""
    if "event-stream" not in answer.headers["content-type"]:
        return answer.json()["choices"][0]["text"]
    lines = [line for line in answer.text.split("\n\n") if line.startswith("data: {")]
    return "".join(one["text"] for line in lines for one in json.loads(line[6:]).get("choices", ()))


def sigterm() -> Iterator[Group]:
    group = Group("SIGTERM under load (24 requests)", "accepted ones finish, /health and new ones 503, exit code 0")
    body = {**LONG, "max_tokens": 80}
    with Server("--shutdown-timeout", "120") as server:
        right = said(server.post("/v1/completions", body))
        pool, futures = load(server, body, 24)
        server.signal()
        group.expect("/health turns 503", eventually(lambda: server.get("/health").status_code == 503, 2))
        for path in ("/v1/completions", "/v1/chat/completions", "/v1/denoise"):
            asked = {"prompt": "a"} if path.endswith("/completions") else {"canvas": ["a", None]}
            asked = {"messages": [{"role": "user", "content": "a"}]} if "chat" in path else asked
            answer = server.post(path, asked)
            kind = answer.headers["content-type"]
            group.add(f"new {path}", faults_of(answer.status_code, kind, answer.content, (), [503]), answer.status_code)
        for number, future in enumerate(futures):
            try:
                answer = future.result(120)
                group.expect(f"accepted request {number}", said(answer) == right, answer.text[-300:])
            except Exception as error:
                group.expect(f"accepted request {number}", False, f"{type(error).__name__}: {error}")
        group.expect("exit code", (code := server.end(signalled=True)) == 0, code)
        group.expect("no traceback in the log", "Traceback" not in server.log_text(), server.log_text()[-1500:])
        pool.shutdown()
    yield group


def ended_clients(group: Group, futures: list[Any]) -> None:
    """What clients see whose answers are given up: a clear error, or a closed connection; never a hang."""
    for number, future in enumerate(futures):
        try:
            answer = future.result(30)
        except httpx.HTTPError as error:
            group.add(f"client {number}", [], type(error).__name__)
            continue
        except TimeoutError:
            group.add(f"client {number}", ["hangs"])
            continue
        kind = answer.headers["content-type"]
        found = faults_of(answer.status_code, kind, answer.content, (), [200, 503])
        told = (stream_error(answer.text) or {}).get("code") if "event-stream" in kind else answer.status_code
        group.add(f"client {number}", found if told else [*found, "a cut answer that looks whole"], told)


def second_signal() -> Iterator[Group]:
    group = Group("a second SIGTERM, or a shutdown timeout that passes", "ends soon, clients are told, no traceback")
    for name, timeout, signals in (
        ("second SIGTERM", "120", 2),
        ("timeout of 1 s", "1", 1),
        ("timeout of 0 s", "0", 1),
    ):
        with Server("--shutdown-timeout", timeout) as server:
            pool, futures = load(server, LONG, 20)
            began = time.monotonic()
            for _ in range(signals):
                server.signal()
                time.sleep(0.3)
            code, seconds = server.end(30, signalled=True), time.monotonic() - began
            group.notes[name] = {"exit code": code, "seconds": round(seconds, 2)}
            group.expect(f"{name}: ends within 10 s", seconds < 10 and code != -signal.SIGKILL, (code, seconds))
            group.expect(f"{name}: exit code", code == 0, code)
            ended_clients(group, futures)
            text = server.log_text()
            group.expect(f"{name}: no traceback in the log", "Traceback" not in text, text[-1500:])
            pool.shutdown()
    server = Server()
    time.sleep(1.0)
    server.signal()
    code = server.end(30, signalled=True)
    group.expect("SIGTERM while loading ends it", code in (0, -signal.SIGTERM), (code, server.log_text()[-500:]))
    yield group


def raising_rules() -> Iterator[Group]:
    group = Group(
        "rules that raise, commit nothing or return nonsense (--rules)",
        "500, or 400 that names the rule; nothing of the inside",
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "broken_rules.py"
        file.write_text(RULES)
        with Server("--rules", str(file)) as server, beside(group, server, clean=False):
            secrets = [SECRET, MARK, folder, "broken_rules"]
            for rule, stream in itertools.product(("raises", "raises(n=0)", "nothing", "wrong_shape"), (False, True)):
                for _ in range(5):
                    body = {**LONG, "max_tokens": 16, "stream": stream, "softdlm": {"commit": rule}}
                    must_fail(group, server, rule, body, secrets)
    yield group


def damaged_checkpoint(folder: Path) -> Path:
    """The built-in checkpoint with weights that load and whose products overflow."""
    from safetensors.torch import load_file, save_file

    import softdlm

    source = Path(softdlm.__file__).parent / "builtin"
    target = folder / "damaged"
    shutil.copytree(source, target)
    weights = load_file(target / "model.safetensors")
    head = next(each for each in weights if each.endswith("transformer.ff_out.weight"))
    weights[head] = weights[head].float() * 3e38
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    return target


def not_numbers() -> Iterator[Group]:
    group = Group("logits that are NaN (weights that overflow)", "500 with the four keys, the server stays up")
    ways = ({}, {"temperature": 0.7, "seed": 1}, {"logprobs": 3}, {"softdlm": {"commit": "topn(4)"}})
    with tempfile.TemporaryDirectory() as folder, Server(model=str(damaged_checkpoint(Path(folder)))) as server:
        for stream, more, _ in itertools.product((False, True), ways, range(3)):
            body = {"prompt": "MARKED a b c", "max_tokens": 16, "stream": stream, **more}
            must_fail(group, server, str(more), body, [folder])
        group.expect("/health afterwards", server.get("/health").status_code == 200, server.get("/health").text)
        group.expect("idle afterwards", server.idle_within(5) is not None, "not idle")
        group.expect("no prompt in the log", "MARKED" not in server.log_text(), "the mark is in the log")
        group.notes["tracebacks in the operator's log"] = server.log_text().count("Traceback")
    yield group


def port_taken() -> Iterator[Group]:
    """Starts that cannot work say so in one line."""
    group = Group("starts that cannot work", "one line, an exit code, no traceback")
    with socket.socket() as taken:
        port = free_port()
        taken.bind(("127.0.0.1", port))
        taken.listen()
        for options in (["--port", str(port)], ["--port", "70000"], ["-m", "no/such-folder"], ["--rules", "none.py"],
                        ["--api-key", ""], ["--queue", "-1"], ["--max-concurrency", "0"], ["--deadline", "nan"],
                        ["--host", "256.1.1.1"]):  # fmt: skip
            command = [sys.executable, "-m", "softdlm", "serve", *options]
            ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
            bad = ran.returncode == 0 or "Traceback" in ran.stderr
            group.add(" ".join(options), [f"{ran.returncode}: {ran.stderr[-400:]}"] if bad else [], ran.returncode)
    yield group


GROUPS = (killed_clients, sigterm, second_signal, raising_rules, not_numbers, port_taken)
