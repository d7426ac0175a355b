"""Asks a person, ends its turn, and says in the next one how that was decided: nothing has to run meanwhile."""

import json
import sys

turn = json.loads(sys.stdin.readline())
decisions = [item for item in turn["items"] if item["kind"] == "decision"]
if decisions:
    answer = {"type": "result", "text": f"{decisions[0]['decision']}: {decisions[0]['decided_by']}"}
else:
    answer = {"type": "approval", "id": "1", "question": "Publish the notes?", "wait": False}
print(json.dumps(answer), flush=True)
