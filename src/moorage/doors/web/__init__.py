"""The web page: plain ES modules that a browser loads as they are. `README.md` explains how to add a view."""

from __future__ import annotations

import os

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "static")
