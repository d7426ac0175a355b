"""Hooks put into settings and taken out: nothing else changes by a single character."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.doors.cli.settings import (
    BYTE_ORDER_MARK,
    NOTHING,
    Hook,
    Unreadable,
    are_switched_off,
    hooks_of,
    installed,
    is_ours,
    uninstalled,
)
from tests.doors.cli.settings_texts import EVENTS, texts

MATCHERS = {"PreToolUse": "Agent|Task", "PostToolUse": "Agent|Task"}
OURS = "/opt/moorage/bin/moorage-hook"


def hooks(*events: str, command: str = OURS) -> list[Hook]:
    return [Hook(event, command, 5, MATCHERS.get(event)) for event in events]


some_hooks = st.builds(
    lambda events, command: hooks(*events, command=command),
    st.lists(st.sampled_from(EVENTS), min_size=1, unique=True),
    st.sampled_from([OURS, "'/a b/moorage-hook'", "'/ü/moorage-hook' --url 'sqlite:////tmp/it''s.db'"]),
)


# For any file -----------------------------------------------------------------------------------


@given(texts, some_hooks)
def test_uninstall_gives_the_original_back_unless_it_had_empty_hooks(text: str, wanted: list[Hook]) -> None:
    before, back = settings_of(text), uninstalled(installed(text, wanted))
    if not before:
        assert back == NOTHING
    elif before.get("hooks") == {} or any(before.get("hooks", {}).get(hook.event) == [] for hook in wanted):
        assert without_empty(settings_of(back)) == without_empty(before)
    else:
        assert back == text


@given(texts, some_hooks)
def test_installing_twice_changes_nothing_more(text: str, wanted: list[Hook]) -> None:
    once = installed(text, wanted)
    assert installed(once, wanted) == once


@given(texts, st.lists(some_hooks, min_size=2, max_size=4))
def test_uninstall_gives_the_settings_back_after_any_number_of_changes(text: str, rounds: list[list[Hook]]) -> None:
    changed = text
    for wanted in rounds:
        changed = installed(changed, wanted)
        assert sorted(hooks_of(changed), key=str) == sorted(wanted, key=str)
    assert without_empty(settings_of(uninstalled(changed))) == without_empty(settings_of(text))


@given(texts, some_hooks)
def test_the_host_reads_the_same_and_ours_besides(text: str, wanted: list[Hook]) -> None:
    after = settings_of(installed(text, wanted))
    for hook in wanted:
        entry = after["hooks"][hook.event].pop()
        assert entry.get("matcher") == hook.matcher
        assert entry["hooks"] == [{"type": "command", "command": hook.command, "timeout": 5}]
    assert without_empty(after) == without_empty(settings_of(text))


def settings_of(text: str) -> Any:
    return json.loads(text.removeprefix(BYTE_ORDER_MARK)) if text.strip() else {}


def without_empty(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings without lists and hooks that have nothing in them."""
    hooks = {event: entries for event, entries in settings.get("hooks", {}).items() if entries != []}
    return {**settings, "hooks": hooks}


# Layout -----------------------------------------------------------------------------

FRESH = """\
{
  "hooks": {
    "Stop": [
      {
        "hooks": [
          {
            "type": "command",
            "command": "/opt/moorage/bin/moorage-hook",
            "timeout": 5
          }
        ]
      }
    ]
  }
}
"""


def test_a_new_file_is_laid_out_for_people() -> None:
    assert installed("\n", hooks("Stop")) == FRESH


def test_the_files_own_indentation_and_line_ends_are_followed() -> None:
    before = '{\r\n\t"model" : "opus",\r\n\t"hooks" : {\r\n\t\t"Stop" : [\r\n\t\t\t{"hooks" : []}\r\n\t\t]\r\n\t}\r\n}'
    after = installed(before, hooks("Stop", "PreToolUse"))
    assert after == (
        '{\r\n\t"model" : "opus",\r\n\t"hooks" : {\r\n\t\t"Stop" : [\r\n\t\t\t{"hooks" : []},\r\n\t\t\t{\r\n\t\t\t\t'
        '"hooks": [\r\n\t\t\t\t\t{\r\n\t\t\t\t\t\t"type": "command",\r\n\t\t\t\t\t\t"command": '
        f'"{OURS}",\r\n\t\t\t\t\t\t"timeout": 5\r\n\t\t\t\t\t}}\r\n\t\t\t\t]\r\n\t\t\t}}\r\n\t\t],\r\n\t\t'
        '"PreToolUse": [\r\n\t\t\t{\r\n\t\t\t\t"matcher": "Agent|Task",\r\n\t\t\t\t"hooks": [\r\n\t\t\t\t\t{\r\n'
        f'\t\t\t\t\t\t"type": "command",\r\n\t\t\t\t\t\t"command": "{OURS}",\r\n\t\t\t\t\t\t"timeout": 5\r\n'
        "\t\t\t\t\t}\r\n\t\t\t\t]\r\n\t\t\t}\r\n\t\t]\r\n\t}\r\n}"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"a":1}', '{"a":1,"hooks": {"Stop": [{"hooks": [OURS]}]}}'),
        ('{"hooks": {"Stop": [7, 8]}, "a": 1}', '{"hooks": {"Stop": [7, 8, {"hooks": [OURS]}]}, "a": 1}'),
        ('{"hooks":{ }}', '{"hooks":{"Stop": [{"hooks": [OURS]}]}}'),
    ],
)
def test_a_file_of_one_line_stays_one(before: str, after: str) -> None:
    assert installed(before, hooks("Stop")) == after.replace("OURS", json.dumps(OUR_HOOK))


