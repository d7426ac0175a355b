"""Tasks: agents, workers and tools called by name, in a session or in none. What gRPC and MCP have in common."""

from moorage.tasks.desk import Answer, Chunk, Task, TaskDesk

__all__ = ["Answer", "Chunk", "Task", "TaskDesk"]
