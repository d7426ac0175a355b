"""hooks install and uninstall: on real files, with nothing lost."""

import json
import resource
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.doors.cli.installation import install_scripts
from tests.doors.cli.running import Cli, Done

DEFAULT = "SessionStart SessionEnd UserPromptSubmit PreToolUse PostToolUse SubagentStart SubagentStop Stop PreCompact"
PROJECT = Path(".claude/settings.json")
THEIRS = """\
{
    "model": "opus",
    "hooks": {
        "Stop": [
            {"hooks": [{"type": "command", "command": "say gr\\u00fcn"}]}
        ]
    },
    "permissions": {"allow": ["Bash(ls:*)"]}
}"""


@pytest.fixture(autouse=True)
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this test's installation, which also is the one that runs."""
    folder = install_scripts(tmp_path / "an installation" / "bin")
    runs_from(monkeypatch, folder)
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    return folder


def runs_from(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(sys, "argv", [str(folder / "moorage")])


def settings(path: Path = PROJECT) -> Any:
    return json.loads(path.read_bytes())


def commands(path: Path = PROJECT) -> set[str]:
    return {
        hook["command"]
        for entries in settings(path)["hooks"].values()
        for entry in entries
        for hook in entry["hooks"]
        if "moorage" in hook["command"]
    }


def write(text: str | bytes, path: Path = PROJECT) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# Which events -----------------------------------------------------------------------------------


def test_install_writes_the_events_with_matchers_and_timeouts(cli: Cli, scripts: Path) -> None:
    done = cli("hooks", "install")
    path = PROJECT.absolute()
    assert (done.code, done.out, done.err) == (0, f"{path}\tinstalled\t{DEFAULT.replace(' ', ',')}\n", "")
    assert list(settings()["hooks"]) == DEFAULT.split()
    command = f"'{scripts}/moorage-hook'"
    for event, entries in settings()["hooks"].items():
        matchers = {"PreToolUse": "Agent|Task", "PostToolUse": "Agent|Task|SendMessage"}
        matcher = {"matcher": matchers[event]} if event in matchers else {}
        timeout = 2 if event == "SessionEnd" else 5
        assert entries == [{**matcher, "hooks": [{"type": "command", "command": command, "timeout": timeout}]}]


def test_install_of_some_events_replaces_what_was_installed(cli: Cli) -> None:
    cli("hooks", "install")
    done = cli("hooks", "install", "--events", "Stop, StopFailure,Stop", "--json")
    assert done.json["events"] == ["Stop", "StopFailure"]
    assert list(settings()["hooks"]) == ["Stop", "StopFailure"]


@pytest.mark.parametrize("events", ["stop", "Stop,Nonsense", "", " , "])
def test_an_event_there_is_not_is_refused_with_those_there_are(cli: Cli, events: str) -> None:
    done = cli("hooks", "install", "--events", events, "--json")
    assert (done.code, done.json["code"]) == (2, "usage")
    assert "SessionStart, SessionEnd" in done.err
    assert "StopFailure" in done.err
    assert not PROJECT.parent.exists()


# Which file -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "file"),
    [
        ([], ".claude/settings.json"),
        (["--project"], ".claude/settings.json"),
        (["--local"], ".claude/settings.local.json"),
        (["--user"], "../person/.claude/settings.json"),
        (["--settings", "other.json"], "other.json"),
    ],
)
def test_the_file_that_is_written_is_the_one_asked_for(cli: Cli, options: list[str], file: str) -> None:
    done = cli("hooks", "install", *options, "--json")
    assert Path(done.json["file"]) == Path(file).resolve()
    assert "Stop" in settings(Path(file))["hooks"]
    assert cli("hooks", "uninstall", *options, "--json").json["changed"]
    assert not Path(file).exists()
    assert not Path(".claude").exists()


def test_the_hosts_own_variable_moves_the_users_settings(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "elsewhere/claude")
    cli("hooks", "install", "--user")
    assert "Stop" in settings(Path("elsewhere/claude/settings.json"))["hooks"]


@pytest.mark.parametrize("command", ["install", "uninstall", "test"])
def test_two_files_at_once_are_refused(cli: Cli, command: str) -> None:
    for options in (["--project", "--user"], ["--local", "--settings", "x.json"]):
        done = cli("hooks", command, *options, "--json")
        assert (done.code, done.json["code"]) == (2, "usage")


def test_the_folder_of_another_settings_file_is_not_made(cli: Cli) -> None:
    done = cli("hooks", "install", "--settings", "no/such/folder/settings.json", "--json")
    assert (done.code, done.json["code"]) == (2, "invalid_settings")
    assert not Path("no").exists()


# Which command ----------------------------------------------------------------------------------


def test_the_command_is_the_script_beside_the_one_that_runs(cli: Cli, scripts: Path, tmp_path: Path) -> None:
    command = cli("hooks", "install", "--json").json["command"]
    assert shlex.split(command) == [str(scripts / "moorage-hook")]
    version = subprocess.run(f"{command} --version", shell=True, cwd=tmp_path, capture_output=True, check=True)
    assert version.stdout.startswith(b"moorage-hook ")


