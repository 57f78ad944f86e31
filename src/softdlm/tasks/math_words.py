"""The words of mini-math: names, things and the sentences of questions and solutions.

In the sentences {S} is a person (name or pronoun), {N} the same by name, {F} a friend, {o} the things, {c}
their containers, {n}, {k}, {m} numbers, {t} a factor in words, {e} an equation such as 12+5=17 and {r} its
result. First letters are made capital later.
"""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


SHE = _words("Ava Mia Emma Lily Nora Zoe Ruth Anna Sara Ivy Rosa Jane")
HE = _words("Tom Ben Sam Leo Max Noah Jack Omar Luis Finn Paul Hugo")
PRONOUNS = dict.fromkeys(SHE, "she") | dict.fromkeys(HE, "he")
NAMES = SHE + HE

THINGS = _words(
    "apples books coins cards pens marbles stickers shells stamps cookies eggs balls beads buttons flowers "
    "pencils toys plums pears cups stones ribbons muffins candles"
)
CONTAINERS = ("boxes", "bags", "packs", "jars", "baskets", "crates", "trays", "bundles")
COLOURS = ("red", "blue", "green", "white", "black", "yellow")
TIMES = {2: ("twice", "double", "2 times"), 3: ("three times", "3 times"), 4: ("four times", "4 times")}

EVENT_STARTS = ("", "", "", "then ", "next, ", "after that, ", "later, ")
_FIRST = ("", "", "", "", "first, ", "first, ", "to start, ", "to start, ")
_LATER = ("", "then ", "so ", "next, ", "then ", "next, ", "then ", "after that, ")
STARTS = tuple(zip(_FIRST, _LATER, strict=True))

STORY_SENTENCES: dict[str, tuple[str, ...]] = {
    "have": (
        "{S} has {n} {o}",
        "{S} owns {n} {o}",
        "{S} starts with {n} {o}",
        "there are {n} {o} in {N}'s room",
        "{S} keeps {n} {o}",
        "{S} begins with {n} {o}",
    ),
    "boxes": (
        "{S} has {k} {c} of {m} {o}",
        "{S} buys {k} {c} with {m} {o} each",
        "{S} owns {k} {c} of {m} {o} each",
        "{S} fills {k} {c} with {m} {o} each",
        "each of {N}'s {k} {c} holds {m} {o}",
    ),
    "kinds": (
        "{S} has {n} {x} {o} and {m} {y} ones",
        "{S} owns {n} {x} {o} and {m} {y} {o}",
        "{S} has {n} {x} and {m} {y} {o}",
        "there are {n} {x} and {m} {y} {o} on {N}'s desk",
    ),
    "more": (
        "{F} has {m} {o} and {S} has {n} more",
        "{F} has {m} {o}. {S} has {n} more than {F}",
        "{S} has {n} {o} more than {F}, who has {m}",
    ),
    "fewer": (
        "{F} has {m} {o} and {S} has {n} fewer",
        "{F} has {m} {o}. {S} has {n} fewer than {F}",
        "{S} has {n} {o} fewer than {F}, who has {m}",
    ),
    "times": (
        "{F} has {m} {o} and {S} has {t} as many",
        "{F} has {m} {o}. {S} has {t} as many as {F}",
        "{S} has {t} as many {o} as {F}, who has {m}",
    ),
    "gain": (
        "{S} finds {n} more",
        "{S} gets {n} more {o}",
        "{S} buys {n} more",
        "{S} picks up {n} more",
        "{S} collects {n} {o}",
        "{S} wins {n} {o}",
        "{F} gives {N} {n} more",
        "{S} receives {n} {o} from {F}",
        "{S} makes {n} more",
        "{S} adds {n} {o}",
    ),
    "lose": (
        "{S} loses {n}",
        "{S} gives away {n}",
        "{S} sells {n} of them",
        "{S} drops {n} {o}",
        "{S} gives {F} {n}",
        "{S} breaks {n} of them",
        "{S} trades away {n}",
        "{n} of {N}'s {o} get lost",
        "{S} donates {n} {o}",
        "{F} takes {n} of them",
    ),
    "double": ("{S} doubles that number", "{N}'s number of {o} doubles", "{S} makes it twice as many"),
    "triple": ("{S} triples that number", "{N}'s number of {o} triples", "{S} makes it three times as many"),
    "half": (
        "{S} gives half of them away",
        "{S} loses half of the {o}",
        "{S} sells half of them",
        "half of {N}'s {o} break",
        "{S} gives {F} half of them",
    ),
    "packs": (
        "{S} buys {k} {c} of {m} {o}",
        "{S} gets {k} {c} with {m} more each",
        "{S} wins {k} {c} of {m} more",
        "{k} friends bring {N} {m} more each",
        "{S} finds {m} more on each of {k} days",
    ),
    "gifts": (
        "{S} gives {m} to each of {k} friends",
        "{S} gives {k} friends {m} {o} each",
        "{S} sells {k} {c} of {m}",
        "{S} uses {m} on each of {k} days",
    ),
}

