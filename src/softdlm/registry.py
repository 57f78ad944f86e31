"""Rules by name, and the text that stands for a rule: `slerp(k=1, lam=0.5)`, `entropy(0.1)`, `my_rules.py:Mine(k=3)`.

A rule's name is declared beside its class with `named`. Command line, result files, help texts and documentation read
names and parameters from here. A spelling is parsed as a name and literals; it is never evaluated.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from softdlm.errors import UsageError
from softdlm.parsing import balanced, between_commas, whole
from softdlm.rule_files import home_of, load_rule

Kind = Literal["commit", "feedback", "cache"]
Rule = TypeVar("Rule", bound=type)
STRENGTH = ("k", "lam")
"""Parameters that a spelling names even at their defaults: results are compared by them."""
FILLED = (*STRENGTH, "rank")
"""Parameters that a Decoding may fill from elsewhere, where a spelling leaves them out."""
LITERALS = {"true": True, "false": False, "null": None}
"""Words of JSON that a spelling may hold."""
_FROM_FILE = re.compile(r"\s*(?P<file>.+?\.py):(?P<call>.+)", re.DOTALL)
_CALL = re.compile(r"\s*(?P<name>[A-Za-z_][\w-]*)\s*(\((?P<arguments>.*)\))?\s*", re.DOTALL)
_ARGUMENT = re.compile(r"((?P<name>[A-Za-z_]\w*)\s*=\s*)?(?P<value>.+)", re.DOTALL)


class Entry(NamedTuple):
    """What a name stands for: a class, and the parameters that the name fixes."""

    rule: Any
    fixed: Mapping[str, Any]


_ENTRIES: dict[Kind, dict[str, Entry]] = {"commit": {}, "feedback": {}, "cache": {}}
_NAMES: dict[Any, tuple[Kind, str]] = {}


def named(kind: Kind, name: str, **variants: Mapping[str, Any]) -> Callable[[Rule], Rule]:
    """Declare a rule's name; `variants` are further names that fix some parameters (`_` stands for `-`)."""

    def declare(rule: Rule) -> Rule:
        _NAMES[rule] = kind, name
        for each, fixed in {name: {}, **{key.replace("_", "-"): value for key, value in variants.items()}}.items():
            if each in _ENTRIES[kind]:
                raise ValueError(f"two {kind} rules are named {each!r}")
            _ENTRIES[kind][each] = Entry(rule, fixed)
        return rule

    return declare


def names(kind: Kind) -> tuple[str, ...]:
    return tuple(_ENTRIES[kind])


def build(kind: Kind, text: str, fill: Mapping[str, Any] | None = None, asked: Mapping[str, Any] | None = None) -> Any:
    """The rule that a spelling stands for.

    Parameters that it leaves out are taken from `asked`, then from `fill`, where the rule has them. k is filled
    together with lam only: a rule without lam, such as NormMix, has a strength of its own.
    """
    rule, fixed, arguments, keywords = _read(kind, text, fill, asked)
    if inspect.isfunction(rule):
        if arguments or keywords:
            raise UsageError(f"{text!r}: a function takes no parameters; write a dataclass to give it some")
        return rule
    known = [each.name for each in dataclasses.fields(rule)]
    given = {**dict(zip(known, arguments, strict=False)), **keywords}
    if len(arguments) > len(known) or keywords.keys() - known or keywords.keys() & set(known[: len(arguments)]):
        raise UsageError(f"{text!r}: {rule.__name__} takes {', '.join(known) or 'no parameters'}, each once")
    if clash := given.keys() & fixed.keys():
        raise UsageError(f"{text!r}: the name itself fixes {', '.join(clash)}")
    filled = {name: value for name, value in (fill or {}).items() if name != "k" or "lam" in known} | dict(asked or {})
    filled = {name: value for name, value in filled.items() if name in known and value is not None}
    try:
        return rule(**{**filled, **fixed, **given})
    except UsageError:
        raise
    except (TypeError, ValueError) as error:
        raise UsageError(f"{text!r} does not make a {kind} rule: {error}") from error


def is_from_file(text: str) -> bool:
    """Whether a spelling names a rule in a user's file, which is run when the rule is built."""
    return _FROM_FILE.fullmatch(text) is not None


