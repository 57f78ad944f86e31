"""Problems about money: things bought or sold by the piece, a coupon or bonus, and what is left or shared."""

from random import Random
from typing import NamedTuple

from softdlm.tasks import math_words as words
from softdlm.tasks.math_text import Equation, Slots, capital, cast, problem, pronoun_or_name


class Shop(NamedTuple):
    """`side` is buy or sell, `lots` are (pieces, price), `extra` is a coupon or bonus (0: none)."""

    side: str
    lots: tuple[tuple[int, int], ...]
    extra: int
    ask: str
    number: int


_SHAPES = {2: ((1, 0, 1), (1, 1, 0)), 3: ((1, 1, 1), (2, 0, 0)), 4: ((2, 1, 0), (2, 0, 1))}
"""Level -> (number of lots, 1 with an extra, 1 if the question takes a step)."""


def plan(rng: Random, level: int) -> Shop:
    while True:
        lots, extra, asks = rng.choice(_SHAPES[level])
        shop = _draw(rng, lots, extra, asks)
        if shop is not None and all(step.sound() for step in solve(shop, ("",) * lots, {})):
            return shop


def _draw(rng: Random, lots: int, extra: int, asks: int) -> Shop | None:
    side = rng.choice(("buy", "sell"))
    goods = tuple((rng.randint(2, 9), rng.randint(2, 12)) for _ in range(lots))
    due = sum(k * m for k, m in goods)
    more = rng.randint(2, min(20, due - 2)) if extra else 0
    due += more if side == "sell" else -more
    if not asks:
        return Shop(side, goods, more, side, 0)
    ask = rng.choice(("split", "change" if side == "buy" else "saved"))
    if ask == "split":
        divisors = [k for k in range(2, 10) if due % k == 0 and due // k >= 2]
        return Shop(side, goods, more, ask, rng.choice(divisors)) if divisors else None
    return Shop(side, goods, more, ask, rng.randint(2, 60) + (due if ask == "change" else 0))


def solve(shop: Shop, things: tuple[str, ...], slots: Slots) -> list[Equation]:
    """The equations in order: each lot, their sums, the extra, the question."""
    steps = [
        Equation(shop.side, "*", k, m, {**slots, "k": k, "m": m, "o": o})
        for (k, m), o in zip(shop.lots, things, strict=True)
    ]
    due = steps[0].r
    for lot in steps[1 : len(shop.lots)]:
        steps.append(Equation("sum", "+", due, lot.r, slots))
        due += lot.r
    if shop.extra:
        steps.append(Equation(*(("tip", "+") if shop.side == "sell" else ("coupon", "-")), due, shop.extra, slots))
        due = steps[-1].r
    asked = {"change": ("-", shop.number, due), "saved": ("+", due, shop.number), "split": ("/", due, shop.number)}
    if shop.ask in asked:
        steps.append(Equation(shop.ask, *asked[shop.ask], slots))
    return steps


def write(rng: Random, shop: Shop) -> tuple[str, str] | None:
    slots = cast(rng)
    things = tuple(rng.sample(words.THINGS, len(shop.lots)))
    asked = _question(rng, shop, things, slots)
    slots["S"] = pronoun_or_name(rng, str(slots["N"]))
    return problem(rng, asked, solve(shop, things, slots), words.SHOP_STEPS)


def _question(rng: Random, shop: Shop, things: tuple[str, ...], slots: Slots) -> str:
    told: list[str] = []
    for (k, m), o in zip(shop.lots, things, strict=True):
        told.append(_sentence(rng, shop.side, {**slots, "k": k, "m": m, "o": o}))
        slots = {**slots, "S": pronoun_or_name(rng, str(slots["N"]))}
    if shop.extra:
        told.append(_sentence(rng, "tip" if shop.side == "sell" else "coupon", {**slots, "n": shop.extra}))
    ask = rng.choice(words.SHOP_ASKS[shop.ask]).format_map({**slots, "n": shop.number, "k": shop.number})
    return f"{' '.join(told)} {capital(ask)}"


def _sentence(rng: Random, kind: str, slots: Slots) -> str:
    return capital(rng.choice(words.SHOP_SENTENCES[kind]).format_map(slots)) + "."
