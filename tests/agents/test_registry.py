"""Which agents there are: those that come along, those in files, and what is wrong with a file and where."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage import config
from moorage.agents.registry import Registry, line_of, read_definition, toml_of
from moorage.core.agent import AgentDefinition, AgentKind, AgentProtocol, AgentRole, definition_of
from moorage.core.errors import AgentBuiltIn, AgentExists, AgentNotFound, InvalidDefinition
from moorage.core.turn import Retry

PLANNER = """\
# Plans what others do.
[agent]
name = "planner"
kind = "command"
command = ["sh", "-c", "cat"]
timeout = "30m"

[agent.env]
COLOUR = "blue"

[agent.mcp_servers.boss]
url = "http://localhost:9/mcp"
headers = { X-Agent-Session-Name = "${AGENT_SESSION_NAME}" }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MOORAGE_HOME", str(tmp_path))
    return tmp_path / "agents"


@pytest.fixture
def registry(folder: Path) -> Registry:
    return config.registry()


def put(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def agent_in(registry: Registry, name: str) -> AgentDefinition:
    """The agent of that name, which is there."""
    found = registry.find(name)
    assert found is not None
    return found


def agent(name: str = "planner", **more: object) -> AgentDefinition:
    return definition_of({"name": name, "kind": "command", "command": ["cat"], **more})


# Listing ----------------------------------------------------------------------------------------


def test_some_agents_come_along(registry: Registry, folder: Path) -> None:
    agents = registry.all()
    assert list(agents) == ["echo-agent", "hello-world", "itinerary-worker"]
    assert agents["itinerary-worker"].role is AgentRole.WORKER
    assert not folder.exists()  # to look costs nothing


def test_a_file_defines_an_agent(registry: Registry, folder: Path) -> None:
    path = put(folder, "anything.toml", PLANNER)
    found = agent_in(registry, "planner")
    assert (found.command, found.source) == (("sh", "-c", "cat"), str(path))
    assert found.env == {"COLOUR": "blue"}
    assert found.mcp_servers["boss"]["headers"] == {"X-Agent-Session-Name": "${AGENT_SESSION_NAME}"}
    assert "planner" in registry.all()


@pytest.mark.parametrize(("heading", "role"), [("worker", AgentRole.WORKER), ("tool", AgentRole.TOOL)])
def test_workers_and_tools_are_defined_likewise(
    registry: Registry, folder: Path, heading: str, role: AgentRole
) -> None:
    put(folder, "planner.toml", PLANNER.replace("[agent", f"[{heading}"))
    assert agent_in(registry, "planner").role is role


def test_a_file_that_changes_is_read_again(registry: Registry, folder: Path) -> None:
    path = put(folder, "planner.toml", PLANNER)
    assert agent_in(registry, "planner").env == {"COLOUR": "blue"}
    put(folder, "planner.toml", PLANNER.replace("blue", "red"))
    os.utime(path, ns=(1, 1))
    assert agent_in(registry, "planner").env == {"COLOUR": "red"}
    path.unlink()
    assert registry.find("planner") is None


def test_a_file_that_has_not_changed_is_not_read_again(folder: Path) -> None:
    class Counting(config.AgentFiles):
        reads = 0

        def read(self, path: str) -> bytes:
            self.reads += 1
            return super().read(path)

    put(folder, "planner.toml", PLANNER)
    files = Counting(str(folder))
    registry = Registry(files)
    for _ in range(3):
        registry.all()
    assert files.reads == 1


def test_other_files_are_left_alone(registry: Registry, folder: Path) -> None:
    put(folder, "README.md", "notes")
    put(folder, "planner.toml.123.part", "half a file")
    put(folder, ".hidden.toml", "=")
    (folder / "folder.toml").mkdir()
    assert len(registry.all()) == 3
    assert registry.problems() == []


def test_one_that_comes_along_can_be_switched_off_or_replaced(registry: Registry, folder: Path) -> None:
    put(folder, "echo.toml", '[agent]\nname = "echo-agent"\nkind = "builtin"\nenabled = false\n')
    assert agent_in(registry, "echo-agent").enabled is False
    put(folder, "echo.toml", '[agent]\nname = "echo-agent"\nkind = "command"\ncommand = ["cat"]\n')
    assert agent_in(registry, "echo-agent").kind is AgentKind.COMMAND


def test_an_agent_that_is_not_there_is_not_found(registry: Registry) -> None:
    assert registry.find("planner") is None


# Adding and removing ----------------------------------------------------------------------------


def test_added_agent_is_visible_to_other_registries(registry: Registry, folder: Path) -> None:
    added = registry.add(agent(env={"A": "1"}).table())
    assert added.source == str(folder / "planner.toml")
    assert agent_in(Registry(config.AgentFiles(str(folder))), "planner") == added
    assert folder.stat().st_mode & 0o077 == 0
    assert [path.name for path in folder.iterdir()] == ["planner.toml"]


def test_a_text_is_kept_as_it_was_written(registry: Registry, folder: Path) -> None:
    registry.add(PLANNER)
    assert (folder / "planner.toml").read_text() == PLANNER


def test_a_name_is_not_taken_twice(registry: Registry, folder: Path) -> None:
    put(folder, "by-hand.toml", PLANNER)
    with pytest.raises(AgentExists, match=r"by-hand\.toml"):
        registry.add(agent().table())
    registry.add(agent(timeout="5m").table(), replace=True)
    assert [path.name for path in folder.iterdir()] == ["planner.toml"]
    assert agent_in(registry, "planner").timeout == definition_of(agent().table() | {"timeout": "5m"}).timeout


def test_invalid_definition_is_refused(registry: Registry, folder: Path) -> None:
    with pytest.raises(InvalidDefinition, match="the definition, line 4: kind is 'magic'"):
        registry.add(PLANNER.replace('"command"', '"magic"'))
    assert not folder.exists()


def test_an_agent_can_be_removed(registry: Registry, folder: Path) -> None:
    put(folder, "by-hand.toml", PLANNER)
    assert registry.remove("planner").name == "planner"
    assert list(folder.iterdir()) == []
    with pytest.raises(AgentNotFound):
        registry.remove("planner")


def test_one_that_comes_along_cannot_be_removed_but_its_stand_in_can(registry: Registry) -> None:
    with pytest.raises(AgentBuiltIn, match="comes with Moorage"):
        registry.remove("echo-agent")
    registry.add(agent("echo-agent").table())
    registry.remove("echo-agent")
    assert agent_in(registry, "echo-agent").kind is AgentKind.BUILTIN


@pytest.mark.parametrize("name", ["../evil", "a/b", "/etc/passwd", "..", ".hidden", ""])
def test_a_name_never_leads_out_of_the_folder(registry: Registry, folder: Path, name: str) -> None:
    with pytest.raises(InvalidDefinition, match="name"):
        registry.add({"name": name, "kind": "command", "command": ["cat"]})
    with pytest.raises(AgentNotFound):
        registry.remove(name)
    assert not folder.exists()


# Problems ---------------------------------------------------------------------------------------

MISTAKES = [
    ('name = "planner"', 'name = "a/b"', 3, "name is 'a/b'"),
    ('kind = "command"', 'kind = "magic"', 4, "kind is 'magic'"),
    ('command = ["sh", "-c", "cat"]', 'command = "cat"', 5, "command must be a list of words"),
    ('command = ["sh", "-c", "cat"]', 'command = [\n  "sh",\n  5,\n]', 5, "command must be text"),
    ('timeout = "30m"', 'timeout = "soon"', 6, "timeout is 'soon'"),
    ('timeout = "30m"', 'timout = "30m"', 6, "timout is not a key of a definition"),
    ('timeout = "30m"', "model = 'x'", 6, "model does not apply to an agent of kind command"),
    ('timeout = "30m"', 'system_prompt = """\nkind = 5\n"""\nretry = "x"', 9, "retry is 'x'"),
    ('COLOUR = "blue"', "COLOUR = 5", 9, "env.COLOUR is 5"),
    ('COLOUR = "blue"', 'AGENT_RUN_ID = "x"', 9, "is set by the launcher"),
    ("[agent.env]", "[agent.envy]", 8, "envy is not a key of a definition"),
    ('url = "http://localhost:9/mcp"', "url = 5", 12, "mcp_servers.boss.url must be some text"),
    ('url = "http://localhost:9/mcp"', "", 11, "mcp_servers.boss needs either a url or a command"),
    ('"${AGENT_SESSION_NAME}"', "5", 13, "mcp_servers.boss.headers.X-Agent-Session-Name is 5"),
    ('kind = "command"\n', "", 2, "kind is missing: every agent has one"),
    ('command = ["sh", "-c", "cat"]\n', "", 2, "command is missing"),
    ('timeout = "30m"', "timeout = 30m", 6, "not valid TOML"),
    ('timeout = "30m"', 'kind = "acp"', 6, "not valid TOML"),
    ("[agent.mcp_servers.boss]", "[other]", 11, "other is not a heading of a definition"),
    ("[agent.mcp_servers.boss]", "[worker]", 11, "write one of [agent], [worker] and [tool], and one only"),
]


@pytest.mark.parametrize(("right", "wrong", "line", "why"), MISTAKES, ids=[why[:30] for *_, why in MISTAKES])
def test_error_names_the_line(registry: Registry, folder: Path, right: str, wrong: str, line: int, why: str) -> None:
    assert right in PLANNER
    path = put(folder, "planner.toml", PLANNER.replace(right, wrong, 1))
    [problem] = registry.problems()
    assert problem.message.startswith(f"{path}, line {line}: ")
    assert why in problem.message
    assert (problem.code, problem.file, problem.line) == ("invalid_definition", str(path), line)


def test_a_bad_file_is_the_problem_of_its_agent_alone(registry: Registry, folder: Path) -> None:
    put(folder, "broken.toml", "[agent")
    put(folder, "planner.toml", PLANNER)
    assert agent_in(registry, "planner").name == "planner"
    assert len(registry.all()) == 4
    with pytest.raises(InvalidDefinition, match=r"broken\.toml, line 1"):
        agent_in(registry, "broken")


def test_bytes_that_are_no_text_are_told_with_their_line(registry: Registry, folder: Path) -> None:
    put(folder, "planner.toml", "")
    (folder / "planner.toml").write_bytes(b"[agent]\nname = '\xff'\n")
    [problem] = registry.problems()
    assert problem.message.endswith("planner.toml, line 2: not valid UTF-8")


def test_error_for_an_empty_file_shows_an_example(registry: Registry, folder: Path) -> None:
    put(folder, "planner.toml", "# nothing yet\n")
    [problem] = registry.problems()
    assert "write one of [agent], [worker] and [tool]" in problem.message


def test_two_files_for_one_name_are_told(registry: Registry, folder: Path) -> None:
    first, second = put(folder, "a.toml", PLANNER), put(folder, "b.toml", PLANNER)
    assert agent_in(registry, "planner").source == str(first)
    [problem] = registry.problems()
    assert (problem.file, str(first) in problem.message) == (str(second), True)
    first.unlink()
    assert agent_in(registry, "planner").source == str(second)
    assert registry.problems() == []


def test_unreadable_file_is_reported(registry: Registry, folder: Path) -> None:
    put(folder, "gone.toml", PLANNER)
    (folder / "gone.toml").unlink()
    (folder / "loop.toml").symlink_to("loop.toml")
    assert registry.find("planner") is None


def test_only_agents_that_come_along_are_of_kind_builtin(registry: Registry, folder: Path) -> None:
    put(folder, "mine.toml", '[agent]\nname = "mine"\nkind = "builtin"\n')
    [problem] = registry.problems()
    assert "mine.toml, line 2: name is 'mine'; agents of kind builtin are echo-agent" in problem.message


def test_the_line_is_found_in_a_long_text_too() -> None:
    prompt = "\n".join(f"line {n}: retry = maybe" for n in range(3000))
    text = f'[agent]\nname = "x"\nkind = "acp"\ncommand = ["x"]\nsystem_prompt = """\n{prompt}\n"""\nretry = "maybe"\n'
    with pytest.raises(InvalidDefinition) as caught:
        read_definition(text, "file")
    assert caught.value.line == text.splitlines().index('retry = "maybe"') + 1


def test_the_line_of_a_key_that_is_nowhere_is_that_of_its_table() -> None:
    assert line_of("\n[agent]\n", ("agent", "kind")) == 2
    assert line_of("a = 1\n", ("agent", "kind")) == 1
    assert line_of("", ()) == 1


# Writing ----------------------------------------------------------------------------------------

VARIABLES = st.from_regex(r"X[A-Z0-9_]{0,8}", fullmatch=True)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)


