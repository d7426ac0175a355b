"""Our hooks in the host's settings: put in and taken out as text, so that every other character stays.

    {"hooks": {"Stop": [{"matcher": "…", "hooks": [{"type": "command", "command": "…", "timeout": 5}]}]}}
     root      hooks     list            entry      hook

What we put in follows the file's own indentation and line ends, and taking it out gives the
original back, character by character. For that it has to be known what was there, but empty,
before us: `"hooks": {}` stays, a `"hooks"` that we brought goes. The order of our own keys,
which means nothing to the host and survives a formatter, tells it; see `_KEYS`.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from moorage.doors.cli.json_text import Array, Container, Object, Span, Unreadable, first_place, is_blank, parse, plain

SCRIPT = "moorage-hook"
HOSTS_TIMEOUT = 60  # seconds, where a hook says nothing


class Hook(Struct, frozen=True):
    """One hook of ours: at which event, for which tools, what is run, and for how many seconds at most."""

    event: str
    command: str
    timeout: float
    matcher: str | None = None

    @property
    def place(self) -> tuple[str, str | None]:
        """Where it belongs; one of ours is enough there."""
        return self.event, self.matcher


def installed(text: str, hooks: Sequence[Hook]) -> str:
    """The settings with these hooks of ours and no others. Raises Unreadable."""
    text = _without_others(text, hooks)
    for hook in hooks:
        text = _with(text, hook)
    return text


def uninstalled(text: str) -> str:
    """The settings without our hooks. Raises Unreadable."""
    return _without_others(text, ())


def hooks_of(text: str) -> list[Hook]:
    """Our hooks in these settings. Raises Unreadable."""
    return [found.hook for found in _find(text)]


def are_switched_off(text: str) -> bool:
    """Whether these settings tell the host to run no hooks at all. Raises Unreadable."""
    switch = None if is_blank(text) else _root(text).get("disableAllHooks")
    return switch is not None and plain(text, switch) is True


def is_ours(command: object) -> bool:
    """Whether a command is one that we write: the script, alone or with a URL."""
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:  # a quote that does not end
        return False
    return bool(words) and os.path.basename(words[0]) == SCRIPT and (len(words) == 1 or words[1:-1] == ["--url"])


# What is there ----------------------------------------------------------------------------------


class _Before(Enum):
    """What was in the file, but empty, before a hook was put in."""

    NOTHING = 0
    LIST = 1
    HOOKS = 2
    ROOT = 3


_KEYS = {  # in which order a hook has its keys, by what was there before it
    _Before.NOTHING: ["type", "command", "timeout"],
    _Before.LIST: ["type", "timeout", "command"],
    _Before.HOOKS: ["command", "type", "timeout"],
    _Before.ROOT: ["command", "timeout", "type"],
}


class _Found(Struct, frozen=True):
    """A hook of ours and all that is around it."""

    hook: Hook
    command: Span
    before: _Before
    around: Sequence[tuple[Container, Span]]  # each container with the part that has the hook, innermost first


def _root(text: str) -> Object:
    root = parse(text)
    if not isinstance(root, Object):
        raise Unreadable("settings must be an object, in braces", root.start)
    return root


def _hooks(root: Object) -> Object | None:
    hooks = root.get("hooks")
    if hooks is not None and not isinstance(hooks, Object):
        raise Unreadable('"hooks" must be an object, in braces', hooks.start)
    return hooks


def _list(hooks: Object, event: str) -> Array | None:
    entries = hooks.get(event)
    if entries is not None and not isinstance(entries, Array):
        raise Unreadable(f'"{event}" must be a list, in brackets', entries.start)
    return entries


def _find(text: str) -> Iterator[_Found]:
    """Our hooks, from top to bottom; what has another form than the host's is not ours."""
    if is_blank(text):
        return
    root = _root(text)
    hooks, member = _hooks(root), root.member("hooks")
    if hooks is None or member is None:
        return
    for event in hooks.children:
        if isinstance(event.value, Array):
            yield from _find_in(event.value, text, event.key, [(hooks, event), (root, member)])


