"""The server beside the engine alone, in one run: tokens per second and first-text latency of concurrent streams.

    python benchmarks/serve_gpu.py --shape llada-8b --out results

Random weights in the published shape; prompts are token ids; the end of the answer is forbidden, so every answer has
all its tokens. The engine alone decodes the same requests in this process, unheard. Then the application answers them
under uvicorn, with clients in a process of their own. Each cell is warmed up once, so graphs are captured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import uvicorn
from serve_load import decode

from softdlm.bench.shapes import build_model, find_shape
from softdlm.decoding import settle
from softdlm.engine.answer import Answer
from softdlm.serve.app import make_app
from softdlm.serve.settings import Limits

HOW = {"commit": "topn(4)", "feedback": "slerp(k=3, lam=0.3)", "block_length": 32, "cache": "dual"}
PORT = 8765


class Numbers:
    """A stand-in for a tokenizer: a random network has no text."""

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        return "".join(f" {token}" for token in ids)


def prompts_of(vocabulary: int, count: int, length: int, seed: int) -> list[list[int]]:
    source = torch.Generator().manual_seed(seed)
    return torch.randint(10, vocabulary - 200, (count, length), generator=source).tolist()


def alone(model: Any, prompts: list[list[int]], new: int, kind: Any, rows: int) -> tuple[float, list[list[int]]]:
    """Seconds of the engine for these requests, and their tokens."""
    decoding = settle(model, None, {**HOW, "max_new_tokens": new, "eos": "forbid"})
    answers = [Answer(model, 0, prompt, decoding) for prompt in prompts]
    seconds = decode(model, answers, rows, kind)
    return seconds, [answer.generation.ids for answer in answers if answer.generation]


async def stream(prompt: list[int], new: int) -> tuple[float, float, str]:
    """First text and end of one streamed answer, in seconds, and its text."""
    body = json.dumps({"prompt": prompt, "max_tokens": new, "stream": True, "ignore_eos": True, "softdlm": HOW})
    start = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT, limit=2**22)
    lines = ["POST /v1/completions HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "Connection: close", "", ""])
    writer.write((head + body).encode())
    first, text = 0.0, ""
    async for line in reader:
        if line.startswith(b"data: {"):
            chunk = json.loads(line[6:])
            if "error" in chunk:
                raise RuntimeError(chunk)
            text += chunk["choices"][0]["text"]
            first = first or (time.perf_counter() - start if text else 0.0)
    writer.close()
    return first, time.perf_counter() - start, text


def clients(prompts: list[list[int]], new: int, found: Any) -> None:
    """All requests at once, from a process of its own."""

    async def run() -> list[tuple[float, float, str]]:
        return list(await asyncio.gather(*(stream(prompt, new) for prompt in prompts)))

    start = time.perf_counter()
    made = asyncio.run(run())
    found.put((time.perf_counter() - start, made))


def served(prompts: list[list[int]], new: int) -> tuple[float, list[tuple[float, float, str]]]:
    context = multiprocessing.get_context("spawn")
    found = context.Queue()
    process = context.Process(target=clients, args=(prompts, new, found))
    process.start()
    result = found.get(timeout=300)
    process.join()
    return result


def start_server(model: Any, kind: Any, rows: int) -> tuple[uvicorn.Server, threading.Thread]:
    app = make_app(lambda: model, ["bench"], Limits(max_concurrency=rows, queue=rows), engine=kind)
    server = uvicorn.Server(uvicorn.Config(app, port=PORT, access_log=False, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not (server.started and app.state.service.worker.state == "ready"):
        time.sleep(0.05)
    return server, thread


def cell(model: Any, kind: Any, count: int, args: argparse.Namespace) -> dict[str, Any]:
    """One concurrency: the engine alone, then the server."""
    prompts = prompts_of(len(model.embedding), count, args.prompt, seed=count)
    for _ in range(2):
        seconds, ids = alone(model, prompts, args.new, kind, args.rows)
    server, thread = start_server(model, kind, args.rows)
    for _ in range(2):
        wall, answers = served(prompts, args.new)
    server.should_exit = True
    thread.join(30)
    tokens = count * args.new
    same = sum(Numbers().decode(one) == text for one, (_, _, text) in zip(ids, answers, strict=True))
    first = sorted(each[0] for each in answers)
    row = {
        "engine": kind, "streams": count, "engine alone, tokens/s": round(tokens / seconds, 1),
        "server, tokens/s": round(tokens / wall, 1), "ratio": round(seconds / wall, 3),
        "first text p50, s": round(statistics.median(first), 3), "first text last, s": round(first[-1], 3),
        "equal texts": f"{same} of {count}",
    }  # fmt: skip
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="llada-8b")
    parser.add_argument("--prompt", type=int, default=1024)
    parser.add_argument("--new", type=int, default=256)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--engines", nargs="+", default=["auto"])
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = build_model(find_shape(args.shape), device, torch.bfloat16 if device.type == "cuda" else torch.float32)
    model.tokenizer = Numbers()
    rows = []
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    for kind in args.engines:
        for count in args.streams:
            rows.append(cell(model, kind, count, args))
            made = {"device": name, "torch": torch.__version__, "shape": args.shape, "prompt": args.prompt,
                    "new": args.new, "decoding": HOW, "rows": rows}  # fmt: skip
            args.out.mkdir(parents=True, exist_ok=True)
            (args.out / "serve-gpu.json").write_text(json.dumps(made, indent=1))


if __name__ == "__main__":
    main()
