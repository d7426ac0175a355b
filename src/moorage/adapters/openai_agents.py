"""OpenAI Agents SDK: `MoorageSession`, a session that several processes may share.

::

    session = MoorageSession("support-42", "sqlite:///moorage.db")
    result = await Runner.run(agent, "Hello", session=session)

A call of `add_items` is one commit: its items, in batches, and the same as messages of the log. Removing items
(`pop_item`, `clear_session`) leaves the log unchanged, and increments the version of the record `removals`. So a reader
of several pages notices a concurrent removal, and of two callers that remove the same item one has to retry.
"""

from __future__ import annotations

from moorage.adapters.adapter import require

require("openai-agents", "openai-agents", "0.24")

from typing import Any

from agents import RunState
from agents.memory.session_settings import SessionSettings, coerce_session_settings, resolve_session_limit

from moorage.adapters.adapter import Adapter
from moorage.adapters.approvals import ask_once, decided, withdraw
from moorage.adapters.batches import appended, read_all, read_last
from moorage.adapters.channel import ConnectTarget
from moorage.adapters.formats import openai
from moorage.adapters.payload import form_of, json_or_text, packed, unpacked
from moorage.adapters.projection import with_distinct_keys
from moorage.api import Moorage
from moorage.core.approval import Approval
from moorage.core.codec import check_list
from moorage.core.errors import InvalidField, SessionNotFound, VersionConflict
from moorage.core.record import RecordRequest
from moorage.records import Drop, Put, Record

__all__ = ["MoorageSession"]

ITEMS, REMOVALS = "items/", "removals"  # the prefix of batches, and the record that changes with every removal
RUN = "run"  # an interrupted run, and the approvals that it waits for

InputItem = Any  # of the SDK: a mapping of JSON values


