"""The executor: the one place where words go to an agent and its answer comes back, whatever the door.

::

    async with moorage.connect() as moor:
        executor = AgentExecutor(moor)
        answer = await executor.execute_single_turn("echo-agent", "hello")

        async with executor.execute_interactive("echo-agent") as talk:
            async for event in talk:
                if event.type == "waiting_for_input":
                    await talk.send(input("You: "))

It stands on the Python door alone (`Moorage`), so it works on a store of this machine and on a server alike, and
every answer is one of a run that survives whoever waits for it. How the doors use it:

- CLI, chat: `execute_interactive` with `partial=True`; leaving is `talk.suspend()`.
- REST, `POST /sessions/{id}/messages` and `/agent-sessions/…`: `say`, `start`, `as_it_stands`.
- GraphQL: `createAgentSession` is `start(agent, initial_message, …)`, `sendMessageToSession` is
  `say(session_id, message, wait=…)`.
- MCP: an agent's own tool is `execute_single_turn(name, input, parameters, session_id=…, timeout=…)`, which makes an
  unknown session at its first use; `send_message` is `say(session_id, message, wait=…)`.
- pipelines: `execute_single_turn` with a `client_key`, so that a step that is repeated is asked once.
"""

from moorage.executor.events import ExecutionEvent
from moorage.executor.executor import AgentExecutor, SingleTurn, Started
from moorage.executor.interaction import Interaction
from moorage.executor.pipeline import PipelineContext
from moorage.executor.saying import Posted

__all__ = ["AgentExecutor", "ExecutionEvent", "Interaction", "PipelineContext", "Posted", "SingleTurn", "Started"]
