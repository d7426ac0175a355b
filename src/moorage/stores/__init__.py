"""The stores of sessions."""

# The prefix of a sealed text; no JSON begins with it. It is here and not in `sealing`, so that readers of a plain store
# need not import that.
SEALED = "~sealed1:"
# The error of the triggers of an encrypted SQLite file that reject a plain body.
REFUSED_PLAIN = "moorage: plain body in a sealed store"


class Stale(Exception):
    """A concurrent commit changed the data of a decision; nothing was written."""

    def __init__(self, why: str, session_id: str | None = None, *, is_rule: bool = False) -> None:
        super().__init__(why)
        self.session_id = session_id  # the session that has changed, if it was one
        self.is_rule = is_rule  # whether a database constraint refused, which may do so at every attempt
