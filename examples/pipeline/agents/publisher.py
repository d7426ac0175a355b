"""Publishes: the same program as the drafter, under another name."""

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).with_name("drafter.py")))
