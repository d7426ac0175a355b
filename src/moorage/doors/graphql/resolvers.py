"""Resolvers: each makes one call and returns our own values; a field without one is the attribute of the same name."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import graphql as gql
from ariadne import EnumType, MutationType, ObjectType, QueryType, ScalarType, SubscriptionType
from msgspec import UNSET, Struct

from moorage.core.answer import Answer
from moorage.core.approval import Approval, ApprovalState
from moorage.core.entry import ROLES, Entry, Event, check_message
from moorage.core.errors import OutOfReach
from moorage.core.key import Scope
from moorage.core.query import MAX_LIMIT, STATUSES, Page, SessionQuery, check_limit, number_of
from moorage.core.record import Record
from moorage.core.render import to_json
from moorage.core.run import Join, Mode, RunState
from moorage.core.session import OUTCOMES, Phase, Session, State
from moorage.core.status import Reason
from moorage.core.window import WindowSize
from moorage.doors.graphql.asking import OPERATION, OperationContext, WantedEvents
from moorage.doors.http.reading import drop_unnamed
from moorage.doors.http.streams import cursor_of
from moorage.service.approvals import approvals_of
from moorage.service.conversation import windows_of
from moorage.service.records import WrittenRecord
from moorage.service.sessions import pages_of, sessions_of

Info = gql.GraphQLResolveInfo[OperationContext]

query, mutation, subscription = QueryType(), MutationType(), SubscriptionType()
session, hold = ObjectType("AgentSession"), ObjectType("Hold")
sessions_page, history_page = ObjectType("AgentSessionConnection"), ObjectType("HistoryConnection")
sent, resumed = ObjectType("SentMessage"), ObjectType("ResumedSession")


# Queries ----------------------------------------------------------------------------------------


@query.field("agentSession")
async def agent_session(_: Any, info: Info, session_id: str) -> Session:
    if (last := _history_wanted(info)) is not None:
        return await info.context.session_with_history(session_id, last)
    found: Session = await info.context.call("get", ref=session_id)
    return found


def _history_wanted(info: Info) -> int | None:
    """Return the number of messages that the query selects right below; None if that takes a closer look."""
    selections = info.field_nodes[0].selection_set
    for each in selections.selections if selections is not None else ():
        if isinstance(each, gql.FieldNode) and each.name.value == "history" and not each.directives:
            given = {argument.name.value: argument.value for argument in each.arguments or ()}
            last = given.get("last")
            if isinstance(last, gql.IntValueNode) and given.keys() == {"last"} and 0 < int(last.value) <= MAX_LIMIT:
                return int(last.value)
    return None


def calling(name: str, **others: str) -> Callable[..., Awaitable[Any]]:
    """Return a resolver that calls a method; the arguments of its field have the names of REST, or `others`."""
    operation = OPERATION[name]
    names = {**operation.fields, "session_id": "ref", "new_session_id": "session_id", **others}

    async def resolve(_: Any, info: Info, **given: Any) -> Any:
        return await info.context.call(name, **{names.get(key, key): value for key, value in given.items()})

    return resolve


query.set_field("approvals", calling("approvals"))
page_of_sessions = calling("list", first="limit", after="cursor")
query.set_field("agentSessionsConnection", page_of_sessions)


@query.field("agentSessions")
async def agent_sessions(_: Any, info: Info, **filters: Any) -> list[Session]:
    page: Page[Session] = await page_of_sessions(_, info, **filters)
    return page.items


@query.field("memory")
async def memory(_: Any, info: Info, namespace: str, key: str) -> Record | None:
    return await info.context.memory(Scope.READ).get(namespace, key)


@query.field("memories")
async def memories(_: Any, info: Info, namespace: str, limit: int, **given: Any) -> list[Record]:
    return (await info.context.memory(Scope.READ).list(namespace, limit=check_limit(limit), **given)).items


@mutation.field("setMemory")
async def set_memory(_: Any, info: Info, namespace: str, key: str, value: Any = None, **given: Any) -> WrittenRecord:
    ttl, version = given.get("ttl_seconds"), given.get("version")
    return await info.context.memory(Scope.WRITE).put(namespace, key, value, ttl=ttl, version=version)


@mutation.field("deleteMemory")
async def delete_memory(_: Any, info: Info, namespace: str, key: str, prefix: bool, version: int | None = None) -> bool:
    await info.context.memory(Scope.WRITE).delete(namespace, key, prefix=prefix, version=version)
    return True


# Sessions ---------------------------------------------------------------------------------------


session.set_alias("checkpointId", "last_checkpoint")


@session.field("parent")
def parent(session: Session, info: Info) -> Awaitable[Session | None] | None:
    """Return the parent; a session's own token does not reach it."""
    ask = info.context
    ask.check(Scope.READ)
    if session.parent_session_id is None:
        return None
    if ask.visitor.session_id == session.session_id:
        raise OutOfReach(session.session_id)
    return ask.read(sessions_of, session.parent_session_id)


@session.field("children")
def children(session: Session, info: Info, first: int, after: str | None = None) -> Awaitable[Page[Session]]:
    info.context.check(Scope.READ)
    wanted = SessionQuery(parent=session.session_id, sort="created", limit=first, cursor=after)
    wanted.position()  # a cursor of another list is refused here, alone
    return info.context.read(pages_of, wanted)


