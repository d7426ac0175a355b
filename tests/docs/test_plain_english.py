"""Text and names are plain English: no riddles as sentences, no private metaphors as names."""

from collections.abc import Iterable

from tests.docs import prose
from tests.docs.prose import Finding


def test_no_sentence_begins_with_a_riddle() -> None:
    assert_none(prose.sentences())


def test_no_text_hides_who_acts() -> None:
    assert_none(prose.vague_words())


def test_no_identifier_uses_a_retired_word() -> None:
    assert_none(prose.retired_names())


def test_test_names_say_who_does_what() -> None:
    assert_none(prose.mannered_tests())


def assert_none(found: Iterable[Finding]) -> None:
    listed = [f"{finding.path}:{finding.line}: {finding.text}" for finding in found]
    assert not listed, "\n".join(["rewrite these (subject first, the usual words of the field):", *listed])