STORY_ASKS: dict[str, tuple[str, ...]] = {
    "now": (
        "how many {o} does {S} have now?",
        "how many {o} are left with {N}?",
        "what number of {o} does {S} have?",
        "how many {o} does {S} have at the end?",
        "find how many {o} {S} has.",
    ),
    "share": (
        "{S} shares them equally among {k} friends. How many does each get?",
        "{S} puts them equally into {k} {c}. How many are in each?",
        "if {k} friends share {N}'s {o} equally, how many does each get?",
        "how many of {N}'s {o} go in each of {k} equal piles?",
    ),
    "sell": (
        "{S} sells all of them for ${k} each. How many dollars does {S} get?",
        "each is worth ${k}. How much are {N}'s {o} worth?",
        "how much are {N}'s {o} worth at ${k} each?",
        "at ${k} each, how many dollars are {N}'s {o} worth?",
    ),
    "need": (
        "{S} wants {n} {o}. How many more are needed?",
        "how many more does {S} need to have {n}?",
        "how many {o} does {S} still need to reach {n}?",
    ),
    "compare": (
        "{F} has {n}. How many more does {S} have than {F}?",
        "how many more than {F}, who has {n}, does {S} have?",
        "{F} has {n} {o}. By how many does {S} lead?",
    ),
    "together": (
        "{F} has {n}. How many do they have together?",
        "{F} has {n} {o}. How many do both have in all?",
        "how many {o} do {N} and {F}, who has {n}, have in total?",
    ),
}

ANY_STEP = ("{e}", "that is {e}", "this makes {e}", "we get {e}", "that gives {e}", "it comes to {e}")
COUNT_STEP = (
    "{S} has {e} {o}",
    "{S} now has {e}",
    "there are {e} {o}",
    "that makes {e} {o}",
    "{e} {o}",
    "{e}, so {S} has {r}",
    "{e}, so there are {r} {o}",
    "the number of {o} is {e}",
    "this leaves {N} with {e}",
)
STORY_STEPS: dict[str, tuple[str, ...]] = {
    "boxes": ("the {c} hold {e} {o}", "{k} {c} of {m} make {e} {o}", *COUNT_STEP),
    "kinds": ("together there are {e} {o}", "both kinds make {e} {o}", *COUNT_STEP),
    "more": ("{S} has {e}, which is {n} more", *COUNT_STEP),
    "fewer": ("{S} has {e}, which is {n} fewer", *COUNT_STEP),
    "times": ("{S} has {t} as many, {e}", *COUNT_STEP),
    "gain": ("with {n} more {S} has {e}", "adding {n} gives {e} {o}", *COUNT_STEP),
    "lose": ("without {n} {S} has {e}", "taking {n} away leaves {e}", "{e} {o} are left", *COUNT_STEP),
    "double": ("twice as many is {e}", "doubling gives {e} {o}", *COUNT_STEP),
    "triple": ("three times as many is {e}", "that number triples to {e}", *COUNT_STEP),
    "half": ("half of {v} is {e}", "half of them are {e}", "{e} {o} are left", *COUNT_STEP),
    "packs1": ("{S} gets {e} more", "{k} times {m} is {e}", "the new {o} are {e}", "that adds {e} {o}"),
    "packs2": ("with them {S} has {e}", "in all {S} has {e} {o}", *COUNT_STEP),
    "gifts1": ("{S} gives up {e} {o}", "{k} times {m} is {e}", "{e} {o} go away", "that takes {e} {o}"),
    "gifts2": ("without them {S} has {e}", "{e} {o} are left", *COUNT_STEP),
    "share": ("each gets {e} {o}", "each one is {e}", "sharing gives {e} each", "{e} {o} for each"),
    "sell": (
        "they are worth {e} dollars",
        "the price is {e} dollars",
        "{S} gets {e} dollars",
        "in all it is ${e}",
    ),
    "need": ("{S} needs {e} more", "{e} {o} are missing", "{e} more are needed", "the rest is {e}"),
    "compare": ("{S} has {e} more", "the difference is {e}", "{S} leads by {e} {o}", "{e} more than {F}"),
    "together": (
        "together they have {e} {o}",
        "both have {e} in all",
        "the total is {e}",
        "in total {e} {o}",
    ),
}

