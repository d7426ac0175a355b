"""agents list, show, add, remove."""

from pathlib import Path

import pytest

from tests.doors.cli.agent_files import ASKING, FAILING, MISSPEAKING, SLOW, define
from tests.doors.cli.running import Cli


def test_list_tells_of_those_that_come_along_and_of_those_defined(cli: Cli, home: Path) -> None:
    define(home, SLOW)
    rows = [line.split("\t") for line in cli("agents", "list").lines]
    assert [row[0] for row in rows] == ["echo-agent", "hello-world", "itinerary-worker", "slow"]
    assert rows[3][1:3] == ["command", "yes"]
    document = cli("agents", "list", "--json").json
    assert [agent["name"] for agent in document["items"]] == [row[0] for row in rows]
    assert document["problems"] == []


def test_a_broken_file_is_a_warning_with_its_line_and_the_others_are_there(cli: Cli, home: Path) -> None:
    define(home, SLOW, '[agent]\nname = "broken"\nkind = "comand"\n')
    done = cli("agents", "list", "--json")
    assert done.code == 0
    assert "slow" in {agent["name"] for agent in done.json["items"]}
    [problem] = done.json["problems"]
    assert (problem["code"], problem["line"]) == ("invalid_definition", 3)
    assert "broken.toml, line 3" in done.err
    shown = cli("agents", "show", "broken")
    assert (shown.code, "line 3" in shown.err) == (2, True)


def test_show_tells_what_the_definition_says(cli: Cli, home: Path) -> None:
    define(home, SLOW)
    agent = cli("agents", "show", "slow", "--json").json
    assert agent["command"] == ["sh", "-c", "echo started; sleep 60; echo done"]
    assert agent["source"].endswith("slow.toml")
    assert "builtin" in cli("agents", "show", "echo-agent").out
    assert cli("agents", "show", "nobody").code == 3


def test_an_agent_is_added_from_a_file_used_and_removed(cli: Cli, home: Path) -> None:
    Path("greeter.toml").write_text('[agent]  # ours\nname = "greeter"\nkind = "command"\ncommand = ["cat"]\n')
    assert cli("agents", "add", "greeter.toml").out == "greeter\n"
    assert "# ours" in (home / "agents" / "greeter.toml").read_text()
    assert cli("run", "greeter", "hello").out == "hello\n"
    assert cli("agents", "remove", "greeter").out == "greeter\n"
    assert cli("run", "greeter", "hello").code == 3
    assert cli("agents", "remove", "greeter").code == 3


def test_an_agent_is_added_from_standard_input_and_replaced_only_on_demand(cli: Cli) -> None:
    text = b'[agent]\nname = "greeter"\nkind = "command"\ncommand = ["%s"]\n'
    assert cli("agents", "add", "-", stdin=text % b"cat").out == "greeter\n"
    refused = cli("agents", "add", "-", "--json", stdin=text % b"true")
    assert (refused.code, refused.json["code"]) == (4, "agent_exists")
    assert refused.err.endswith("; remove it first, or use --replace\n")
    assert cli("agents", "show", "greeter", "--json").json["command"] == ["cat"]
    assert cli("agents", "add", "-", "--replace", stdin=text % b"true").code == 0
    assert cli("agents", "show", "greeter", "--json").json["command"] == ["true"]


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        (b'[agent]\nname = "x"\nkind = "command"\n', 1, "command"),
        (b'[agent]\nname = "x"\nkind = "command"\ncommand = ["cat"]\ncolour = "red"\n', 5, "colour"),
        (b'[agent]\nname = "../x"\nkind = "command"\ncommand = ["cat"]\n', 2, "name"),
        (b"[agent\n", 1, "TOML"),
        (b'[agent]\nname = "\xff"\n', 2, "UTF-8"),
    ],
)
def test_invalid_definition_is_reported_with_file_and_line(
    cli: Cli, home: Path, text: bytes, line: int, word: str
) -> None:
    Path("x.toml").write_bytes(text)
    refused = cli("agents", "add", "x.toml", "--json")
    assert (refused.code, refused.json["code"], refused.json["line"]) == (2, "invalid_definition", line)
    assert f"x.toml, line {line}" in refused.err
    assert word in refused.err
    assert not (home / "agents").exists()


def test_a_file_that_is_not_there_is_refused(cli: Cli) -> None:
    assert cli("agents", "add", "nothing.toml").code == 2


def test_builtin_agent_cannot_be_removed(cli: Cli) -> None:
    assert cli("agents", "remove", "echo-agent").code == 4
    assert cli("run", "echo-agent", "hi").out == "Echo Agent Response: hi\n"


# check ------------------------------------------------------------------------------------------


