"""The notebook of the examples, executed. `python -m tests.notebook` stores its outputs anew."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "examples" / "soft_tokens.ipynb"
PATIENCE = 300
"""Seconds for one cell."""
NO_WIDGETS = "ignore:IProgress not found"
"""tqdm's warning about a package that draws bars of progress in a browser."""
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
"""Without the version of Python, so that storing on another one changes nothing."""


def read() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)


def executed(notebook: Any, folder: Path) -> Any:
    """A copy with new outputs. Its results go to the folder: in an empty one, everything is decoded."""
    fresh = deepcopy(notebook)
    place = {"metadata": {"path": str(folder)}}
    client = NotebookClient(fresh, timeout=PATIENCE, kernel_name="python3", resources=place, record_timing=False)
    client.execute(env={**os.environ, "PYTHONWARNINGS": NO_WIDGETS})
    fresh.metadata = nbformat.from_dict(METADATA)
    return fresh


def shown(notebook: Any) -> list[str]:
    """What each cell of code shows: texts as they are, pictures by their kinds, since their bytes are matplotlib's."""
    return ["".join(map(_shown, cell.outputs)) for cell in code_cells(notebook)]


def code_cells(notebook: Any) -> Iterator[Any]:
    return (cell for cell in notebook.cells if cell.cell_type == "code")


def _shown(output: Any) -> str:
    if output.output_type == "stream":
        return output.text if output.name == "stdout" else f"({output.name}) {output.text}"
    pictures = sorted(kind for kind in output.data if kind != "text/plain")
    return "\n".join([*pictures, output.data["text/plain"], ""])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        fresh = executed(read(), Path(folder))
    nbformat.write(fresh, NOTEBOOK)


if __name__ == "__main__":
    main()
