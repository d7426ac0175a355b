"""Texts and values that break code which does not expect them."""

from __future__ import annotations

from typing import Any

from moorage.core.codec import MAX_DEPTH

# NUL is left out: PostgreSQL cannot store it.
TEXTS = (
    "plain",
    "emoji 👩🏽‍🚀 and flags 🇺🇦🏳️‍🌈",
    "عربي ثم English ثم עברית \u202eright to left\u202c",
    "combining e\u0301 and composed é, ﬁ and fi, İstanbul, ß",
    "漢字かな交じり文 한국어 ไทย",
    "beyond the BMP 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 \U0010ffff",
    "line\nbreaks\r\nand\ttabs, \u2028 and \u2029, \x01 \x1b[31m \x7f \x85",
    "quotes ' \" ` and ; -- DROP TABLE sessions; /* */ % _ \\ \\u0041 $1 ?1 :name {}",
    '{"looks": "like JSON", "null": null}',
    "\ufeffbyte order mark",
    " spaces around ",
    "null",
)


def _nested(depth: int) -> Any:
    value: Any = [None, True, False, 0, -1, 1.0, 0.1, 1e300, 2**63 - 1, -(2**63), "", "text", [], {}]
    for level in range(depth):
        value = {"level": level, "next": value} if level % 2 else [value]
    return value


DEEP = _nested(MAX_DEPTH - 8)
