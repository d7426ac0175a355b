"""Publishes."""

import json
import sys

json.loads(sys.stdin.readline())
print(json.dumps({"type": "result", "text": "Published"}), flush=True)
