"""The server under load for minutes, on a CPU: beside its engine, with cancellations, and with four times too many.

    python benchmarks/serve_soak.py [--seconds 600] [--overload-seconds 180] [--out results/name]

1. Side by side: 64 clients ask for a fixed list of answers; the engine alone decodes the same list in this process, in
   turns. 2. Soak: 64 clients, mixed decodings, a third of the requests left midway. Every text is compared with the
   engine's own. 3. Overload: four times as many impatient clients as the server holds answers. Writes name.json and
   name.md; exit code 1 if something was lost, doubled or leaked, or a ratio missed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from serve_bodies import pool
from serve_load import Asked, Reply, all_of, alone, ask
from serve_process import Server, quantile, say, slope, versions, write, write_json

import softdlm

CLIENTS, ROWS, QUEUE = 64, 16, 64
CAPACITY = ROWS + QUEUE
LEAST_RATIO, MOST_GROWTH = 0.9, 2.0
"""Of the engine's throughput; MiB of memory in a minute."""


def side_by_side(server: Server, model: Any, asked: list[Asked], rounds: int) -> dict[str, Any]:
    """The same answers from the engine and from the server, in turns."""
    engine, served, cpu, wrong, tokens = [], [], [], 0, 0
    for turn in range(rounds):
        own, used = time.process_time(), server.footprint()["cpu_s"]
        seconds, texts, tokens = alone(model, asked, ROWS)
        decoded, began = time.process_time(), time.monotonic()
        replies = asyncio.run(all_of(server.port, asked, CLIENTS))
        wall, asking = time.monotonic() - began, time.process_time() - decoded
        cpu.append([round(each, 1) for each in (decoded - own, server.footprint()["cpu_s"] - used, asking)])
        wrong += sum(reply.text != text for reply, text in zip(replies, texts, strict=True))
        if turn:
            engine.append(seconds)
            served.append(wall)
        say(f"round {turn}: engine {seconds:.2f} s, server {wall:.2f} s, {wrong} other texts")
    return {
        "answers": len(asked), "tokens": tokens, "rounds (after one that is not counted)": rounds - 1,
        "engine alone, s": [round(each, 2) for each in engine], "server, s": [round(each, 2) for each in served],
        "engine alone, tokens/s": round(tokens * len(engine) / sum(engine), 1),
        "server, tokens/s": round(tokens * len(served) / sum(served), 1),
        "CPU seconds of the engine alone, the server, its clients": cpu[1:],
        "ratio": round(sum(engine) / sum(served), 3), "texts that differ": wrong,
    }  # fmt: skip


