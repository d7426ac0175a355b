"""`moorage mcp config`: what hosts are told."""

import json

import pytest

from tests.doors.cli.running import Cli


@pytest.mark.parametrize(
    ("host", "top", "kind", "template"),
    [
        ("claude-code", "mcpServers", "stdio", "${AGENT_SESSION_NAME}"),
        ("cursor", "mcpServers", "stdio", "${env:AGENT_SESSION_NAME}"),
        ("vscode", "servers", "stdio", "${env:AGENT_SESSION_NAME}"),
    ],
)
def test_hosts_are_told_of_the_program_and_of_the_server(
    cli: Cli, host: str, top: str, kind: str, template: str
) -> None:
    entry = json.loads(cli("mcp", "config", host).out)[top]["moorage"]
    assert (entry.get("type"), entry["args"]) == (kind, ["mcp"])
    assert entry["env"]["AGENT_SESSION_NAME"] == template
    named = json.loads(cli("mcp", "config", host, "--url", "http://there:1").out)[top]["moorage"]
    assert named["args"] == ["mcp", "--url", "http://there:1"]
    http = json.loads(cli("mcp", "config", host, "--http", "--url", "http://there:1/").out)[top]["moorage"]
    assert (http["url"], http["headers"]) == ("http://there:1/mcp", {"X-Agent-Session-Name": template})


def test_other_hosts_are_refused(cli: Cli) -> None:
    assert cli("mcp", "config", "abacus").code == 2
