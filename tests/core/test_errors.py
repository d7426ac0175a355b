"""The errors: one tree, stable codes, facts, a way out of each, and an edge for every door."""

from __future__ import annotations

import inspect
import json
import pickle
import re
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from moorage.core import errors
from moorage.core.errors import MoorageError, edge_of, utc_text

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
FAMILIES: dict[type[Any], tuple[int, str, int]] = {
    errors.InvalidRequest: (422, "INVALID_ARGUMENT", 2),
    errors.NotFound: (404, "NOT_FOUND", 3),
    errors.Conflict: (409, "FAILED_PRECONDITION", 4),
    errors.AccessError: (403, "PERMISSION_DENIED", 4),
    errors.StoreError: (503, "UNAVAILABLE", 5),
}
EXCEPTIONS: dict[str, tuple[int, str, int]] = {
    "session_gone": (410, "NOT_FOUND", 3),
    "unauthorized": (401, "UNAUTHENTICATED", 4),
    "rate_limited": (429, "RESOURCE_EXHAUSTED", 4),
    "request_too_large": (413, "RESOURCE_EXHAUSTED", 2),
    "agent_failed": (502, "ABORTED", 1),
}
# One of every error that can be raised, and the code it must have.
EXAMPLES: tuple[tuple[str, MoorageError], ...] = (
    ("invalid_id", errors.InvalidId("session_id", "../evil")),
    ("invalid_name", errors.InvalidId("session_name", "a b")),
    ("invalid_ttl", errors.InvalidField("ttl", "is -1")),
    ("invalid_messages", errors.InvalidField("messages[3].role", "is 'x'")),
    ("invalid_json", errors.InvalidJson("metadata.a", "nan is not a JSON number")),
    ("metadata_too_large", errors.TooLarge("metadata", 70000, 65536)),
    ("context_value_too_large", errors.TooLarge("context value", 70000, 65536)),
    ("unknown_phase", errors.UnknownPhase("idle", ["planning"])),
    ("final_phase", errors.FinalPhase("completed")),
    ("invalid_cursor", errors.InvalidCursor()),
    ("own_ancestor", errors.OwnAncestor("s-1")),
    ("ambiguous_reference", errors.AmbiguousReference("0190", ["0190a", "0190b"])),
    ("invalid_import", errors.InvalidImport("not a line of an export", line=3)),
    ("request_too_large", errors.RequestTooLarge(1024)),
    ("unsupported", errors.Unsupported("this store cannot search")),
    ("invalid_definition", errors.InvalidDefinition("planner.toml", 3, "kind is missing")),
    ("session_not_found", errors.SessionNotFound("s-1")),
    ("parent_not_found", errors.ParentNotFound("s-1")),
    ("approval_not_found", errors.ApprovalNotFound("a-1")),
    ("entry_not_found", errors.EntryNotFound("s-1", 9, 3)),
    ("run_not_found", errors.RunNotFound("r-1")),
    ("turn_not_found", errors.TurnNotFound("s-1:t1")),
    ("launcher_not_found", errors.LauncherNotFound("l-1")),
    ("item_not_found", errors.ItemNotFound("callback:r-1")),
    ("record_not_found", errors.RecordNotFound("notes", "k")),
    ("key_not_found", errors.KeyNotFound("a1b2")),
    ("tool_not_found", errors.ToolNotFound("sundial")),
    ("task_not_found", errors.TaskNotFound("t-1")),
    ("agent_not_found", errors.AgentNotFound("planner")),
    ("session_gone", errors.SessionGone("s-1", at=AT, by="ann", why="deleted")),
    ("session_closed", errors.SessionClosed("s-1", "completed")),
    ("held_by_another", errors.HeldByAnother("s-1", "ann", AT)),
    ("hold_lost", errors.HoldLost("s-1")),
    ("session_suspended", errors.SessionSuspended("s-1", "a-1")),
    ("session_running", errors.SessionRunning(["s-1"])),
    ("turn_lost", errors.TurnLost("s-1:t1", 2)),
    ("run_settled", errors.RunSettled("r-1")),
    ("run_not_failed", errors.RunNotFailed("r-1", "completed")),
    ("run_stopped", errors.RunStopped("r-1", "s-1")),
    ("asks_ancestor", errors.AsksAncestor("s-2", "s-1")),
    ("summary_failed", errors.SummaryFailed("s-1", "writer", "its run is failed")),
    ("agent_failed", errors.AgentFailed("planner", "no model", "agent_failed")),
    ("agent_built_in", errors.AgentBuiltIn("planner")),
    ("program_exists", errors.ProgramExists("plan.sh", "agents", "agents/plan.sh")),
    ("agent_exists", errors.AgentExists("planner", "planner.toml")),
    ("version_conflict", errors.VersionConflict("s-1", 3, 4)),
    ("illegal_move", errors.IllegalMove("a session", "completed", "active", [])),
    ("outcome_conflict", errors.OutcomeConflict("s-1", "completed", "failed")),
    ("id_taken", errors.IdTaken("s-1")),
    ("name_taken", errors.NameTaken("planner", "s-1")),
    ("key_reused", errors.KeyReused("k-1")),
    ("has_children", errors.HasChildren("s-1", 2)),
    ("too_deep", errors.FamilyLimit("too_deep", "a family may be 16 generations deep, not more", 16)),
    ("too_many_children", errors.FamilyLimit("too_many_children", "1000 open children already; finalize some", 1000)),
    ("store_in_use", errors.StoreInUse("a server is using it")),
    ("store_not_empty", errors.StoreNotEmpty("there is a session in it")),
    ("copy_differs", errors.CopyDiffers("entry", 3, 2)),
    ("already_decided", errors.AlreadyDecided("a-1", "approve", "ann")),
    ("approval_expired", errors.ApprovalClosed("a-1", "expired")),
    ("approval_withdrawn", errors.ApprovalClosed("a-1", "withdrawn")),
    ("unauthorized", errors.Unauthorized()),
    ("forbidden", errors.Forbidden("approve")),
    ("out_of_reach", errors.OutOfReach("s-1")),
    ("rate_limited", errors.RateLimited(1.5)),
    ("outcome_unknown", errors.OutcomeUnknown("postgresql://db/app", "connection reset")),
    ("server_unreachable", errors.ServerUnreachable("http://127.0.0.1:8765", "connection refused")),
    ("agent_unreachable", errors.AgentUnreachable("planner", "none of localhost:1 can be reached")),
    ("tool_unreachable", errors.ToolUnreachable("sundial", "none of localhost:1 can be reached")),
    ("session_corrupt", errors.SessionCorrupt("s-1", "entry 3")),
    ("store_busy", errors.StoreBusy("moorage.db")),
    ("store_read_only", errors.StoreReadOnly("moorage.db")),
    ("store_full", errors.StoreFull("moorage.db")),
    ("store_corrupt", errors.StoreCorrupt("moorage.db", "cut short")),
    ("store_replaced", errors.StoreReplaced("moorage.db")),
    ("store_too_new", errors.StoreTooNew("moorage.db", 9, 1)),
    ("encryption_key_missing", errors.EncryptionKeyMissing("k-1")),
    ("encryption_key_wrong", errors.EncryptionKeyWrong("k-1", "moorage.db")),
    ("context_unavailable", errors.ContextUnavailable("redis://127.0.0.1 cannot be used")),
    ("store_unavailable", errors.StoreUnavailable("moorage.db cannot be opened")),
)
IDS = [code for code, _ in EXAMPLES]


