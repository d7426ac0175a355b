"""Asking: the shared part of every door that sends questions to agents and returns their answers.

- `executor`: a conversation, or one question, over the Python door.
- `named`: agents, workers and tools called by name, in a session or in none.
"""