class MoorageSession(Adapter):
    """The history of one conversation in the interface of `agents.Session`."""

    framework = openai.FRAMEWORK

    def __init__(
        self,
        session_id: str,
        url: ConnectTarget = None,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(url, **settings)
        self.session_id = session_id
        self.session_settings = coerce_session_settings(session_settings or SessionSettings())

    async def get_items(self, limit: int | None = None) -> list[InputItem]:
        """Return the latest `limit` items, oldest first; all of them without a limit here and in the settings."""
        most = resolve_session_limit(limit, self.session_settings)
        if most is not None and not isinstance(most, int):
            raise InvalidField("limit", f"is {most!r}; give a whole number")
        read = self._if_known((self.session_id,), lambda moor, ref: self._items(moor, ref, most))
        return await self._read(read) or []

    async def add_items(self, items: list[InputItem]) -> None:
        """Add items at the end, all of them or none."""
        self._check_open()
        if not items:
            return
        items = check_list(items, "items")
        writes: list[RecordRequest] = [*appended(self.framework, ITEMS, items, "items")]
        said = with_distinct_keys(map(openai.said, items)) if self._projection else []
        answered = openai.answered_calls(items)

        async def add(moor: Moorage) -> None:
            if answered:
                writes.extend(await self._go_on(moor, answered))
            await self._commit(moor, (self.session_id,), writes, said)

        await self._write(add)

    async def pop_item(self) -> InputItem | None:
        """Remove the last item and return it; None if there is none."""
        return await self._write(self._if_known((self.session_id,), self._pop))

    async def clear_session(self) -> None:
        """Remove all items. The session's log keeps the messages; deleting the session removes those too."""
        removal = Put(namespace=self.framework, key=REMOVALS, value=b"")
        writes: list[RecordRequest] = [Drop(namespace=self.framework, key=ITEMS, prefix=True), removal]
        await self._write(self._if_known((self.session_id,), lambda moor, ref: moor.records.write(ref, writes)))

    # Calls of tools that wait for a person ----------------------------------------------------------

    async def ask_approvals(self, result: Any) -> list[Approval]:
        """Ask a person about the interruptions of a run, as approvals of this session; store the run for `answered`."""
        state = result.to_state().to_json()
        waiting = [[str(item.call_id), str(item.name), json_or_text(item.arguments)] for item in result.interruptions]

        async def ask(moor: Moorage) -> list[Approval]:
            return await self._in_session((self.session_id,), lambda ref: self._ask(moor, ref, state, waiting))

        return await self._write(ask)

    async def answered(self, agent: Any) -> RunState[Any, Any] | None:
        """Return the interrupted run with a person's answers, to pass to the runner; None while an approval is open.

        Raises ApprovalClosed if an approval expired or was withdrawn.
        """
        found = await self._write(self._if_known((self.session_id,), self._answers))
        if found is None:
            return None
        state = await RunState.from_json(agent, found["state"])
        for item in state.get_interruptions():
            approval = found["answers"][str(item.call_id)]
            if decided(approval):
                state.approve(item)
            else:
                state.reject(item, rejection_message=approval.note)
        return state

    async def _ask(self, moor: Moorage, ref: str, state: Any, waiting: list[list[Any]]) -> list[Approval]:
        """Ask what was not asked before. The run is stored first: every open question has a run to continue."""
        run = await self._run(moor, ref)
        names = {call_id: run["approvals"][call_id] for call_id, *_ in waiting if call_id in run["approvals"]}
        await moor.records.write(ref, [self._run_as(state, waiting, names)])
        asked = []
        for call_id, name, arguments in waiting:
            known = names.get(call_id)
            asked.append(await (moor.approval(known) if known else ask_once(moor, ref, call_id, name, arguments)))
            names[call_id] = asked[-1].approval_id
        await moor.records.write(ref, [self._run_as(state, waiting, names)])
        return asked

    async def _answers(self, moor: Moorage, ref: str) -> dict[str, Any] | None:
        """Return the interrupted run and the approvals of its calls; None if there is none, or an approval is open."""
        run = await self._run(moor, ref)
        if run["state"] is None:
            return None
        if len(run["approvals"]) < len(run["waiting"]):  # the asking process has died
            await self._ask(moor, ref, run["state"], run["waiting"])
            return None
        answers = {call_id: await moor.approval(name) for call_id, name in run["approvals"].items()}
        is_open = any(decided(approval) is None for approval in answers.values())
        return None if is_open else {"state": run["state"], "answers": answers}

    async def _go_on(self, moor: Moorage, answered: set[str]) -> list[RecordRequest]:
        """Return the write that ends an interrupted run if it continues with these calls.

        Withdraw their questions if they are still open. Its other calls may be asked about again, so store them.
        """
        try:
            run = await self._in_session((self.session_id,), lambda ref: self._run(moor, ref))
        except SessionNotFound:
            return []
        asked: dict[str, str] = run["approvals"]
        if answered.isdisjoint(asked):
            return []
        for call_id in answered & asked.keys():
            await withdraw(moor, asked[call_id])
        return [self._run_as(None, [], {call_id: asked[call_id] for call_id in asked if call_id not in answered})]

    async def _run(self, moor: Moorage, ref: str) -> dict[str, Any]:
        record = await moor.records.get(ref, self.framework, RUN)
        return {"state": None, "waiting": [], "approvals": {}, **({} if record is None else unpacked(record.value))}

    def _run_as(self, state: Any, waiting: list[list[Any]], names: dict[str, str]) -> Put | Drop:
        if state is None and not names:
            return Drop(namespace=self.framework, key=RUN)
        data = packed({"state": state, "waiting": waiting, "approvals": names}, "run")
        return Put(namespace=self.framework, key=RUN, value=data, form=form_of(data))

    # Reading ----------------------------------------------------------------------------------------

    async def _items(self, moor: Moorage, ref: str, most: int | None) -> list[InputItem]:
        if most is not None:
            return await read_last(moor, ref, self.framework, ITEMS, most)
        while True:
            removals = await self._removals(moor, ref)
            items, pages = await read_all(moor, ref, self.framework, ITEMS)
            if pages == 1 or await self._removals(moor, ref) == removals:  # after a removal read again
                return items

    async def _removals(self, moor: Moorage, ref: str) -> int:
        record = await moor.records.get(ref, self.framework, REMOVALS)
        return 0 if record is None else record.version

    # Removing ---------------------------------------------------------------------------------------

    async def _pop(self, moor: Moorage, ref: str) -> InputItem | None:
        while True:
            removals = await self._removals(moor, ref)
            page = await moor.records.list(ref, self.framework, prefix=ITEMS, limit=1, descending=True)
            if not page.items:
                return None
            [last] = page.items
            *rest, item = unpacked(last.value)
            try:
                await moor.records.write(ref, [self._without_last(last, rest), self._removal(removals)])
            except VersionConflict:
                continue
            return item

    def _without_last(self, last: Record, rest: list[InputItem]) -> Put | Drop:
        if not rest:
            return Drop(namespace=self.framework, key=last.key, version=last.version)
        data = packed(rest, "items")
        return Put(namespace=self.framework, key=last.key, value=data, form=form_of(data), version=last.version)

    def _removal(self, seen: int) -> Put:
        return Put(namespace=self.framework, key=REMOVALS, value=b"", version=seen)