class Watch:
    """The server's memory, threads and files every few seconds."""

    def __init__(self, server: Server, every: float = 5.0) -> None:
        self.server, self.every, self.began = server, every, time.monotonic()
        self.seen: list[tuple[float, dict[str, float]]] = []

    async def run(self) -> None:
        while True:
            self.seen.append((time.monotonic() - self.began, await asyncio.to_thread(self.server.footprint)))
            await asyncio.sleep(self.every)

    def growth(self) -> float:
        """MiB a minute over the later half: what comes before is warming up."""
        late = self.seen[len(self.seen) // 2 :]
        return round(60 * slope([when for when, _ in late], [each["rss_mib"] for _, each in late]), 3)

    def to_json(self) -> dict[str, Any]:
        memory = [each["rss_mib"] for _, each in self.seen]
        return {
            "memory, MiB: start, middle, end": [memory[0], memory[len(memory) // 2], memory[-1]],
            "memory, MiB a minute in the later half": self.growth(),
            "most threads": max(each["threads"] for _, each in self.seen),
            "most files": max(each["files"] for _, each in self.seen),
        }  # fmt: skip


async def soak_for(server: Server, asked: list[Asked], seconds: float, usual: float, watch: Watch) -> list[Reply]:
    """Clients that ask for one after another, and leave every third midway."""
    source, end, replies = random.Random(3), time.monotonic() + seconds, []

    async def client() -> None:
        while time.monotonic() < end:
            number = source.randrange(len(asked))
            leave = usual * source.uniform(0.2, 0.8) if source.random() < 1 / 3 else None
            replies.append(await ask(server.port, number, asked[number], leave))

    watching = asyncio.create_task(watch.run())
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    watching.cancel()
    return replies


def counts(server: Server) -> dict[str, float]:
    names = ("request_success_total", "request_failure_total", "request_rejected_total")
    return {name: server.gauge(name) for name in (*names, "diffusion_num_committed_tokens_total")}


def soak(server: Server, asked: list[Asked], right: list[str], seconds: float, usual: float) -> dict[str, Any]:
    base, before, watch = server.footprint(), counts(server), Watch(server)
    replies = asyncio.run(soak_for(server, asked, seconds, usual, watch))
    idle, after = server.idle_within(30), counts(server)
    ended = {name: int(after[name] - before[name]) for name in before}
    whole = [each for each in replies if each.status == 200]
    first = [each.first for each in whole if asked[each.number][1]["stream"]]
    footprint = server.footprint()
    return {
        "seconds": seconds, "requests": len(replies), "answered": len(whole),
        "left midway": sum(each.status == 0 for each in replies),
        "other statuses": dict(Counter(str(each.status) for each in replies if each.status not in (0, 200))),
        "texts that differ": sum(each.text != right[each.number] for each in whole),
        "the server's own counts": ended,
        "requests less answers that ended": len(replies) - sum(ended[name] for name in list(ended)[:3]),
        "idle afterwards, s": idle, "committed tokens/s": round(after["diffusion_num_committed_tokens_total"]
        - before["diffusion_num_committed_tokens_total"]) / seconds,
        "first text p50 and p99, s": [quantile(first, 0.5), quantile(first, 0.99)],
        "whole answer p50 and p99, s": [quantile([each.whole for each in whole], share) for share in (0.5, 0.99)],
        **watch.to_json(), "before": base, "after": footprint,
    }  # fmt: skip


async def crowd(server: Server, asked: list[Asked], seconds: float, watch: Watch) -> list[Reply]:
    """Four times as many clients as answers fit; one that is refused comes again after a second or two."""
    source, end, replies = random.Random(5), time.monotonic() + seconds, []

    async def client() -> None:
        while time.monotonic() < end:
            number = source.randrange(len(asked))
            replies.append(await ask(server.port, number, asked[number]))
            if replies[-1].status == 429:
                await asyncio.sleep(source.uniform(1, 2))

    watching = asyncio.create_task(watch.run())
    await asyncio.gather(*(client() for _ in range(4 * CAPACITY)))
    watching.cancel()
    return replies


def overload(server: Server, asked: list[Asked], right: list[str], seconds: float) -> dict[str, Any]:
    base, watch, began = server.footprint(), Watch(server), time.monotonic()
    replies = asyncio.run(crowd(server, asked, seconds, watch))
    whole = [each for each in replies if each.status == 200]
    refused = [each for each in replies if each.status == 429]
    span = seconds / 4
    quarters = [[each.whole for each in whole if began + n * span <= each.at < began + (n + 1) * span]
                for n in range(4)]  # fmt: skip
    return {
        "clients": 4 * CAPACITY, "seconds": seconds, "answered": len(whole), "refused with 429": len(refused),
        "other statuses": dict(Counter(str(each.status) for each in replies if each.status not in (200, 429))),
        "429 without Retry-After": sum(not each.retry_after for each in refused),
        "a 429 takes, s, p50 and p99": [quantile([each.whole for each in refused], share) for share in (0.5, 0.99)],
        "texts that differ": sum(each.text != right[each.number] for each in whole),
        "whole answer p50 in each quarter, s": [quantile(each, 0.5) for each in quarters],
        "whole answer p99 in each quarter, s": [quantile(each, 0.99) for each in quarters],
        "idle afterwards, s": server.idle_within(60), **watch.to_json(), "before": base, "after": server.footprint(),
    }  # fmt: skip


def grows(quarters: list[float]) -> bool:
    """The first quarter fills an empty server; after it latencies should stay."""
    return quarters[3] > 1.5 * quarters[1]


def faults(made: dict[str, Any]) -> list[str]:
    """What is not as it should be."""
    beside, long, much = made["side by side"], made["soak"], made["overload"]
    checks = {
        f"throughput below {LEAST_RATIO} of the engine's": beside["ratio"] < LEAST_RATIO,
        "texts that differ": any(part["texts that differ"] for part in (beside, long, much)),
        "requests that were lost or doubled": long["requests less answers that ended"] != 0,
        "other statuses": bool(long["other statuses"] or much["other statuses"]),
        "not idle afterwards": None in (long["idle afterwards, s"], much["idle afterwards, s"]),
        "nothing was refused": not much["refused with 429"] or much["429 without Retry-After"] > 0,
        **{
            f"{share} of the latency grows under overload": grows(much[f"whole answer {share} in each quarter, s"])
            for share in ("p50", "p99")
        },
    }  # fmt: skip
    for name in ("soak", "overload"):
        part = made[name]
        checks[f"{name}: memory grows"] = part["memory, MiB a minute in the later half"] > MOST_GROWTH
        checks[f"{name}: files are left"] = part["after"]["files"] > part["before"]["files"] + 2
        checks[f"{name}: threads are left"] = part["after"]["threads"] > part["before"]["threads"] + 2
    return [name for name, wrong in checks.items() if wrong]


FAIR = (
    f"Side by side: the engine alone knows all requests from the start and has {ROWS} rows for each decoding, which is "
    f"the best it can do with them. The server has as many rows; its {CLIENTS} clients send the next request when one "
    "is answered, and they, HTTP and JSON take their time from the same cores. Both run in turns; the first round is "
    "not counted."
)


def page(made: dict[str, Any]) -> str:
    lines = [f"# The server under load, {made['versions']['date']}", "", "`python benchmarks/serve_soak.py`: "
             f"built-in model, {made['versions']['cores']} cores, 5 decodings, clients on the same cores.",
             "", FAIR]  # fmt: skip
    for name in ("side by side", "soak", "overload"):
        lines += ["", f"## {name.capitalize()}", "", "| what | value |", "|---|---|"]
        lines += [f"| {what} | {value} |" for what, value in made[name].items()]
    return "\n".join([*lines, "", f"Not as it should be: {', '.join(made['not as it should be']) or 'nothing'}.", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--overload-seconds", type=float, default=180)
    parser.add_argument("--answers", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    model, asked = softdlm.load("builtin"), pool(options.answers)
    made: dict[str, Any] = {"versions": versions()}
    right = alone(model, asked, ROWS)[1]
    with Server("--max-concurrency", str(ROWS), "--queue", str(QUEUE)) as server:
        made["side by side"] = beside = side_by_side(server, model, asked, options.rounds)
        usual = CLIENTS / len(asked) * sum(beside["server, s"]) / len(beside["server, s"])
        made["soak"] = soak(server, asked, right, options.seconds, usual)
        say(made["soak"])
        made["overload"] = overload(server, asked, right, options.overload_seconds)
        say(made["overload"])
        made["exit code"], made["tracebacks in the log"] = server.end(), server.log_text().count("Traceback")
    made["not as it should be"] = faults(made)
    write_json(options.out and options.out.with_suffix(".json"), made)
    write(options.out and options.out.with_suffix(".md"), page(made))
    sys.exit(1 if made["not as it should be"] else 0)


if __name__ == "__main__":
    main()
