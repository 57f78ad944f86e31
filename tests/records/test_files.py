"""A file is written whole or not at all, and nothing but a regular file is ever replaced."""

import errno
import json
import os
import stat
from pathlib import Path

import pytest

from softdlm.errors import ResultsError
from softdlm.records import files
from softdlm.records.files import (
    read_bytes,
    ready_file,
    ready_folder,
    replacing,
    write_bytes,
    write_json,
    write_text,
    writing,
)


def refuse(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_contents_come_back_and_only_the_file_is_there(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"text": "ż \ud800"})
    write_text(tmp_path / "b.txt", "ż\r\n")
    write_bytes(tmp_path / "c", b"\0\xff")
    assert json.loads((tmp_path / "a.json").read_text()) == {"text": "ż \ud800"}
    assert (tmp_path / "b.txt").read_bytes() == "ż\r\n".encode()
    assert (tmp_path / "c").read_bytes() == b"\0\xff"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.json", "b.txt", "c"]


@pytest.mark.parametrize("step", ["fsync", "replace", "open"])
def test_a_full_disk_keeps_the_old_file_and_names_path_and_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    file = tmp_path / "summary.json"
    write_json(file, {"old": 1})
    with monkeypatch.context() as patch:
        patch.setattr(os, step, refuse)
        with pytest.raises(ResultsError, match=r"cannot write .*summary\.json: No space left on device; "):
            write_json(file, {"new": 2})
    assert json.loads(file.read_text()) == {"old": 1}
    assert [each.name for each in tmp_path.iterdir()] == [file.name]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_writer_that_is_interrupted_leaves_nothing_behind(tmp_path: Path, error: type[BaseException]) -> None:
    def interrupted() -> None:
        with replacing(tmp_path / "figure.svg") as part:
            part.write_text("half")
            assert part.suffix == ".svg"
            raise error

    with pytest.raises(error):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    places = [tmp_path / name for name in ("link", "dangling", "pipe", "folder")]
    places[0].symlink_to(target)
    places[1].symlink_to(tmp_path / "nowhere")
    os.mkfifo(places[2])
    places[3].mkdir()
    kinds = [stat.S_IFMT(place.lstat().st_mode) for place in places]
    for place in places:
        with pytest.raises(ResultsError, match=f"cannot write {place}: it exists and is not a regular file"):
            write_text(place, "new")
    assert [stat.S_IFMT(place.lstat().st_mode) for place in places] == kinds
    assert target.read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 5


def test_a_new_file_has_the_permissions_of_any_other(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "")
    (tmp_path / "b").write_text("")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"cannot write .*/no/a: No such file or directory"):
        write_text(tmp_path / "no" / "a", "")
    with pytest.raises(ResultsError, match="cannot write"), writing(tmp_path):
        refuse()


def test_reading_does_not_wait_for_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ResultsError, match="is not a regular file"):
        read_bytes(tmp_path / "pipe")


def test_a_place_for_results_is_tried_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made, left empty, and refused where the disk is full or nothing can be written."""
    ready_folder(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []
    monkeypatch.setattr(files, "SPARE", 1 << 62)
    with pytest.raises(ResultsError, match=r"cannot write .*: No space left on device"):
        ready_folder(tmp_path)
    monkeypatch.undo()
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(ResultsError, match="it exists and is not a regular file"):
        ready_file(tmp_path / "link")
    with pytest.raises(ResultsError, match="cannot write /proc"):
        ready_folder(Path("/proc"))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a", "link"]
