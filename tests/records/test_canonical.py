"""Digests name folders and caches: their values are part of the format on disk."""

import hashlib
from pathlib import Path

import pytest

from softdlm.errors import UsageError
from softdlm.records.canonical import canonical, content_digest, digest

VALUE = {"b": [1, 2.5, None, True], "a": "żółw \ud800 \u2028"}


def test_the_digest_of_a_setting_is_what_names_the_cells_on_disk() -> None:
    assert digest(VALUE) == "4268be561fec1bf27a78"
    assert digest(dict(reversed(VALUE.items()))) == digest(VALUE)
    assert digest(VALUE, 64).startswith(digest(VALUE))
    assert digest({**VALUE, "b": [1, 2.5, None, False]}) != digest(VALUE)


def test_equal_settings_have_one_canonical_form() -> None:
    assert canonical({"x": (1.0, 2.5, "a"), 3: None}) == {"x": [1, 2.5, "a"], "3": None}
    assert digest(canonical({"lam": 1.0})) == digest(canonical({"lam": 1}))
    assert canonical(True) is True
    for value in (float("nan"), float("inf"), object()):
        with pytest.raises(UsageError, match="a setting must be"):
            canonical([value])


def test_text_bytes_and_files_count_by_their_content(tmp_path: Path) -> None:
    large = bytes(range(256)) * 10_000
    (tmp_path / "file").write_bytes(large)
    whole = hashlib.sha256("ż".encode() + large).hexdigest()
    assert content_digest("ż", tmp_path / "file") == content_digest("ż", large) == whole
    assert content_digest("ż", large, length=16) == whole[:16]
    assert content_digest("\ud800") != content_digest("?")
