"""Hook of hatchling: the README as a package index shows it, and the project's links.

Relative links work in the repository only. With `address` in pyproject.toml they lead there; without one, a link
becomes its text and a picture is left out, so that nothing on the index is broken.
"""

from __future__ import annotations

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

PLACES = {
    "Source": "",
    "Documentation": "/tree/HEAD/docs",
    "Changelog": "/blob/HEAD/CHANGELOG.md",
    "Issues": "/issues",
}
CODE = re.compile(r"(```.*?```)", re.DOTALL)
RELATIVE = r"(?P<target>(?![a-z]+:)[^)\s\"]+)"
PICTURE = re.compile(rf"!\[[^\]]*\]\({RELATIVE}\)|<img\b[^>]*\bsrc=\"{RELATIVE.replace('target', 'source')}\"[^>]*>")
LINK = re.compile(rf"(?<!!)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\({RELATIVE}\)")


class PackagePage(MetadataHookInterface):
    def update(self, metadata: dict) -> None:
        address = self.config.get("address", "").rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": page(text, address)}
        metadata["urls"] = {name: address + path for name, path in PLACES.items() if address}


def page(text: str, address: str) -> str:
    """The README with links that work anywhere; blocks of code stay."""
    parts = CODE.split(text)
    parts[::2] = [_links(_pictures(each, address), address) for each in parts[::2]]
    return re.sub(r"\n{3,}", "\n\n", "".join(parts))


def _pictures(text: str, address: str) -> str:
    def shown(found: re.Match[str]) -> str:
        target = found["target"] or found["source"]
        return found[0].replace(target, f"{address}/raw/HEAD/{target}") if address else ""

    return PICTURE.sub(shown, text)


def _links(text: str, address: str) -> str:
    def led(found: re.Match[str]) -> str:
        return f"[{found['text']}]({address}/blob/HEAD/{found['target']})" if address else found["text"]

    return LINK.sub(led, text)
