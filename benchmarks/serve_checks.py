"""What every response of the server must hold, whatever was sent, and clients that misbehave."""

from __future__ import annotations

import json
import re
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from serve_process import Server, say

INSIDE = re.compile(r'Traceback|File "|\.py"|site-packages|softdlm/serve|0x[0-9a-f]{8}')
"""What only the inside of the server knows."""
MARK = "OTHERSMARK"
"""In the prompts of clients that go on meanwhile: no response and no log may show it."""
KEYS = {"message", "type", "param", "code"}
REFERENCE = ("/v1/completions", {"prompt": "Tom has 3 apples and buys 4 more. How many?", "max_tokens": 32})


@dataclass
class Group:
    """One kind of fault: how often it was tried, and what was not as promised."""

    name: str
    promise: str
    tried: int = 0
    wrong: list[str] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    notes: dict[str, Any] = field(default_factory=dict)

    def add(self, what: str, found: Sequence[str], status: Any = None) -> None:
        """One try, with what was wrong with it."""
        self.tried += 1
        if status is not None:
            self.statuses[str(status)] += 1
        if found:
            self.wrong.append(f"{what}: {'; '.join(found)}"[:1500])
            say(f"  WRONG {self.name}: {self.wrong[-1]}")

    def expect(self, what: str, held: bool, otherwise: Any = "") -> None:
        self.add(what, [] if held else [f"no: {otherwise}"])

    def to_json(self) -> dict[str, Any]:
        return {
            "what": self.name, "promise": self.promise, "tried": self.tried,
            "as promised": self.tried - len(self.wrong), "not as promised": len(self.wrong),
            "statuses": dict(self.statuses.most_common()),
            "notes": self.notes, "wrong": self.wrong[:50],
        }  # fmt: skip


def faults_of(status: int, kind: str, body: bytes, secrets: Sequence[str], allowed: Sequence[int] = ()) -> list[str]:
    """What is wrong with a response. `secrets` are texts of others; statuses from 500 on must be allowed."""
    text, found = body.decode(errors="replace"), []
    if status >= 500 and status not in allowed:
        found.append(f"status {status}: {text[:300]}")
    if allowed and status not in allowed:
        found.append(f"status {status} instead of {list(allowed)}: {text[:200]}")
    found += [f"holds {secret!r}" for secret in secrets if secret in text]
    if seen := INSIDE.search(text):
        found.append(f"shows the server's inside: {text[max(0, seen.start() - 60) : seen.end() + 120]!r}")
    if status >= 400:
        found += error_faults(kind, text)
    elif "event-stream" in kind:
        found += stream_faults(text)
    return found


def error_faults(kind: str, text: str) -> list[str]:
    try:
        value = json.loads(text)
    except ValueError:
        return [f"an error that is not JSON: {text[:200]!r}"]
    right = isinstance(value, dict) and value.keys() == {"error"} and value["error"].keys() == KEYS
    return [] if right and kind.startswith("application/json") else [f"not the error object: {kind} {text[:200]}"]


def stream_faults(text: str) -> list[str]:
    """A stream is events, the last is [DONE], an error is the error object."""
    lines = [each for each in text.split("\n\n") if each]
    if not lines or lines[-1] != "data: [DONE]":
        return [f"the stream does not end with [DONE]: {text[-200:]!r}"]
    events = [each for each in lines[:-1] if not each.startswith(":")]
    found = []
    for each in events:
        value = json.loads(each.removeprefix("data: "))
        if "error" in value:
            found += error_faults("application/json", json.dumps(value))
    return found


def stream_error(text: str) -> dict[str, Any] | None:
    """The error that a stream ended with."""
    for line in text.split("\n\n"):
        if line.startswith('data: {"error"'):
            return json.loads(line.removeprefix("data: "))["error"]
    return None


def reference(server: Server) -> str:
    """The text of a fixed request: the server still answers, and rightly."""
    answer = server.post(*REFERENCE)
    return answer.json()["choices"][0]["text"] if answer.status_code == 200 else f"{answer.status_code} {answer.text}"


