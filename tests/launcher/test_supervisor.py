"""A supervisor and a plain program: what goes in, what comes out, and how it ends when it should not go on."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from moorage.agents.interface import Limits
from moorage.launcher import processes
from tests.launcher.turns import Turns, is_gone, job, launcher_script, python, read_pids, shell, survivors, wait_for

# Input and output -------------------------------------------------------------------------------


def test_the_prompt_goes_in_and_the_answer_comes_out(turns: Turns) -> None:
    result = turns.begin(shell("tr a-z A-Z"), prompt="tea please").result()
    assert result == {"type": "result", "outcome": "completed", "text": "TEA PLEASE", "said": False}


def test_instructions_come_before_the_prompt(turns: Turns) -> None:
    assert turns.begin(shell("cat", system_prompt="Be brief."), prompt="tea").result()["text"] == "Be brief.\n\ntea"


def test_an_answer_can_be_heard_while_it_is_given(turns: Turns, tmp_path: Path) -> None:
    go = tmp_path / "go"
    running = turns.begin(shell(f"echo first; until [ -e {go} ]; do sleep 0.02; done; echo second"))
    running.heard("first\n")
    assert running.process.poll() is None
    go.touch()
    assert running.result()["text"] == "first\nsecond"


def test_failure_of_a_program_includes_stdout_and_stderr(turns: Turns) -> None:
    running = turns.begin(shell("echo half; echo no such planet >&2; exit 3"))
    assert running.result() == {
        "type": "result",
        "outcome": "failed",
        "text": "half",
        "said": False,
        "reason": "agent_failed",
        "error": "it ended with exit status 3: no such planet",
    }
    assert running.errors() == "no such planet\n"


def test_a_program_that_ends_without_a_word_gave_no_answer(turns: Turns) -> None:
    result = turns.begin(shell("exit 0")).result()
    assert (result["outcome"], result["reason"]) == ("failed", "no_answer")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_program_that_is_killed_has_failed(turns: Turns, number: signal.Signals) -> None:
    result = turns.begin(shell(f"echo so far; kill -{number.value} $$")).result()
    assert (result["outcome"], result["reason"], result["text"]) == ("failed", "agent_failed", "so far")
    assert result["error"] == f"it was killed by {number.name}"


def test_program_that_cannot_start_is_reported(turns: Turns, tmp_path: Path) -> None:
    plain = tmp_path / "plain.txt"
    plain.write_text("no program")
    for command, cwd, reason, what in (
        ("no-such-program", tmp_path, "not_found", "'no-such-program'"),
        ("true", tmp_path / "nowhere", "not_found", "the folder"),
        (str(plain), tmp_path, "cannot_start", "plain.txt"),
    ):
        result = turns.begin({"command": [command]}, cwd=str(cwd)).result()
        assert (result["outcome"], result["reason"]) == ("failed", reason)
        assert what in result["error"]


def test_the_folder_of_the_definition_wins_over_that_of_the_session(turns: Turns, tmp_path: Path) -> None:
    (tmp_path / "workshop").mkdir()
    assert turns.begin(shell("pwd")).result()["text"] == str(tmp_path)
    assert turns.begin(shell("pwd", cwd=str(tmp_path / "workshop"))).result()["text"] == str(tmp_path / "workshop")


def test_bytes_that_are_no_text_are_replaced(turns: Turns) -> None:
    assert turns.begin(shell(r"printf 'caf\303\251 \377\376 \342\202'")).result()["text"] == "café �� �"


def test_program_knows_its_session_task_and_run(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AGENT_SESSION_ID", "AGENT_RUN_ID", "MOORAGE_TOKEN", "KEPT"):
        monkeypatch.setenv(name, "inherited")
    names = "$AGENT_SESSION_ID,$AGENT_SESSION_NAME,$AGENT_RUN_ID,$MOORAGE_TOKEN,$KEPT,$COLOUR"
    env = {"AGENT_SESSION_ID": "session-1", "AGENT_SESSION_NAME": "plan"}
    result = turns.begin(shell(f"echo {names}", env={"COLOUR": "blue"}), env=env).result()
    assert result["text"] == "session-1,plan,,,inherited,blue"


def test_moorage_can_be_called_by_the_program(turns: Turns) -> None:
    beside = Path(sys.executable).parent
    assert turns.begin(shell("echo $PATH")).result()["text"].endswith(f":{beside}")


def test_the_turn_and_the_mcp_servers_are_files_for_the_program(turns: Turns) -> None:
    servers = {
        "boss": {"url": "http://localhost:9/mcp", "headers": {"X-Agent-Session-Name": "${AGENT_SESSION_NAME}"}},
        "own": {"command": "server", "args": ["--for", "${AGENT_SESSION_ID}"]},
    }
    running = turns.begin(
        shell("cat $AGENT_MCP_CONFIG; echo; cat $AGENT_TURN_FILE", mcp_servers=servers),
        session_name="plan",
        history=[{"role": "user", "content": "earlier"}],
        context={"colour": "blue"},
        checkpoint={"step": 2},
        cut_off=True,
    )
    config, turn = (json.loads(line) for line in running.result()["text"].splitlines())
    assert config["mcpServers"]["boss"]["headers"] == {"X-Agent-Session-Name": "plan"}
    assert config["mcpServers"]["own"]["args"] == ["--for", "session-1"]
    assert turn["prompt"] == "hello"
    assert turn["history"] == [{"role": "user", "content": "earlier"}]
    assert (turn["context"], turn["checkpoint"], turn["cut_off"]) == ({"colour": "blue"}, {"step": 2}, True)
    assert turn["mcp_servers"] == config["mcpServers"]


def test_a_launcher_that_comes_later_reads_the_job_back(turns: Turns) -> None:
    table = shell("true", timeout="90s", mcp_servers={"own": {"command": "s", "args": ["${AGENT_SESSION_NAME}"]}})
    wanted = job(table, session_name="plan", context={"a": [1, None]}, owner="ann", lost_after=12.5)
    folder = turns.prepare(table)
    folder.prepare(wanted)
    agent = wanted.agent.for_session(session_id="session-1", session_name="plan")
    assert folder.job() == replace(wanted, agent=agent)


def test_files_of_a_turn_are_private(turns: Turns) -> None:
    running = turns.begin(shell("cat"))
    running.wait()
    folder = Path(running.folder.path)
    assert folder.stat().st_mode & 0o077 == 0
    assert [path.name for path in folder.iterdir() if path.stat().st_mode & 0o077] == []


def test_a_program_that_never_reads_its_input_can_answer(turns: Turns) -> None:
    assert turns.begin(shell("echo done"), prompt="x" * 3_000_000).result()["text"] == "done"


def test_a_large_prompt_arrives_whole(turns: Turns) -> None:
    assert turns.begin(shell("sleep 0.2; wc -c"), prompt="x" * 3_000_000).result()["text"].strip() == "3000000"


def test_a_program_may_close_its_output_early(turns: Turns, tmp_path: Path) -> None:
    written = tmp_path / "written"
    result = turns.begin(shell(f"echo early; exec >&-; sleep 0.3; echo late > {written}")).result()
    assert result["text"] == "early"
    assert written.read_text() == "late\n"


def test_a_program_that_drowns_its_standard_error_is_heard_all_the_same(turns: Turns) -> None:
    flood = "import sys\nfor n in range(200_000): sys.stderr.write(f'complaint {n}\\n' * 5)\nprint('calm')"
    running = turns.begin(python(flood))
    assert running.result()["text"] == "calm"
    kept = Path(running.folder.path, "stderr").read_bytes()
    assert len(kept) == 64 * 1024
    assert kept.endswith(b"complaint 199999\n")


def test_a_long_answer_is_kept_whole_in_messages_that_fit(turns: Turns) -> None:
    running = turns.begin(python("print('é' * 1_500_000)"))
    events = running.wait()
    messages = [event["content"] for event in events if event["type"] == "message"]
    assert "".join(messages) == events[-1]["text"] == "é" * 1_500_000
    assert max(len(message.encode()) for message in messages) <= 1024 * 1024
    assert events[-1]["said"] is True


# Limits -----------------------------------------------------------------------------------------


def test_a_program_that_prints_for_ever_is_ended(turns: Turns) -> None:
    result = turns.begin(shell("yes")).result()
    assert (result["outcome"], result["reason"]) == ("failed", "output_too_large")
    limit = 16 * 1024 * 1024
    assert result["text"] == ("y\n" * (limit // 2)).rstrip("\n")


def test_an_answer_of_exactly_the_limit_is_no_fault(turns: Turns) -> None:
    assert turns.begin(shell("printf 12345", max_output_bytes=5)).result()["outcome"] == "completed"
    assert turns.begin(shell("printf 123456", max_output_bytes=5)).result()["text"] == "12345"


def test_a_program_that_takes_too_long_is_ended_and_its_words_are_kept(turns: Turns) -> None:
    result = turns.begin(shell("echo begun; sleep 600", timeout="0.5s")).result()
    assert (result["outcome"], result["reason"], result["text"]) == ("failed", "timed_out", "begun")
    assert result["error"] == "it took longer than 0.5 seconds"


def test_a_program_that_falls_silent_is_ended(turns: Turns) -> None:
    result = turns.begin(shell("for n in 1 2 3 4; do echo $n; sleep 0.4; done; sleep 600", idle_timeout="1s")).result()
    assert (result["reason"], result["text"]) == ("idle_timeout", "1\n2\n3\n4")


def test_closing_the_output_and_staying_is_falling_silent(turns: Turns) -> None:
    result = turns.begin(shell("echo bye; exec >&- 2>&-; sleep 600", idle_timeout="0.5s")).result()
    assert (result["reason"], result["text"]) == ("idle_timeout", "bye")


def test_time_in_which_the_agent_waits_for_a_child_does_not_count(turns: Turns, tmp_path: Path) -> None:
    go = tmp_path / "go"
    limits = Limits(timeout=3.0, idle_timeout=2.5)  # a busy machine needs a second until it has paused
    running = turns.begin(shell(f"echo waiting; until [ -e {go} ]; do sleep 0.05; done; echo done"), limits=limits)
    running.heard("waiting")
    running.folder.send({"type": "pause"})
    began = processes.clock()
    wait_for(lambda: processes.clock() - began > 3.5)
    assert running.process.poll() is None
    running.folder.send({"type": "go_on"})
    go.touch()
    assert running.result()["text"] == "waiting\ndone"


def test_going_on_starts_the_clock_again(turns: Turns) -> None:
    running = turns.begin(shell("echo waiting; sleep 600"), limits=Limits(timeout=0.5))
    running.heard("waiting")
    running.folder.send({"type": "pause"})
    running.folder.send({"type": "go_on"})
    assert running.result()["reason"] == "timed_out"


# Stopping ---------------------------------------------------------------------------------------


def test_stopped_program_keeps_its_output(turns: Turns) -> None:
    running = turns.begin(shell("echo so far; exec sleep 600"))
    running.heard("so far")
    running.folder.send({"type": "stop"})
    result = running.result()
    assert (result["outcome"], result["reason"], result["text"]) == ("stopped", "stopped", "so far")


def test_last_words_after_sigterm_are_heard(turns: Turns) -> None:
    running = turns.begin(shell("trap 'echo goodbye; exit 0' TERM; echo ready; while :; do sleep 0.05; done"))
    running.heard("ready")
    running.folder.send({"type": "stop", "reason": "session_deleted"})
    result = running.result()
    assert (result["outcome"], result["reason"], result["text"]) == ("stopped", "session_deleted", "ready\ngoodbye")


def test_who_ignores_sigterm_is_killed_after_five_seconds(turns: Turns) -> None:
    running = turns.begin(shell("trap '' TERM; echo stubborn; while :; do sleep 0.1; done"))
    running.heard("stubborn")
    began = processes.clock()
    running.folder.send({"type": "stop"})
    assert running.result()["outcome"] == "stopped"
    assert 4.9 < processes.clock() - began < 15


def test_a_supervisor_that_is_asked_to_end_ends_its_agent_first(turns: Turns) -> None:
    running = turns.begin(shell("echo here; exec sleep 600"))
    running.heard("here")
    running.process.terminate()
    assert running.result()["outcome"] == "stopped"


def test_a_hang_up_is_not_meant_for_the_agent(turns: Turns, tmp_path: Path) -> None:
    go = tmp_path / "go"
    running = turns.begin(shell(f"echo here; until [ -e {go} ]; do sleep 0.02; done; echo still here"))
    running.heard("here")
    running.process.send_signal(signal.SIGHUP)
    go.touch()
    assert running.result()["text"] == "here\nstill here"


# Whatever the agent started ---------------------------------------------------------------------

DAEMON = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for end in (0, 1, 2):
            os.close(end)
        with open(sys.argv[1], "a") as file:
            file.write(f"{os.getpid()}\\n")
        time.sleep(600)
    os._exit(0)
os.wait()
print("started", flush=True)
"""


