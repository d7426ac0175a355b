"""Asking: the one room in which questions go to agents and answers come back, whatever the door.

- `executor`: a conversation, or one question, over the Python door.
- `named`: agents, workers and tools called by name, in a session or in none.
"""
