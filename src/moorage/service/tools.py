"""Calling tools; with a session, its log records the call and the result."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from moorage.core.agent import Occasion, Refused, ToolAnswer, Toolbox
from moorage.core.codec import check_json, encode_text
from moorage.core.errors import InvalidField, ToolNotFound, ToolUnreachable
from moorage.core.ids import check_label
from moorage.service.conversation import append_messages
from moorage.service.deps import Caller, Deps


async def call_tool(
    deps: Deps,
    caller: Caller,
    tools: Toolbox,
    name: str,
    operation: str | None = None,
    parameters: dict[str, Any] | None = None,
    *,
    session: str | None = None,
    timeout: float | None = None,
) -> ToolAnswer:
    """Call a tool; with a session, log the call and the result. Raises ToolNotFound, ToolUnreachable."""
    if name not in tools:
        raise ToolNotFound(name)
    tool, function = tools[name]
    given = {} if parameters is None else parameters
    if not isinstance(given, dict):
        raise InvalidField("parameters", "must be an object")
    check_json(given, "parameters")
    wanted = tool.fitting(given) if operation in (None, "") else check_label("operation", operation)
    if tool.operations and wanted not in tool.operations:
        raise InvalidField("operation", f"is {wanted!r}; {name} has {', '.join(tool.operations)}")
    given = tool.read(wanted, given)
    try:
        occasion = Occasion(today=deps.clock.now().date(), session_id=session, timeout=timeout)
        result = function(wanted, given, occasion)
        told = await result if hasattr(result, "__await__") else result
        answer = ToolAnswer(tool=name, operation=wanted, success=True, result=told)
    except Refused as refused:
        answer = ToolAnswer(tool=name, operation=wanted, success=False, error=str(refused))
    except ToolUnreachable as error:
        if session is not None:
            failed = ToolAnswer(tool=name, operation=wanted, success=False, error=error.message)
            await _kept(deps, caller, session, failed, given)
        raise
    if session is None:
        return answer
    return await _kept(deps, caller, session, answer, given)


async def _kept(deps: Deps, caller: Caller, session: str, answer: ToolAnswer, given: dict[str, Any]) -> ToolAnswer:
    call = {"type": "tool_call", "id": deps.new_id(), "name": answer.tool}
    call["input"] = {"operation": answer.operation, **given}  # type: ignore[assignment]
    told = answer.error if answer.error is not None else encode_text(answer.result)
    result = {"type": "tool_result", "call_id": call["id"], "output": told, "is_error": not answer.success}
    said = [{"role": "assistant", "content": [call]}, {"role": "tool", "content": [result]}]
    entries = await append_messages(deps, caller, session, said)
    return replace(answer, session_id=entries[0].session_id)