def _find_in(entries: Array, text: str, event: str, around: Sequence[tuple[Container, Span]]) -> Iterator[_Found]:
    for entry in entries.children:
        hooks = entry.get("hooks") if isinstance(entry, Object) else None
        if not isinstance(hooks, Array):
            continue
        for hook in hooks.children:
            command = hook.get("command") if isinstance(hook, Object) else None
            if command is None or not is_ours(plain(text, command)):
                continue
            says, matcher = plain(text, hook), plain(text, entry).get("matcher")
            if says.get("type") == "command":
                found = [(hooks, hook), (entries, entry), *around]
                yield _Found(_read(says, event, matcher), command, _said_by(says), found)


def _read(says: dict[str, Any], event: str, matcher: object) -> Hook:
    timeout = says.get("timeout")
    return Hook(
        event,
        says["command"],
        timeout if isinstance(timeout, int | float) else HOSTS_TIMEOUT,
        matcher if isinstance(matcher, str) and matcher not in ("", "*") else None,
    )


def _said_by(hook: dict[str, Any]) -> _Before:
    keys = [key for key in hook if key in _KEYS[_Before.NOTHING]]
    return next((before for before, order in _KEYS.items() if order == keys), _Before.NOTHING)


# Taking out -------------------------------------------------------------------------------------


def _without_others(text: str, wanted: Sequence[Hook]) -> str:
    """The text without those of our hooks that are not wanted where they are, or are there twice."""
    while (other := _other(text, wanted)) is not None:
        text = _without(text, other)
    return text


def _other(text: str, wanted: Sequence[Hook]) -> _Found | None:
    missing = {hook.place for hook in wanted}
    for found in _find(text):
        if found.hook.place not in missing:
            return found
        missing.remove(found.hook.place)
    return None


def _without(text: str, found: _Found) -> str:
    """The text without a hook, and without the containers we brought for it."""
    kept = {_Before.LIST: 1, _Before.HOOKS: 2, _Before.ROOT: 3}.get(found.before)
    for level, (container, part) in enumerate(found.around):
        if len(container.children) > 1:
            return _cut(text, container, part)
        if level == kept:
            return _emptied(text, container, part)
    root, _ = found.around[-1]
    return text[: root.start] + text[root.end :]


def _cut(text: str, container: Container, part: Span) -> str:
    """The text without one part of several: with the comma before it, or after it if it is the first."""
    at = [child.start for child in container.children].index(part.start)
    if at == 0:
        return text[: part.start] + text[container.children[1].start :]
    return text[: container.children[at - 1].end] + text[part.end :]


def _emptied(text: str, container: Container, part: Span) -> str:
    """The text without the only part, leaving the blanks that were in the container before `_added` came."""
    blanks = text[container.start + 1 : part.start]
    if "\n" in text[part.end : container.end]:
        blanks = blanks[: blanks.rindex("\n")].removesuffix("\r") if "\n" in blanks else ""
    return text[: container.start + 1] + blanks + text[container.end - 1 :]


# Putting in -------------------------------------------------------------------------------------


def _with(text: str, hook: Hook) -> str:
    """The text with a hook: the one in its place brought up to date, else a new one."""
    for found in _find(text):
        if found.hook.place == hook.place:
            return _replaced(text, found.command, _json(hook.command)) if found.hook.command != hook.command else text
    if is_blank(text):
        at = first_place(text)
        return text[:at] + _rendered({"hooks": {hook.event: [_entry(hook)]}}, _Layout(_line_end(text))) + text[at:]
    return _put_in(text, hook)


def _put_in(text: str, hook: Hook) -> str:
    root = _root(text)
    hooks = _hooks(root)
    entries = _list(hooks, hook.event) if hooks else None
    path = [container for container in (root, hooks, entries) if container is not None]
    entry = _entry(hook, _before(text, path))
    if hooks is None:
        return _added(text, path, "hooks", {hook.event: [entry]})
    if entries is None:
        return _added(text, path, hook.event, [entry])
    return _added(text, path, None, entry)


