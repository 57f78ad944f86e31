"""The chat templates of the families: one Jinja file each, whose lines are joined without line breaks."""

from pathlib import Path


def chat_template(name: str) -> str:
    return "".join(Path(__file__).with_name(f"{name}.jinja").read_text(encoding="utf-8").splitlines())