def leaves_out(text: str, name: str) -> bool:
    """Whether a spelled feedback rule has a strength (k and lam) and leaves this one of the two to be filled."""
    probe = {"k": 10**6, "lam": 0.123456789}[name]
    return any(getattr(each, name, None) == probe for each in inside(build("feedback", text, {name: probe})))


def spell(rule: Any, *, full: bool = False) -> str:
    """The text that `build` turns into an equal rule; of a rule that is neither named nor from a file, its name.

    `full` names all parameters that could be filled from elsewhere, so that nothing is left to fill.
    """
    if inspect.isfunction(rule):
        return rule.__name__ if rule in _NAMES else f"{home_of(rule)}{rule.__name__}"
    name = _NAMES[type(rule)][1] if type(rule) in _NAMES else f"{home_of(type(rule))}{type(rule).__qualname__}"
    if not dataclasses.is_dataclass(rule):
        return name
    parts = [_spelled(rule, number, each.name, full) for number, each in _shown(rule, full)]
    return f"{name}({', '.join(parts)})" if parts else name


def title(rule: Any) -> str:
    """A rule's name without its parameters, for tables: the name of a variant where its parameters are fixed so.

    A feedback rule around another one has both names: `alternate-slerp`.
    """
    kind, name = _NAMES.get(type(rule), (None, None))
    if kind is None or name is None:
        return spell(rule).partition("(")[0].rpartition(":")[2]
    if kind == "feedback" and len(parts := list(inside(rule))) > 1:
        return f"{name}-{title(parts[1])}"
    variants = [each for each, entry in _ENTRIES[kind].items() if entry.rule is type(rule) and entry.fixed]
    fits = [each for each in variants if all(getattr(rule, key) == v for key, v in _ENTRIES[kind][each].fixed.items())]
    return fits[-1] if fits else name


def parameters(rule: Any) -> list[str]:
    """The parameters that a spelling names, without rules inside the rule."""
    shown = _shown(rule, False) if dataclasses.is_dataclass(rule) else []
    own = [(number, each) for number, each in shown if not callable(getattr(rule, each.name))]
    return [_spelled(rule, number, each.name, False) for number, each in own]


def inside(rule: Any) -> Iterator[Any]:
    """A rule and every rule inside it."""
    yield rule
    parts = [getattr(rule, each.name) for each in dataclasses.fields(rule)] if dataclasses.is_dataclass(rule) else []
    for part in filter(callable, parts):
        yield from inside(part)


def needs_of(rules: Iterable[Any]) -> frozenset[str]:
    """What the rules, and those inside them, need of a prediction besides its candidates."""
    return frozenset(need for rule in rules for each in inside(rule) if (need := getattr(each, "needs", None)))


class Described(NamedTuple):
    """A name for help texts and documentation."""

    name: str
    signature: str
    about: str


def described(kind: Kind) -> Iterator[Described]:
    """Every name of a kind with its parameters and the first line of its class's docstring, module by module."""
    for name, (rule, fixed) in sorted(_ENTRIES[kind].items(), key=lambda entry: entry[1].rule.__module__):
        shown = [each for each in dataclasses.fields(rule) if each.name not in fixed]
        parameters = ", ".join(_parameter(each) for each in shown)
        about = (inspect.getdoc(rule) or "").split("\n\n")[0].replace("\n", " ")
        values = ", ".join(f"{key}={_literal(value)}" for key, value in fixed.items())
        yield Described(
            name, f"{name}({parameters})" if parameters else name, f"{rule.__name__} with {values}" if fixed else about
        )


def _read(
    kind: Kind, text: str, *parameters: Mapping[str, Any] | None
) -> tuple[Any, Mapping[str, Any], list[Any], dict[str, Any]]:
    """The class or function, the parameters that its name fixes, and the arguments of a spelling."""
    from_file = _from_file(text)
    call = _CALL.fullmatch(from_file["call"] if from_file else text)
    if call is None:
        raise UsageError(f"{text!r} is not the spelling of a {kind} rule, such as {_example(kind)}")
    arguments, keywords = _arguments(kind, text, call["arguments"] or "", *parameters)
    if from_file:
        return load_rule(Path(from_file["file"]), call["name"]), {}, arguments, keywords
    entry = _ENTRIES[kind].get(call["name"])
    if entry is None:
        raise UsageError(f"unknown {kind} rule {call['name']!r}; known are {', '.join(names(kind))}")
    return entry.rule, entry.fixed, arguments, keywords


