"""Entities in tokenised text."""

from stages.shared.scoring.metrics import decoded


def test_entities_of_moses_become_characters() -> None:
    assert decoded(["it &apos;s &quot; a &amp; b &quot; &#91; &lt; &#124; &#93;", "AT&T &amp;apos;"]) == [
        'it \'s " a & b " [ < | ]',
        "AT&T &apos;",
    ]
