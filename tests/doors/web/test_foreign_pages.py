"""A page of another program on this machine tries to use the server, in a real browser."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.doors.web.stage import Stage

ATTACK = """
async ({url, ws}) => {
  const agent = JSON.stringify({kind: "command", command: ["true"]});
  const session = JSON.stringify({session_id: "stolen", agent_name: "echo-agent"});
  const type = {"Content-Type": "application/json"};
  const attempt = async (what) => {
    try { const got = await what(); return got.status ?? got; } catch { return "blocked"; }
  };
  const simple = (path, body, type) =>
    () => fetch(url + path, {method: "POST", mode: "no-cors", headers: {"Content-Type": type}, body});
  return {
    plain: await attempt(simple("/sessions", session, "text/plain")),
    form: await attempt(simple("/sessions", session, "application/x-www-form-urlencoded")),
    bare: await attempt(() => fetch(url + "/runs", {method: "POST", mode: "no-cors", body: new Blob([session])})),
    json: await attempt(() => fetch(url + "/sessions", {method: "POST", headers: type, body: session})),
    put: await attempt(() => fetch(url + "/agents/stolen", {method: "PUT", headers: type, body: agent})),
    read: await attempt(async () => (await fetch(url + "/sessions")).text()),
    beacon: navigator.sendBeacon(url + "/sessions", session),
    socket: await new Promise((done) => {
      const socket = new WebSocket(ws + "/graphql", "graphql-transport-ws");
      socket.onopen = () => socket.send(JSON.stringify({type: "connection_init"}));
      socket.onmessage = (said) => done(JSON.parse(said.data).type);
      socket.onclose = (closed) => done(closed.code);
    }),
    stream: await new Promise((done) => {
      const events = new EventSource(url + "/events");
      events.onopen = () => done("open");
      events.onerror = () => { events.close(); done("refused"); };
    }),
  };
}
"""


class Elsewhere(BaseHTTPRequestHandler):
    """A page of another program."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title>")

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def elsewhere() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_page_on_another_port_can_neither_read_nor_change_anything(
    page: Page, stage: Stage, elsewhere: str, complaints: list[str]
) -> None:
    secret = stage.create(agent_name="echo-agent", metadata={"note": "for nobody else"})
    page.goto(elsewhere)
    got = page.evaluate(ATTACK, {"url": stage.url, "ws": stage.url.replace("http", "ws", 1)})
    complaints.clear()  # the browser complains of what it was refused
    assert got["read"] == got["json"] == got["put"] == "blocked", got
    assert (got["socket"], got["stream"]) == (4403, "refused"), got
    assert secret not in json.dumps(got)
    sessions = [each["session_id"] for each in stage.ask("GET", "/sessions")["items"]]
    assert "stolen" not in sessions
    assert "stolen" not in json.dumps(stage.ask("GET", "/agents"))


def test_own_page_reads_and_changes(page: Page, stage: Stage) -> None:
    page.goto(stage.url)
    made = page.evaluate(
        """async () => (await fetch("/sessions", {method: "POST", headers: {"Content-Type": "application/json"},
        body: JSON.stringify({agent_name: "echo-agent"})})).status"""
    )
    assert made == 201