def _from_file(text: str) -> re.Match[str] | None:
    """The file and the call of `rules.py:Mine(k=3)`; that in `alternate(rules.py:Mine)` belongs to an inner rule."""
    found = _FROM_FILE.fullmatch(text)
    return found if found is not None and balanced(found["file"]) else None


def _arguments(
    kind: Kind, text: str, inside: str, *parameters: Mapping[str, Any] | None
) -> tuple[list[Any], dict[str, Any]]:
    try:
        pairs = [(name, _value(kind, value, *parameters)) for name, value in _parts(inside)]
    except UsageError:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{text!r}: parameters are literals, such as {_example(kind)} ({error})") from error
    return [value for name, value in pairs if name is None], {name: value for name, value in pairs if name is not None}


def _parts(inside: str) -> list[tuple[str | None, str]]:
    """The parameters of a call as text, each with its name where it has one."""
    found = [_ARGUMENT.fullmatch(each.strip()) for each in between_commas(inside)] if inside.strip() else []
    parts = [(each["name"], each["value"]) for each in found if each is not None]
    named = [name for name, _ in parts if name is not None]
    if not balanced(inside) or len(parts) < len(found):
        raise ValueError("a rule is called once, with literals")
    if len(set(named)) < len(named) or [name for name, _ in parts[len(parts) - len(named) :]] != named:
        raise ValueError("those with a name come last, each once")
    return parts


def _value(kind: Kind, text: str, *parameters: Mapping[str, Any] | None) -> Any:
    """A literal, or a rule inside a rule: `threshold(0.95, floor=steps(32))`, whose parameters are filled as well."""
    if _is_spelling(kind, text):
        return build(kind, text, *parameters)
    if text in LITERALS:
        return LITERALS[text]
    try:
        found = ast.literal_eval(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"{text[:80]!r} is neither a literal nor a rule") from None
    return whole("a parameter", found) if type(found) is int else found


def _is_spelling(kind: Kind, text: str) -> bool:
    """Whether a parameter is a rule: a name of this kind, a call, or a rule from a file; text in quotes is none."""
    if text.startswith(("'", '"')):
        return False
    call = _CALL.fullmatch(text)
    return text in _ENTRIES[kind] or (call is not None and call["arguments"] is not None) or bool(_from_file(text))


def _shown(rule: Any, full: bool) -> list[tuple[int, dataclasses.Field[Any]]]:
    """The parameters that a spelling names, with their places: those that are not at their defaults, and a few more."""
    always = FILLED if full else STRENGTH
    return [
        (number, each)
        for number, each in enumerate(dataclasses.fields(rule))
        if each.name in always or _leads(number, each) or getattr(rule, each.name) != _default(each)
    ]


def _leads(number: int, field: dataclasses.Field[Any]) -> bool:
    """Whether a parameter is spelled without its name: `topn(4)`, `entropy(0.1)`."""
    return number == 0 and field.name in ("n", "tau", "gamma", "f", "steps", "then", "feedback")


def _spelled(rule: Any, number: int, name: str, full: bool) -> str:
    value, field = getattr(rule, name), dataclasses.fields(rule)[number]
    text = spell(value, full=full) if callable(value) else _literal(value)
    return text if _leads(number, field) else f"{name}={text}"


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default


def _parameter(field: dataclasses.Field[Any]) -> str:
    default = _default(field)
    return field.name if default is dataclasses.MISSING else f"{field.name}={_literal(default)}"


def _literal(value: Any) -> str:
    """A parameter's value; 1.0 and 1 are the same setting and have one spelling."""
    if callable(value):
        return spell(value)
    return repr(int(value)) if isinstance(value, float) and value.is_integer() else repr(value)


def _example(kind: Kind) -> str:
    return {"commit": "topn(4)", "feedback": "slerp(k=3, lam=0.3)", "cache": "dual(refresh=4)"}[kind]
