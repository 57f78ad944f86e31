"""The families of mini-code functions: what each asks for and equivalent bodies that do it.

In a body "|" starts a new line and ">" indents it once more. {a} and {b} are arguments, {x}, {t} and {i}
local names, {test} and {expr} a drawn condition and change (said as {cond} and {map}), {k}, {j}, {c}, {d}
constants. The first body of a family is the reference that hidden tests are computed with.
"""

from typing import NamedTuple


class Family(NamedTuple):
    name: str
    level: int
    arguments: tuple[str, ...]
    parts: tuple[str, ...]
    says: tuple[str, ...]
    bodies: tuple[str, ...]
    on: str = "{x}"


def _list_loop(inner: str) -> str:
    return "{t} = []|for {x} in {a}:|" + inner + "|return {t}"


def _sum_loop(inner: str) -> str:
    return "{t} = 0|for {x} in {a}:|" + inner + "|return {t}"


def _kept(body: str) -> tuple[str, ...]:
    """An expression returned at once, or named first."""
    return f"return {body}", "{t} = " + body + "|return {t}"


_INTS, _INT, _PAIR, _STR, _STRS = ("ints",), ("int",), ("int", "int2"), ("str",), ("strs",)

SLICES = (
    Family("first items", 1, _INTS, ("k",), ("the first {k} items of {a}",
           "the items of {a} before index {k}"),
           (*_kept("{a}[:{k}]"), "return [{x} for {i}, {x} in enumerate({a}) if {i} < {k}]")),
    Family("last items", 1, _INTS, ("k",), ("the last {k} items of {a}", "the final {k} items of {a}"),
           (*_kept("{a}[-{k}:]"), "return {a}[max(0, len({a}) - {k}):]")),
    Family("without first", 1, _INTS, ("k",), ("{a} without its first {k} items",
           "the items of {a} from index {k} on"),
           (*_kept("{a}[{k}:]"), "return [{x} for {i}, {x} in enumerate({a}) if {i} >= {k}]")),
    Family("without last", 1, _INTS, ("k",), ("{a} without its last {k} items",
           "all but the last {k} items of {a}"),
           _kept("{a}[:-{k}]")),
    Family("every kth", 1, _INTS, ("k",), ("the items of {a} at indices divisible by {k}",),
           (*_kept("{a}[::{k}]"), "return [{x} for {i}, {x} in enumerate({a}) if {i} % {k} == 0]",
            "return [{a}[{i}] for {i} in range(0, len({a}), {k})]")),
    Family("largest", 1, _INTS, ("k",), ("the {k} largest numbers in {a}, largest first",),
           ("return sorted({a}, reverse=True)[:{k}]", "return sorted({a})[::-1][:{k}]",
            "{t} = sorted({a}, reverse=True)|return {t}[:{k}]")),
    Family("smallest", 1, _INTS, ("k",), ("the {k} smallest numbers in {a}, smallest first",),
           (*_kept("sorted({a})[:{k}]"), "{t} = sorted({a})|return {t}[:{k}]")),
    Family("rotate", 1, _INTS, ("k",), ("the items of {a} from index {k} on, then the first {k}",),
           (*_kept("{a}[{k}:] + {a}[:{k}]"), "return [*{a}[{k}:], *{a}[:{k}]]")),
    Family("repeat items", 1, _INTS, ("k",), ("{a} repeated {k} times", "the items of {a}, {k} times over"),
           (*_kept("{a} * {k}"), "{t} = []|for {i} in range({k}):|>{t} += {a}|return {t}")),
    Family("append", 1, _INTS, ("big",), ("{a} with {k} added at the end", "the items of {a} and then {k}"),
           (*_kept("{a} + [{k}]"), "return [*{a}, {k}]", "{t} = list({a})|{t}.append({k})|return {t}")),
    Family("prepend", 1, _INTS, ("big",), ("{a} with {k} added at the start",
           "{k} and then the items of {a}"),
           (*_kept("[{k}] + {a}"), "return [{k}, *{a}]", "{t} = list({a})|{t}.insert(0, {k})|return {t}")),
    Family("item at", 1, _INTS, ("k",), ("the item of {a} at index {k}, or 0 if there is none",),
           ("return {a}[{k}] if len({a}) > {k} else 0", "if len({a}) > {k}:|>return {a}[{k}]|return 0")),
    Family("sum first", 1, _INTS, ("k",), ("the sum of the first {k} numbers in {a}",),
           ("return sum({a}[:{k}])", "{t} = 0|for {x} in {a}[:{k}]:|>{t} += {x}|return {t}")),
    Family("more items", 1, _INTS, ("k",), ("whether {a} has more than {k} items",),
           (*_kept("len({a}) > {k}"), "return {k} < len({a})")),
    Family("contains", 1, _INTS, ("big",), ("whether {k} is in {a}", "whether {a} contains {k}"),
           (*_kept("{k} in {a}"), "return {a}.count({k}) > 0", "return any({x} == {k} for {x} in {a})",
            "for {x} in {a}:|>if {x} == {k}:|>>return True|return False")),
    Family("max or", 1, _INTS, ("big",), ("the largest number in {a}, or {k} if it is empty",),
           ("return max({a}, default={k})", "return max({a}) if {a} else {k}",
           "if not {a}:|>return {k}|return max({a})")),
    Family("min or", 1, _INTS, ("big",), ("the smallest number in {a}, or {k} if it is empty",),
           ("return min({a}, default={k})", "return min({a}) if {a} else {k}",
           "if not {a}:|>return {k}|return min({a})")),
    Family("raise low", 1, _INTS, ("big",), ("{a} with each number below {k} raised to {k}",),
           (*_kept("[max({x}, {k}) for {x} in {a}]"), _list_loop(">{t}.append(max({x}, {k}))"))),
    Family("cut high", 1, _INTS, ("big",), ("{a} with each number above {k} cut to {k}",),
           (*_kept("[min({x}, {k}) for {x} in {a}]"), _list_loop(">{t}.append(min({x}, {k}))"))),
    Family("sum and", 1, _INTS, ("big",), ("the sum of {a} plus {k}", "{k} plus the sum of {a}"),
           ("return sum({a}) + {k}", "return sum({a}, {k})",
           "{t} = {k}|for {x} in {a}:|>{t} += {x}|return {t}")),
)  # fmt: skip

