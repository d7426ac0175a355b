"""What a pipeline's step is given. `examples/pipeline` has steps and a pipeline that use it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from moorage.executor.executor import AgentExecutor


@dataclass
class PipelineContext:
    """What was collected so far, and the executor that asks agents."""

    pipeline_id: str
    executor: AgentExecutor
    values: dict[str, Any] = field(default_factory=dict)
    agent_session_id: str | None = None  # of the step that is at work, if it has one

    async def collect(self, name: str, value: Any) -> None:
        """Keep what a step gave, for good: in the context of the pipeline's session."""
        self.values[name] = value
        await self.executor.moor.context.put(self.pipeline_id, name, value)
