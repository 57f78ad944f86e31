"""The tables that the tasks draw from: JSON files in this folder."""

import json
from pathlib import Path
from typing import Any


def read_table(name: str) -> Any:
    return json.loads(Path(__file__).with_name(f"{name}.json").read_text(encoding="utf-8"))