def test_a_link_on_the_path_leads_to_the_installation(
    cli: Cli, scripts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / "moorage").symlink_to(scripts / "moorage")
    (shims / "moorage-hook").symlink_to(scripts / "moorage-hook")
    runs_from(monkeypatch, shims)
    assert shlex.split(cli("hooks", "install", "--json").json["command"]) == [str(scripts / "moorage-hook")]


def test_without_the_script_nothing_is_installed(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setattr(sys, "executable", str(empty / "python"))
    monkeypatch.setattr("sysconfig.get_path", lambda _name: str(empty))
    runs_from(monkeypatch, empty)
    done = cli("hooks", "install", "--json")
    assert (done.code, done.json["code"], done.json["folders"]) == (3, "hook_script_not_found", [str(empty)])
    assert not PROJECT.parent.exists()


def test_the_script_beside_the_interpreter_is_found(
    cli: Cli, scripts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "__main__.py")])
    monkeypatch.setattr(sys, "executable", str(scripts / "python"))
    assert shlex.split(cli("hooks", "install", "--json").json["command"]) == [str(scripts / "moorage-hook")]


def test_a_url_that_was_given_is_written_for_any_folder(cli: Cli, scripts: Path) -> None:
    command = cli("--url", "sqlite:///my own%25.db", "hooks", "install", "--json").json["command"]
    url = f"sqlite:///{Path.cwd()}/my own%25.db"
    assert shlex.split(command) == [str(scripts / "moorage-hook"), "--url", url]
    assert commands() == {command}


def test_a_url_from_the_environment_is_not_written(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORAGE_URL", "sqlite:///here.db")
    assert "--url" not in cli("hooks", "install", "--json").json["command"]


@pytest.mark.parametrize(
    ("url", "code"), [("memory://", "unsupported"), ("x", "unsupported"), ("sqlite://a", "invalid_url")]
)
def test_a_url_no_hook_could_use_is_refused(cli: Cli, url: str, code: str) -> None:
    done = cli("hooks", "install", "--url", url, "--json")
    assert (done.code, done.json["code"]) == (2, code)
    assert not PROJECT.parent.exists()


def test_a_moved_installation_replaces_the_old_path(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(THEIRS)
    cli("hooks", "install", "--url", "sqlite:///a.db")
    before = PROJECT.read_text()
    runs_from(monkeypatch, install_scripts(tmp_path / "moved"))
    old, new = commands(), cli("hooks", "install", "--json").json["command"]
    assert commands() == {new} != old
    assert PROJECT.read_text() == before.replace(json.dumps(*old), json.dumps(new))
    cli("hooks", "uninstall")
    assert PROJECT.read_text() == THEIRS


# Kept text -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        THEIRS,
        THEIRS.replace("\n", "\r\n"),
        THEIRS.replace("    ", "\t") + "\n",
        json.dumps(json.loads(THEIRS), separators=(",", ":")),
        "\ufeff" + THEIRS,
    ],
)
def test_install_and_uninstall_leave_the_file_as_it_was(cli: Cli, text: str) -> None:
    write(text)
    assert cli("hooks", "install").code == 0
    assert "Stop" in json.loads(PROJECT.read_text().removeprefix("\ufeff"))["hooks"]
    installed = PROJECT.read_bytes()
    assert cli("hooks", "install").out.split("\t")[1] == "unchanged"
    assert PROJECT.read_bytes() == installed
    assert cli("hooks", "uninstall").code == 0
    assert PROJECT.read_bytes() == text.encode()
    assert cli("hooks", "uninstall", "--json").json == {
        "file": str(PROJECT.absolute()),
        "changed": False,
        "events": [],
        "diff": "",
    }


@pytest.mark.parametrize("text", [None, "", "  \n", "{}", '{"hooks": {}}\n'])
def test_a_file_in_which_nothing_is_left_goes_with_its_folder(cli: Cli, text: str | None) -> None:
    if text is not None:
        write(text)
    cli("hooks", "install")
    assert cli("hooks", "uninstall").out.split("\t")[1] == "uninstalled"
    assert not PROJECT.parent.exists()


def test_a_folder_with_something_else_in_it_stays(cli: Cli) -> None:
    cli("hooks", "install")
    other = write("{}", PROJECT.with_name("settings.local.json"))
    cli("hooks", "uninstall")
    assert list(PROJECT.parent.iterdir()) == [other]


def test_a_file_that_got_other_settings_meanwhile_stays(cli: Cli) -> None:
    cli("hooks", "install")
    PROJECT.write_text(PROJECT.read_text().replace("{", '{\n  "model": "opus",', 1))
    cli("hooks", "uninstall")
    assert PROJECT.read_text() == '{\n  "model": "opus"\n}\n'


def test_without_a_file_there_is_nothing_to_take_out(cli: Cli) -> None:
    assert cli("hooks", "uninstall").out == f"{PROJECT.absolute()}\tunchanged\t-\n"
    assert not PROJECT.parent.exists()


