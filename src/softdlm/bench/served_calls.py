"""What a user of the server and of `softdlm.evaluate` gets, beside the same calls of `generate`."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from copy import copy
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from softdlm.bench.context import Bench, NotHere, SuiteResult
from softdlm.bench.measure import interleave
from softdlm.bench.public_calls import PublicCall, calls, words
from softdlm.bench.targets import Check
from softdlm.bench.workload import prompts
from softdlm.decoding import Decoding
from softdlm.evaluate.api import evaluate
from softdlm.evaluate.cell import TaskSpec
from softdlm.evaluate.task import load_eval_task
from softdlm.generation import generate
from softdlm.models.denoiser import Denoiser

SECONDS = 600.0


class Numbers:
    """Stands in for a tokenizer: a random network has no text."""

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        return "".join(f" {token}" for token in ids)


def served(bench: Bench) -> SuiteResult:
    """The calls of the suite `public` as requests to a server in this process, one at a time."""
    bench.model.warm()
    rows, worst = [], 0.0
    with server(bench.model, bench.decode.length) as port:
        for fields in calls(bench):
            fields = fields | {"early_finish": False}
            bench.say(f"a request with {words(fields)}")
            alone = PublicCall(bench, bench.model, fields)
            works = {"generate": alone, "served": partial(request, port, bench, fields)}
            times = interleave(works, bench.model.device, max(3, bench.sizes.repeats - 2), bench.budget)
            for name, spent in times.items():
                row = alone.row(spent)
                rows.append({"call": row["call"], "by": name} | {key: row[key] for key in ("tokens/s", "spread, %")})
            worst = max(worst, times["served"].median / times["generate"].median)
    note = "Served: HTTP on this machine, one request after another, JSON and queue included."
    return SuiteResult(rows, [Check("served", worst)], [note])


def request(port: int, bench: Bench, fields: dict[str, Any]) -> None:
    new = fields["max_new_tokens"]
    (prompt,) = prompts(bench.model, 1, bench.decode.length - new)
    own = {name: value for name, value in fields.items() if name != "max_new_tokens"}
    body = {"prompt": prompt, "max_tokens": new, "softdlm": own}
    with closing(HTTPConnection("127.0.0.1", port, timeout=SECONDS)) as connection:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"the server answered {answer.status}: {text[:300]!r}")


@contextmanager
def server(model: Denoiser, length: int) -> Iterator[int]:
    """The port of a server that has this model."""
    try:
        import uvicorn

        from softdlm.serve.app import make_app
        from softdlm.serve.settings import Limits
    except ImportError as error:
        raise NotHere(f"the server is not installed ({error.name}): pip install 'softdlm[serve]'") from error
    front: Any = copy(model)
    front.tokenizer = model.tokenizer or Numbers()
    app = make_app(lambda: front, ["bench"], Limits(max_concurrency=1, max_new_tokens=length))
    running = uvicorn.Server(uvicorn.Config(app, port=0, access_log=False, log_level="warning"))
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    wait(lambda: running.started and app.state.service.worker.state == "ready", thread)
    try:
        yield running.servers[0].sockets[0].getsockname()[1]
    finally:
        running.should_exit = True
        thread.join(SECONDS)


def wait(ready: Callable[[], bool], thread: threading.Thread) -> None:
    until = time.monotonic() + SECONDS
    while not ready():
        if not thread.is_alive() or time.monotonic() > until:
            raise RuntimeError("the server did not start")
        time.sleep(0.05)


def evaluated(bench: Bench) -> SuiteResult:
    """`softdlm.evaluate` on mini-math, with cells, journal and scores, beside `generate` on the same items."""
    how = Decoding.from_json({"feedback": "slerp", "tokens_per_step": bench.sizes.rates[0]})
    items = load_eval_task(TaskSpec("mini-math", "validation", bench.sizes.items), bench.model).items
    texts = [item.prompt for item in items]

    def cells() -> None:
        with tempfile.TemporaryDirectory() as place:
            known = {"limit": len(items), "split": "validation", "batch_size": len(items)}
            evaluate(bench.model, "mini-math", how, out=Path(place), **known)

    def alone() -> None:
        generate(bench.model, texts, decoding=how, batch_size=len(items))

    bench.say(f"{len(items)} items of mini-math")
    times = interleave({"generate": alone, "evaluate": cells}, bench.model.device, bench.sizes.repeats, bench.budget)
    rows = [
        {"call": name, "items/s": len(items) / each.median, "spread, %": 100 * each.spread}
        for name, each in times.items()
    ]
    return SuiteResult(rows, [Check("evaluated", times["evaluate"].median / times["generate"].median)])