def test_item_of_an_empty_list_is_formatted_like_the_file() -> None:
    assert installed('{\n  "hooks": {\n    "Stop": []\n  }\n}\n', hooks("Stop")) == FRESH


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("{}", NOTHING),
        ('{"hooks": {}}', NOTHING),
        ('{"hooks": {"Notification": [], "Stop": []}, "a": 1}', '{"hooks": {"Notification": []}, "a": 1}'),
        ('{"hooks": {"Stop": []}, "a": 1}', '{"a": 1}'),
    ],
)
def test_lists_empty_before_are_removed_with_our_hooks(text: str, left: str) -> None:
    assert uninstalled(installed(text, hooks("Stop"))) == left
    assert uninstalled(text) == text


# Whose is it ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "moorage-hook",
        OURS,
        "'/with blanks/moorage-hook'",
        "/x/moorage-hook --url sqlite:////tmp/a.db",
        "'/a b/moorage-hook' --url 'sqlite:////tmp/a b.db'",
    ],
)
def test_ours_is_the_script_alone_or_with_a_url(command: str) -> None:
    assert is_ours(command)


@pytest.mark.parametrize(
    "command",
    [
        *("", "   ", "moorage", "/x/moorage-hook.sh", "timeout 3 /x/moorage-hook", "echo moorage-hook"),
        *("/x/moorage-hook pre-delegate", "/x/moorage-hook --url", "/x/moorage-hook --url a b", "'/x/moorage-hook"),
        *("/x/moorage-hook; rm -r /", None, 3, ["/x/moorage-hook"], {"a": 1}),
    ],
)
def test_other_commands_are_not_ours(command: object) -> None:
    assert not is_ours(command)


OUR_HOOK = {"type": "command", "command": OURS, "timeout": 5}
THEIR_HOOK = {"type": "command", "command": "theirs"}


def stop_settings(*entries: dict[str, Any]) -> str:
    return json.dumps({"hooks": {"Stop": entries}})


@pytest.mark.parametrize("mixed", [[OUR_HOOK, THEIR_HOOK], [THEIR_HOOK, OUR_HOOK]])
def test_ours_among_others_is_taken_out_alone(mixed: list[dict[str, Any]]) -> None:
    text = stop_settings({"hooks": mixed}, {"hooks": [OUR_HOOK]})
    assert uninstalled(text) == stop_settings({"hooks": [THEIR_HOOK]})


def test_a_moved_installation_is_followed_and_what_a_person_changed_stays() -> None:
    changed = FRESH.replace('"timeout": 5', '"timeout": 30, "statusMessage": "…"')
    new = "/new/moorage-hook"
    assert installed(changed, hooks("Stop", command=new)) == changed.replace(OURS, new)


def test_ours_twice_or_with_another_matcher_becomes_one() -> None:
    ours, narrow = {"hooks": [OUR_HOOK]}, {"matcher": "Bash", "hooks": [OUR_HOOK]}
    assert installed(stop_settings(narrow, ours, ours), hooks("Stop")) == stop_settings(ours)


def test_a_hook_that_is_no_command_is_not_ours() -> None:
    text = stop_settings({"hooks": [{"type": "prompt", "command": OURS}, {"command": OURS}]})
    assert hooks_of(text) == []
    assert uninstalled(text) == text


def test_hooks_are_read_back_as_they_are_run() -> None:
    entry = {"matcher": "*", "hooks": [{"type": "command", "command": OURS}]}
    text = json.dumps({"hooks": {"PreToolUse": [entry], "Notification": []}})
    assert hooks_of(text) == [Hook("PreToolUse", OURS, 60)]


@pytest.mark.parametrize(("value", "off"), [(True, True), (False, False), (1, False), ("true", False)])
def test_hooks_that_are_switched_off(value: object, off: bool) -> None:
    assert are_switched_off(json.dumps({"disableAllHooks": value})) is off
    assert not are_switched_off("{}")
    assert not are_switched_off("")


# Refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why", "at"),
    [
        ("[]", "settings must be an object", 0),
        ("7", "settings must be an object", 0),
        ('{"hooks": []}', '"hooks" must be an object', 10),
        ('{"hooks": null}', '"hooks" must be an object', 10),
        ('{"hooks": {"Stop": {}}}', '"Stop" must be a list', 19),
        ('{"hooks": {}, "hooks": {}}', 'the key "hooks" is there twice', None),
        ('{"hooks": {}, "\\u0068ooks": {}}', 'the key "hooks" is there twice', None),
        ('{"a": {"b": 1, "b": 2}}', 'the key "b" is there twice', None),
        ("{} // mine", "JSON has no comments; remove them", 3),
        ('{\n  /* mine */ "a": 1}', "JSON has no comments; remove them", 4),
        ('{"a": # mine\n 1}', "JSON has no comments; remove them", 6),
        ('{"a": 1 "b": 2}', "delimiter", 8),
        ("{a: 1}", "double quotes", 1),
        ('{"a": }', "Expecting value", 6),
        ('{"a": "b}', "Unterminated string", 6),
        ("{} {}", "Extra data", 3),
        (BYTE_ORDER_MARK + "{} {}", "Extra data", 4),
    ],
)
def test_unsafe_change_is_refused_with_its_place(text: str, why: str, at: int | None) -> None:
    with pytest.raises(Unreadable, match=r".") as refused:
        installed(text, hooks("Stop"))
    assert (refused.value.at, why in refused.value.why) == (at, True), refused.value.why


def test_a_wrong_event_that_is_not_ours_does_not_matter() -> None:
    text = '{"hooks": {"Notification": "beep", "Stop": {}}}'
    assert uninstalled(installed(text, hooks("SessionEnd"))) == text


def test_bottomless_nesting_is_refused() -> None:
    with pytest.raises(Unreadable, match="nested too deeply"):
        installed("[" * 100_000, hooks("Stop"))
