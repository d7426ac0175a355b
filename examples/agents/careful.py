#!/usr/bin/env python3
"""An agent in twenty lines: it asks before it does something, and remembers how often it did."""

import json
import sys


def tell(**event: object) -> None:
    print(json.dumps(event), flush=True)


turn = json.loads(sys.stdin.readline())
times = (turn["checkpoint"] or {"times": 0})["times"]
tell(type="phase", phase="planning")
tell(type="approval", id="1", question=f"Shall I {turn['prompt']}?")
answer = json.loads(sys.stdin.readline())
if answer["decision"] == "approve":
    times += 1
    tell(type="checkpoint", checkpoint={"times": times})
tell(type="result", text=f"Your answer was {answer['decision']}; so far I did {times}.")
