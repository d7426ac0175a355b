"""A client that openapi-python-client makes from our document talks to a real server."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from tests.doors.http.process import Process

MAKE = "from openapi_python_client.cli import app; app()"
PACKAGE = "made_for_moorage"


@pytest.fixture
def made(tmp_path: Path, start: Callable[..., Process], monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A server, and a client made from what it says of itself: `call` gives an operation's answer."""
    url = start("--store", f"sqlite:///{tmp_path / 'moorage.db'}").url
    document, target = tmp_path / "openapi.json", tmp_path / PACKAGE
    document.write_bytes(httpx2.get(f"{url}/openapi.json").raise_for_status().content)
    command: list[str | Path] = [
        "generate",
        "--path",
        document,
        "--output-path",
        target,
        "--meta",
        "none",
        "--fail-on-warning",
    ]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # it formats what it makes, with ruff
    done = subprocess.run(
        [sys.executable, "-c", MAKE, *command],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    monkeypatch.syspath_prepend(tmp_path)
    models = importlib.import_module(f"{PACKAGE}.models")
    types = importlib.import_module(f"{PACKAGE}.types")
    client = importlib.import_module(f"{PACKAGE}.client").Client(base_url=url, raise_on_unexpected_status=True)

    def call(operation: str, *places: str, **given: Any) -> Any:
        return importlib.import_module(f"{PACKAGE}.api.{operation}").sync(*places, client=client, **given)

    with client:
        yield SimpleNamespace(call=call, models=models, types=types)


@pytest.mark.timeout(300)
def test_client_generated_from_the_document_works(made: SimpleNamespace) -> None:
    call, models = made.call, made.models

    # Create
    body = models.CreateRequest(session_id="one", agent_name="echo-agent", purpose="a trial")
    session = call("sessions.create", body=body, idempotency_key="once")
    assert (session.session_id, session.purpose, session.status) == ("one", "a trial", models.SessionStatus.CREATED)
    assert call("sessions.create", body=body, idempotency_key="once").session_id == "one"

    # Append and list
    said = [models.NewMessage(content="first"), "second"]
    posted = call("sessions.post_messages", "one", body=models.PostMessages(messages=said, run=False))
    assert [entry.content for entry in posted.entries] == ["first", "second"]
    assert [entry.content for entry in call("sessions.messages", "one", last=1).items] == ["second"]
    assert [each.session_id for each in call("sessions.list_", state=models.ListState.ACTIVE).items] == ["one"]

    # Events: a page, which ends
    page = call("sessions.session_events", "one", types=[models.SessionEventsTypesItem.MESSAGE], limit=1)
    assert ([event.id for event in page.items], page.next_) == ([2], "2")
    rest = call("sessions.session_events", "one", after=page.next_)
    assert [event.id for event in rest.items] == [3]
    kinds = [models.EventsTypesItem.CREATED, models.EventsTypesItem.MESSAGE]
    assert len(call("events.events", types=kinds).items) == 3
    assert call("sessions.words", "one").text == ""
    assert [each.line for each in call("last_lines.last_lines", sessions=["one", "nobody"]).items] == ["second"]

    # Run
    reply = call("runs.run", body=models.RunRequest(prompt="hello", session="one", wait=60.0))
    assert (reply.status, call("runs.result", reply.run.run_id).result) == ("completed", reply.result)

    # Out, in again, and away
    exported = call("sessions.export", "one").replace('"one"', '"two"')
    taken = call("import_.import_", body=made.types.File(payload=exported.encode()))
    assert (taken.imported, call("sessions.get", "two").purpose) == (["two"], "a trial")
    assert call("sessions.delete", "one", reason="done with it").session_ids == ["one"]

    # Errors
    for operation in ("sessions.get", "sessions.messages", "sessions.session_events"):
        refused = call(operation, "one")
        assert isinstance(refused, models.ProblemDetails)
        assert (refused.status, refused.code) == (410, "session_gone")
    refused = call("sessions.create", body=models.CreateRequest(session_id="not an id"))
    assert (refused.status, refused.code) == (422, "invalid_id")