def _before(text: str, path: Sequence[Container]) -> _Before:
    """What is there, but empty; what our other hooks remember counts as well."""
    if not path[-1].children:
        return (_Before.ROOT, _Before.HOOKS, _Before.LIST)[len(path) - 1]
    remembered = (found.before for found in _find(text) if found.before is not _Before.LIST)
    return next(remembered, _Before.NOTHING)


def _entry(hook: Hook, before: _Before = _Before.NOTHING) -> dict[str, Any]:
    says = {"type": "command", "command": hook.command, "timeout": hook.timeout}
    matcher = {} if hook.matcher is None else {"matcher": hook.matcher}
    return {**matcher, "hooks": [{key: says[key] for key in _KEYS[before]}]}


def _added(text: str, path: Sequence[Container], key: str | None, value: Any) -> str:
    """The text with one part more at the end of the last container of a path."""
    container = path[-1]
    around, layout = _layouts(text, path)
    part = _rendered(value, layout)
    if key is not None:
        part = _json(key) + layout.colon + part
    if container.children:
        end = container.children[-1].end
        return f"{text[:end]},{layout.gap}{part}{text[end:]}"
    end = container.end - 1
    return f"{text[:end]}{layout.lead}{part}{around.lead}{text[end:]}"


def _replaced(text: str, span: Span, by: str) -> str:
    return text[: span.start] + by + text[span.end :]


# How the file is written ------------------------------------------------------------------------


class _Layout(Struct, frozen=True):
    """How the parts of a container are laid out: each on a line of its own, or all on one line."""

    line_end: str
    indent: str = ""
    step: str = "  "
    colon: str = ": "
    gap_on_line: str = " "
    on_one_line: bool = False

    @property
    def lead(self) -> str:
        """What comes before the first part."""
        return "" if self.on_one_line else self.line_end + self.indent

    @property
    def gap(self) -> str:
        """What comes between a comma and the next part."""
        return self.gap_on_line if self.on_one_line else self.lead

    @property
    def inside(self) -> _Layout:
        """The layout of a container which is such a part."""
        return replace(self, indent=self.indent + self.step)


def _layouts(text: str, path: Sequence[Container]) -> tuple[_Layout, _Layout]:
    """How the last container of a path stands among its neighbours, and how its parts do."""
    around = layout = _Layout(_line_end(text))
    for container in path:
        around, layout = layout, _layout_of(text, container, layout)
    return around, layout


def _layout_of(text: str, container: Container, around: _Layout) -> _Layout:
    """The layout that the container's last part shows; that of the file if it has none."""
    if not container.children:
        return around.inside
    gap = _gap(text, container)
    if isinstance(container, Object):
        around = _with_colon(around, text, container)
    if "\n" in gap:
        indent = gap[gap.rindex("\n") + 1 :]
        step = around.step if around.indent else indent
        return replace(around, on_one_line=False, indent=indent, step=step)
    several = len(container.children) > 1
    return replace(around, on_one_line=True, gap_on_line=gap if several else around.gap_on_line)


def _gap(text: str, container: Container) -> str:
    """The blanks before the last part."""
    start = container.start + 1
    if len(container.children) > 1:
        start = text.index(",", container.children[-2].end) + 1
    return text[start : container.children[-1].start]


def _with_colon(layout: _Layout, text: str, container: Object) -> _Layout:
    last = container.children[-1]
    key = text[last.start : last.value.start]
    colon = key[key.rindex('"') + 1 :]
    if "\n" in colon:
        return layout
    return replace(layout, colon=colon, gap_on_line=" " if colon.endswith(" ") else "")


def _line_end(text: str) -> str:
    return "\r\n" if "\r" in text else "\n"


def _rendered(value: Any, layout: _Layout) -> str:
    """A value as it stands in such a layout."""
    if not isinstance(value, dict | list):
        return _json(value)
    inside = layout.inside
    if isinstance(value, dict):
        parts = [f"{_json(key)}{layout.colon}{_rendered(item, inside)}" for key, item in value.items()]
    else:
        parts = [_rendered(item, inside) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}{inside.lead}{f',{inside.gap}'.join(parts)}{layout.lead}{closing}"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
