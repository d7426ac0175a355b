"""Tests that only `./dev prove --long` runs: the same proof again on another version or with another setting."""

from __future__ import annotations

import os

import pytest

long_only = pytest.mark.skipif("MOORAGE_LONG" not in os.environ, reason="`./dev prove --long` runs it")