def error_classes() -> list[type[MoorageError]]:
    defined: list[Any] = [value for value in vars(errors).values() if inspect.isclass(value)]
    return [kind for kind in defined if issubclass(kind, MoorageError) and kind is not MoorageError]


def drawn_tree() -> dict[str, str]:
    """Every name in the drawing, and the family it hangs on."""
    tree: dict[str, str] = {}
    family = ""
    for line in str(errors.__doc__).splitlines():
        match = re.match(r"    ([│├└─ ]+)([A-Z]\w+(?: / [A-Z]\w+)*)", line)
        if match is None:
            continue
        names = match[2].split(" / ")
        if len(match[1]) <= 4:
            family = names[0]
        tree |= dict.fromkeys(names, family)
    return tree


def test_the_drawing_has_every_error_under_its_family_and_no_other() -> None:
    drawn = drawn_tree()
    defined = {
        kind.__name__: next(family.__name__ for family in FAMILIES if issubclass(kind, family))
        for kind in error_classes()
    }
    assert drawn == defined


def test_the_drawing_has_every_code() -> None:
    text = str(errors.__doc__)
    derived = re.compile(r"invalid_(?!id|name|json|cursor|import)\w+|\w+_too_large")
    missing = [code for code, _ in EXAMPLES if not derived.fullmatch(code) and not re.search(rf"\b{code}\b", text)]
    assert missing == []
    assert "invalid_<field>" in text
    assert "<what>_too_large" in text


def test_there_is_an_example_of_every_error() -> None:
    leaves = {kind for kind in error_classes() if kind not in FAMILIES}
    assert {type(error) for _, error in EXAMPLES} == leaves


