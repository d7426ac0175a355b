"""Agents for tests of the command line, as files in the home of the test."""

from pathlib import Path

BROKEN = """
[agent]
name = "broken"
kind = "comand"
command = ["true"]
"""
SLOW = """
[agent]
name = "slow"
kind = "command"
command = ["sh", "-c", "echo started; sleep 60; echo done"]
"""
RESUMING = """
[agent]
name = "resuming"
kind = "command"
command = ["sh", "-c", '''
case "$(cat)" in
*"cut off"*) echo "went on" ;;
*) echo started; sleep 60 ;;
esac
''']
"""
FAILING = """
[agent]
name = "failing"
kind = "command"
command = ["sh", "-c", "echo out of luck >&2; exit 7"]
"""
MISSPEAKING = """
[agent]
name = "misspeaking"
kind = "command"
protocol = "jsonl"
command = ["sh", "-c", '''
read turn
case "$turn" in *quietly*) echo '{"type": "result", "text": "fine"}'; exit;; esac
echo '{"type": "message", "role": "tool", "content": [{"type": "tool_result"}]}'
echo '{"type": "phase", "phase": "plannign"}'
for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do echo oh no; done
echo '{"type": "result", "text": "fine"}'
''']
"""
CHOOSING = """
[agent]
name = "choosing"
kind = "command"
protocol = "jsonl"
command = ["sh", "-c", '''
read turn
echo '{"type": "approval", "id": "1", "question": "Which way?", "options": ["step by step", "all"], "plan": {"add": 2}}'
read answer
echo '{"type": "result", "text": "done"}'
''']
"""
BOSS = """
[agent]
name = "boss"
kind = "command"
command = ["sh", "-c", '''
case "$(cat)" in
*Callbacks*"went at last"*) echo "went at last" ;;
*send*) moorage run errand a --mode async_callback > /dev/null; echo sent ;;
*) echo "not yet" ;;
esac
''']
"""
ERRAND = """
[agent]
name = "errand"
kind = "command"
command = ["sh", "-c", '''
case "$(cat)" in
*"cut off"*) echo "went at last" ;;
*) echo $$ > "$MOORAGE_HOME/errand"; sleep 60 ;;
esac
''']
"""
ASKING = """
[agent]
name = "asking"
kind = "command"
protocol = "jsonl"
command = ["python3", "-c", '''
import json, sys
def tell(**event): print(json.dumps(event), flush=True)
next(sys.stdin)
tell(type="message", content="Let me see.")
tell(type="approval", id="1", question="Apply it?", wait=True)
answer = json.loads(next(sys.stdin))
while answer["type"] != "decision":
    answer = json.loads(next(sys.stdin))
tell(type="result", text="You said " + answer["decision"])
''']
"""


def define(home: Path, *texts: str) -> None:
    """Put definitions where agents are looked for."""
    folder = home / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(texts):
        name = text.partition('name = "')[2].partition('"')[0] or f"file-{number}"
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
