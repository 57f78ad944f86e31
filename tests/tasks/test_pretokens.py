from hypothesis import given
from hypothesis import strategies as st

from softdlm.tasks.pretokens import fits, pieces


def test_words_take_their_space_and_digits_stand_alone():
    assert pieces("Ava has 12 pens.") == ["Ava", " has", " ", "1", "2", " pens", "."]
    assert pieces("\n#### 42") == ["\n#### ", "4", "2"]
    assert pieces("x:\n        y") == ["x", ":", "\n        ", "y"]
    assert pieces("Tom's") == ["Tom", "'s"]


@given(st.text(alphabet=st.characters(max_codepoint=126, min_codepoint=9)))
def test_pieces_of_ascii_text_lose_nothing(text):
    assert "".join(pieces(text)) == text


def test_fits_counts_pieces():
    assert fits("a b", 2)
    assert not fits("a b", 1)
