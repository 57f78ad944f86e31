"""The notebook shows what it does: it is executed, and its stored outputs must come out again."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.notebook import NOTEBOOK, code_cells, executed, read, shown

MOST_BYTES = 200_000


@pytest.fixture(scope="module")
def stored() -> Any:
    return read()


def test_its_outputs_come_out_again(stored: Any, tmp_path: Path) -> None:
    assert shown(executed(stored, tmp_path)) == shown(stored), "store them anew: python -m tests.notebook"


def test_it_reads_without_running(stored: Any) -> None:
    outputs = [output for cell in code_cells(stored) for output in cell.outputs]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert [output.name for output in outputs if output.output_type == "stream" and output.name != "stdout"] == []
    assert len(pictures) == 1
    assert NOTEBOOK.stat().st_size < MOST_BYTES


def test_its_links_lead_somewhere(stored: Any) -> None:
    text = "\n".join(cell.source for cell in stored.cells if cell.cell_type == "markdown")
    targets = [each.partition("#")[0] for each in re.findall(r"\]\(([^)\s]+)\)", text)]
    assert targets
    assert [each for each in targets if not (NOTEBOOK.parent / each).exists()] == []
