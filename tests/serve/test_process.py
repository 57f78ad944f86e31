"""`softdlm serve` as an operator starts it and clients meet it: a real process, real connections."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import softdlm
from softdlm.serve.page_routes import PAGE_PATHS

SOURCE = str(Path(softdlm.__file__).parents[1])
KEY = "key-of-the-test"
MARK = "zebra-in-the-prompt"
RULES = """
from dataclasses import dataclass


@dataclass(frozen=True)
class BreaksInPassThree:
    def __call__(self, prediction, open, context):
        if int(context.passes.max()) >= 2:
            raise ZeroDivisionError("inside of the server")
        return open & (open.cumsum(1) == 1)


def slowly_from_the_left(prediction, open, context):
    import time

    time.sleep(0.02)
    return open & (open.cumsum(1) == 1)
"""


class Served:
    """A running server and what it wrote."""

    def __init__(self, process: subprocess.Popen[str], log: Path, port: int) -> None:
        self.process, self.log, self.port = process, log, port

    def ask(self, path: str, body: Any = None, method: str = "", **headers: str) -> tuple[int, Any, dict[str, str]]:
        """Status, body and headers of an answer."""
        connection = self.connect(path, body, method, **headers)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        is_json = "json" in (response.getheader("content-type") or "")
        return response.status, json.loads(text) if is_json else text, dict(response.getheaders())

    def connect(self, path: str, body: Any = None, method: str = "", **headers: str) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)
        sent = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        given = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request(method or ("GET" if body is None else "POST"), path, given, sent)
        return connection

    def read(self, connection: http.client.HTTPConnection) -> str:
        """The rest of an answer that was asked for."""
        text = connection.getresponse().read().decode()
        connection.close()
        return text

    def metric(self, name: str) -> float:
        lines = self.ask("/metrics")[1].splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if re.match(rf"softdlm_{name}[{{ ]", line))

    def until(self, name: str, value: float) -> None:
        """Wait for a metric to reach a value."""
        end = time.monotonic() + 60
        while self.metric(name) != value:
            assert time.monotonic() < end, (name, self.metric(name))
            time.sleep(0.05)


def start(log: Path, *words: str, **more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "softdlm", "serve", *words]
    env = {"PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1", "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1", **more}
    with log.open("w") as written:
        return subprocess.Popen(command, stdout=written, stderr=subprocess.STDOUT, text=True, env=env)


@contextmanager
def running(folder: Path, *words: str, seconds: float = 60, **more: str) -> Iterator[Served]:
    """A server on a free port, once it says that it is ready."""
    (folder / "rules_of_the_operator.py").write_text(RULES)
    log = folder / "log.txt"
    process = start(log, "--port", "0", "--rules", str(folder / "rules_of_the_operator.py"), *words, **more)
    try:
        end = time.monotonic() + seconds
        while not (found := re.search(r"ready at http://127.0.0.1:(\d+)", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)
        yield Served(process, log, int(found[1]))
    finally:
        if "ray" in words and process.poll() is None:  # it has processes of its own to end
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
        process.kill()
        process.wait(10)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with running(tmp_path_factory.mktemp("served"), "--api-key", KEY, "--max-concurrency", "2", "--queue", "2") as made:
        yield made


def chat(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": f"What is 2 + 3? {MARK}"}], **fields}


SLOW = {"commit": "slowly_from_the_left", "eos": "forbid", "max_new_tokens": 200}


def test_every_route_but_health_needs_the_key(server: Served) -> None:
    routes = server.ask("/openapi.json")[1]["paths"]
    assert {"/v1/chat/completions", "/v1/completions", "/v1/denoise", "/v1/models", "/metrics", "/version"} <= set(
        routes
    )
    for path in [*routes, "/openapi.json", "/page/settings.json", "/traces/x.json", "/page/nothing.js", "/nowhere"]:
        for key in ("", "Bearer wrong", f"Basic {KEY}", f"Bearer {KEY}x", KEY):
            status, body, _ = server.ask(path.replace("{model}", "builtin"), Authorization=key)
            if path == "/health":
                assert status == 200
            else:
                assert (status, body["error"]["code"]) == (401, "invalid_api_key")
                assert KEY not in json.dumps(body)
    for path in PAGE_PATHS:  # the program of the page, which then asks for the key
        status, text, headers = server.ask(path, Authorization="")
        assert (status, KEY in text) == (200, False)
        assert "require-trusted-types-for" in headers["content-security-policy"]


def test_a_client_that_goes_frees_its_row(server: Served) -> None:
    """Streamed or not: when the connection closes, the answer ends and the row is free."""
    for stream in (True, False):
        before = server.metric("request_failure_total")
        connection = server.connect("/v1/chat/completions", chat(stream=stream, softdlm=SLOW))
        server.until("num_requests_running", 1)
        connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()
        server.until("num_requests_running", 0)
        assert server.metric("request_failure_total") == before + 1


def test_a_full_server_says_when_to_come_back(server: Served) -> None:
    held = [server.connect("/v1/chat/completions", chat(softdlm=SLOW)) for _ in range(4)]
    server.until("num_requests_waiting", 2)
    status, body, headers = server.ask("/v1/chat/completions", chat())
    assert (status, body["error"]["type"], body["error"]["code"]) == (429, "rate_limit_error", "queue_full")
    assert int(headers["retry-after"]) >= 1
    for connection in held:
        connection.close()
    server.until("num_requests_running", 0)
    assert server.ask("/v1/chat/completions", chat(max_tokens=8))[0] == 200


def test_a_rule_that_raises_costs_its_own_request(server: Served) -> None:
    status, body, headers = server.ask("/v1/chat/completions", chat(softdlm={"commit": "BreaksInPassThree"}))
    assert (status, body["error"]["code"]) == (500, "internal_error")
    assert "inside" not in json.dumps(body)
    assert headers["x-request-id"] in body["error"]["message"]
    stream = server.connect("/v1/chat/completions", chat(stream=True, softdlm={"commit": "BreaksInPassThree"}))
    said = server.read(stream)
    assert '"code":"internal_error"' in said
    assert said.endswith("data: [DONE]\n\n")
    assert "Traceback" not in said
    assert server.ask("/health")[0] == 200
    assert "inside of the server" in server.log.read_text()


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (chat(softdlm={"commit": "rules_of_the_operator.py:slowly_from_the_left"}), 400, "names a file"),
        (chat(softdlm={"feedback": "alternate(x.py:Y)"}), 400, "names a file"),
        (chat(softdlm={"feedback": "slerp(k=65)"}), 400, "at most 64"),
        (chat(softdlm={"feedback": f"slerp(k={'1' * 600})"}), 400, "at most 500"),
        (chat(softdlm={"commit": "topn(1e300)"}), 400, "topn"),
        (chat(softdlm={"candidates": 65}), 400, "at most 64"),
        (chat(softdlm={"nonsense": 1}), 400, "softdlm.nonsense: unknown field"),
        (chat(softdlm={"max_new_tokens": 2000}), 400, "at most 1024"),
        (chat(softdlm={"forbid": [10**9]}), 400, "outside the vocabulary"),
        (chat(softdlm={"diffusing": True}), 400, "stream"),
        (chat(temperature=0.5, softdlm={"temperature": 0.5}), 400, "given twice"),
        (chat(n=17), 400, "at most 16"),
        (chat(tools=[{"type": "function"}]), 400, "tools"),
        (chat(response_format={"type": "json_object"}), 400, "response_format"),
        (chat(presence_penalty=0.5), 400, "presence_penalty"),
        (chat(model="other"), 404, "not served here"),
        (chat(messages=[]), 400, "messages"),
        (chat(messages=[{"role": "user", "content": "<|mdm_mask|>" * 600}]), 400, ""),
        (b"{", 400, "not JSON"),
        (b"\xff\xfe", 400, ""),
        (b"[" * 100_000, 400, ""),
        (b'{"temperature": ' + b"9" * 5000 + b"}", 400, ""),
        (b'{"messages": "' + b"x" * (5 << 20) + b'"}', 413, "larger than"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused(server: Served, body: Any, status: int, says: str) -> None:
    found, answer, _ = server.ask("/v1/chat/completions", body)
    assert found == status, answer
    assert set(answer["error"]) == {"message", "type", "param", "code"}
    assert says in answer["error"]["message"]


def test_a_large_body_of_unknown_length_is_refused_while_it_arrives(server: Served) -> None:
    """Its length is not stated, and its end never comes."""
    lines = ["POST /v1/completions HTTP/1.1", "Host: localhost", f"Authorization: Bearer {KEY}"]
    head = "\r\n".join([*lines, "Content-Type: application/json", "Transfer-Encoding: chunked", "", ""]).encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as line:
        line.sendall(head)
        with contextlib.suppress(ConnectionError):
            for _ in range(5):
                line.sendall(b"100000\r\n" + b"x" * (1 << 20) + b"\r\n")
        assert line.recv(1 << 16).startswith(b"HTTP/1.1 413 ")


def test_another_content_type_is_not_read(server: Served) -> None:
    """A page of a stranger's can send such a request without asking the browser's user."""
    status, _, _ = server.ask("/v1/chat/completions", json.dumps(chat()).encode(), Content_Type="text/plain")
    assert status == 400


def test_prompts_are_not_logged(server: Served) -> None:
    server.ask("/v1/chat/completions", chat(max_tokens=8))
    server.ask("/v1/chat/completions", chat(softdlm={"commit": "BreaksInPassThree"}))
    assert MARK not in server.log.read_text()
    assert KEY not in server.log.read_text()


def test_without_a_key_only_the_local_name_is_answered(tmp_path: Path) -> None:
    """A page of a stranger's whose name was pointed at this machine sends that name. SIGTERM ends an idle server."""
    with running(tmp_path) as server:
        assert server.ask("/health", Host="evil.example")[0] == 403
        assert server.ask("/health", Host=f"localhost:{server.port}")[0] == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 0


