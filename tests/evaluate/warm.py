"""Imported by the process that commands are forked from: what takes long to import is there before the fork."""

import tempfile
from pathlib import Path

import torch

torch.set_num_threads(1)

import softdlm.evaluate.run  # noqa: E402, F401
from softdlm.evaluate.cell import ModelSpec  # noqa: E402
from tests.tokenizers import checkpoint  # noqa: E402

with tempfile.TemporaryDirectory() as folder:
    ModelSpec(str(checkpoint(Path(folder), "llada")), "cpu", "float32").load()
