"""A plugin for the SDK's own tests: wherever they say SQLiteSession, they get ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import agents
import agents.memory

from moorage.adapters.openai_agents import MoorageSession


class Replacement(MoorageSession):
    """Ours, with the arguments of SQLiteSession."""

    def __init__(
        self,
        session_id: str,
        db_path: str | Path = ":memory:",
        sessions_table: str = "",
        messages_table: str = "",
        session_settings: Any = None,
    ) -> None:
        url = "memory://" if str(db_path) == ":memory:" else f"sqlite:///{db_path}"
        super().__init__(session_id, url, session_settings=session_settings)


agents.SQLiteSession = agents.memory.SQLiteSession = Replacement
