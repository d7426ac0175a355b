"""An agent that is a function."""

from moorage.agents.python import Turn


def greet(turn: Turn) -> str:
    """Greet the user, and remember earlier greetings."""
    before = (turn.checkpoint or {}).get("names", [])
    turn.save({"names": [*before, turn.prompt]})
    return f"Hello {turn.prompt}!" + (f" You come after {', '.join(before)}." if before else "")
