"""Live words and the messages they become: a listener is told each word once, in whatever order they arrive."""

from __future__ import annotations

import pytest

from moorage.service.words import Transcript


def told(*heard: str | tuple[str, bool]) -> str:
    """Everything a listener is told: a text is a message, a pair is a piece and whether it begins."""
    transcript = Transcript()
    return "".join(
        transcript.message(each) if isinstance(each, str) else transcript.piece(each[0], begins=each[1])
        for each in heard
    )


START, KEPT = ("", True), ("", True)


@pytest.mark.parametrize(
    ("heard", "expected"),
    [
        ([START, ("Once upon ", False), ("a time", False), KEPT, "Once upon a time"], "Once upon a time"),
        ([START, ("Once upon ", False), KEPT, "Once upon a time"], "Once upon a time"),  # words that got lost
        ([START, ("Once upon ", False), "Once upon a time", ("a time", False), KEPT], "Once upon a time"),
        ([START, "Once upon a time", ("Once upon ", False), ("a time", False), KEPT], "Once upon a time"),
        ([("Once upon ", True), ("Once upon a time", True), KEPT, "Once upon a time"], "Once upon a time"),
        (["Hello", "Once upon a time"], "Hello\nOnce upon a time"),
        ([START, ("Hello", False), KEPT, ("World", False), "Hello", "World"], "Hello\nWorld"),
        ([START, ("Hello", False), ("World", False), "Hello", "World"], "HelloWorld"),
        ([START, ("never kept", False), KEPT, "Hello"], "never kept\nHello"),
        ([START, ("OK", False), KEPT, "OK", ("OK, then", False), KEPT, "OK, then"], "OK\nOK, then"),
        ([START, ("started\n", False), KEPT, "started"], "started\n"),
        (["Hello", ("\n", False), ("World\n", False), "World"], "Hello\n\nWorld\n"),
    ],
)
def test_each_word_is_told_once(heard: list[str | tuple[str, bool]], expected: str) -> None:
    assert told(*heard) == expected


def test_after_a_line_has_ended_no_other_one_is_begun() -> None:
    transcript = Transcript()
    transcript.message("Hello")
    transcript.end_line()
    assert transcript.message("World") == "World"