def test_check_reports_every_problem_and_leaves_nothing_behind(cli: Cli, home: Path) -> None:
    define(home, MISSPEAKING)
    before = sorted(home.rglob("*"))
    done = cli("agents", "check", "misspeaking")
    assert done.code == 1
    assert [line.split(":")[0] for line in done.out.splitlines()] == [
        "line 1, field content[0].call_id",
        "line 2, field phase",
        *[f"line {n}" for n in range(3, 22)],
        "and 11 more",
    ]
    assert sorted(home.rglob("*")) == before


def test_check_of_a_sound_agent_is_a_yes(cli: Cli, home: Path) -> None:
    define(home, MISSPEAKING)
    assert cli("agents", "check", "echo-agent").out == "echo-agent: no problems\n"
    done = cli("agents", "check", "misspeaking", "quietly", "--json")
    assert (done.code, done.json["problems"], done.json["items"], done.json["result"]) == (0, 0, [], "fine")


def test_check_runs_a_failing_agent_once_and_says_why(cli: Cli, home: Path) -> None:
    counted = home / "started"
    define(home, FAILING.replace("echo out", f"echo x >> '{counted}'; echo out"))
    done = cli("agents", "check", "failing")
    assert (done.code, "out of luck" in done.err) == (1, True)
    assert counted.read_text() == "x\n"


def test_check_rejects_what_the_agent_asks(cli: Cli, home: Path) -> None:
    define(home, ASKING)
    done = cli("agents", "check", "asking", "--json")
    assert (done.code, done.json["result"]) == (0, "You said reject")


def test_check_stops_an_agent_that_takes_too_long(cli: Cli, home: Path) -> None:
    define(home, SLOW)
    done = cli("agents", "check", "slow", "--timeout", "0.5", "--json")
    assert (done.code, done.json["outcome"]) == (1, "stopped")


def test_check_of_an_unknown_agent_is_not_found(cli: Cli) -> None:
    assert cli("agents", "check", "nobody").code == 3


# Programs beside the file -------------------------------------------------------------------------

COMMAND = '[agent]\nname = "{name}"\nkind = "command"\ncommand = {command}\n'


def a_definition(folder: str, name: str, command: str) -> Path:
    Path(folder).mkdir(exist_ok=True)
    file = Path(folder) / f"{name}.toml"
    file.write_text(COMMAND.format(name=name, command=command))
    return file


def a_program(path: str, text: str = "#!/bin/sh\necho here\n") -> None:
    Path(path).write_text(text)
    Path(path).chmod(0o755)


def test_add_copies_the_program_beside_the_file(cli: Cli, home: Path) -> None:
    file = a_definition("mine", "greeter", '["greet.sh"]')
    a_program("mine/greet.sh")
    assert (cli("agents", "add", str(file)).err, (home / "agents" / "greet.sh").exists()) == ("", True)
    assert cli("run", "greeter", "hello").out == "here\n"


def test_add_copies_the_module_of_a_function(cli: Cli, home: Path) -> None:
    Path("mine").mkdir()
    Path("mine/greeting.py").write_text("def greet(turn):\n    return 'hello from here'\n")
    Path("mine/g.toml").write_text('[agent]\nname = "g"\nkind = "python"\nfunction = "greeting:greet"\n')
    assert cli("agents", "add", "mine/g.toml").code == 0
    assert cli("run", "g", "hello").out == "hello from here\n"


def test_add_overwrites_no_other_program(cli: Cli, home: Path) -> None:
    cli("agents", "add", str(a_definition("mine", "one", '["greet.sh"]')))
    a_program("mine/greet.sh")
    a_program(str(home / "agents" / "greet.sh"), "#!/bin/sh\necho other\n")
    refused = cli("agents", "add", str(a_definition("mine", "two", '["greet.sh"]')))
    assert (refused.code, "there is another greet.sh in" in refused.err) == (4, True)
    assert cli("agents", "show", "two").code == 3
    assert cli("agents", "add", "mine/two.toml", "--replace").code == 0
    assert cli("run", "two", "x").out == "here\n"


def test_add_says_where_a_program_was_looked_for(cli: Cli, home: Path) -> None:
    done = cli("agents", "add", str(a_definition("mine", "lost", '["no-such-program"]')))
    assert (done.code, done.out) == (0, "lost\n")
    assert "there is no program 'no-such-program'" in done.err
    assert f"{Path('mine').absolute()}, {home / 'agents'}" in done.err


def test_add_says_what_to_write_for_a_script_that_is_an_argument(cli: Cli) -> None:
    file = a_definition("mine", "lost", '["sh", "greet.sh"]')
    a_program("mine/greet.sh")
    assert f'write: command = ["sh","{Path("mine/greet.sh").absolute()}"]' in cli("agents", "add", str(file)).err


def test_add_says_where_a_script_was_looked_for(cli: Cli) -> None:
    said = cli("agents", "add", str(a_definition("mine", "lost", '["sh", "no-such.sh", "plan"]'))).err
    assert f"there is no 'no-such.sh' (looked in {Path('mine').absolute()} and {Path.cwd()})" in said
    assert "'plan'" not in said