PEOPLE_SENTENCES: dict[str, tuple[str, ...]] = {
    "have": ("{S} has {n} {o}", "{S} owns {n} {o}", "{S} collects {n} {o}", "there are {n} {o} in {N}'s bag"),
    "more": ("{S} has {n} more than {F}", "{S} has {n} more {o} than {F}", "{S} owns {n} more than {F} does"),
    "fewer": (
        "{S} has {n} fewer than {F}",
        "{S} has {n} fewer {o} than {F}",
        "{S} owns {n} fewer than {F} does",
    ),
    "times": (
        "{S} has {t} as many as {F}",
        "{S} has {t} as many {o} as {F}",
        "{S} owns {t} as many as {F} does",
    ),
    "half": (
        "{S} has half as many as {F}",
        "{S} has half as many {o} as {F}",
        "{S} owns half as many as {F} does",
    ),
}
PEOPLE_ASKS: dict[str, tuple[str, ...]] = {
    "last": ("how many {o} does {S} have?", "how many does {S} have?", "find the number of {o} {S} has."),
    "sum": ("how many {o} do {N} and {F} have together?", "how many do {F} and {N} have in all?"),
    "gap": ("how many more does {S} have than {F}?", "how many fewer does {F} have than {N}?"),
    "total": ("how many {o} do they have together?", "how many do all of them have in total?"),
}
PEOPLE_STEPS: dict[str, tuple[str, ...]] = {
    "person": (
        "{S} has {e} {o}",
        "{S} has {e}",
        "{S} owns {e} {o}",
        "{e} is what {S} has",
        "for {N} it is {e}",
        "{e}, so {S} has {r}",
    ),
    "sum": (
        "together they have {e} {o}",
        "the total is {e}",
        "that makes {e} {o}",
        "in all {e}",
        "{e} in total",
    ),
    "gap": ("the difference is {e}", "{S} has {e} more", "{e} more {o}", "{S} leads by {e}"),
}

SHOP_SENTENCES: dict[str, tuple[str, ...]] = {
    "buy": (
        "{S} buys {k} {o} for ${m} each",
        "{S} pays ${m} each for {k} {o}",
        "{S} gets {k} {o} at ${m} each",
    ),
    "sell": (
        "{S} sells {k} {o} for ${m} each",
        "{S} earns ${m} each for {k} {o}",
        "{S} gets ${m} each for {k} {o}",
    ),
    "coupon": (
        "a coupon takes ${n} off",
        "{S} has a coupon for ${n} off",
        "the shop takes ${n} off the price",
    ),
    "tip": ("{S} also earns a tip of ${n}", "{F} gives {N} a bonus of ${n}", "there is a bonus of ${n}"),
}
SHOP_ASKS: dict[str, tuple[str, ...]] = {
    "buy": ("how much does {S} pay?", "how many dollars does {S} spend?", "what is the total price?"),
    "sell": ("how much does {S} earn?", "how many dollars does {S} make?", "what does {S} earn in all?"),
    "change": (
        "{S} had ${n}. How much is left?",
        "how much change does {S} get from ${n}?",
        "how many of {N}'s ${n} are left?",
    ),
    "saved": (
        "{S} had ${n} before. How much money is there now?",
        "with ${n} saved before, how much does {S} have now?",
    ),
    "split": (
        "{k} friends share this equally. How much is it for each?",
        "how much is it for each of {k} equal parts?",
        "if {k} people share it equally, how much is one part?",
    ),
}
SHOP_STEPS: dict[str, tuple[str, ...]] = {
    "buy": (
        "the {o} cost {e} dollars",
        "{S} pays {e} for {o}",
        "{k} {o} cost {e}",
        "{e} dollars for the {o}",
    ),
    "sell": (
        "the {o} bring {e} dollars",
        "{S} earns {e} for {o}",
        "{k} {o} bring {e}",
        "{e} dollars for the {o}",
    ),
    "sum": ("together that is {e} dollars", "the total is {e}", "both make {e} dollars", "{e} in all"),
    "coupon": ("with the coupon it is {e}", "the price falls to {e}", "{e} dollars after the coupon"),
    "tip": ("with the bonus it is {e}", "the bonus makes it {e}", "{e} dollars with the bonus"),
    "change": ("{S} has {e} dollars left", "{e} dollars are left", "the change is {e}", "this leaves {e}"),
    "saved": ("{S} now has {e} dollars", "with the rest it is {e}", "{e} dollars in all", "that makes {e}"),
    "split": ("each part is {e} dollars", "each takes {e}", "{e} dollars for each", "one part is {e}"),
}

ENDINGS = ("", "", "", " The answer is {r}.", " So the answer is {r}.", " That is {r}.")
