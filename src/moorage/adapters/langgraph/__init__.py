"""LangGraph: `MoorageSaver` stores the checkpoints of a graph, `MoorageStore` its long-term memory.

    from moorage.adapters.langgraph import MoorageSaver

    with MoorageSaver("sqlite:///agents.db") as saver:
        graph = builder.compile(checkpointer=saver)

A thread is a session: its messages are in the log, its interrupts are approvals.
"""

from moorage.adapters.adapter import require

require("langgraph", "langgraph-checkpoint", "4.3")

from moorage.adapters.langgraph.saver import MoorageSaver
from moorage.adapters.langgraph.store import MoorageStore

__all__ = ["MoorageSaver", "MoorageStore"]