@pytest.mark.parametrize("mode", [0o600, 0o666])
def test_the_mode_stays_and_a_link_is_followed(cli: Cli, tmp_path: Path, mode: int) -> None:
    target = write(THEIRS, tmp_path / "dotfiles.json")
    target.chmod(mode)
    PROJECT.parent.mkdir()
    PROJECT.symlink_to(target)
    cli("hooks", "install")
    assert PROJECT.is_symlink()
    assert "SubagentStop" in settings(target)["hooks"]
    assert target.stat().st_mode & 0o777 == mode
    assert sorted(path.name for path in PROJECT.parent.iterdir()) == ["settings.json"]


def test_hooks_that_are_switched_off_are_mentioned(cli: Cli) -> None:
    write('{"disableAllHooks": true}')
    done = cli("hooks", "install")
    assert (done.code, "disableAllHooks" in done.err) == (0, True)


# Dry runs ---------------------------------------------------------------------------------------


needs_patch = pytest.mark.skipif(shutil.which("patch") is None, reason="only `patch` can say whether a diff is one")


@needs_patch
@pytest.mark.parametrize("text", [None, THEIRS, THEIRS + "\n", "{}"])
def test_a_dry_run_shows_a_diff_that_patch_understands(cli: Cli, text: str | None) -> None:
    if text is not None:
        write(text)
    dry = cli("hooks", "install", "--dry-run")
    assert (dry.code, PROJECT.exists()) == (0, text is not None)
    assert text is None or PROJECT.read_text() == text
    document = cli("hooks", "install", "--dry-run", "--json").json
    assert document["diff"] == dry.out
    assert (document["changed"], document["events"]) == (True, DEFAULT.split())
    cli("hooks", "install")
    assert apply(dry.out, text or "") == PROJECT.read_text()
    assert cli("hooks", "install", "--dry-run").out == ""


@needs_patch
def test_a_dry_run_of_uninstall_shows_what_would_go(cli: Cli) -> None:
    write(THEIRS)
    cli("hooks", "install")
    installed = PROJECT.read_text()
    diff = cli("hooks", "uninstall", "--dry-run").out
    assert PROJECT.read_text() == installed
    assert apply(diff, installed) == THEIRS


def apply(diff: str, text: str) -> str:
    """Apply a unified diff of one file."""
    path = Path("patched")
    path.write_text(text)
    subprocess.run(["patch", "--quiet", str(path)], input=diff, text=True, check=True)
    return path.read_text()


# Refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["install", "uninstall", "test"])
@pytest.mark.parametrize(
    ("text", "line", "column", "why"),
    [
        ('{\n  // mine\n  "a": 1\n}', 2, 3, "comments"),
        ('{"a": 1,\n "a": 2}', None, None, "twice"),
        ('{\n  "hooks": []}', 2, 12, "object"),
        ("[]", 1, 1, "object"),
        ('{"a": 1 "b": 2}', 1, 9, "delimiter"),
        ("{", 1, 2, "double quotes"),
    ],
)
def test_a_file_that_cannot_be_read_is_left_alone(
    cli: Cli, command: str, text: str, line: int | None, column: int | None, why: str
) -> None:
    write(text)
    refused(cli("hooks", command, "--json"), why, line=line, column=column)
    assert PROJECT.read_text() == text


def test_a_list_of_hooks_that_is_none_is_left_alone(cli: Cli) -> None:
    write('{"hooks": {"Stop": {}}}')
    refused(cli("hooks", "install", "--json"), "list", line=1, column=20)
    assert PROJECT.read_text() == '{"hooks": {"Stop": {}}}'


def test_a_file_that_is_no_text_is_left_alone(cli: Cli) -> None:
    write(b'{"a": "gr\xfcn"}')
    refused(cli("hooks", "install", "--json"), "byte 9 is not valid UTF-8", line=None, column=None)
    assert PROJECT.read_bytes() == b'{"a": "gr\xfcn"}'


def test_a_folder_in_the_files_place_is_left_alone(cli: Cli) -> None:
    PROJECT.mkdir(parents=True)
    refused(cli("hooks", "install", "--json"), "cannot be read", line=None, column=None)


def test_a_disk_without_room_leaves_the_file_as_it_is(scripts: Path) -> None:
    write(THEIRS)

    def leave_no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    line = [str(scripts / "moorage"), "hooks", "install", "--json"]
    done = subprocess.run(line, capture_output=True, text=True, preexec_fn=leave_no_room, check=False)
    refused(Done(done.returncode, done.stdout, done.stderr), "cannot be written", line=None, column=None)
    assert PROJECT.read_text() == THEIRS
    assert [path.name for path in PROJECT.parent.iterdir()] == [PROJECT.name]


def refused(done: Done, why: str, **place: int | None) -> None:
    assert (done.code, done.json["code"]) == (2, "invalid_settings")
    assert why in done.json["detail"]
    assert {name: done.json[name] for name in place} == place
    assert "nothing was changed" in done.err