@session.field("history")
def history(session: Session, info: Info, last: int, before: str | None = None) -> Awaitable[Page[Entry]]:
    info.context.check(Scope.READ)
    size = WindowSize(last=check_limit(last))
    return info.context.read(windows_of, session.session_id, size=size, before=number_of(before))


@session.field("approvals")
def approvals(
    session: Session, info: Info, pending_only: bool, first: int
) -> Awaitable[list[Approval]] | list[Approval]:
    info.context.check(Scope.READ)
    check_limit(first)
    if pending_only and not session.pending_approvals:
        return []
    return info.context.read(approvals_of, session.session_id, pending_only=pending_only, limit=first)


hold.set_field("token", lambda hold, _: None if hold.token is UNSET else hold.token)


class PageInfo(Struct, frozen=True, kw_only=True):
    """The places before and after a page."""

    has_next_page: bool = False
    has_previous_page: bool = False
    start_cursor: str | None = None
    end_cursor: str | None = None


def after_page(page: Page[Session], _: Info) -> PageInfo:
    return PageInfo(has_next_page=page.next is not None, end_cursor=page.next)


def before_page(page: Page[Entry], _: Info) -> PageInfo:
    return PageInfo(has_previous_page=page.next is not None, start_cursor=page.next)


for pages, page_info in ((sessions_page, after_page), (history_page, before_page)):
    pages.set_field("pageInfo", page_info)
    pages.set_alias("nodes", "items")


# Changes ----------------------------------------------------------------------------------------


@mutation.field("createAgentSession")
async def create(_: Any, info: Info, initial_message: str | None = None, **given: Any) -> Session:
    """Create a session and post its first message; a repetition with the same key does neither again."""
    operation, ask = OPERATION["create"], info.context
    wanted = operation.arguments(operation.request(**given))
    drop_unnamed(wanted)
    if initial_message is not None:
        check_message(initial_message, "initial_message")  # before anything is created
        ask.check(Scope.WRITE)
        await ask.moor.check_operation(operation, wanted)
        return (await ask.moor.executor.start(wanted.pop("agent", None), initial_message, **wanted)).session
    made: Session = await ask.call("create", **wanted)
    return made


@mutation.field("sendMessageToSession")
async def send(_: Any, info: Info, session_id: str, message: str, **given: Any) -> Answer:
    ask, agent = info.context, given.pop("agent_name", None)
    await ask.may_follow(session_id, Scope.WRITE)
    said = [{"role": "user", "content": message, "client_key": given.pop("client_key", None)}]
    posted = await ask.moor.executor.say(session_id, said, agent=agent, **given)
    ask.forget()
    return posted


@sent.field("session")
def session_of(posted: Answer, info: Info) -> Awaitable[Session | None]:
    info.context.check(Scope.READ)
    return info.context.read(sessions_of, posted.session_id)


resumed.set_field("sessionId", lambda packet, _: packet.session.session_id)
resumed.set_field("state", lambda packet, _: packet.session.state)
resumed.set_field("inbox", lambda packet, _: to_json(packet.inbox))


async def events_of(_: Any, info: Info, session_id: str, after: str) -> AsyncGenerator[Event]:
    await info.context.may_follow(session_id)
    info.context.wanted = WantedEvents(session_id, cursor_of(after))
    return _no_events()


async def _no_events() -> AsyncGenerator[Event]:
    """Yield nothing to graphql-core; the engine follows the requested events."""
    events: tuple[Event, ...] = ()
    for each in events:
        yield each


@subscription.field("agentSessionEvents")
def event(event: Event, _: Info, **__: Any) -> Event:
    """Return the event itself, as the hub of streams delivers it."""
    return event


subscription.set_source("agentSessionEvents", events_of)  # type: ignore[arg-type]  # a coroutine is awaited


# Scalars and enumerations -----------------------------------------------------------------------


def _interface_literal(node: gql.ValueNode, _: Any = None) -> str:
    """Parse the name of an interface, as a word or as a text."""
    if isinstance(node, (gql.EnumValueNode, gql.StringValueNode)):
        return node.value.lower()
    raise gql.GraphQLError("an interface is a word, such as CLI, or a text", node)


def _interface(value: Any) -> str:
    if isinstance(value, str):
        return value.lower()
    raise gql.GraphQLError("an interface is a text")


# Values of scalars are encoded with the whole answer, so that instants look the same at every door.
interface = ScalarType("Interface", value_parser=_interface, literal_parser=_interface_literal)


ENUMS = {
    "SessionState": State, "SessionPhase": Phase, "ApprovalState": ApprovalState, "RunState": RunState,
    "RunMode": Mode, "RunJoin": Join, "BecauseReason": Reason,
}  # fmt: skip
WORDS = {"SessionStatus": STATUSES, "SessionOutcome": OUTCOMES, "Role": ROLES}  # in lower case, by names in upper case
BINDABLES = [
    query, mutation, subscription, session, hold, sessions_page, history_page, sent, resumed, interface,
    *(EnumType(name, values) for name, values in ENUMS.items()),
    *(EnumType(name, {str(value).upper(): value for value in values}) for name, values in WORDS.items()),
]  # fmt: skip