class Victims:
    """Ordinary clients that go on meanwhile, each prompt with a mark that must not be seen elsewhere."""

    def __init__(self, server: Server, mark: str, count: int = 2, tokens: int = 24) -> None:
        self.server, self.mark, self.stop = server, mark, threading.Event()
        self.seconds: list[float] = []
        self.wrong: list[str] = []
        body = {"prompt": f"{mark} has 3 apples and buys 4 more. How many?", "max_tokens": tokens}
        self.body, self.right = body, self.server.post("/v1/completions", body).json()["choices"][0]["text"]
        self.threads = [threading.Thread(target=self._run, daemon=True) for _ in range(count)]

    def _run(self) -> None:
        with httpx.Client(timeout=120, headers=self.server.headers) as client:
            while not self.stop.is_set():
                began = time.monotonic()
                try:
                    answer = client.post(self.server.url + "/v1/completions", json=self.body)
                    if answer.status_code != 429:
                        text = answer.json()["choices"][0]["text"]
                        self.wrong += [] if text == self.right else [f"another text: {text[:100]!r}"]
                except Exception as error:
                    self.wrong.append(f"{type(error).__name__}: {error}")
                self.seconds.append(time.monotonic() - began)
                time.sleep(0.02)

    def __enter__(self) -> Victims:
        for each in self.threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for each in self.threads:
            each.join(120)


@contextmanager
def beside(group: Group, server: Server, *marks: str, count: int = 2, clean: bool = True) -> Iterator[Victims]:
    """Ordinary clients go on meanwhile. Afterwards the server is idle, answers as before, and its log holds no prompt,
    no key and, where it is to be `clean`, no traceback.
    """
    before = reference(server)
    with Victims(server, MARK, count) as victims:
        yield victims
    group.expect("others", bool(victims.seconds) and not victims.wrong, victims.wrong[:3])
    group.notes["answers to other clients meanwhile"] = len(victims.seconds)
    group.expect("idle afterwards", server.idle_within(60) is not None, "not idle")
    group.expect("right afterwards", (now := reference(server)) == before, now[:200])
    text = server.log_text()
    group.expect("nothing of prompts or keys in the log", not any(mark in text for mark in (MARK, *marks)), text[-800:])
    if clean:
        group.expect("no traceback in the log", "Traceback" not in text, text[-1500:])
    else:
        group.notes["tracebacks in the operator's log"] = text.count("Traceback")


def must_fail(group: Group, server: Server, what: str, body: dict[str, Any], secrets: Sequence[str]) -> None:
    """One request that ends with the error object: as its status, or as the last event of its stream."""
    answer = server.post("/v1/completions", body)
    kind, streamed = answer.headers["content-type"], body["stream"]
    found = faults_of(answer.status_code, kind, answer.content, secrets, [200] if streamed else [500, 400])
    told = stream_error(answer.text) if streamed else answer.json().get("error")
    group.notes.setdefault("message", told and told["message"])
    group.add(f"{what} stream={streamed}", found if told else [*found, "no error"], told and told["code"])


def raw(
    server: Server, head: str, parts: Sequence[bytes] = (), pause: float = 0.0, wait: float = 40.0, keep: bool = False
) -> tuple[int, str, bytes]:
    """Bytes as they are, part by part; status (0 where there is none), content type and body of the answer."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=wait) as line:
        received = b""
        try:
            line.sendall(head.encode("latin-1"))
            for part in parts:
                line.sendall(part)
                if select.select([line], [], [], pause)[0]:
                    break
            if not keep:
                line.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        try:
            while found := line.recv(65536):
                received += found
        except OSError:
            pass
    return parse(received)


def parse(received: bytes) -> tuple[int, str, bytes]:
    head, _, body = received.partition(b"\r\n\r\n")
    status = re.match(rb"HTTP/1\.[01] (\d{3})", head)
    kind = re.search(rb"(?i)content-type: ([^\r]*)", head)
    return int(status[1]) if status else 0, kind[1].decode() if kind else "", body


def head_of(server: Server, path: str, *more: str, method: str = "POST") -> str:
    auth = [f"{name}: {value}" for name, value in server.headers.items()]
    lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{server.port}", "Content-Type: application/json", *auth]
    return "\r\n".join([*lines, "Connection: close", *more, "", ""])


def eventually(held: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if held():
            return True
        time.sleep(0.05)
    return held()