SERVERS = st.fixed_dictionaries({"command": TEXTS.filter(str.strip), "args": st.lists(TEXTS)})


@settings(max_examples=200)
@given(
    TEXTS,
    st.lists(TEXTS, max_size=3),
    st.dictionaries(
        st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True).map(lambda name: f"X{name}"), TEXTS, max_size=3
    ),
    st.dictionaries(
        TEXTS, st.fixed_dictionaries({"command": TEXTS.filter(str.strip), "args": st.lists(TEXTS)}), max_size=2
    ),
    st.sampled_from(AgentRole),
)
def test_written_definition_reads_back(
    description: str, words: list[str], env: dict[str, str], servers: dict[str, dict[str, object]], role: AgentRole
) -> None:
    table = {
        "name": "planner",
        "kind": "command",
        "command": ["x", *words],
        "description": description,
        "env": env,
        "mcp_servers": servers,
        "protocol": AgentProtocol.JSONL.value,
        "retry": Retry.NEVER.value,
        "enabled": False,
        "max_concurrent": 3,
        "timeout": "never",
    }
    wanted = definition_of(table, role, source="file")
    assert read_definition(toml_of(wanted), "file") == wanted


SLOW = {
    "dotted key": "[agent]\n" + ".".join(["a"] * 20_000) + " = 1\n",
    "spaced key": "[agent]\n" + " . ".join(["a"] * 20_000) + " = 1\n",
    "quoted key": "[agent]\n" + ".".join(['"a"'] * 20_000) + " = 1\n",
    "heading": "[" + ".".join(["a"] * 20_000) + "]\n",
    "arrays": "[agent]\nx = " + "[" * 3_000 + "]" * 3_000,
    "tables": "[agent]\nx = " + "{a=" * 3_000 + "1" + "}" * 3_000,
}


@pytest.mark.parametrize("text", SLOW.values(), ids=SLOW)
def test_definition_that_would_take_minutes_to_read_is_refused(text: str) -> None:
    with pytest.raises(InvalidDefinition, match="32"):
        read_definition(text)


def test_dots_and_brackets_inside_texts_count_for_nothing() -> None:
    many = "one. two. [[[ " * 200
    text = f'[agent]\nname = "x"\nkind = "command"\ncommand = ["cat"]\nsystem_prompt = """\n{many}"""\n'
    assert read_definition(f"{text}description = \"it's {many}\" # don't {many}\n").name == "x"
