"""Writes notes."""

import json
import sys

json.loads(sys.stdin.readline())
print(json.dumps({"type": "result", "text": "Notes of release 1.2"}), flush=True)
