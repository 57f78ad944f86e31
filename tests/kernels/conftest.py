"""Triton's kernels run on a CPU through its interpreter, which has to be asked for before they are defined."""

import os

from tests.conftest import DEVICE

if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"