LISTS = (
    Family("sum where", 2, _INTS, ("test",), ("the sum of the numbers in {a} that are {cond}",),
           (*_kept("sum({x} for {x} in {a} if {test})"), _sum_loop(">if {test}:|>>{t} += {x}"))),
    Family("count where", 2, _INTS, ("test",), ("how many numbers in {a} are {cond}",),
           ("return sum(1 for {x} in {a} if {test})", "return len([{x} for {x} in {a} if {test}])",
            _sum_loop(">if {test}:|>>{t} += 1"))),
    Family("list where", 2, _INTS, ("test",), ("the numbers in {a} that are {cond}",
           "the {cond} numbers in {a}"),
           (*_kept("[{x} for {x} in {a} if {test}]"), _list_loop(">if {test}:|>>{t}.append({x})"))),
    Family("any where", 2, _INTS, ("test",), ("whether any number in {a} is {cond}",),
           (*_kept("any({test} for {x} in {a})"), "for {x} in {a}:|>if {test}:|>>return True|return False")),
    Family("all where", 2, _INTS, ("test",), ("whether all numbers in {a} are {cond}",),
           (*_kept("all({test} for {x} in {a})"), "return len([{x} for {x} in {a} if {test}]) == len({a})")),
    Family("first where", 2, _INTS, ("test",), ("the first number in {a} that is {cond}, or None",),
           ("return next(({x} for {x} in {a} if {test}), None)",
           "for {x} in {a}:|>if {test}:|>>return {x}|return None")),
    Family("last where", 2, _INTS, ("test",), ("the last number in {a} that is {cond}, or None",),
           ("{t} = None|for {x} in {a}:|>if {test}:|>>{t} = {x}|return {t}",
            "for {x} in {a}[::-1]:|>if {test}:|>>return {x}|return None")),
    Family("index where", 2, _INTS, ("test",),
           ("the index of the first number in {a} that is {cond}, or -1",),
           ("for {i}, {x} in enumerate({a}):|>if {test}:|>>return {i}|return -1",
            "return next(({i} for {i}, {x} in enumerate({a}) if {test}), -1)")),
    Family("indices where", 2, _INTS, ("test",), ("the indices of the numbers in {a} that are {cond}",),
           (*_kept("[{i} for {i}, {x} in enumerate({a}) if {test}]"),
            "{t} = []|for {i}, {x} in enumerate({a}):|>if {test}:|>>{t}.append({i})|return {t}")),
    Family("max where", 2, _INTS, ("test",), ("the largest number in {a} that is {cond}, or None",),
           ("return max(({x} for {x} in {a} if {test}), default=None)",
            "{t} = [{x} for {x} in {a} if {test}]|return max({t}) if {t} else None")),
    Family("product where", 2, _INTS, ("test",), ("the product of the numbers in {a} that are {cond}",),
           ("{t} = 1|for {x} in {a}:|>if {test}:|>>{t} *= {x}|return {t}",
            "{t} = 1|for {x} in [{x} for {x} in {a} if {test}]:|>{t} = {t} * {x}|return {t}")),
    Family("sorted where", 2, _INTS, ("test",), ("the numbers in {a} that are {cond}, in order of size",),
           (*_kept("sorted({x} for {x} in {a} if {test})"),
           "{t} = [{x} for {x} in {a} if {test}]|return sorted({t})")),
    Family("zero where", 2, _INTS, ("test",), ("{a} with each number that is {cond} set to 0",),
           (*_kept("[0 if {test} else {x} for {x} in {a}]"),
           _list_loop(">{t}.append(0 if {test} else {x})"))),
    Family("take while", 2, _INTS, ("test",), ("the numbers in {a} before the first that is {cond}",),
           ("{t} = []|for {x} in {a}:|>if {test}:|>>break|>{t}.append({x})|return {t}",
            "{t} = []|for {x} in {a}:|>if {test}:|>>return {t}|>{t}.append({x})|return {t}")),
    Family("each changed", 2, _INTS, ("expr",), ("each number in {a} {map}",
           "the numbers in {a}, each {map}"),
           (*_kept("[{expr} for {x} in {a}]"), _list_loop(">{t}.append({expr})"))),
    Family("sum changed", 2, _INTS, ("expr",), ("the sum of the numbers in {a}, each {map}",),
           (*_kept("sum({expr} for {x} in {a})"), _sum_loop(">{t} += {expr}"))),
    Family("reverse changed", 2, _INTS, ("expr",), ("the numbers in {a}, each {map}, in reverse order",),
           (*_kept("[{expr} for {x} in {a}[::-1]]"), "{t} = [{expr} for {x} in {a}]|return {t}[::-1]")),
    Family("each where", 3, _INTS, ("expr", "test"), ("the numbers in {a} that are {cond}, each {map}",),
           (*_kept("[{expr} for {x} in {a} if {test}]"), _list_loop(">if {test}:|>>{t}.append({expr})"))),
    Family("sum each where", 3, _INTS, ("expr", "test"),
           ("the sum of the numbers in {a} that are {cond}, each {map}",),
           (*_kept("sum({expr} for {x} in {a} if {test})"), _sum_loop(">if {test}:|>>{t} += {expr}"))),
    Family("change where", 3, _INTS, ("expr", "test"), ("{a} with the numbers that are {cond} each {map}",),
           (*_kept("[{expr} if {test} else {x} for {x} in {a}]"),
           _list_loop(">{t}.append({expr} if {test} else {x})"))),
)  # fmt: skip

