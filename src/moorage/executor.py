"""The executor: ask an agent and get its answer, in the same way at every interface.

::

    async with moorage.connect() as moor:
        executor = AgentExecutor(moor)
        answer = await executor.execute_single_turn("echo-agent", "hello")

        async with executor.execute_interactive("echo-agent") as talk:
            async for event in talk:
                if event.type == "waiting_for_input":
                    await talk.send(input("You: "))

It uses only the Python API (`Moorage`), so it works with a store and with a server. Every answer comes from a run,
which continues if the caller stops waiting. The interfaces use it like this:

- CLI, chat: `execute_interactive` with `partial=True`; leaving is `talk.suspend()`.
- REST, `POST /sessions/{id}/messages` and `/agent-sessions/…`: `say`, `start`, `as_it_stands`.
- GraphQL: `createAgentSession` is `start(agent, initial_message, …)`, `sendMessageToSession` is
  `say(session_id, message, wait=…)`.
- MCP: an agent's own tool is `execute_single_turn(name, input, parameters, session_id=…, timeout=…)`, which makes an
  unknown session at its first use; `send_message` is `say(session_id, message, wait=…)`.
- pipelines: `execute_single_turn` with a `client_key`, so that a step that is repeated is asked once.
"""

from moorage.asking.executor import AgentExecutor, PipelineContext
from moorage.asking.interaction import ExecutionEvent, Interaction
from moorage.core.answer import Answer

__all__ = ["AgentExecutor", "Answer", "ExecutionEvent", "Interaction", "PipelineContext"]