def test_a_second_signal_tells_those_who_are_left(tmp_path: Path) -> None:
    """Answers and a request that never arrived whole end with the error object, and no traceback is logged."""
    with running(tmp_path) as server, socket.create_connection(("127.0.0.1", server.port), timeout=30) as unfinished:
        head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        unfinished.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        held = [server.connect("/v1/chat/completions", chat(stream=each, softdlm=SLOW)) for each in (True, False)]
        server.until("num_requests_running", 2)
        server.process.send_signal(signal.SIGTERM)
        while server.ask("/health")[0] != 503:
            time.sleep(0.05)
        server.process.send_signal(signal.SIGTERM)
        streamed, whole = map(server.read, held)
        assert '"code":"server_draining"' in streamed
        assert streamed.endswith("data: [DONE]\n\n")
        assert json.loads(whole)["error"]["code"] == "server_draining"
        assert unfinished.recv(1 << 16).startswith(b"HTTP/1.1 503 ")
        assert server.process.wait(20) == 0
        assert "Traceback" not in server.log.read_text()


def test_sigterm_finishes_what_was_accepted(tmp_path: Path) -> None:
    how = {**SLOW, "max_new_tokens": 60}
    with running(tmp_path, "--max-concurrency", "1") as server:
        held = [
            server.connect("/v1/chat/completions", chat(stream=streamed, softdlm=how)) for streamed in (True, False)
        ]
        server.until("num_requests_waiting", 1)
        server.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + 10
        while server.ask("/health")[0] != 503:
            assert time.monotonic() < end
        assert server.ask("/v1/chat/completions", chat())[1]["error"]["code"] == "server_draining"
        streamed, whole = map(server.read, held)
        assert '"finish_reason":"length"' in streamed
        assert streamed.endswith("data: [DONE]\n\n")
        assert json.loads(whole)["usage"]["completion_tokens"] == 60
        assert server.process.wait(20) == 0


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("-m", "no/such/folder"), 2, "no/such/folder"),
        (("--port", "70000"), 2, "70000"),
        (("--engine", "fast"), 2, "fast"),
        (("--queue", "-1"), 2, "queue"),
        (("--deadline", "nan"), 2, "deadline"),
        (("--rules", "absent.py"), 2, "absent.py"),
        (("--replicas", "2"), 2, "--executor ray"),
        (("--api-key", " "), 2, "--api-key"),
        (("--metrics-prefix", "1"), 2, "--metrics-prefix"),
        (("--warm", "-3"), 2, "--warm must be a number of tokens, prompt and answer together, not -3"),
        (("--warm", "99999"), 2, "--warm 99999: the model's context is"),
    ],
    ids=str,
)
def test_a_wrong_start_is_one_line(tmp_path: Path, words: tuple[str, ...], code: int, says: str) -> None:
    log = tmp_path / "log.txt"
    assert start(log, *(words if "--port" in words else ("--port", "0", *words))).wait(60) == code
    lines = log.read_text().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("softdlm: ")
    assert says in lines[0]


def test_a_taken_port_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        log = tmp_path / "log.txt"
        assert start(log, "--port", str(taken.getsockname()[1])).wait(60) == 2
    assert re.fullmatch(r"softdlm: cannot listen on 127.0.0.1:\d+: Address already in use; .*\n", log.read_text())