NUMBERS = (
    Family("changed", 1, _INT, ("expr",), ("{a} {map}",), _kept("{expr}"), "{a}"),
    Family("is", 1, _INT, ("test",), ("whether {a} is {cond}",),
           (*_kept("{test}"), "if {test}:|>return True|return False"), "{a}"),
    Family("label", 2, _INT, ("test", "labels"), ("'{c}' if {a} is {cond}, otherwise '{d}'",),
           ("return '{c}' if {test} else '{d}'", "if {test}:|>return '{c}'|return '{d}'",
            "if {test}:|>return '{c}'|else:|>return '{d}'"), "{a}"),
    Family("change if", 3, _INT, ("expr", "test"), ("{a} {map} if it is {cond}, otherwise {a}",),
           ("return {expr} if {test} else {a}", "if {test}:|>return {expr}|return {a}"), "{a}"),
    Family("change or zero", 3, _INT, ("expr", "test"), ("{a} {map} if it is {cond}, otherwise 0",),
           ("return {expr} if {test} else 0", "if {test}:|>return {expr}|return 0"), "{a}"),
    Family("at least", 1, _INT, ("big",), ("{a}, but at least {k}", "the larger of {a} and {k}"),
           (*_kept("max({a}, {k})"), "return max({k}, {a})", "if {a} < {k}:|>return {k}|return {a}")),
    Family("at most", 1, _INT, ("big",), ("{a}, but at most {k}", "the smaller of {a} and {k}"),
           (*_kept("min({a}, {k})"), "return min({k}, {a})", "if {a} > {k}:|>return {k}|return {a}")),
    Family("between", 2, _INT, ("range",), ("whether {a} is from {j} to {k}",),
           (*_kept("{j} <= {a} <= {k}"), "return {a} >= {j} and {a} <= {k}")),
    Family("outside", 2, _INT, ("range",), ("whether {a} is less than {j} or greater than {k}",),
           ("return {a} < {j} or {a} > {k}", "return not {j} <= {a} <= {k}")),
    Family("clamp", 2, _INT, ("range",), ("{a}, but at least {j} and at most {k}",),
           ("return max({j}, min({k}, {a}))", "return min({k}, max({j}, {a}))",
            "if {a} < {j}:|>return {j}|return min({a}, {k})")),
    Family("linear", 2, _INT, ("range",), ("{j} times {a} plus {k}", "{k} plus {j} times {a}"),
           (*_kept("{j} * {a} + {k}"), "return {k} + {a} * {j}")),
    Family("distance", 1, _INT, ("big",), ("the distance between {a} and {k}",),
           (*_kept("abs({a} - {k})"), "return abs({k} - {a})", "return max({a}, {k}) - min({a}, {k})")),
    Family("sum up to", 2, _INT, ("test",), ("the sum of the numbers from 1 to {a} that are {cond}",),
           ("return sum({x} for {x} in range(1, {a} + 1) if {test})",
            "{t} = 0|for {x} in range(1, {a} + 1):|>if {test}:|>>{t} += {x}|return {t}")),
    Family("list up to", 2, _INT, ("test",), ("the numbers from 1 to {a} that are {cond}",),
           (*_kept("[{x} for {x} in range(1, {a} + 1) if {test}]"),
            "{t} = []|for {x} in range(1, {a} + 1):|>if {test}:|>>{t}.append({x})|return {t}")),
    Family("each up to", 2, _INT, ("expr",), ("each number from 1 to {a} {map}",),
           (*_kept("[{expr} for {x} in range(1, {a} + 1)]"),
            "{t} = []|for {x} in range(1, {a} + 1):|>{t}.append({expr})|return {t}")),
    Family("multiples", 1, _INT, ("big",), ("the first {a} multiples of {k}",),
           (*_kept("[{k} * {i} for {i} in range(1, {a} + 1)]"),
           "return [{i} * {k} for {i} in range(1, {a} + 1)]")),
    Family("larger plus", 2, _PAIR, ("big",), ("the larger of {a} and {b}, plus {k}",),
           (*_kept("max({a}, {b}) + {k}"), "if {a} > {b}:|>return {a} + {k}|return {b} + {k}")),
    Family("smaller plus", 2, _PAIR, ("big",), ("the smaller of {a} and {b}, plus {k}",),
           (*_kept("min({a}, {b}) + {k}"), "if {a} < {b}:|>return {a} + {k}|return {b} + {k}")),
    Family("weighted", 2, _PAIR, ("big",), ("{a} plus {k} times {b}", "{k} times {b} plus {a}"),
           (*_kept("{a} + {k} * {b}"), "return {k} * {b} + {a}")),
    Family("far apart", 2, _PAIR, ("big",), ("whether {a} and {b} differ by more than {k}",),
           (*_kept("abs({a} - {b}) > {k}"), "return abs({b} - {a}) > {k}")),
    Family("sum is", 2, _PAIR, ("test",), ("whether the sum of {a} and {b} is {cond}",),
           (*_kept("{test}"), "if {test}:|>return True|return False"), "({a} + {b})"),
)  # fmt: skip

