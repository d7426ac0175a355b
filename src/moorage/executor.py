"""The executor: the one place where words go to an agent and its answer comes back, whatever the door.

::

    async with moorage.connect() as moor:
        executor = AgentExecutor(moor)
        answer = await executor.execute_single_turn("echo-agent", "hello")

        async with executor.execute_interactive("echo-agent") as talk:
            async for event in talk:
                if event.type == "waiting_for_input":
                    await talk.send(input("You: "))

It uses the Python door alone (`Moorage`), so it works on a store of this machine and on a server alike. Every answer
is one of a run that goes on if its caller stops waiting. The doors use it so:

- CLI, chat: `execute_interactive` with `partial=True`; leaving is `talk.suspend()`.
- REST, `POST /sessions/{id}/messages` and `/agent-sessions/…`: `say`, `start`, `as_it_stands`.
- GraphQL: `createAgentSession` is `start(agent, initial_message, …)`, `sendMessageToSession` is
  `say(session_id, message, wait=…)`.
- MCP: an agent's own tool is `execute_single_turn(name, input, parameters, session_id=…, timeout=…)`, which makes an
  unknown session at its first use; `send_message` is `say(session_id, message, wait=…)`.
- pipelines: `execute_single_turn` with a `client_key`, so that a step that is repeated is asked once.
"""

from moorage.asking.events import ExecutionEvent
from moorage.asking.executor import AgentExecutor, PipelineContext
from moorage.asking.interaction import Interaction
from moorage.core.answer import Answer

__all__ = ["AgentExecutor", "Answer", "ExecutionEvent", "Interaction", "PipelineContext"]