@pytest.mark.parametrize(("code", "error"), EXAMPLES, ids=IDS)
def test_an_error_has_its_code_a_message_and_its_facts(code: str, error: MoorageError) -> None:
    assert error.code == code
    assert str(error) == error.message != ""
    shown = error.to_dict()
    assert (shown["code"], shown["detail"]) == (code, error.message)
    assert {name: shown[name] for name in error.facts} == error.facts
    assert all(getattr(error, name) == value for name, value in error.facts.items())


@pytest.mark.parametrize(("code", "error"), EXAMPLES, ids=IDS)
def test_facts_are_plain_json(code: str, error: MoorageError) -> None:
    from moorage.core.codec import check_json

    check_json(error.to_dict(), code)


def test_no_two_kinds_of_error_share_a_code() -> None:
    assert [code for code, count in Counter(IDS).items() if count > 1] == []
    own = Counter(vars(kind)["code"] for kind in error_classes() if "code" in vars(kind))
    assert [code for code, count in own.items() if count > 1] == []


@pytest.mark.parametrize(("code", "error"), EXAMPLES, ids=IDS)
def test_every_error_leaves_through_every_door(code: str, error: MoorageError) -> None:
    family = next(family for family in FAMILIES if isinstance(error, family))
    http, grpc, exit_code = FAMILIES[family]
    edge = edge_of(error)
    assert (edge.http, edge.grpc, edge.exit_code) == EXCEPTIONS.get(code, (http, grpc, exit_code))


def test_every_family_has_its_edge() -> None:
    assert {kind.family for kind in error_classes()} == {"invalid", "not_found", "conflict", "access", "store"}
    assert edge_of(MoorageError("oops")).http == 500
    assert edge_of(MoorageError("oops")).exit_code == 1


def test_an_unknown_fact_is_an_unknown_attribute() -> None:
    with pytest.raises(AttributeError):
        _ = errors.InvalidCursor().holder


@pytest.mark.parametrize(("code", "error"), EXAMPLES, ids=IDS)
def test_an_error_survives_the_way_to_another_process(code: str, error: MoorageError) -> None:
    copy: Any = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.to_dict(), str(copy)) == (type(error), error.to_dict(), str(error))


def through_json(error: MoorageError) -> MoorageError:
    """Return the error that a client reads from a door's document."""
    document = json.loads(json.dumps(error.to_dict()))
    code, detail = document.pop("code"), document.pop("detail")
    return errors.error_from(code, detail, document, edge_of(error).http)


@pytest.mark.parametrize(("code", "error"), EXAMPLES, ids=IDS)
def test_an_error_is_the_same_at_the_other_end_of_a_door(code: str, error: MoorageError) -> None:
    copy = through_json(error)
    assert (type(copy), copy.code, copy.message, copy.facts) == (type(error), code, error.message, error.facts)
    assert all(getattr(copy, name) == value for name, value in error.facts.items())


@pytest.mark.parametrize("family", [errors.MoorageError, *FAMILIES])
def test_a_family_is_the_same_at_the_other_end_of_a_door(family: type[MoorageError]) -> None:
    error = family("oops", why="because")
    copy = through_json(error)
    assert (type(copy), copy.to_dict()) == (family, error.to_dict())


def test_a_field_called_like_a_session_is_told_from_its_id() -> None:
    for error in (errors.InvalidField("name", "is empty"), errors.InvalidField("id", "is empty")):
        assert type(through_json(error)) is errors.InvalidField


@pytest.mark.parametrize(
    ("status", "family"),
    [(422, "invalid"), (404, "not_found"), (409, "conflict"), (403, "access"), (503, "store"), (500, "error"),
     (None, "error")],
)  # fmt: skip
def test_a_code_from_a_newer_release_is_at_least_of_its_family(status: int | None, family: str) -> None:
    error = errors.error_from("brand_new", "unheard of", {"what": 1}, status)
    assert (error.code, error.message, error.facts, error.family) == ("brand_new", "unheard of", {"what": 1}, family)


def test_instants_are_shown_in_utc_with_z() -> None:
    assert utc_text(AT) == "2026-03-01T12:00:00Z"
    assert utc_text(AT.replace(microsecond=1500)) == "2026-03-01T12:00:00.001500Z"


def test_times_in_messages_have_no_fraction() -> None:
    at = AT.replace(microsecond=123456)
    held, gone = errors.HeldByAnother("s-1", "ann", at), errors.SessionGone("s-1", at=at, by=None, why="expired")
    for error, fact in ((held, "until"), (gone, "deleted_at")):
        assert ".123456" in error.facts[fact]
        assert ".123456" not in error.message