TEXTS = (
    Family("count letter", 1, _STR, ("letter",), ("how often '{c}' occurs in {a}",
           "the number of '{c}' in {a}"),
           (*_kept("{a}.count('{c}')"), "return sum({x} == '{c}' for {x} in {a})",
           _sum_loop(">if {x} == '{c}':|>>{t} += 1"))),
    Family("starts with", 1, _STR, ("letter",), ("whether {a} starts with '{c}'",),
           (*_kept("{a}.startswith('{c}')"), "return {a}[:1] == '{c}'")),
    Family("ends with", 1, _STR, ("letter",), ("whether {a} ends with '{c}'",),
           (*_kept("{a}.endswith('{c}')"), "return {a}[-1:] == '{c}'")),
    Family("repeat text", 1, _STR, ("k",), ("{a} repeated {k} times", "{k} copies of {a} in a row"),
           (*_kept("{a} * {k}"), "return {k} * {a}")),
    Family("first letters", 1, _STR, ("k",), ("the first {k} letters of {a}",), _kept("{a}[:{k}]")),
    Family("last letters", 1, _STR, ("k",), ("the last {k} letters of {a}",), _kept("{a}[-{k}:]")),
    Family("replace", 2, _STR, ("letters",), ("{a} with each '{c}' replaced by '{d}'",),
           (*_kept("{a}.replace('{c}', '{d}')"), "return '{d}'.join({a}.split('{c}'))")),
    Family("remove letter", 1, _STR, ("letter",), ("{a} without the letter '{c}'",
           "{a} with each '{c}' removed"),
           (*_kept("{a}.replace('{c}', '')"), "return ''.join({x} for {x} in {a} if {x} != '{c}')")),
    Family("find letter", 1, _STR, ("letter",), ("the index of the first '{c}' in {a}, or -1",),
           (*_kept("{a}.find('{c}')"), "return {a}.index('{c}') if '{c}' in {a} else -1")),
    Family("surround", 2, _STR, ("letters",), ("{a} with '{c}' before it and '{d}' after it",),
           (*_kept("'{c}' + {a} + '{d}'"), "return ''.join(['{c}', {a}, '{d}'])")),
    Family("length is", 2, _STR, ("test",), ("whether the length of {a} is {cond}",),
           (*_kept("{test}"), "if {test}:|>return True|return False"), "len({a})"),
    Family("words of length", 2, _STRS, ("test",), ("the words in {a} whose length is {cond}",),
           (*_kept("[{x} for {x} in {a} if {test}]"), _list_loop(">if {test}:|>>{t}.append({x})")),
           "len({x})"),
    Family("count of length", 2, _STRS, ("test",), ("how many words in {a} have a length that is {cond}",),
           ("return sum(1 for {x} in {a} if {test})", _sum_loop(">if {test}:|>>{t} += 1")), "len({x})"),
    Family("lengths changed", 2, _STRS, ("expr",), ("the lengths of the words in {a}, each {map}",),
           (*_kept("[{expr} for {x} in {a}]"), _list_loop(">{t}.append({expr})")), "len({x})"),
    Family("join", 1, _STRS, ("letter",), ("the words in {a} joined with '{c}'",), _kept("'{c}'.join({a})")),
    Family("words starting", 1, _STRS, ("letter",), ("the words in {a} that start with '{c}'",),
           (*_kept("[{x} for {x} in {a} if {x}.startswith('{c}')]"),
           _list_loop(">if {x}[:1] == '{c}':|>>{t}.append({x})"))),
    Family("words with", 1, _STRS, ("letter",), ("the words in {a} that contain '{c}'",),
           (*_kept("[{x} for {x} in {a} if '{c}' in {x}]"),
           _list_loop(">if '{c}' in {x}:|>>{t}.append({x})"))),
    Family("count with", 1, _STRS, ("letter",), ("how many words in {a} contain '{c}'",),
           ("return sum('{c}' in {x} for {x} in {a})", _sum_loop(">if '{c}' in {x}:|>>{t} += 1"))),
    Family("letter in all", 2, _STRS, ("letters",), ("the words in {a} that contain '{c}' but not '{d}'",),
           (*_kept("[{x} for {x} in {a} if '{c}' in {x} and '{d}' not in {x}]"),
            _list_loop(">if '{c}' in {x} and not '{d}' in {x}:|>>{t}.append({x})"))),
)  # fmt: skip

FAMILIES = {family.name: family for family in (*SLICES, *LISTS, *NUMBERS, *TEXTS)}
