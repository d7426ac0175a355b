"""The walks of docs/architecture.md: requests are made as the page says, and pass the hops that it names, in order."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.docs.page import ROOT
from tests.docs.runner import sitting_environment

PAGE = (ROOT / "docs" / "architecture.md").read_text()
HOP = re.compile(r"^\d+\. (?:`([\w/]+\.py): (\w+)`|\*In the program\*)", re.M)
FOLLOWED = """\
import sys, threading
source, passed = {source!r}, []
def note(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(source):
        passed.append(f"{{code.co_filename.removeprefix(source)}}: {{code.co_name}}")
threading.setprofile(note)
sys.setprofile(note)
try:
    {request}
finally:
    sys.setprofile(None)
    threading.setprofile(None)
    with open({trace!r}, "w") as trace:
        trace.write("\\n".join(passed))
"""
ASK = """
    import asyncio, moorage
    async def main():
        async with moorage.connect("sqlite:///walk.db") as moor:
            print((await moor.run("planner", "Look at it", timeout=60)).text)
    asyncio.run(main())
"""
APPEND = """
    import asyncio, httpx2
    from moorage import config
    from moorage.doors.http.serve import make_door
    async def main():
        deps = config.open_deps("sqlite:///walk.db", threaded=True)
        transport = httpx2.ASGITransport(app=make_door(deps))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            await http.post("/sessions", json={"session_id": "s"})
            passed.clear()
            print((await http.post("/sessions/s/messages", json={"content": "hello", "run": False})).text)
        await deps.store.close()
    asyncio.run(main())
"""
CALL = """
    from moorage.doors.mcp.stdio import run
    run("sqlite:///walk.db")
"""
REQUEST = (
    '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo-agent", "arguments": {"input": "hi",'
    ' "parameters": {"a": "b"}, "session_id": "trip"}, "_meta": {"io.modelcontextprotocol/protocolVersion":'
    ' "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}}}\n'
)
PLANNER = """\
prompt=$(cat)
case "$prompt" in
"Callbacks of agents"*) echo "All is well" ;;
*)
    run=$(moorage run echo-agent "look" --mode async_callback)
    moorage result "$run" --wait 60 > /dev/null
    echo "I have asked."
    ;;
esac
"""


def hops_of(heading: str) -> list[str]:
    """The hops of a walk that pass in the process that is followed."""
    section = PAGE.split(f"### {heading}\n")[1].split("\n#")[0]
    found = [f"{file}: {name}" for file, name in HOP.findall(section) if file]
    assert len(found) > 10
    return found


def passed_by(folder: Path, request: str, text: str = "") -> tuple[list[str], str]:
    """Make a request in a process of its own; the functions of ours that it passed, and what it printed."""
    trace, source = folder / "trace.txt", f"{ROOT / 'src' / 'moorage'}/"
    code = FOLLOWED.format(source=source, trace=str(trace), request=request.strip())
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=text,
        cwd=folder,
        env=sitting_environment(folder),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return trace.read_text().splitlines(), done.stdout


def assert_passed(hops: list[str], passed: list[str]) -> None:
    place = 0
    for hop in hops:
        assert hop in passed[place:], f"{hop} is not passed after {passed[place - 1] if place else 'the beginning'}"
        place = passed.index(hop, place) + 1


def test_append_passes_the_hops_of_the_page(tmp_path: Path) -> None:
    passed, printed = passed_by(tmp_path, APPEND)
    assert '"content":"hello"' in printed
    assert_passed(hops_of("Appending a message over HTTP"), passed)
    assert passed.count("doors/http/reading.py: read_body") == 1
    assert passed.count("stores/sqlite/connection.py: commit") == 1


def test_ask_with_a_child_that_calls_back_passes_the_hops_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "planner.sh").write_text(PLANNER)
    agents = Path(sitting_environment(tmp_path)["MOORAGE_HOME"]) / "agents"
    agents.mkdir(parents=True)
    command = f'["sh", "{tmp_path}/planner.sh"]'
    (agents / "planner.toml").write_text(f'[agent]\nname = "planner"\nkind = "command"\ncommand = {command}\n')
    passed, printed = passed_by(tmp_path, ASK)
    assert printed.strip() == "All is well"
    assert_passed(hops_of("Asking an agent whose child calls back"), passed)


def test_first_call_of_mcp_passes_the_hops_of_the_page(tmp_path: Path) -> None:
    passed, printed = passed_by(tmp_path, CALL, REQUEST)
    assert "Echo Agent Response: hi" in printed
    assert_passed(hops_of("The first call of `moorage mcp`"), passed)
