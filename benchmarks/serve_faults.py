"""Faults and hostile clients against the real server, counted: what was tried, what was as promised.

    python benchmarks/serve_faults.py [--bodies 1000] [--only NAME ...] [--out results/name]

Writes name.json and name.md; with --only, the other groups of these files stay as they are. Exit code 1 if anything is
not as promised.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import serve_faults_process
from serve_bodies import SPELLINGS, Sent, mutated
from serve_checks import MARK, Group, Victims, beside, eventually, faults_of, head_of, raw
from serve_process import Server, quantile, say, versions, write, write_json

KEY, OWN = "sk-the-servers-own-key", "FUZZMARK"
PASSWORDS = ["root:x:"]
MIB = 1 << 20
BODY = b'{"prompt": "a", "max_tokens": 4}'
ROUTES = (
    ("POST", "/v1/chat/completions"), ("POST", "/v1/completions"), ("POST", "/v1/denoise"), ("GET", "/v1/models"),
    ("GET", "/v1/models/builtin"), ("GET", "/metrics"), ("GET", "/version"), ("GET", "/openapi.json"),
    ("GET", "/docs"), ("GET", "/v1/nothing"), ("DELETE", "/v1/models/builtin"), ("PUT", "/v1/completions"),
)  # fmt: skip


def send(client: httpx.Client, server: Server, sent: Sent, stream_seconds: float = 120) -> httpx.Response:
    headers = {"Content-Type": sent.kind, **server.headers} if sent.kind else server.headers
    return client.post(server.url + sent.path, content=sent.body, headers=headers, timeout=stream_seconds)


def bodies(count: int) -> Iterator[Group]:
    group = Group(f"{count:,} fuzzed bodies", "an answer or the error object, never 5xx, nothing of others")
    source = random.Random(7)
    sent = [mutated(source, OWN) for _ in range(count)]
    with Server(key=KEY) as server, httpx.Client() as client, beside(group, server, OWN, KEY):

        def one(each: Sent) -> tuple[Sent, Any]:
            for _ in range(100):
                try:
                    answer = send(client, server, each)
                except httpx.HTTPError as error:
                    return each, error
                if answer.status_code != 429:
                    return each, answer
                time.sleep(0.2)
            return each, answer

        with ThreadPoolExecutor(6) as pool:
            for number, (each, answer) in enumerate(pool.map(one, sent)):
                shown = f"{each.what} {each.path} {each.kind} {each.body[:300]!r}"
                if isinstance(answer, Exception):
                    group.add(shown, [f"{type(answer).__name__}: {answer}"], "no answer")
                    continue
                kind = answer.headers.get("content-type", "")
                group.add(shown, faults_of(answer.status_code, kind, answer.content, [KEY, MARK]), answer.status_code)
                if number % 200 == 199:
                    say(f"{number + 1} bodies, {dict(group.statuses)}")
    yield group


LARGE = b'{"prompt": "' + b"a" * (5 * MIB) + b'"}'
CHUNK = b"100000\r\n" + b"a" * MIB + b"\r\n"
SIZES: tuple[tuple[str, str, list[bytes], tuple[int, ...]], ...] = (
    ("5 MiB stated and sent", f"Content-Length: {len(LARGE)}", [LARGE], (413,)),
    ("10**18 stated", f"Content-Length: {10**18}", [b"a"], (413, 400)),
    ("10**30 stated", f"Content-Length: {10**30}", [b"a"], (413, 400)),
    ("-1 stated", "Content-Length: -1", [b"a"], (400, 0)),
    ("a word stated", "Content-Length: many", [b"a"], (400, 0)),
    ("two lengths", "Content-Length: 4\r\nContent-Length: 8", [b"aaaaaaaa"], (400, 0)),
    ("6 MiB chunked", "Transfer-Encoding: chunked", [CHUNK] * 6, (413,)),
    ("chunks without end", "Transfer-Encoding: chunked", [CHUNK] * 64, (413,)),
    ("a chunk of 2**60", "Transfer-Encoding: chunked", [b"1000000000000000\r\n", b"a" * 6 * MIB], (413, 400, 0)),
    ("half of what is stated", "Content-Length: 100", [BODY], (400, 0)),
)
"""Name, header, what is sent, and the statuses that are right; 0 is a closed connection."""


def oversized() -> Iterator[Group]:
    group = Group("oversized bodies (stated and chunked)", "413, or 400 where the length is no number")
    with Server() as server, beside(group, server):
        peak = server.footprint()["rss_mib"]
        for (name, header, parts, allowed), _ in itertools.product(SIZES, range(5)):
            head = head_of(server, "/v1/completions", header)
            try:
                status, kind, body = raw(server, head, parts, keep="half" not in name, wait=5)
            except OSError as error:
                group.add(name, [] if 0 in allowed else [str(error)], type(error).__name__)
                continue
            found = [] if status in allowed else [f"status {status}: {body[:200]!r}"]
            group.add(name, [*found, *(faults_of(status, kind, body, ()) if status else ())], status)
        group.notes["MiB that memory grew"] = round(server.footprint()["rss_mib"] - peak, 1)
    yield group


def slow_bodies() -> Iterator[Group]:
    group = Group("slow bodies and slow heads", "408, or closed before a whole head, after 30 s; others go on")
    with Server() as server, beside(group, server):
        base, slow = server.footprint(), [b"a"] * 70
        head = head_of(server, "/v1/completions", "Content-Length: 1000")
        begun = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
        with ThreadPoolExecutor(40) as pool:
            bodies_ = [pool.submit(timed, server, head, slow) for _ in range(20)]
            heads = [pool.submit(timed, server, begun, [b"X-A: b\r\n"] * 70) for _ in range(20)]
            for future in bodies_:
                seconds, (status, kind, body) = future.result()
                late = [] if 25 < seconds < 75 else [f"{seconds:.0f} s"]
                group.add("slow body", faults_of(status, kind, body, [MARK], [408]) + late, status)
            for future in heads:
                seconds, (status, _, body) = future.result()
                held = status == 0 and not body and 25 < seconds < 75
                group.add("slow head", [] if held else [f"{status} after {seconds:.0f} s"], status)
        freed = eventually(lambda: server.footprint()["files"] <= base["files"] + 4, 10)
        group.expect("connections are closed", freed, f"{server.footprint()} after {base}")
    yield group


def timed(server: Server, head: str, parts: list[bytes]) -> tuple[float, tuple[int, str, bytes]]:
    """An answer to what is sent slowly, and after how long it came."""
    began = time.monotonic()
    got = raw(server, head, parts, 1.0, keep=True)
    return time.monotonic() - began, got


def slow_readers(count: int = 4) -> Iterator[Group]:
    """Streams of several MiB of which nothing is read, beside 16 clients."""
    group = Group("slow readers (streams never read, 16 others go on)", "others unhurt; disconnected after 60 s")
    how = {"commit": "topn(1)", "feedback": "vanilla", "trace": True, "diffusing": True, "candidates": 16}
    body = {"prompt": "a", "max_tokens": 120, "n": 4, "ignore_eos": True, "stream": True, "softdlm": how}
    text, lines = json.dumps(body).encode(), []
    with Server("--max-concurrency", "32") as server:
        with Victims(server, MARK, 16) as alone:
            time.sleep(8)
        base = server.footprint()
        with beside(group, server, count=16) as victims:
            for _ in range(count):
                line = socket.socket()
                line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                line.connect(("127.0.0.1", server.port))
                line.sendall(head_of(server, "/v1/completions", f"Content-Length: {len(text)}").encode() + text)
                lines.append(line)
            eventually(lambda: server.gauge("num_requests_running") >= 4 * count, 20)
            decoding = eventually(lambda: server.gauge("num_requests_running") <= 16, 200)
            group.expect("their rows are free when decoded, unread or not", decoding, "rows are held")
            begun = time.monotonic()
            closed = eventually(lambda: server.footprint()["files"] <= base["files"] + 16 + 2, 100)
            group.notes["seconds from the end of decoding to disconnection"] = round(time.monotonic() - begun, 1)
            group.expect("disconnected", closed, f"{server.footprint()} after {base}")
        group.notes["answer of 24 tokens to others, p50 s"] = [quantile(each.seconds, 0.5) for each in (alone, victims)]
        freed = eventually(lambda: server.footprint()["files"] <= base["files"] + 2, 10)
        group.expect("files afterwards", freed, server.footprint())
        for line in lines:
            line.close()
    yield group


def keys() -> Iterator[Group]:
    promise = "401 with the error object; /health and the page's program are open"
    group = Group("wrong and missing keys on every route", promise)
    wrong = [None, "Bearer", "Bearer wrong", f"bearer {KEY}x", f"Basic {KEY}", KEY, f"Bearer {KEY[:-1]}",
             "Bearer " + "k" * 4000, f"Bearer {KEY.upper()}", "Bearer \xff\xfe", f"Bearer,{KEY}"]  # fmt: skip
    others = ("//v1/models", "/health/../v1/models", "/%68ealth/..%2fv1/models", "/v1/models?x=/health", "/HEALTH")
    with Server(key=KEY) as server, beside(group, server, KEY):
        for (method, path), value in itertools.product(ROUTES, wrong):
            headers = {} if value is None else {b"Authorization": value.encode("latin-1")}
            content = BODY if method == "POST" else None
            answer = httpx.request(method, server.url + path, headers=headers, content=content)
            kind = answer.headers.get("content-type", "")
            found = faults_of(answer.status_code, kind, answer.content, [KEY, MARK, "wrong\n"], [401])
            group.add(f"{method} {path} {value}", found, answer.status_code)
        group.expect("/health without a key", httpx.get(server.url + "/health").status_code == 200)
        page = httpx.get(server.url + "/")
        told = [each for each in (KEY, MARK) if each in page.text]
        group.expect("/ without a key is the page and tells nothing of the server", page.is_success and not told, told)
        for path in others:
            head = head_of(server, path, method="GET").replace(f"Bearer {KEY}", "Bearer no")
            status, kind, body = raw(server, head, keep=True)
            group.add(f"GET {path}", faults_of(status, kind, body, [KEY, MARK], [401, 404]), status)
    yield group


def paths() -> Iterator[Group]:
    group = Group("files named in models, routes and spellings", "400 or 404; no file is read")
    names = ["../x.py:Y", "../../etc/passwd", "/etc/passwd", "..\\..\\x", "builtin/../x", "%2e%2e%2fetc%2fpasswd",
             "a\x00b", "builtin\x00", "x" * 3000,
             "\u202egnp.exe", "{0.__class__}", "%s%n", "~", "file:///etc/passwd"]  # fmt: skip
    with Server() as server, beside(group, server):
        for name in names:
            answer = server.post("/v1/completions", {"model": name, "prompt": "a", "max_tokens": 4})
            kind = answer.headers["content-type"]
            found = faults_of(answer.status_code, kind, answer.content, PASSWORDS, [404])
            group.add(f"model {name!r}", found, answer.status_code)
            path = "/v1/models/" + "".join(each if 32 < ord(each) < 127 else f"%{ord(each) % 256:02x}" for each in name)
            status, kind, body = raw(server, head_of(server, path, method="GET"), keep=True)
            group.add(f"GET {path!r}", faults_of(status, kind, body, PASSWORDS, [404]), status)
        for spelling, field in itertools.product(SPELLINGS, ("commit", "feedback", "method", "cache")):
            asked = {"prompt": "a", "max_tokens": 4, "softdlm": {field: spelling}}
            answer = server.post("/v1/completions", asked)
            allowed = [400] if ".py" in spelling or "/" in spelling else [200, 400]
            found = faults_of(answer.status_code, answer.headers["content-type"], answer.content, PASSWORDS, allowed)
            group.add(f"{field} {spelling[:80]!r}", found, answer.status_code)
    yield group


def table(groups: Iterable[dict[str, Any]]) -> str:
    lines = ["| what | promised | tried | as promised | not as promised |", "|---|---|---|---|---|"]
    for each in groups:
        counts = [f"{each[name]:,}" for name in ("tried", "as promised", "not as promised")]
        lines.append(f"| {' | '.join([each['what'], each['promise'], *counts])} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bodies", type=int, default=1000)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    file = options.out and options.out.with_suffix(".json")
    groups: dict[str, Any] = json.loads(file.read_text())["groups"] if options.only and file and file.exists() else {}
    for run in (bodies, oversized, slow_bodies, slow_readers, keys, paths, *serve_faults_process.GROUPS):
        name = run.__name__
        if options.only and name not in options.only:
            continue
        try:
            for group in run(options.bodies) if run is bodies else run():
                groups[name] = {**group.to_json(), "versions": versions()}
        except Exception as error:
            groups[name] = Group(name, "", 1, [f"{type(error).__name__}: {error}"]).to_json()
        say(json.dumps(groups[name], ensure_ascii=False))
        if file:
            write_json(file, {"groups": groups})
            write(file.with_suffix(".md"), table(groups.values()))
    print(table(groups.values()))
    sys.exit(any(each["not as promised"] for each in groups.values()))


if __name__ == "__main__":
    main()
