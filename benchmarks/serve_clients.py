"""Other people's clients against the real server: litellm, langchain-openai, and aiperf as a load tool.

    for each in litellm langchain-openai aiperf; do
        python -m venv VENVS/$each && VENVS/$each/bin/pip install $each
    done
    python benchmarks/serve_clients.py --venvs VENVS [--only NAME ...] [--out results/name]

Each runs in an environment of its own, since they pin other versions. Texts are compared with those of plain HTTP.
Writes name.json and name.md; exit code 1 if a check failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from serve_process import Server, say, versions, write, write_json

Check = tuple[str, bool, Any]
"""What was tried, whether it went as it should, and what came."""
QUESTIONS = [f"Tom has {n} apples and buys {n + 2} more. How many apples does Tom have?" for n in range(3, 7)]
MESSAGES: list[Any] = [{"role": "user", "content": QUESTIONS[0]}]
TOOL = {
    "name": "add",
    "description": "adds",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
}
HOW = {"tokens_per_step": 4, "feedback": "slerp"}
LENGTH = 32


def refused(name: str, says: str, work: Callable[..., Any], *given: Any, **more: Any) -> tuple[bool, str]:
    """Whether a call ends with an error of this name and with these words."""
    try:
        found = work(*given, **more)
    except Exception as error:
        kinds = {each.__name__ for each in type(error).__mro__}
        return name in kinds and says in str(error), f"{type(error).__name__}: {error}"[:200]
    return False, f"no error: {found}"[:200]


def litellm(url: str, right: dict[str, str]) -> Iterator[Check]:
    import litellm as client

    client.suppress_debug_info = True
    for provider in ("openai", "hosted_vllm"):
        how: dict[str, Any] = {"model": f"{provider}/builtin", "api_base": url, "api_key": "none", "max_tokens": LENGTH}
        made = client.completion(messages=MESSAGES, **how)
        yield f"{provider}: completion", made.choices[0].message.content == right["chat"], made.choices[0].message
        yield f"{provider}: usage", made.usage.completion_tokens > 0 < made.usage.prompt_tokens, made.usage
        chunks = list(client.completion(messages=MESSAGES, stream=True, stream_options={"include_usage": True}, **how))
        text = "".join(each.choices[0].delta.content or "" for each in chunks if each.choices)
        yield f"{provider}: stream", text == right["chat"], text
        whole = client.stream_chunk_builder(chunks, messages=MESSAGES)
        yield f"{provider}: stream rebuilt", whole.choices[0].message.content == text, whole.choices[0].finish_reason
        counted = whole.usage.completion_tokens == made.usage.completion_tokens
        yield f"{provider}: stream's usage", counted, whole.usage
        made = asyncio.run(client.acompletion(messages=MESSAGES, extra_body={"softdlm": HOW}, **how))
        yield f"{provider}: async, with a decoding", made.choices[0].message.content == right["how"], made.choices[0]
        made = client.completion(messages=MESSAGES, n=2, temperature=0.7, seed=3, logprobs=True, top_logprobs=2, **how)
        tops = [len(each.top_logprobs) for each in made.choices[0].logprobs.content]
        yield f"{provider}: n and logprobs", len(made.choices) == 2 and set(tops) == {2}, tops[:5]
        made = client.completion(messages=MESSAGES, stop=["="], user="me", presence_penalty=0, **how)
        yield f"{provider}: stop", made.choices[0].message.content == right["chat"].partition("=")[0], made.choices[0]
        for name, value in (("response_format", {"type": "json_object"}), ("presence_penalty", 0.5)):
            asked = {**how, name: value}
            found = refused("BadRequestError", name, client.completion, messages=MESSAGES, **asked)
            yield f"{provider}: {name}", *found
        unknown = {**how, "model": f"{provider}/other"}
        found = refused("NotFoundError", "not served here", client.completion, messages=MESSAGES, **unknown)
        yield f"{provider}: another model", *found
    how["model"] = "text-completion-openai/builtin"
    made = client.text_completion(prompt=QUESTIONS[0], **how)
    yield "text completion", made.choices[0].text == right["text"], made.choices[0].text
    parts = client.text_completion(prompt=QUESTIONS[0], stream=True, **how)
    text = "".join(each.choices[0].text or "" for each in parts if each.choices)
    yield "text completion, stream", text == right["text"], text
    many = client.batch_completion(
        model="openai/builtin", messages=[[{"role": "user", "content": each}] for each in QUESTIONS],
        api_base=url, api_key="none", max_tokens=LENGTH,
    )  # fmt: skip
    yield "batch of four", [each.choices[0].message.content for each in many] == right["many"], len(many)


def langchain(url: str, right: dict[str, str]) -> Iterator[Check]:
    from langchain_core.messages import HumanMessage
    from langchain_openai import ChatOpenAI, OpenAI

    how: dict[str, Any] = {"base_url": url, "api_key": "none", "model": "builtin", "max_retries": 0}
    chat = ChatOpenAI(max_tokens=LENGTH, **how)
    made = chat.invoke(QUESTIONS[0])
    yield "invoke", made.content == right["chat"], made.content
    usage = made.usage_metadata
    yield "usage", bool(usage and usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]), usage
    yield "finish reason and model", made.response_metadata["model_name"] == "builtin", made.response_metadata
    parts = list(chat.stream(QUESTIONS[0], stream_usage=True))
    whole = parts[0]
    for each in parts[1:]:
        whole = whole + each
    yield "stream", whole.content == right["chat"], len(parts)
    yield "stream's usage", whole.usage_metadata == usage, whole.usage_metadata
    made = asyncio.run(ChatOpenAI(max_tokens=LENGTH, extra_body={"softdlm": HOW}, **how).ainvoke(QUESTIONS[0]))
    yield "async, with a decoding", made.content == right["how"], made.content
    many = [each.content for each in chat.batch(QUESTIONS)]
    yield "batch of four", many == right["many"], len(many)
    made = chat.bind(stop=["="]).invoke(QUESTIONS[0])
    yield "stop", made.content == right["chat"].partition("=")[0], made.content
    made = chat.bind(logprobs=True, top_logprobs=2).invoke(QUESTIONS[0])
    yield "logprobs", len(made.response_metadata["logprobs"]["content"]) == usage["output_tokens"], "one for each token"
    sampled = ChatOpenAI(max_tokens=LENGTH, temperature=0.7, seed=3, n=2, **how).generate(
        [[HumanMessage(QUESTIONS[0])]]
    )
    yield "n and a seed", len(sampled.generations[0]) == 2, [each.text for each in sampled.generations[0]]
    with_system = chat.invoke([("system", "Answer."), ("user", QUESTIONS[0])]).content
    yield "a system message", bool(with_system), with_system
    yield "tools", *refused("BadRequestError", "tools", chat.bind_tools([TOOL]).invoke, QUESTIONS[0])
    shape = {"title": "answer", "type": "object", "properties": {"a": {"type": "integer"}}}
    typed = chat.with_structured_output(shape, method="json_schema")
    yield "structured output", *refused("BadRequestError", "response_format", typed.invoke, QUESTIONS[0])
    text = OpenAI(max_tokens=LENGTH, temperature=0, **how)
    found = text.invoke(QUESTIONS[0])
    yield "completion", found == right["text"], found
    found = "".join(text.stream(QUESTIONS[0]))
    yield "completion, stream", found == right["text"], found


TOKENIZER = str(Path(__file__).parents[1] / "src" / "softdlm" / "builtin")
"""aiperf makes its prompts with it; its own needs a download."""
INSIDE = {"litellm": litellm, "langchain-openai": langchain}


def reference(server: Server) -> dict[str, Any]:
    """The same answers by plain HTTP."""

    def chat(question: str, **more: Any) -> str:
        body = {"messages": [{"role": "user", "content": question}], "max_tokens": LENGTH, **more}
        return server.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"]

    text = server.post("/v1/completions", {"prompt": QUESTIONS[0], "max_tokens": LENGTH}).json()["choices"][0]["text"]
    many = [chat(each) for each in QUESTIONS]
    return {"chat": many[0], "many": many, "how": chat(QUESTIONS[0], softdlm=HOW), "text": text}


def in_its_own(python: Path, name: str, server: Server, right: dict[str, Any]) -> dict[str, Any]:
    """The checks of a library, in its environment."""
    words = [str(python), __file__, "--inside", name, f"{server.url}/v1"]
    env = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_API_KEY": "none"}
    ran = subprocess.run(words, input=json.dumps(right), capture_output=True, text=True, timeout=600, env=env)
    checks = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("[")]
    if ran.returncode:
        checks.append(["all checks", False, ran.stderr[-1500:]])
    return {"checks": checks}


def inside(name: str, url: str) -> None:
    for what, held, came in INSIDE[name](url, json.load(sys.stdin)):
        print(json.dumps([what, bool(held), str(came)[:300]]), flush=True)


def aiperf(bin: Path, server: Server, requests: int) -> dict[str, Any]:
    """A load of streams of a fixed length, counted by the tool and by the server."""
    checks, numbers = [], {}
    for kind in ("chat", "completions"):
        before = server.gauge("request_success_total"), server.gauge("generation_tokens_total")
        with tempfile.TemporaryDirectory() as folder:
            words = [
                str(bin / "aiperf"), "profile", "--model", "builtin", "--url", server.url, "--endpoint-type", kind,
                "--streaming", "--tokenizer", TOKENIZER, "--concurrency", "8", "--request-count", str(requests),
                "--isl", "30", "--isl-stddev", "5", "--osl", str(LENGTH), "--random-seed", "1", "--ui", "none",
                "--use-server-token-count", *(["--per-chunk-usage"] if kind == "chat" else []),
                "--extra-inputs", "ignore_eos:true",
                "--artifact-dir", folder,
            ]  # fmt: skip
            ran = subprocess.run(words, capture_output=True, text=True, timeout=900)
            found = list(Path(folder).rglob("profile_export_aiperf.json"))
            made = json.loads(found[0].read_text()) if found else {}
        after = server.gauge("request_success_total"), server.gauge("generation_tokens_total")
        numbers[kind] = {name: value for name, value in made.items() if isinstance(value, dict) and "avg" in value}
        done = made.get("request_count", {}).get("avg")
        checks += [
            (f"{kind}: ended well", ran.returncode == 0, ran.stderr[-300:] if ran.returncode else ""),
            (f"{kind}: requests", done == requests == after[0] - before[0], [done, after[0] - before[0]]),
            (f"{kind}: no errors", not made.get("error_summary"), made.get("error_summary")),
            (f"{kind}: tokens", after[1] - before[1] == requests * LENGTH, after[1] - before[1]),
            (f"{kind}: length as asked", made.get("output_sequence_length", {}).get("avg") == LENGTH, ""),
        ]
    return {"checks": checks, "numbers": numbers}


BUSY = "Other work ran on these cores: the numbers show that the tool can read them, not how fast the server is."


def page(made: dict[str, Any]) -> str:
    head = ["| client | version | checks | as it should be |", "|---|---|---|---|"]
    rows, wrong, tried = [], [], []
    for name, each in made["clients"].items():
        checks = each["checks"]
        rows.append(f"| {name} | {each['version']} | {len(checks)} | {sum(held for _, held, _ in checks)} |")
        wrong += [f"- {name}: {what}: {came}" for what, held, came in checks if not held]
        tried.append(f"- {name}: {'; '.join(what for what, _, _ in checks)}.")
    lines = [
        f"# Other clients, {made['versions']['date']}",
        "",
        "`python benchmarks/serve_clients.py`, built-in model.",
    ]
    lines += ["", *head, *rows, "", "Not as it should be:", "", *(wrong or ["Nothing."]), "", "## Checks", "", *tried]
    for kind, numbers in made["clients"].get("aiperf", {}).get("numbers", {}).items():
        lines += ["", f"## aiperf, {kind}", "", BUSY, "", "| what | mean | p50 | p99 | unit |", "|---|---|---|---|---|"]
        for name, each in numbers.items():
            lines.append(
                f"| {name} | {' | '.join(_short(each, of) for of in ('avg', 'p50', 'p99'))} | {each['unit']} |"
            )
    return "\n".join([*lines, ""])


def _short(values: dict[str, Any], name: str) -> str:
    return f"{values[name]:.5g}" if values.get(name) is not None else ""


def version_of(python: Path, name: str) -> str:
    words = [str(python), "-c", f"import importlib.metadata as m; print(m.version({name!r}))"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venvs", type=Path)
    parser.add_argument("--only", nargs="+", default=[*INSIDE, "aiperf"])
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--inside", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        inside(*options.inside)
        return
    made: dict[str, Any] = {"versions": versions(), "clients": {}}
    with Server() as server:
        right = reference(server)
        for name in options.only:
            bin = options.venvs.absolute() / name / "bin"
            python = bin / "python"
            found = (
                aiperf(bin, server, options.requests) if name == "aiperf" else in_its_own(python, name, server, right)
            )
            made["clients"][name] = {"version": version_of(python, name), **found}
            say(name, [(what, came) for what, held, came in found["checks"] if not held] or "all as it should be")
        log = server.log_text().splitlines()
    made["lines in the server's log"] = log
    write_json(options.out and options.out.with_suffix(".json"), made)
    write(options.out and options.out.with_suffix(".md"), page(made))
    sys.exit(any(not held for each in made["clients"].values() for _, held, _ in each["checks"]))


if __name__ == "__main__":
    main()