def test_processes_left_by_an_agent_are_killed_after_its_answer(turns: Turns, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    result = turns.begin(shell(f"sleep 600 & echo $! > {pids}; echo done")).result()
    assert (result["outcome"], result["text"]) == ("completed", "done")
    assert all(is_gone(pid) for pid in read_pids(pids))


def test_a_daemon_of_the_agents_in_a_session_of_its_own_goes_too(turns: Turns, tmp_path: Path) -> None:
    (tmp_path / "daemon.py").write_text(DAEMON)
    running = turns.begin({"command": [sys.executable, "daemon.py", "pids"]}, lost_after=12.0)
    assert running.result()["text"] == "started"
    assert all(is_gone(pid) for pid in read_pids(tmp_path / "pids"))


def test_a_tree_of_processes_goes_when_the_agent_is_stopped(turns: Turns, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    tree = f"(sh -c 'echo $$ >> {pids}; sleep 600; :' & echo $$ >> {pids}; sleep 600) & setsid sleep 600 & wait"
    running = turns.begin(shell(f"echo $$ >> {pids}; {tree}"))
    found = read_pids(pids, 3)
    running.folder.send({"type": "stop"})
    assert running.result()["outcome"] == "stopped"
    assert all(is_gone(pid) for pid in found)
    assert survivors(running.folder) == []


def test_orphans_that_end_by_themselves_leave_no_zombies(turns: Turns, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"for n in 1 2 3 4 5; do (true &) ; done; echo forked; until [ -e {go} ]; do sleep 0.02; done"
    running = turns.begin(shell(script))
    running.heard("forked")
    go.touch()
    assert running.result()["outcome"] == "completed"


# Killed processes -------------------------------------------------------------------------------


def test_the_agent_goes_with_a_supervisor_that_is_killed(turns: Turns) -> None:
    running = turns.begin(shell("trap '' TERM; echo here; while :; do read line; done"))
    running.heard("here")
    agent = running.agent_pid()
    running.process.kill()
    wait_for(lambda: is_gone(agent), within=5)
    assert running.process.wait() == -signal.SIGKILL
    assert not running.folder.is_attended


def test_processes_of_a_lost_agent_are_found_by_their_mark(turns: Turns, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    running = turns.begin(shell(f"setsid sleep 600 & echo $! >> {pids}; sleep 600 & echo $! >> {pids}; wait"))
    left = read_pids(pids, 2)
    assert running.folder.end_leftovers() == []  # not while its supervisor lives
    running.process.kill()
    running.process.wait()
    wait_for(lambda: is_gone(running.agent_pid()))
    assert not any(is_gone(pid) for pid in left)
    assert not running.folder.is_attended  # its lock went with the supervisor, whatever else is left
    assert set(left) <= set(running.folder.end_leftovers())
    wait_for(lambda: all(is_gone(pid) for pid in left))
    assert survivors(running.folder) == []


def test_an_agent_outlives_its_launcher(turns: Turns, tmp_path: Path) -> None:
    go = tmp_path / "go"
    folder = turns.prepare(shell(f"echo here; until [ -e {go} ]; do sleep 0.02; done; echo done"))
    launcher = launcher_script(folder, tied=False)
    assert launcher.stdout is not None
    with launcher.stdout:
        launcher.stdout.readline()
        wait_for(lambda: folder.pids() is not None)
        launcher.kill()
        launcher.wait()
    go.touch()
    wait_for(lambda: not folder.is_attended)
    assert folder.events()[0][-1] == {"type": "result", "outcome": "completed", "text": "here\ndone", "said": False}


def test_agent_tied_to_its_launcher_dies_with_it(turns: Turns) -> None:
    folder = turns.prepare(
        shell("trap '' TERM; echo here; while :; do sleep 0.05; done")
    )  # silence alone takes minutes
    launcher = launcher_script(folder, tied=True)
    assert launcher.stdout is not None
    with launcher.stdout:
        launcher.stdout.readline()
        wait_for(lambda: any(event["type"] == "chunk" for event in folder.events()[0]))
        pids = folder.pids()
        assert pids is not None
        assert pids.agent is not None
        launcher.kill()
        launcher.wait()
    wait_for(lambda: not Path(folder.path).exists())  # with the prompt, and whatever else was told in confidence
    assert not pids.agent.is_alive
    assert processes.marked(str(pids.mark)) == []


def test_agent_is_not_started_if_the_launcher_it_is_tied_to_is_gone_already(turns: Turns, tmp_path: Path) -> None:
    folder = turns.prepare(shell(f"touch {tmp_path / 'started'}"))
    command = [sys.executable, "-m", "moorage.launcher.supervisor", folder.path, f"--tied={os.getppid()}"]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0
    assert not (tmp_path / "started").exists()
    assert not Path(folder.path).exists()


def test_an_agent_whose_launcher_is_silent_is_gone_before_its_turn_is_lost(turns: Turns, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    began = processes.clock()
    script = f"trap '' TERM; echo $$ >> {pids}; (trap '' TERM; echo here; while :; do sleep 0.05; done)"
    running = turns.begin(shell(script), lost_after=4.0)
    found = read_pids(pids)
    result = running.result()
    assert processes.clock() - began < 4.0
    assert (result["outcome"], result["reason"], result["text"]) == ("failed", "launcher_silent", "here")
    assert all(is_gone(pid) for pid in found)


def test_renewals_keep_an_agent_alive(turns: Turns) -> None:
    running = turns.begin(shell("sleep 3.5; echo done"), lost_after=3.0)  # a busy machine renews late
    while running.process.poll() is None:
        running.renew()
        subprocess.run(["sleep", "0.1"], check=True)
    assert running.result()["text"] == "done"


def test_a_renewal_counts_from_when_it_was_asked_for(turns: Turns) -> None:
    running = turns.begin(shell("sleep 600"), lost_after=3.0)
    asked_at = processes.clock()

    def is_over() -> bool:  # answers to an old question keep coming
        running.renew(at=asked_at)
        return running.process.poll() is not None

    wait_for(is_over)
    assert running.result()["reason"] == "launcher_silent"


def test_a_clock_from_the_future_is_not_believed(turns: Turns) -> None:
    running = turns.begin(shell("sleep 600"), lost_after=1.5)
    running.renew(at=processes.clock() + 3600)
    assert running.result()["reason"] == "launcher_silent"


def test_a_supervisor_that_was_frozen_looks_for_renewals_before_it_judges(turns: Turns, tmp_path: Path) -> None:
    go = tmp_path / "go"
    running = turns.begin(shell(f"echo here; until [ -e {go} ]; do sleep 0.02; done; echo done"), lost_after=6.0)
    running.heard("here")
    running.process.send_signal(signal.SIGSTOP)
    subprocess.run(["sleep", "2.5"], check=True)
    running.renew()
    go.touch()
    running.process.send_signal(signal.SIGCONT)
    assert running.result()["text"] == "here\ndone"


# One job, one agent -----------------------------------------------------------------------------


def test_who_the_agent_is_stands_on_disk_before_it_runs(turns: Turns) -> None:
    running = turns.begin(shell("cat $(dirname $AGENT_TURN_FILE)/pid.json; echo; echo $$ $(ps -o pgid= -o sid= $$)"))
    pids, who = running.result()["text"].splitlines()
    told = json.loads(pids)
    assert told["supervisor"]["pid"] == running.process.pid
    pid, pgid, sid = (int(word) for word in who.split())
    assert told["agent"]["pid"] == told["agent"]["pgid"] == pid == pgid == sid
    assert isinstance(told["agent"]["start_time"], int)
    assert told["boot_id"] == processes.boot_id()


def test_a_second_supervisor_is_sent_away(turns: Turns) -> None:
    running = turns.begin(shell("echo here; exec sleep 600"))
    running.heard("here")
    command = [sys.executable, "-m", "moorage.launcher.supervisor", running.folder.path]
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (second.returncode, second.stderr) == (3, "supervisor: another supervisor works here\n")
    with pytest.raises(FileExistsError):
        running.folder.start()
    running.folder.send({"type": "stop"})
    assert running.result()["outcome"] == "stopped"


def test_an_agent_is_never_started_twice(turns: Turns) -> None:
    running = turns.begin(shell("echo once"))
    running.wait()
    again = running.folder.start()
    assert again.wait() == 3
    assert "never started twice" in running.log()
    assert running.result()["text"] == "once"


def test_a_folder_is_attended_from_the_moment_its_supervisor_is_started(turns: Turns, tmp_path: Path) -> None:
    running = turns.begin(shell(f"until [ -e '{tmp_path}/end' ]; do sleep 0.01; done"))
    assert running.folder.is_attended
    (tmp_path / "end").touch()
    running.wait()
    assert not running.folder.is_attended


def test_a_long_story_is_read_bite_by_bite(turns: Turns) -> None:
    running = turns.begin(shell("head -c 300000 /dev/zero | tr '\\0' x; echo end"))
    running.result()
    whole, end = running.folder.events()
    offset, told = 0, []
    while offset < end:
        events, offset = running.folder.events(offset, 1000)
        assert events, "one that does not fit into a bite is read whole"
        told += events
    assert told == whole
    assert running.folder.events(offset, 1000) == ([], end)


def test_a_process_id_that_is_used_again_is_not_taken_for_the_old_process() -> None:
    me = os.getpid()
    started = processes.start_time(me)
    assert started is not None
    assert processes.is_alive(me, started)
    assert not processes.is_alive(me, started - 1)
    assert processes.end_exactly(me, started - 1) is False


def test_a_job_that_makes_no_sense_starts_nothing(turns: Turns) -> None:
    folder = turns.prepare(shell("echo never"))
    Path(folder.path, "job.json").write_text("{")
    process = folder.start()
    assert process.wait() != 0
    assert folder.pids() is None


def test_on_a_full_disk_the_agent_is_still_ended(turns: Turns) -> None:
    folder = turns.prepare(shell("echo here; sleep 600"), lost_after=1.5)
    Path(folder.path, "out.jsonl").symlink_to("/dev/full")
    process = folder.start()
    assert process.wait(30) == 0
    assert survivors(folder) == []


FILLING = """
import resource, signal
from moorage.launcher.turn_files import Outbox
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
outbox = Outbox("out.jsonl")
limit = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
outbox.put({"type": "message", "content": "x" * 1000})
outbox.put({"type": "chunk", "text": "after it"})
assert not outbox.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, limit)
outbox.put({"type": "result"})
assert outbox.flush()
"""


def test_a_disk_that_fills_up_in_the_middle_of_a_line_loses_nothing(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FILLING], cwd=tmp_path, check=True)
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["message", "chunk", "result"]


def test_a_bug_in_the_supervisor_does_not_leave_the_agent_behind(turns: Turns) -> None:
    folder = turns.prepare(shell("echo here; sleep 600"))
    source = (
        "import sys\n"
        "from moorage.launcher import supervisor\n"
        "supervisor.Supervisor._obey_one = lambda *_: 1 / 0\n"
        f"supervisor.main({folder.path!r})\n"
    )
    process = subprocess.Popen([sys.executable, "-c", source], stderr=subprocess.PIPE)
    wait_for(lambda: any(event["type"] == "chunk" for event in folder.events()[0]))
    folder.send({"type": "renewed"})
    _, complaint = process.communicate(timeout=30)
    assert b"ZeroDivisionError" in complaint
    assert folder.events()[0][-1]["reason"] == "supervisor_failed"
    assert survivors(folder) == []


def test_a_supervisor_starts_lightly() -> None:
    source = (
        "import sys, moorage.launcher.supervisor, moorage.launcher.drivers.acp, moorage.launcher.drivers.jsonl\n"
        "heavy = {'asyncio', 'msgspec', 'typing', 'subprocess', 'apsw', 'click', 'inspect'}\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
