"""What is on disk survives kills, full disks, torn lines and second writers."""

import errno
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from softdlm.errors import ResultsError
from softdlm.records.journal import MANIFEST, SAMPLES, Journal, read_samples
from tests.damage import damaged_lines
from tests.evaluate.cells import sample

PROTOCOL = {"what": "a test"}
ITEMS = [
    sample("a", text="line one\nline two"),
    sample("b", text='żółw \ud800 \u2028 }{"', correct=False),
    sample("c", tokens=0),
]


def opened(folder: Path) -> Journal:
    return Journal(folder, PROTOCOL, {"model": "m"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with opened(tmp_path / "cell") as journal:
        journal.begin({"pid": 17, "host": "here", "started": "noon"})
        for each in ITEMS:
            journal.append(each)
    return tmp_path / "cell"


def test_samples_come_back_as_they_went_in(folder: Path) -> None:
    with opened(folder) as journal:
        assert list(journal.samples.values()) == ITEMS
    assert len((folder / SAMPLES).read_bytes().splitlines()) == len(ITEMS)


def test_cut_anywhere_the_file_is_repaired_and_ends_up_the_same(folder: Path, tmp_path: Path) -> None:
    whole = (folder / SAMPLES).read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole) + 1):
        (folder / SAMPLES).write_bytes(whole[:cut])
        with opened(folder) as journal:
            complete = sum(cut >= end - 1 for end in ends)  # only the end of line may be missing
            assert list(journal.samples.values()) == ITEMS[:complete]
            for each in ITEMS[complete:]:
                journal.append(each)
        assert (folder / SAMPLES).read_bytes() == whole


@pytest.mark.parametrize("tail", [b"\0" * 40, b"\n", b'{"id": "d"}\n', b"\xff\n\xfe", b"[" * 100_000])
def test_rubbish_at_the_end_is_cut_off(folder: Path, tail: bytes) -> None:
    whole = (folder / SAMPLES).read_bytes()
    (folder / SAMPLES).write_bytes(whole + tail)
    opened(folder).close()
    assert (folder / SAMPLES).read_bytes() == whole


def test_damage_in_the_middle_is_an_error_and_left_alone(folder: Path) -> None:
    first, second, third = (folder / SAMPLES).read_bytes().splitlines(keepends=True)
    damaged = first + second[:9] + b"\n" + third
    (folder / SAMPLES).write_bytes(damaged)
    with pytest.raises(ResultsError, match="line 2 is damaged"):
        opened(folder)
    assert (folder / SAMPLES).read_bytes() == damaged
    (folder / SAMPLES).write_bytes(first + second + third)
    opened(folder).close()  # the failed opening holds no lock


def test_no_item_is_answered_twice(folder: Path) -> None:
    with opened(folder) as journal, pytest.raises(ResultsError, match="already holds an answer to a"):
        journal.append(sample("a"))
    first = (folder / SAMPLES).read_bytes().splitlines(keepends=True)[0]
    with (folder / SAMPLES).open("ab") as file:
        file.write(first)
    with pytest.raises(ResultsError, match="line 4 answers a a second time"):
        read_samples(folder / SAMPLES)


def test_a_second_writer_is_told_who_holds_the_cell(folder: Path) -> None:
    with opened(folder), pytest.raises(ResultsError, match=r"another process .*\(process 17 on here, since noon\)"):
        opened(folder)
    opened(folder).close()


def test_a_full_disk_is_one_clear_error_and_costs_nothing_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = (folder / SAMPLES).read_bytes()
    room = 25
    write = os.write

    def full(file: int, data: bytes) -> int:
        nonlocal room
        if room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = write(file, data[:room])
        room -= taken
        return taken

    journal = opened(folder)
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ResultsError, match=r"cannot write .*: No space left on device; .* run the same again"):
        journal.append(sample("d"))
    assert room == 0
    assert (folder / SAMPLES).read_bytes() == whole
    assert "d" not in journal.samples
    journal.close()
    monkeypatch.undo()
    with opened(folder) as again:
        again.append(sample("d"))
        assert list(again.samples) == ["a", "b", "c", "d"]


