"""Where sessions are kept."""

# How a sealed text begins; no JSON does. Here and not in `sealing`, so that readers of a plain store need not
# import it.
SEALED = "~sealed1:"
# The error of the triggers of an encrypted SQLite file that reject a plain body.
REFUSED_PLAIN = "moorage: plain body in a sealed store"


class Stale(Exception):
    """A concurrent commit changed the data of a decision; nothing was written."""

    def __init__(self, why: str, session_id: str | None = None, *, is_rule: bool = False) -> None:
        super().__init__(why)
        self.session_id = session_id  # the one that has changed, if it was a session
        self.is_rule = is_rule  # refused by a rule of the database, which may be so at every try
