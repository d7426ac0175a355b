"""Moving in: the command, and changes to what a framework has written."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from typing import Any

import asyncpg

from moorage.adapters.moving import is_postgres


def moved(url: str, framework: str, source: str, *options: str) -> Any:
    """Run the command; it has an event loop of its own."""
    kind = "postgres" if is_postgres(source) else "sqlite"
    command = [sys.executable, "-m", "moorage", "--url", url, "import", "--json", f"--{framework}-{kind}", source]
    return json.loads(subprocess.run([*command, *options], capture_output=True, text=True, check=True).stdout)


async def change(source: str, sql: str) -> None:
    """Change a database of a framework."""
    if is_postgres(source):
        db = await asyncpg.connect(source)
        await db.execute(sql)
        await db.close()
    else:
        with sqlite3.connect(source) as file:
            file.execute(sql)
        file.close()


def for_sqlalchemy(url: str) -> str:
    """Return the URL of a PostgreSQL database as frameworks with SQLAlchemy take it."""
    return url.replace("postgresql://", "postgresql+asyncpg://")
