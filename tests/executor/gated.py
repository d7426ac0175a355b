"""An agent's program behind a latch: it says that it began, and goes on when the latch is there.

    python gated.py LATCH PROGRAM

The file LATCH.NAME gets the run's id as soon as the agent NAME has its turn; PROGRAM is given it when LATCH exists.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path


def main(latch: str, program: str) -> int:
    line = sys.stdin.readline()
    turn = json.loads(line)
    with Path(f"{latch}.{turn['agent_name']}").open("a") as began:
        began.write(f"{turn['run_id']}\n")
    while not Path(latch).exists():
        time.sleep(0.02)
    return subprocess.run([sys.executable, program], input=line, text=True, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
