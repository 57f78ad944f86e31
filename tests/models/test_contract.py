"""check_denoiser: every family keeps the contract, and each of the mistakes is found by the law that it breaks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import softdlm
from softdlm import UsageError
from softdlm.models.contract import LAWS, ContractError
from softdlm.models.denoiser import Denoiser
from tests.conftest import FAMILIES, tiny
from tests.models.test_families import small
from tests.small_checkpoints import SMALL
from tests.test_readme import ROOT, blocks

MODELS: dict[str, Any] = {
    "builtin": lambda: softdlm.load("builtin"),
    **{name: lambda name=name: tiny(name) for name in FAMILIES},
    "llada2, blocks": lambda: tiny("llada2", attention="block-causal"),
    **{name: lambda name=name: small(name) for name in SMALL},
    "bd3lm": lambda: small("a2d-qwen3", "block-causal"),
    "bfloat16": lambda: tiny("llada", torch.bfloat16),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_family_keeps_the_contract(name: str) -> None:
    report = softdlm.check_denoiser(MODELS[name]())
    assert report.passed
    assert [each.law for each in report.findings if each.tried] == list(LAWS)


class Delegating(Denoiser):
    """A correct wrapper around a family's model; subclasses make one mistake each."""

    def __init__(self, family: str = "llada", **identity: Any) -> None:
        self.inner = tiny(family)
        self.first_open = self.inner.first_open
        super().__init__(
            self.inner.embedding, **{"mask_id": self.inner.mask_id, "eos_ids": self.inner.eos_ids, **identity}
        )

    def hidden(self, embeds: Any, **sight: Any) -> Any:
        return self.inner.hidden(embeds, **sight)

    def head(self, hidden: Any) -> Any:
        return self.inner.head(hidden)


class Causal(Delegating):
    def hidden(self, embeds: Any, **sight: Any) -> Any:
        return super().hidden(embeds, **{**sight, "block_length": 1})


class BlindToPadding(Delegating):
    def hidden(self, embeds: Any, **sight: Any) -> Any:
        return super().hidden(embeds, **{**sight, "attention_mask": None})


class ShiftForgotten(Delegating):
    def __init__(self) -> None:
        super().__init__("llada")
        self.first_open = 1


class ShiftUnsaid(Delegating):
    def __init__(self) -> None:
        super().__init__("dream")
        self.first_open = 0


class ScaledIds(Delegating):
    def embed(self, ids: Any) -> Any:
        return 1.5 * super().embed(ids)


class MaskOutside(Delegating):
    def __init__(self) -> None:
        super().__init__(mask_id=10**6)


class MaskIsEos(Delegating):
    def __init__(self) -> None:
        super().__init__(mask_id=181)


class EosOutside(Delegating):
    def __init__(self) -> None:
        super().__init__(eos_ids=[181, -1])


class NarrowHead(Delegating):
    def head(self, hidden: Any) -> Any:
        return super().head(hidden)[..., :-1]


class NotFinite(Delegating):
    def head(self, hidden: Any) -> Any:
        return super().head(hidden).index_fill(-1, torch.tensor([3]), float("nan"))


class Dropout(Delegating):
    def hidden(self, embeds: Any, **sight: Any) -> Any:
        return super().hidden(torch.dropout(embeds, 0.1, train=True), **sight)


class LeakyBatch(Delegating):
    def hidden(self, embeds: Any, **sight: Any) -> Any:
        states = super().hidden(embeds, **sight)
        return states - 0.5 * states.mean(0, keepdim=True)


class HeadReadsOthers(Delegating):
    def head(self, hidden: Any) -> Any:
        return super().head(hidden - 0.5 * hidden[..., :1, :])


class ZeroMask(Delegating):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = self.embedding.clone()
        self.embedding[self.mask_id] = 0


class ForgetfulCache(Delegating):
    def memory(self, batch: int, length: int) -> Any:
        return self.inner.memory(batch, length)

    def hidden_in(self, window: Any, memory: Any, embeds: Any, *, position_ids: Any, **sight: Any) -> Any:
        return self.hidden(embeds, position_ids=position_ids.gather(1, window.queries))


MISTAKES: dict[type[Delegating], set[str]] = {
    Causal: {"attention"},
    BlindToPadding: {"padding"},
    ShiftForgotten: {"alignment"},
    ShiftUnsaid: {"alignment", "padding"},  # beside padding on the left, a row reads the padding
    ScaledIds: {"embeddings"},
    MaskOutside: {"mask id"},
    MaskIsEos: {"mask id"},
    EosOutside: {"eos ids"},
    NarrowHead: {"shape"},
    NotFinite: {"finite"},
    Dropout: {"repeatable"},
    LeakyBatch: {"batch"},
    HeadReadsOthers: {"head", "padding"},
    ZeroMask: {"table"},
    ForgetfulCache: {"caches"},
}


def test_a_correct_wrapper_passes() -> None:
    assert all(softdlm.check_denoiser(Delegating(family)).passed for family in ("llada", "dream"))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda kind: kind.__name__)
def test_a_mistake_is_named_by_its_law(mistake: type[Delegating]) -> None:
    report = softdlm.check_denoiser(mistake(), strict=False)
    assert set(report.broken) == MISTAKES[mistake]
    with pytest.raises(ContractError, match=rf"breaks \d+ of {len(LAWS)} laws: {report.broken[0]}: ") as caught:
        softdlm.check_denoiser(mistake())
    assert "\n" not in str(caught.value)
    assert len(str(report).splitlines()) == len(LAWS)


def test_every_law_is_broken_by_some_mistake() -> None:
    assert set().union(*MISTAKES.values()) == set(LAWS)


@pytest.mark.usefixtures("unchecked")
def test_only_a_denoiser_is_tried() -> None:
    with pytest.raises(UsageError, match=r"takes a Denoiser, not Linear: softdlm\.wrap makes one"):
        softdlm.check_denoiser(torch.nn.Linear(2, 2))  # type: ignore[arg-type]


def test_the_example_of_the_page_keeps_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    """Every block of docs/own-model.md, in its order, in one namespace, as a reader runs them."""
    names: dict[str, Any] = {}
    page = (ROOT / "docs" / "own-model.md").read_text()
    for code in blocks("python", page):
        exec(compile(code, "docs/own-model.md", "exec"), names)
    printed = capsys.readouterr().out
    assert printed.count("holds  ") == len(LAWS)
    assert all(f"| {law} |" in page for law in LAWS)
