"""From a model's answer to what is scored: a number, a formula, a program. Pure functions of text.

Each says whose rule it is: a benchmark score is only comparable under the same extraction.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable
from itertools import product

INVALID = "[invalid]"
_NUMBER = re.compile(r"-?[$0-9.,]{2,}|-?[0-9]+")
_STATED = {"the-answer-is": re.compile(r"The answer is (-?[0-9.,]+)."), "hashes": re.compile(r"#### (-?[0-9.,]+)")}
_FENCE = re.compile(r"```[a-zA-Z0-9_+-]*\s*\n?(.*?)(?:```|\Z)", re.DOTALL)


def last_number(text: str) -> str:
    """lm-eval's flexible-extract of GSM8K: the last thing that looks like a number."""
    found = _NUMBER.findall(text)
    return found[-1].strip() if found else INVALID


def stated_number(text: str, phrase: str) -> str:
    """lm-eval's strict-match: the number after the phrase that the shots teach (gsm8k_cot, gsm8k)."""
    found = _STATED[phrase].search(text)
    return found[1].strip() if found else INVALID


def plain_number(number: str) -> str:
    """What lm-eval ignores when it compares: commas, dollars, all up to the hashes, one full stop at the end."""
    for ignored in (",", r"\$", r"(?s).*#### ", r"\.$"):
        number = re.sub(ignored, "", number)
    return number.lower()


def first_box(text: str) -> str:
    r"""The content of the first \box...{}, or the whole text (the hendrycks_math500 of dLLM's lm-eval fork)."""
    start = text.find(r"\box")
    opened = text.find("{", start) if start >= 0 else -1
    if opened < 0:
        return text
    depth = 0
    for place in range(opened, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[opened + 1 : place]
    return text


def between_dollars(text: str) -> str:
    """What stands between the first and the last dollar sign, or the whole text (hendrycks_math)."""
    first, last = text.find("$"), text.rfind("$")
    return text[first + 1 : last] if first < last else text


def first_block(text: str) -> str:
    """The first fenced block, closed or not, or the whole text (humaneval_instruct_llada)."""
    found = _FENCE.search(text)
    return (found[1] if found else text).lstrip()


def after_prompt(prompt: str, text: str, checks: str) -> str:
    """Prompt and first python block, cut down to what the checks need (humaneval_instruct_dream)."""
    code = text.split("```python\n", 1)[-1].split("```")[0]
    return needed(f"{prompt}\n{code}", _names(ast.parse(checks)))


def begin_done(text: str) -> str:
    """The code between [BEGIN] and [DONE] or in a fence, in the many ways models write them.

    The order is that of OpenCompass' MBPP, which mbpp_instruct_llada follows: the first pattern that is found gives
    the code, then a fence or a DONE left inside ends it, and a quote at an end goes.
    """
    for pattern in _BEGIN_DONE:
        found = pattern.search(text)
        if found:
            text = found[1]
            break
    text = re.split(r"'?\s*\[?DONE\]?", text.split("```")[0])[0]
    return _unquoted(text.replace(r"\_", "_").strip())


def _unquoted(text: str) -> str:
    """Without the quotes that models put around a program.

    The original drops a quote at the end whatever came before it, and with it the solutions that end in a string
    (three of the 500 references). Here it goes only with one at the start, or where the text is no Python with it.
    """
    if text.startswith("'") and not text.startswith("'''"):
        return text[1:].removesuffix("'")
    return text if _parse(text) is not None else text.removesuffix("'")


def _begin_done_patterns() -> list[re.Pattern[str]]:
    begins, ends = (r"\[BEGIN\]", "BEGIN"), (r"\[DONE\]", "DONE")
    bodies = ("'(.*)'", "'(.*)", "(.*)")
    fenced = ("```python", "```")
    framed = [rf"{begin}\s*{body}\s*{end}" for body, end, begin in product(bodies, ends, begins)]
    closed = [rf"{fence}\s*(.*)\s*```" for fence in fenced]
    opened = [rf"{fence}\s*(.*)\s*$" for fence in fenced]
    loose = [r"\[BEGIN\]\s*'(.*)", r"\[BEGIN\](.*)", r"'(.*)'\s*\[DONE\]"]
    return [re.compile(pattern, re.DOTALL) for pattern in (*framed, *closed, *opened, *loose)]


_BEGIN_DONE = _begin_done_patterns()


def needed(code: str, names: Iterable[str]) -> str:
    """Imports, and the definitions that these names reach, out of the longest part that is Python.

    The rule of evalplus' `sanitize`: of several definitions of a name the first counts, and a function counts only
    if it returns something, so that a stub with a docstring gives way to the completion. There the one name is the
    entry point; the test of HumanEval/50 calls another function of its prompt too.
    """
    tree = _longest_program(code)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    defined: dict[str, ast.stmt] = {}
    for node in tree.body:
        for name in _defines(node):
            defined.setdefault(name, node)
    kept = _reachable(names, defined)
    return "\n".join(ast.unparse(node) for node in [*imports, *(node for node in tree.body if node in kept)])


def _longest_program(code: str) -> ast.Module:
    lines = code.splitlines()
    for size in range(len(lines), 0, -1):
        for start in range(len(lines) - size + 1):
            tree = _parse("\n".join(lines[start : start + size]))
            if tree is not None:
                return tree
    return ast.Module([], [])


def _parse(code: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _defines(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name] if any(isinstance(inner, ast.Return) for inner in ast.walk(node)) else []
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [name for target in targets for name in _names(target)]


def _reachable(names: Iterable[str], defined: dict[str, ast.stmt]) -> set[ast.stmt]:
    kept: set[ast.stmt] = set()
    todo = list(names)
    while todo:
        node = defined.get(todo.pop())
        if node is not None and node not in kept:
            kept.add(node)
            todo += _names(node)
    return kept


def _names(tree: ast.AST) -> list[str]:
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
