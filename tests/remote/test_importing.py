"""Histories of other systems, posted to a server unchanged."""

from __future__ import annotations

import json

import httpx2
import pytest

from moorage import sync
from tests.service.histories import HOST, PROJECT, STATE
from tests.service.test_histories_messages import CHAT, EXPECTED, lines, said


@pytest.mark.parametrize("body", [json.dumps(CHAT, indent=1), lines(CHAT), json.dumps({"messages": CHAT})])
def test_a_list_of_messages_can_be_posted(address: str, body: str) -> None:
    would = httpx2.post(f"{address}/import", content=body, params={"dry_run": "true"}).json()
    assert would["entries"] == 7
    report = httpx2.post(f"{address}/import", content=body).json()
    assert report["imported"] == would["imported"]
    with sync.connect(address) as moor:
        assert said(moor, report["imported"][0]) == EXPECTED
    again = httpx2.post(f"{address}/import", content=body).json()
    assert (again["imported"], again["already_there"]) == ([], report["imported"])


def test_a_state_and_a_transcript_can_be_posted(address: str) -> None:
    state = httpx2.post(f"{address}/import", content=STATE.read_bytes()).json()
    assert state["imported"] == ["agent-20260108-180530-abc12345"]
    transcript = httpx2.post(f"{address}/import", content=(PROJECT / f"{HOST}.jsonl").read_bytes()).json()
    assert HOST in transcript["imported"]


@pytest.mark.parametrize("body", ["", "[]", "hello", '{"type": "other"}'])
def test_unknown_format_is_refused(address: str, body: str) -> None:
    answer = httpx2.post(f"{address}/import", content=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_import"), answer.text