def test_a_folder_of_another_protocol_is_not_touched(folder: Path) -> None:
    with pytest.raises(ResultsError, match="of another protocol"):
        Journal(folder, {"what": "another test"}, {})
    (folder / MANIFEST).write_text("{")
    with pytest.raises(ResultsError, match="cannot be read"):
        opened(folder)
    (folder / MANIFEST).unlink()
    with pytest.raises(ResultsError, match="samples but no manifest"):
        opened(folder)


def test_the_manifest_keeps_every_session(folder: Path) -> None:
    with opened(folder) as journal:
        journal.begin({"pid": 18})
    sessions = json.loads((folder / MANIFEST).read_text())["sessions"]
    assert [(each["pid"], each["samples_before"]) for each in sessions] == [(17, 0), (18, 3)]


def test_samples_reach_the_disk_without_being_closed(folder: Path, tmp_path: Path) -> None:
    journal = opened(folder)
    journal.append(sample("d"))
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    assert list(read_samples(copy / SAMPLES)[0]) == ["a", "b", "c", "d"]
    journal.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [("id", 7), ("tokens", "7"), ("tokens", True), ("seconds", None), ("correct", 1), ("extra", []), ("colour", "red")],
)
def test_a_value_of_the_wrong_type_is_damage(folder: Path, name: str, value: object) -> None:
    first, *others = (folder / SAMPLES).read_text().splitlines(keepends=True)
    (folder / SAMPLES).write_text("".join([json.dumps({**json.loads(first), name: value}) + "\n", *others]))
    with pytest.raises(ResultsError, match="line 1 is damaged"):
        opened(folder)


@pytest.mark.parametrize("manifest", ['{"labels": {}, "protocol": {}, "sessions": 7}', "[]", "[" * 100_000, "\0"])
def test_a_damaged_manifest_is_one_line(folder: Path, manifest: str) -> None:
    (folder / MANIFEST).write_text(manifest)
    with pytest.raises(ResultsError, match=r"manifest\.json cannot be read"):
        opened(folder)


@pytest.mark.parametrize("name", [SAMPLES, MANIFEST])
def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(ResultsError, match="is not a regular file"):
        opened(folder)


def test_every_sample_answers_an_item_as_it_is_asked(folder: Path) -> None:
    """What does not is named with its line, and left alone; what is missing is no fault."""
    whole = (folder / SAMPLES).read_bytes()
    asked: dict[str, str | None] = {"a": "p", "b": "p", "c": None, "d": "p"}
    with Journal(folder, PROTOCOL, {}, asked) as journal:
        assert list(journal.samples) == ["a", "b", "c"]
    with pytest.raises(ResultsError, match="line 2 answers b, to another prompt: remove the line"):
        Journal(folder, PROTOCOL, {}, {**asked, "b": "q"})
    with pytest.raises(ResultsError, match="line 3 answers c, which is no item of its task: remove the line"):
        Journal(folder, PROTOCOL, {}, {"a": "p", "b": "p"})
    assert (folder / SAMPLES).read_bytes() == whole


@pytest.mark.parametrize("part", range(4))
def test_a_damaged_journal_opens_or_is_one_line(folder: Path, part: int) -> None:
    whole = (folder / SAMPLES).read_bytes()
    asked = {"a": "p", "b": "p", "c": "p"}
    for number in range(part, 120, 4):
        (folder / SAMPLES).write_bytes(damaged_lines(whole, number))
        with suppress(ResultsError), Journal(folder, PROTOCOL, {}, asked) as journal:
            assert set(journal.samples) <= set(asked)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_only_utf_8_is_read(folder: Path, encoding: str) -> None:
    (folder / MANIFEST).write_bytes((folder / MANIFEST).read_text().encode(encoding))
    with pytest.raises(ResultsError, match=r"manifest\.json cannot be read: 'utf-8'"):
        opened(folder)
