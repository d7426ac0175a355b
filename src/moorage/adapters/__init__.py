"""Adapters: session stores of agent frameworks, backed by Moorage.

Each framework has one module, named after it, and one extra with its packages. Importing a module imports its
framework; this package imports none.
"""

# Interfaces of what the adapters write, and the names of their extras.
FRAMEWORKS = (
    "openai-agents",
    "claude-agent-sdk",
    "google-adk",
    "pydantic-ai",
    "strands",
    "agent-framework",
    "langgraph",
)

# Frameworks in which a session can continue.
TARGETS = ("openai-agents", "langgraph", "claude", "pydantic-ai")
