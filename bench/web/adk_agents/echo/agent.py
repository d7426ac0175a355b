"""An agent that answers at once, so that a turn costs what the server and its store cost."""

from collections.abc import AsyncGenerator

from google.adk.agents import BaseAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events import Event
from google.genai import types


class Echo(BaseAgent):
    """Says what it was told."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        said = ctx.user_content.parts[0].text if ctx.user_content and ctx.user_content.parts else ""
        content = types.Content(role="model", parts=[types.Part(text=said)])
        yield Event(author=self.name, invocation_id=ctx.invocation_id, content=content)


root_agent = Echo(name="echo")
