"""Reading one transcript: assign each line to its conversation and collect its content."""

from __future__ import annotations

from collections.abc import Iterable

from moorage.core.entry import text_of
from moorage.service.histories.blocks import Part, by_speaker, parts_of
from moorage.service.histories.conversations import Conversation, EntryDraft, SubAgentCall
from moorage.service.histories.lines import (
    TITLES,
    UNREADABLE,
    LineMessage,
    TranscriptLine,
    launched_agent,
    message_of,
    preserved_from,
    read_lines,
)
from moorage.service.importing import History

DELEGATING = ("Agent", "Task")  # the tool that starts sub-agents, and its former name
USAGE = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class Reading:
    """The content of one file: the host's conversation, and sidechains of sub-agents.

    With an `agent_id` it is the file of that sub-agent, and has no line of the host.
    """

    def __init__(self, history: History, agent_id: str | None = None) -> None:
        self._history, self._notes, self._agent_id = history, history.notes, agent_id
        self.main = Conversation()
        self.sides: dict[str, Conversation] = {}
        self.launched: dict[str, str] = {}  # sub-agents, and the calls that started them
        self._titles: dict[str, str] = {}
        self._session_ids: set[str] = set()
        self._seen: set[str] = set()
        self._side_of: dict[str, str] = {}  # of lines that do not name their sub-agent
        self._last_side: str | None = None

    def read(self, lines: Iterable[str | bytes]) -> None:
        """Read all lines; note unreadable ones as left out."""
        for number, line in read_lines(lines, self._history):
            if line.uuid is not None and line.uuid in self._seen:
                self._notes.pass_over("repeated")
                continue
            try:
                self._take(number, line)
            except UNREADABLE as error:
                self._history.leave_out(f"not a line of a transcript ({error})", number)
                continue
            if line.uuid is not None:
                self._seen.add(line.uuid)

    @property
    def title(self) -> str | None:
        """Return the title of the conversation: the user's, else the host's."""
        return next((self._titles[kind] for kind in reversed(TITLES) if kind in self._titles), None)

    def host(self, promised: str | None) -> str | None:
        """Return the host's session: the one in the file's name, or the only one there is."""
        if promised in self._session_ids:
            return promised
        if len(self._session_ids) == 1:
            return next(iter(self._session_ids))
        if self._session_ids:
            named = ", ".join(sorted(self._session_ids)[:3])
            self._history.leave_out(f"its lines belong to several sessions ({named} …) and its name to none")
        elif self.main.drafts or self.sides:
            self._history.leave_out("no line says which session it belongs to")
        else:
            self._notes.pass_over("empty")
        return None

    # One line -----------------------------------------------------------------------------------

    def _take(self, number: int, line: TranscriptLine) -> None:
        side = self._side(number, line)
        if (title := line.title) is not None and line.type is not None:
            self._titles[line.type] = title
        elif line.is_boundary:
            self._conversation(side).keep_from(preserved_from(line))
        elif line.is_talk:
            self._hear(number, line, side)
        else:
            self._notes.pass_over("attachment" if line.type == "attachment" else "host")

    def _side(self, number: int, line: TranscriptLine) -> str | None:
        """Return the sidechain of a line; None for the host's own conversation."""
        if (agent_id := line.agent_id or self._agent_id) is not None:
            return agent_id
        if not line.is_sidechain:
            return None
        side = self._side_of.get(line.parent_uuid) if line.parent_uuid is not None else None
        if side is None and line.parent_uuid is not None:
            side = self._last_side  # the line before it is missing
        if side is None:
            side = line.uuid or f"{line.session_id}:{number}"
        if line.uuid is not None:
            self._side_of[line.uuid] = side
        self._last_side = side
        return side

    def _conversation(self, side: str | None) -> Conversation:
        if side is None:
            return self.main
        return self.sides.setdefault(side, Conversation(side))

    def _hear(self, number: int, line: TranscriptLine, side: str | None) -> None:
        message = message_of(line)
        parts = parts_of(message.content, line.uuid, self._notes)
        conversation = self._conversation(side)
        draft = EntryDraft(line=number, at=line.timestamp)
        if line.is_compact_summary:
            draft.summary = text_of(parts)
            conversation.sum_up(draft, line.uuid)
        elif line.is_api_error_message:
            draft.error = text_of(parts) or "the model could not be reached"
            conversation.add(draft, line.uuid)
        elif line.type == "assistant":
            self._hear_reply(conversation, draft, parts, line, message)
        else:
            self._hear_user(conversation, draft, parts, line)
        self._note_facts(conversation, line)

    def _hear_reply(
        self,
        conversation: Conversation,
        draft: EntryDraft,
        parts: list[Part],
        line: TranscriptLine,
        message: LineMessage,
    ) -> None:
        draft.role, draft.parts, draft.stop = "assistant", parts, message.stop_reason
        conversation.reply(draft, line.uuid, message.id)
        tools = (part for part in parts if part["type"] == "tool_call" and part["name"] in DELEGATING)
        conversation.calls += [_call(part) for part in tools if isinstance(part["input"], dict)]
        if message.usage is not None and (counted := message.id or line.uuid) is not None:
            conversation.count(counted, {name: message.usage.get(name) for name in USAGE})

    def _hear_user(
        self, conversation: Conversation, draft: EntryDraft, parts: list[Part], line: TranscriptLine
    ) -> None:
        """Add tool results and the user's text; one line may have both."""
        for role, said in by_speaker("user", parts):
            conversation.add(EntryDraft(line=draft.line, at=draft.at, role=role, parts=said), line.uuid)
            if role == "tool" and (agent := launched_agent(line)) is not None:
                self.launched[agent] = said[0]["call_id"]

    def _note_facts(self, conversation: Conversation, line: TranscriptLine) -> None:
        if line.session_id is not None:
            self._session_ids.add(line.session_id)
        if conversation.project_dir is None and line.cwd and line.cwd.isprintable() and len(line.cwd) <= 4096:
            conversation.project_dir = line.cwd
        conversation.version = line.version or conversation.version


def _call(part: Part) -> SubAgentCall:
    asked = {name: part["input"].get(key) for name, key in _ASKED.items()}
    return SubAgentCall(call_id=part["id"], **{name: text for name, text in asked.items() if isinstance(text, str)})


_ASKED = {"agent": "subagent_type", "description": "description", "prompt": "prompt"}
