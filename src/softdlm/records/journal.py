"""The samples of one cell on disk: written by one process at a time, one line a sample, never twice.

`summary.json` is written last, whole or not at all, so its presence means a finished cell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from softdlm.errors import ResultsError
from softdlm.records.canonical import content_digest
from softdlm.records.files import read_json, write_json, writing
from softdlm.records.lines import Lines, read_lines
from softdlm.records.rebuild import rebuild

MANIFEST, SAMPLES, SUMMARY = "manifest.json", "samples.jsonl", "summary.json"


@dataclass(frozen=True)
class Sample:
    """One answered item: a line of `samples.jsonl`."""

    id: str
    prompt_digest: str
    text: str
    ids_digest: str
    """Of the answer's token ids, up to EOS."""
    forwards: int
    tokens: int
    """Up to EOS."""
    seconds: float
    """This item's share of its batch's decoding, by forwards; their sum is the time spent decoding."""
    finish: str
    correct: bool
    reason: str
    extra: dict[str, Any] = field(default_factory=dict)


class Journal(Lines[Sample]):
    """The folder of a cell, held open for writing."""

    def __init__(
        self,
        folder: Path,
        protocol: Mapping[str, Any],
        labels: Mapping[str, str],
        prompts: Mapping[str, str | None] | None = None,
    ) -> None:
        """`prompts`: the items of the task, each with the digest of its prompt where it is known."""
        self.folder, self.protocol, self.labels, self.prompts = folder, dict(protocol), dict(labels), prompts
        self.samples: dict[str, Sample] = {}
        self._sessions: list[dict[str, Any]] = []
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder / SAMPLES, _sample)

    def begin(self, session: Mapping[str, Any]) -> None:
        """Record who is about to write, with what versions, on what machine."""
        self._sessions.append({**session, "samples_before": len(self.samples)})
        manifest = {"labels": self.labels, "protocol": self.protocol, "sessions": self._sessions}
        write_json(self.folder / MANIFEST, manifest)

    @property
    def last(self) -> Mapping[str, Any]:
        """What was recorded of the last session; empty before the first."""
        return self._sessions[-1] if self._sessions else {}

    def append(self, sample: Sample) -> None:
        if sample.id in self.samples:
            raise ResultsError(f"{self.folder} already holds an answer to {sample.id}: it was decoded twice")
        self.write(asdict(sample))
        self.samples[sample.id] = sample

    def finish(self, summary: Mapping[str, Any]) -> None:
        self.sync()
        write_json(self.folder / SUMMARY, summary)

    def check(self) -> None:
        """Take the samples and sessions of this protocol; a folder of another one is not touched."""
        self.samples = _by_id(self.path, self.entries)
        for number, sample in enumerate(self.entries if self.prompts is not None else (), 1):
            if not fits(sample, self.prompts or {}):
                what = "to another prompt" if sample.id in (self.prompts or {}) else "which is no item of its task"
                raise ResultsError(f"{self.path}: line {number} answers {sample.id}, {what}: remove the line")
        if (self.folder / MANIFEST).exists():
            manifest = read_manifest(self.folder)
            if manifest["protocol"] != self.protocol:
                raise ResultsError(f"{self.folder / MANIFEST} is of another protocol than its folder: move it away")
            self._sessions = manifest["sessions"]
        elif self.path.stat().st_size:
            raise ResultsError(f"{self.folder} has samples but no {MANIFEST}: move it away")

    def holder(self) -> str:
        try:
            last = read_manifest(self.folder)["sessions"][-1]
            return f" (process {last['pid']} on {last['host']}, since {last['started']})"
        except (ResultsError, IndexError, KeyError):
            return ""


def prompt_digest(prompt: str) -> str:
    return content_digest(prompt, length=16)


def fits(sample: Sample, prompts: Mapping[str, str | None]) -> bool:
    """Whether a sample answers one of these items, as it is asked."""
    return sample.id in prompts and prompts[sample.id] in (None, sample.prompt_digest)


def read_samples(path: Path) -> tuple[dict[str, Sample], int]:
    """The samples of a file by id, and the bytes they take; what follows is a torn tail."""
    entries, whole = read_lines(path, _sample) if path.exists() else ([], 0)
    return _by_id(path, entries), whole


def read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = read_json(folder / MANIFEST)
        return {name: rebuild(kind, manifest[name]) for name, kind in _MANIFEST_KINDS.items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ResultsError(f"{folder / MANIFEST} cannot be read: {error}") from error


_MANIFEST_KINDS = {"labels": dict[str, str], "protocol": dict[str, Any], "sessions": list[dict[str, Any]]}
_sample = partial(rebuild, Sample)


def _by_id(path: Path, samples: list[Sample]) -> dict[str, Sample]:
    found: dict[str, Sample] = {}
    for number, sample in enumerate(samples, 1):
        if sample.id in found:
            raise ResultsError(f"{path}: line {number} answers {sample.id} a second time: remove one of them")
        found[sample.id] = sample
    return found
