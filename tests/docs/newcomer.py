"""The `moorage` of a newcomer's walk: the real one, with ages, names and places that are the same on every machine.

    python newcomer.py ARGS

Ids, times and tokens still differ from run to run; the walk masks them. They have the same width everywhere, ages and
names do not, so these are replaced here, before tables are laid out.
"""

import sys
from datetime import UTC, datetime

from moorage import config
from moorage.doors.cli import connection, wording


def _ago(at: datetime | None) -> str | None:
    if at is None:
        return None
    return "in 6d 23h" if at > datetime.now(UTC) else "3m ago"


wording.ago = _ago
config.user = lambda: "maria"
connection.terminal_holder = lambda: "maria@laptop:/dev/pts/1"

if __name__ == "__main__":
    from moorage.doors.cli.main import main

    sys.exit(main())
