#!/usr/bin/env python3
"""Mutation tests: take one safeguard out of a copy of the sources; the tests named beside it must fail.

    python scripts/mutants.py                 all of them, on every store
    python scripts/mutants.py NAME …          some of them
    python scripts/mutants.py --from NAME     this one and all that follow: goes on with a run that was interrupted
    python scripts/mutants.py --list          their names
    python scripts/mutants.py --share 4       four of them, chosen by the commit; every test run takes such a share

The list names one store for a safeguard that all stores share; a whole run takes it out on each of them.

A mutant that survives because none of its tests runs the code it changes is shown as NOT REACHED: then the list has
rotted, not the safeguard.

Exits 0 if every mutant was caught, 1 if one survived, 2 if this list is out of date: the text to
replace is not there exactly once, or the tests fail on unchanged sources too.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
LONGEST = 180  # seconds for the tests of one mutant
AT_ONCE = 40  # tests of one process on unchanged sources


class OutOfDate(Exception):
    """The list no longer fits the sources or the tests."""


class Mutant(NamedTuple):
    """One safeguard taken out."""

    name: str
    file: str
    text: str
    becomes: str
    tests: tuple[str, ...]


SQLITE = "moorage/stores/sqlite"
POSTGRES = "moorage/stores/postgres"
REDIS = "moorage/stores/redis"
SQL = "moorage/stores/sql"
HOOKS = "moorage/doors/hooks"
FAULTS, SERVICE, CORE = "tests/faults", "tests/service", "tests/core"
MODEL = "tests/contract/test_model.py::TestModel"
LOST, KILLS, SUPERVISOR = (
    "tests/faults/test_lost_answers.py",
    "tests/launcher/test_kills.py",
    "tests/launcher/test_supervisor.py",
)
FAMILIES = "tests/launcher/test_families.py"
EMBEDDED = "tests/launcher/test_embedded.py"
IMPORTS = "tests/attack/test_imports.py"
SILENT, PRESENCE = "tests/doors/cli/test_silent.py", "tests/launcher/test_presence.py"
A_SECOND_TURN = "test_the_database_refuses_a_second_turn_that_is_queued_or_running"
STOPPING = "tests/contract/test_sqlite_store.py::TestSqliteStore"
CHANGING = f"{STOPPING}::test_whatever_names_another_version_changes_nothing"
WRITTEN_AGAIN = f"{STOPPING}::test_record_written_again_after_it_was_deleted_has_a_higher_version"
CONTRACT_ON_POSTGRES = "tests/contract/test_postgres_store.py::TestPostgresStore"
STREAMS = "tests/doors/http/test_streams.py"
REVOKED = "tests/doors/test_revoked.py"
TOGETHER, FEED, SILENCE, DELETION = (
    f"tests/postgres/test_{name}.py" for name in ("together", "feed", "silence", "deletion")
)
BREAKS, SPOOL, MANY = (f"tests/doors/hooks/test_{name}.py" for name in ("never_breaks", "spool", "many_at_once"))

LEASES, DEPS, CLOCK = "moorage/service/leases.py", "moorage/service/deps.py", "tests/service/test_steps.py"
BROWSERS = "tests/doors/http/test_browsers.py"

ON_REDIS = "tests/contract/test_redis_store.py::TestRedisStoreOnValkey"
REDIS_FAULTS, REDIS_KILLS = "tests/redis/test_faults.py", "tests/redis/test_kills.py"
REDIS_TOGETHER, REDIS_CLUSTER = "tests/redis/test_together.py", "tests/redis/test_cluster.py"

CONTRACTS = {"model": MODEL, "SQLite": STOPPING, "PostgreSQL": CONTRACT_ON_POSTGRES, "Valkey": ON_REDIS}
SHARED = {  # code, and the stores that run it
    "moorage/core": tuple(CONTRACTS),
    "moorage/service": tuple(CONTRACTS),
    SQL: ("SQLite", "PostgreSQL"),
}

MUTANTS = (
    Mutant(
        "revision of a session on Redis",
        f"{REDIS}/writes.py",
        '        self.plan.guards.append(CommitGuard("HGET", head, "revision", str(revision), changed))\n',
        "",
        (f"{REDIS_TOGETHER}::test_writers_of_several_stores_all_land",),
    ),
    Mutant(
        "session that must not exist on Redis",
        f"{REDIS}/writes.py",
        '            CommitGuard("HGET", keys.of("h", id_), "serial", None, lambda _: IdTaken(id_)),\n',
        "",
        (f"{ON_REDIS}::test_id_in_use_is_refused",),
    ),
    Mutant(
        "numbers of entries on Redis",
        f"{REDIS}/scripts/entries.lua",
        "redis.call('XADD', log, number .. '-0', 'b'",
        "redis.call('XADD', log, '*', 'b'",
        (f"{ON_REDIS}::test_appends_of_many_tasks_all_land_without_gaps",),
    ),
    Mutant(
        "checks before the first write on Redis",
        f"{REDIS}/scripts/commit.lua",
        "-- Then whatever would stop the writes half-way.\n",
        "for _, op in ipairs(plan[2]) do\n"
        "  if op[1] == 'ZADD' then redis.call(op[1], KEYS[op[2]], unpack(op, 3)) end\nend\n",
        (f"{REDIS_FAULTS}::test_user_who_may_not_do_everything_changes_nothing[xadd]",),
    ),
    Mutant(
        "rights of a user on Redis",
        f"{REDIS}/scripts/entries.lua",
        "if not redis.acl_check_cmd(command, key, ...) then",
        "if false then",
        (f"{REDIS_FAULTS}::test_user_who_may_not_do_everything_changes_nothing[xadd]",),
    ),
    Mutant(
        "types of keys on Redis",
        f"{REDIS}/scripts/entries.lua",
        "  if kind and not seen[key] then",
        "  if false then",
        (f"{REDIS_FAULTS}::test_foreign_value_under_any_key_is_found_before_the_first_write[create]",),
    ),
    Mutant(
        "end of the feed on Redis",
        f"{REDIS}/scripts/entries.lua",
        "  if not cursor or not ends_before(KEYS[put[3]], cursor + 1) then",
        "  if false then",
        (f"{REDIS_FAULTS}::test_lost_counter_of_the_feed_stops_a_change_before_its_first_write",),
    ),
    Mutant(
        "contexts beside a store on Redis: comparison at the commit",
        f"{REDIS}/session_context.py",
        "  if (found and redis.sha1hex(found) or '') ~= ARGV[place] then return 0 end\n",
        "",
        ("tests/redis/test_context_url.py::test_racing_writers_lose_nothing",),
    ),
    Mutant(
        "contexts beside a store on Redis: writes of other programs",
        f"{REDIS}/session_context.py",
        "            if text is None or kept.versions.digest == kept.digests[0]:\n",
        "            if text is None or set(kept.values) <= set(kept.versions.keys):\n",
        ("tests/redis/test_context_url.py::test_write_of_another_program_counts_as_a_change_of_every_key",),
    ),
    Mutant(
        "contexts beside a store on Redis: owners",
        f"{REDIS}/session_context.py",
        """f"session:@{quote(owner, safe='')}:{session_id}\"""",
        """f"session:{owner}:{session_id}\"""",
        ("tests/redis/test_context_url.py::test_owners_with_the_same_id_have_contexts_of_their_own",),
    ),
    Mutant(
        "eviction on Redis",
        f"{REDIS}/server_facts.py",
        '        if not self.policy.startswith("allkeys"):\n            return None\n',
        "        return None\n",
        ("tests/redis/test_doctor.py::test_doctor_warns_of_eviction_and_serve_refuses_it",),
    ),
    Mutant(
        "wait for the replica on Redis",
        f"{REDIS}/db.py",
        "        wait = self._wait_command() if writes else None\n",
        "        wait = None\n",
        (f"{REDIS_FAULTS}::test_missing_replica_leaves_the_outcome_unknown",),
    ),
    Mutant(
        "durability of a repeated request on Redis",
        f"{REDIS}/db.py",
        "        wait = self._wait_command()\n        if wait is not None:\n",
        "        wait = self._wait_command()\n        if False:\n",
        (f"{REDIS_FAULTS}::test_missing_replica_leaves_the_outcome_unknown",),
    ),
    Mutant(
        "change that is sent once on Redis",
        f"{REDIS}/connection.py",
        "                if writes and not error.is_certain:\n",
        "                if False:\n",
        (f"{REDIS_FAULTS}::test_connection_cut_before_the_answer_leaves_the_outcome_unknown[down-True]",),
    ),
    Mutant(
        "one slot for each owner",
        f"{REDIS}/keys.py",
        """self._of = f"{prefix}:{{o:{quote(owner, safe='')}}}:\"""",
        """self._of = f"{prefix}:o:{quote(owner, safe='')}:\"""",
        (f"{REDIS_CLUSTER}::test_owners_spread_over_the_servers",),
    ),
    Mutant(
        "revision of an owner's memory on Redis",
        f"{REDIS}/writes.py",
        '            CommitGuard("HGET", meta, "memory", known, changed),\n',
        "",
        (f"{REDIS_TOGETHER}::test_memory_of_an_owner_takes_the_writes_of_all",),
    ),
    Mutant(
        "cursor of a stream beyond the store",
        "moorage/service/streams.py",
        "        if end < self._cursor:\n",
        "        if False:\n",
        (f"{REDIS_FAULTS}::test_streams_end_when_the_store_has_lost_their_events",),
    ),
    Mutant(
        "failed runs alone are retried",
        "moorage/core/work.py",
        "    if failed.state not in RETRIABLE:\n        raise RunNotFailed(failed.run_id, failed.state.value)\n",
        "",
        (f"{MODEL}::test_only_a_failed_run_of_this_session_can_be_retried",),
    ),
    Mutant(
        "children before the queue",
        "moorage/core/status.py",
        "    if head.awaited_child is not None:\n        return Status.WAITING\n",
        "",
        (f"{MODEL}::test_parent_waits_for_its_child_until_the_callback_is_there",),
    ),
    Mutant(
        "children of stopped runs",
        "moorage/stores/session_rows.py",
        "p.state = 'stopped'",
        "p.state = 'never'",
        ("tests/contract/test_sqlite_store.py::TestSqliteStore::test_child_of_a_stopped_run_is_not_waited_for",),
    ),
    Mutant(
        "silent launchers take nothing",
        "moorage/core/status.py",
        "at - launcher.seen_at < SILENT_AFTER and ",
        "",
        ("tests/core/test_status.py::test_only_a_live_launcher_of_the_agent_the_owner_and_the_family_counts",),
    ),
    Mutant(
        "file under the path",
        f"{SQLITE}/connection.py",
        '        self.check_file()\n        self.execute("COMMIT")',
        '        self.execute("COMMIT")',
        (f"{FAULTS}/test_replaced_files.py::test_writes_to_a_file_that_is_gone_are_refused",),
    ),
    Mutant(
        "ancestors of a token",
        "moorage/doors/http/visit.py",
        "        if own is None:\n            return found",
        "        return found",
        ("tests/attack/test_access_matrix.py::test_tokens_of_sessions",),
    ),
    Mutant(
        "decided questions to an approver",
        "moorage/doors/http/visit.py",
        "        if not pending_only:\n            check_held(self.visitor.scopes, Scope.READ)\n",
        "",
        ("tests/attack/test_approvers.py::test_approver_cannot_list_decided_approvals",),
    ),
    Mutant(
        "levels of a definition",
        "moorage/agents/registry.py",
        "if depth > MAX_NESTING:",
        "if False:",
        ("tests/agents/test_registry.py::test_definition_that_would_take_minutes_to_read_is_refused[arrays]",),
    ),
    Mutant(
        "parts of a key",
        "moorage/agents/registry.py",
        'part.count(".") >= MAX_NESTING for part',
        "False for part",
        ("tests/agents/test_registry.py::test_definition_that_would_take_minutes_to_read_is_refused[heading]",),
    ),
    Mutant(
        "mode of a database",
        "moorage/stores/sqlite/connection.py",
        "os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600",
        "os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644",
        ("tests/faults/test_replaced_files.py::test_new_database_is_readable_by_its_owner_alone",),
    ),
    Mutant(
        "escapes of an export",
        "moorage/doors/cli/transfer.py",
        "shown = printable if is_terminal() else str",
        "shown = str",
        ("tests/doors/cli/test_transfer.py::test_terminal_is_not_obeyed_by_what_an_agent_wrote",),
    ),
    Mutant(
        "secrets of an import",
        "moorage/service/transfer.py",
        "        whole = self._without_secrets(bundle)[0]\n        whole = replace(whole,",
        "        whole = bundle\n        whole = replace(whole,",
        ("tests/service/test_transfer.py::test_import_redacts_secrets_and_places_a_root_as_one",),
    ),
    Mutant(
        "depth of an imported root",
        "moorage/service/transfer.py",
        "            return as_root\n",
        "            return own\n",
        ("tests/service/test_transfer.py::test_import_redacts_secrets_and_places_a_root_as_one",),
    ),
    Mutant(
        "types of answers",
        "moorage/doors/http/exchange.py",
        'NO_SNIFFING = (b"x-content-type-options", b"nosniff")',
        'NO_SNIFFING = (b"x-nothing", b"nosniff")',
        ("tests/doors/http/test_browsers.py::test_answers_may_not_be_taken_for_another_type",),
    ),
    Mutant(
        "policy of the docs page",
        "moorage/doors/http/monitoring.py",
        '(b"content-security-policy", POLICY), ',
        "",
        ("tests/doors/http/test_browsers.py::test_docs_page_allows_no_scripts_and_no_frames",),
    ),
    Mutant(
        "token of a turn",
        "moorage/service/turns.py",
        "            token=self._deps.new_token(),\n",
        '            token=f"{launcher_id}#{now}",\n',
        ("tests/attack/test_holds.py::test_token_of_a_turn_is_random_and_never_shown",),
    ),
    Mutant(
        "parent of a token's session by GraphQL",
        "moorage/doors/graphql/resolvers.py",
        "if ask.visitor.session_id == session.session_id:",
        "if False:",
        ("tests/attack/test_tokens.py::test_no_answer_of_graphql_tells_a_caller_of_others",),
    ),
    Mutant(
        "reach of a token by MCP",
        "moorage/doors/mcp/calls.py",
        "            await self._visit.check_access(name, ref, strictly=strictly)",
        "            return",
        ("tests/attack/test_tokens.py::test_no_answer_of_mcp_tells_a_caller_of_others",),
    ),
    Mutant(
        "reach of a token by gRPC",
        "moorage/doors/grpc/sessions.py",
        "        await call.moor.check_operation(operation, arguments)\n",
        "",
        ("tests/attack/test_tokens.py::test_no_answer_of_grpc_tells_a_caller_of_others",),
    ),
    Mutant(
        "reach of a token over HTTP",
        "moorage/doors/http/app.py",
        "            await moor.check_operation(operation, arguments)",
        "            pass",
        ("tests/attack/test_access_matrix.py::test_tokens_of_sessions",),
    ),
    Mutant(
        "values of a body",
        "moorage/doors/http/exchange.py",
        "if len(whole) > MAX_VALUES and await",
        "if False and await",
        ("tests/attack/test_bodies.py::test_body_with_millions_of_values_does_not_block_others",),
    ),
    Mutant(
        "commas within texts",
        "moorage/doors/http/exchange.py",
        'b"".join(unescaped.split(b\'"\')[::2])',
        "unescaped",
        ("tests/attack/test_bodies.py::test_commas_within_a_text_are_no_values",),
    ),
    Mutant(
        "values of a line",
        "moorage/doors/http/transfer.py",
        "if self._values > MAX_VALUES:",
        "if False:",
        (
            "tests/doors/http/test_received_lines.py::test_line_of_too_many_values_is_refused_in_whichever_parts_it_comes",
        ),
    ),
    Mutant(
        "size of foreign files",
        "moorage/doors/http/transfer.py",
        "return self.bytes > MAX_FOREIGN or self.values > MAX_FOREIGN_VALUES",
        "return False",
        ("tests/doors/http/test_received_lines.py::test_file_that_is_no_export_may_be_smaller_than_an_export",),
    ),
    Mutant(
        "size of an imported session",
        "moorage/service/transfer.py",
        "if current is not None and (size > max_bytes",
        "if False and (size > max_bytes",
        (f"{IMPORTS}::test_large_session_does_not_block_others_and_a_larger_one_is_refused",),
    ),
    Mutant(
        "ratio of gzip",
        "moorage/doors/http/exchange.py",
        "if self._plain > max(ANY_RATIO, self._packed * MAX_RATIO):",
        "if False:",
        (f"{IMPORTS}::test_export_that_packs_too_well_is_told_to_come_plain",),
    ),
    Mutant(
        "database that is gone at the end",
        "moorage/doors/http/serve.py",
        "    door.deps.store.hurry()\n",
        "",
        ("tests/postgres/test_stopping.py::test_server_whose_database_is_gone_stops_soon",),
    ),
    Mutant(
        "agents at work when the database is gone",
        "moorage/launcher/loop.py",
        "                self.hurry()  # nothing that ends now could be kept\n",
        "                pass\n",
        ("tests/postgres/test_stopping.py::test_server_whose_database_is_gone_stops_soon",),
    ),
    Mutant(
        "launcher whose database is gone at the end",
        "moorage/launcher/loop.py",
        "        on_signal()\n",
        "",
        ("tests/postgres/test_stopping.py::test_launcher_whose_database_is_gone_stops_soon",),
    ),
    Mutant(
        "folders of living launchers",
        "moorage/service/presence.py",
        "        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)",
        "        pass",
        (f"{EMBEDDED}::test_folders_of_killed_launchers_go_and_those_of_living_ones_stay",),
    ),
    Mutant(
        "folders of living supervisors",
        "moorage/service/presence.py",
        " and not is_needed(folder)",
        "",
        (f"{EMBEDDED}::test_folder_stays_while_a_supervisor_in_it_lives",),
    ),
    Mutant(
        "folders of killed launchers",
        "moorage/launcher/embedded.py",
        "        await asyncio.to_thread(presence.clear_up)\n",
        "",
        (f"{EMBEDDED}::test_folders_of_killed_launchers_go_and_those_of_living_ones_stay",),
    ),
    Mutant(
        "agents that outlive a killed client",
        "moorage/service/presence.py",
        "    return is_unlocked(folder) and not _is_attended(folder)\n",
        "    return is_unlocked(folder)\n",
        (f"{PRESENCE}::test_launcher_whose_supervisor_lives_is_not_gone",),
    ),
    Mutant(
        "clients that are frozen, not killed",
        "moorage/service/presence.py",
        "    return is_unlocked(folder) and not _is_attended(folder)\n",
        "    return os.path.isdir(folder)\n",
        (f"{PRESENCE}::test_launcher_is_gone_once_its_lock_is_free",),
    ),
    Mutant(
        "turns that are due with the next call",
        LEASES,
        "        if not (is_over or is_due):\n",
        "        if not is_over:\n",
        (f"{SERVICE}/test_overdue.py::test_turn_that_is_overdue_ends_with_the_next_call",),
    ),
    Mutant(
        "turns that looks alone would extend for ever",
        LEASES,
        "(before or is_extended or ",
        "(before or ",
        (f"{SERVICE}/test_overdue.py::test_turn_of_a_boot_before_is_given_up_by_looks_alone",),
    ),
    Mutant(
        "clock steps before a look",
        LEASES,
        "await trusted_now(deps, is_extended=turn.is_extended)",
        "clock.now()",
        (f"{SERVICE}/test_overdue.py::test_step_of_the_clock_makes_no_turn_overdue",),
    ),
    Mutant(
        "a second step of the clock before a look",
        LEASES,
        "        if watch.extended >= steps:\n",
        "        if watch.extended >= steps or is_extended:\n",
        (f"{SERVICE}/test_overdue.py::test_second_step_of_the_clock_right_after_the_first_makes_no_turn_overdue",),
    ),
    Mutant(
        "a live turn's hold and its lease",
        f"{SQLITE}/writes.py",
        "hold_until = ? WHERE pk = ? AND live_turn IS NULL",
        "hold_until = ? WHERE pk = ?",
        (f"{STOPPING}::test_output_of_an_agent_does_not_extend_lease_or_hold",),
    ),
    Mutant(
        "runs that were not cut off",
        "moorage/launcher/loop.py",
        "turn.cut_off and (not given.runs or any(run.cut_off for run in given.runs))",
        "turn.cut_off",
        (f"{SILENT}::test_stop_after_a_kill_settles_and_tells_no_other_run_of_it",),
    ),
    Mutant(
        "supervisors that begin after their launcher was killed",
        "moorage/launcher/supervisor.py",
        "    if parent is not None and os.getppid() != parent:  # it was killed before we had begun\n",
        "    if False:\n",
        (f"{SUPERVISOR}::test_agent_is_not_started_if_the_launcher_it_is_tied_to_is_gone_already",),
    ),
    Mutant(
        "events for no store",
        f"{HOOKS}/work.py",
        "if self._deps is None and _is_about_url(error):",
        "if False:",
        (f"{SPOOL}::test_event_for_an_unknown_store_is_a_dead_letter",),
    ),
    Mutant(
        "number of dead letters",
        f"{HOOKS}/spool.py",
        "number > MAX_REFUSED or size > MAX_REFUSED_BYTES",
        "size > MAX_REFUSED_BYTES",
        (f"{SPOOL}::test_oldest_dead_letters_go_when_there_are_too_many",),
    ),
    Mutant(
        "size of dead letters",
        f"{HOOKS}/spool.py",
        "number > MAX_REFUSED or size > MAX_REFUSED_BYTES",
        "number > MAX_REFUSED",
        (f"{SPOOL}::test_oldest_dead_letters_go_when_there_are_too_many",),
    ),
    Mutant(
        "scope of an approver",
        "moorage/core/key.py",
        "if wanted not in held and instead not in held:",
        "if wanted not in held and Scope.APPROVE not in held:",
        ("tests/attack/test_approvers.py::test_approver_lists_and_decides_in_python",),
    ),
    Mutant(
        "port of an origin",
        "moorage/doors/http/authorizer.py",
        "(page.hostname, page.port or usual) == (server.hostname, server.port or usual)",
        "page.hostname == server.hostname",
        (f"{BROWSERS}::test_origin_is_compared_with_its_port",),
    ),
    Mutant(
        "site of a page",
        "moorage/doors/http/authorizer.py",
        "if site is not None and site.lower() not in OWN_SITES:",
        "if False:",
        (f"{BROWSERS}::test_foreign_pages_are_refused_at_every_route",),
    ),
    Mutant(
        "type of a form",
        "moorage/doors/http/authorizer.py",
        "exchange.media_type in FORM_TYPES",
        "False",
        (f"{BROWSERS}::test_browser_cannot_change_anything_with_the_type_of_a_form",),
    ),
    Mutant(
        "type of a GraphQL body",
        "moorage/doors/graphql/answering.py",
        "        check_content_type(exchange)\n",
        "",
        ("tests/doors/graphql/test_over_http.py::test_a_body_that_does_not_come_as_json_changes_nothing",),
    ),
    Mutant(
        "repeated host",
        "moorage/doors/http/authorizer.py",
        'for name in (b"host", b"origin"):',
        "for name in ():",
        (f"{BROWSERS}::test_two_hosts_or_origins_are_refused",),
    ),
    Mutant(
        "foreign keys",
        f"{SQLITE}/connection.py",
        '("foreign_keys", "ON", 1)',
        '("foreign_keys", "OFF", 0)',
        (f"{FAULTS}/test_statements.py::test_references_are_enforced_by_the_database",),
    ),
    Mutant(
        "immediate",
        f"{SQLITE}/connection.py",
        'self.execute("BEGIN IMMEDIATE")',
        'self.execute("BEGIN")',
        (f"{FAULTS}/test_statements.py::test_two_that_read_and_then_write_do_not_stumble_over_each_other",),
    ),
    Mutant(
        "version check",
        f"{SQL}/changes.py",
        "    seen.view.session.check_version(expected)\n",
        "",
        (f"{SERVICE}/test_life.py::test_a_version_from_yesterday_is_refused_and_nothing_of_its_change_kept[sqlite]",),
    ),
    Mutant(
        "busy handler",
        f"{SQLITE}/connection.py",
        "            raw.set_busy_handler(self._patience)\n",
        "",
        (f"{FAULTS}/test_processes.py::test_dead_writer_releases_its_lock",),
    ),
    Mutant(
        "synchronous",
        f"{SQLITE}/connection.py",
        '("synchronous", "FULL", 2)',
        '("synchronous", "OFF", 0)',
        (f"{FAULTS}/test_statements.py::test_a_connection_is_durable_checks_references_and_waits",),
    ),
    Mutant(
        "refused at once",
        "moorage/remote/transport.py",
        " or (_is_refused(error) and not self._is_known()):",
        ":",
        ("tests/remote/test_connection.py::test_refused_first_connection_fails_with_a_hint",),
    ),
    Mutant(
        "restart is waited for",
        "moorage/remote/transport.py",
        "        self._is_known = True\n",
        "",
        ("tests/remote/test_connection.py::test_server_that_went_away_is_waited_for_and_the_caller_is_told_once",),
    ),
    Mutant(
        "names in time",
        "moorage/remote/transport.py",
        "async with asyncio.timeout(RESOLVE_WITHIN):",
        "if True:",
        ("tests/remote/test_connection.py::test_name_that_does_not_resolve_fails_within_seconds",),
    ),
    Mutant(
        "a turn is reserved for the launcher of the caller",
        "moorage/core/work.py",
        "    if turn.is_reserved(stamp.at) and not wish.of_family:\n        return Change(session=view.session)\n",
        "",
        (f"{MODEL}::test_turn_is_reserved_for_the_launcher_of_its_caller",),
    ),
    Mutant(
        "late words",
        "moorage/service/words.py",
        " or late.strip() in self._last:",
        ":",
        ("tests/service/test_transcript.py::test_each_word_is_told_once",),
    ),
    Mutant(
        "leaving stops nothing",
        "moorage/doors/cli/waiting.py",
        "if self._stops and not talk.is_answered:",
        "if not talk.is_answered:",
        ("tests/doors/cli/test_leaving.py::test_run_goes_on_when_a_chat_is_left_and_attach_shows_its_answer[ctrl-d]",),
    ),
    Mutant(
        "leaving a server does not suspend",
        "moorage/doors/cli/waiting.py",
        "if not self.is_remote or reason == SUSPENDED:",
        "if True:",
        ("tests/doors/cli/test_leaving.py::test_leaving_with_nothing_at_work_leaves_the_session_open_at_once",),
    ),
    Mutant(
        "turn is given back",
        "moorage/client.py",
        "        await launcher.give_back(session_id)\n",
        "",
        ("tests/executor/test_executor.py::test_suspending_gives_the_turn_back_and_coming_back_goes_on[sqlite]",),
    ),
    Mutant(
        "only our own turn is given back",
        "moorage/service/turns.py",
        "is_ours = turn is not None and turn.launcher_id == launcher_id",
        "is_ours = turn is not None",
        ("tests/service/test_turns.py::test_turn_of_another_launcher_is_not_suspended",),
    ),
    Mutant(
        "other sessions stay at work",
        "moorage/launcher/loop.py",
        ' if turn_id.rpartition(":")[0] == session_id]\n        await undisturbed',
        "]\n        await undisturbed",
        ("tests/executor/test_executor.py::test_suspending_leaves_other_sessions_of_the_connection_at_work",),
    ),
    Mutant(
        "unknown commands are refused",
        "moorage/doors/cli/chat.py",
        "if line and WORD.fullmatch(line.split()[0]) and not await self._is_agents(line.split()[0]):",
        "if line and line.split()[0] in COMMANDS:",
        ("tests/doors/cli/test_chat.py::test_commands_are_known_and_others_are_refused_with_the_nearest",),
    ),
    Mutant(
        "client key",
        f"{SQLITE}/writes.py",
        "if keys else {}\n",
        "if False else {}\n",
        (f"{SERVICE}/test_conversation.py::test_a_repeated_send_with_its_key_is_harmless[sqlite]",),
    ),
    Mutant(
        "hold check on append",
        f"{SQLITE}/writes.py",
        "if token is not None and token != hold_token:",
        "if False:",
        (f"{SERVICE}/test_holds.py::test_a_wrong_token_is_refused_and_changes_nothing[sqlite-append]",),
    ),
    Mutant(
        "hold check on changes",
        "moorage/core/session.py",
        "if self.hold is None or self.hold.token != token:",
        "if self.hold is None:",
        (f"{SERVICE}/test_holds.py::test_a_wrong_token_is_refused_and_changes_nothing[sqlite-update]",),
    ),
    Mutant(
        "an agent's token ends no hold of a person",
        "moorage/service/deps.py",
        "            session.check_holder(self.holder, at)\n",
        "            pass\n",
        (
            "tests/doors/http/test_tokens.py::test_agents_token_ends_no_hold_of_a_person[None]",
            "tests/doors/mcp/test_access.py::test_agents_token_releases_no_hold_of_a_person",
        ),
    ),
    Mutant(
        "holds: the identity of a session's token",
        "moorage/doors/http/authorizer.py",
        """return f"session:{session_id.replace(':', '%3A')}\"""",
        "return session_id",
        ("tests/doors/http/test_tokens.py::test_agents_token_ends_no_hold_of_a_person[nightly]",),
    ),
    Mutant(
        "holds: a session id that reads like another's name",
        "moorage/doors/http/authorizer.py",
        """return f"session:{session_id.replace(':', '%3A')}\"""",
        """return f"session:{session_id}\"""",
        ("tests/doors/http/test_tokens.py::test_agents_token_ends_its_own_hold_and_no_other_sessions",),
    ),
    Mutant(
        "holds: names in headers are the caller's own",
        "moorage/doors/http/authorizer.py",
        'return identity if named is None else f"{identity}:{named}"',
        "return identity if named is None else named",
        ("tests/doors/http/test_tokens.py::test_hold_names_are_scoped_by_key[header]",),
    ),
    Mutant(
        "holds: names in bodies are the caller's own",
        "moorage/service/deps.py",
        'return f"{self.scope}:{checked}" if self.scope else checked',
        "return checked",
        (
            "tests/doors/http/test_tokens.py::test_hold_names_are_scoped_by_key[body]",
            "tests/doors/http/test_tokens.py::test_hold_names_are_scoped_by_key[verdict]",
        ),
    ),
    Mutant(
        "one resumer wins",
        "moorage/core/session.py",
        "(self.live_turn is not None or self.hold.holder != holder)",
        "self.live_turn is not None",
        (f"{SERVICE}/test_holds.py::test_another_is_told_who_holds_it_and_until_when[sqlite]",),
    ),
    Mutant(
        "final state on append",
        f"{SQLITE}/writes.py",
        "if state in FINAL_STATES:",
        "if False:",
        (
            f"{SERVICE}/test_life.py::"
            "test_a_final_session_takes_nothing_but_reading_exporting_forking_and_deleting[sqlite-completed]",
        ),
    ),
    Mutant(
        "owner of the feed",
        f"{SQL}/queries/feed.sql",
        "WHERE {of_owner} id > ?2 AND id < ?3 ORDER BY id LIMIT ?4) page\n) f\n"
        "LEFT JOIN moor.sessions s ON f.last > 0 AND s.owner = ?1 AND",
        "WHERE id > ?2 AND id < ?3 + (1 << 50) ORDER BY id LIMIT ?4) page\n) f\n"  # either one alone would do
        "LEFT JOIN moor.sessions s ON f.last > 0 AND",
        (f"{SERVICE}/test_events.py::test_stream_carries_only_events_of_its_owner[sqlite]",),
    ),
    Mutant(
        "what forks need",
        f"{SQLITE}/writes.py",
        "coalesce((SELECT max(upto) FROM lineage WHERE segment = gone.value), 0)",
        "0",
        (f"{SERVICE}/test_forks.py::test_deleting_the_source_keeps_entries_of_its_forks[sqlite-order0]",),
    ),
    Mutant(
        "rollback of half a change",
        f"{SQLITE}/threads.py",
        "                self._db.rollback()\n                return False\n",
        "                return True\n",
        (f"{FAULTS}/test_groups.py::test_a_change_that_fails_midway_takes_no_neighbour_with_it_and_leaves_nothing[2]",),
    ),
    Mutant(
        "neighbours of a failure",
        f"{SQLITE}/threads.py",
        "return self._run_apart(done), go_on",
        "return done, go_on",
        (f"{FAULTS}/test_groups.py::test_a_change_that_fails_midway_takes_no_neighbour_with_it_and_leaves_nothing[2]",),
    ),
    Mutant(
        "answers of a dying writer",
        f"{SQLITE}/threads.py",
        "            self._post.hand_back(self._in_hand)\n",
        "",
        (f"{FAULTS}/test_groups.py::test_a_writer_that_dies_fails_all_who_wait_and_all_who_come",),
    ),
    Mutant(
        "redaction",
        "moorage/core/redact.py",
        "            return REDACTED\n",
        "            return item\n",
        (f"{SERVICE}/test_secrets.py::test_metadata_keeps_no_secret_and_the_answer_lists_the_paths[sqlite]",),
    ),
    Mutant(
        "another program's database",
        f"{SQLITE}/connection.py",
        "            check(raw, path)\n            if raw.pragma",
        "            if raw.pragma",
        (f"{FAULTS}/test_files.py::test_another_programs_database_is_refused_and_left_as_it_is[delete-0]",),
    ),
    Mutant(
        "a file cut to nothing",
        f"{SQLITE}/connection.py",
        "if size == 0 and has_log and bytes_of(path) == 0:",
        "if False:",
        (f"{FAULTS}/test_files.py::test_a_file_truncated_to_nothing_while_its_log_has_content_is_refused",),
    ),
    Mutant(
        "locks of our own",
        f"{SQLITE}/connection.py",
        "    if os.path.isdir(path):\n",
        "    with suppress(OSError), open(path, 'rb'):\n        pass\n    if os.path.isdir(path):\n",
        (f"{FAULTS}/test_processes.py::test_another_program_that_opens_and_closes_the_file_takes_nothing_away",),
    ),
    Mutant(
        "pairs in a window",
        "moorage/core/window.py",
        "            if results and not calls:\n                self._results.append(entry)\n                return\n",
        "",
        (f"{CORE}/test_window.py::test_result_follows_its_call_in_a_full_window",),
    ),
    Mutant(
        "newest message in a window",
        "moorage/core/window.py",
        "if self._kept and self._is_full_before(group):",
        "if self._is_full_before(group):",
        (f"{CORE}/test_window.py::test_newest_message_is_kept_even_if_it_exceeds_the_budget",),
    ),
    Mutant(
        "calls are repaired before a turn",
        "moorage/service/turns.py",
        "if unanswered_calls(messages) and (is_asked or claimed.turn.cut_off):",
        "if unanswered_calls(messages) and claimed.turn.cut_off:",
        (f"{SERVICE}/test_turns.py::test_call_left_by_a_driver_is_repaired_before_the_next_turn",),
    ),
    Mutant(
        "epoch of a turn",
        "moorage/core/work.py",
        "if turn is None or turn.turn_id != turn_id or turn.epoch != epoch:",
        "if turn is None or turn.turn_id != turn_id:",
        (f"{FAULTS}/test_turn_races.py::test_two_that_adopt_a_turn_one_has_it",),
    ),
    Mutant(
        "one queued turn",
        f"{SQLITE}/migrations/0001_schema.sql",
        "CREATE UNIQUE INDEX turns_queued",
        "CREATE INDEX turns_queued",
        (f"{FAULTS}/test_work_statements.py::{A_SECOND_TURN}[queued]",),
    ),
    Mutant(
        "one running turn",
        f"{SQLITE}/migrations/0001_schema.sql",
        "CREATE UNIQUE INDEX turns_running",
        "CREATE INDEX turns_running",
        (f"{FAULTS}/test_work_statements.py::{A_SECOND_TURN}[running]",),
    ),
    Mutant(
        "one callback",
        f"{SQLITE}/migrations/0001_schema.sql",
        "CREATE UNIQUE INDEX inbox_by_id",
        "CREATE INDEX inbox_by_id",
        (f"{FAULTS}/test_work_statements.py::test_the_database_refuses_a_callback_that_came_before",),
    ),
    Mutant(
        "callback in the same commit",
        f"{SQLITE}/writes.py",
        "        await _write(jobs, owner, each)\n",
        "        await _write(jobs, owner, each)\n        jobs.connection.commit()\n        jobs.connection.begin()\n",
        (f"{FAULTS}/test_turn_crashes.py::test_a_callback_is_never_seen_without_its_childs_end",),
    ),
    Mutant(
        "a turn goes to one launcher",
        "moorage/core/work.py",
        "    if turn is None or draft.running is not None:\n",
        "    turn = turn or draft.running\n    if turn is None:\n",
        (f"{CORE}/test_work.py::test_a_claim_that_comes_second_changes_nothing",),
    ),
    Mutant(
        "hold of a turn that was lost",
        "moorage/core/work.py",
        "        self.head = replace(self.head, hold=None, live_turn=None)\n",
        "        self.head = replace(self.head, live_turn=None)\n",
        (f"{FAULTS}/test_turn_crashes.py::test_a_launcher_that_wakes_up_too_late_is_refused_in_every_word",),
    ),
    Mutant(
        "an end told again",
        "moorage/core/work.py",
        "if turn is not None and turn.state in ENDED and (turn.epoch, turn.state) == (epoch, end.outcome):",
        "if False:",
        (f"{FAULTS}/test_turn_crashes.py::test_every_report_may_be_repeated_when_its_answer_was_lost",),
    ),
    Mutant(
        "runs that no launcher takes",
        "moorage/core/work.py",
        "        return list({**served, **{run.run_id: run for run in finished}}.values())\n",
        "        return list(served.values())\n",
        (f"{CORE}/test_work.py::test_runs_that_waited_for_one_answer_end_with_the_turn_that_heard_it",),
    ),
    Mutant(
        "runs that no launcher will ever take",
        "moorage/core/work.py",
        "        run_id = None if run is None else run.run_id\n        self._pass_on(run_id)\n",
        "        run_id = None if run is None else run.run_id\n",
        (f"{CORE}/test_work.py::test_an_answer_that_others_waited_for_outlives_the_run_it_belonged_to",),
    ),
    Mutant(
        "an answer to two runs of which one is stopped",
        "moorage/core/work.py",
        "    for run_id in asking[1:]:\n",
        "    for run_id in ():\n",
        (f"{MODEL}::test_answer_to_two_runs_is_the_others_when_one_is_stopped",),
    ),
    Mutant(
        "an answer to two runs of which one fails",
        "moorage/core/work.py",
        "        self._pass_on(run.run_id)\n",
        "",
        (f"{MODEL}::test_answer_to_two_runs_is_the_others_when_one_fails",),
    ),
    Mutant(
        "a run whose turn is stopped for another",
        "moorage/core/work.py",
        "cut_off=run.cut_off or run in served))\n        else:",
        "cut_off=run.cut_off))\n        else:",
        (f"{MODEL}::test_run_of_a_stopped_shared_turn_does_not_ask_again",),
    ),
    Mutant(
        "epoch of a start",
        "moorage/core/work.py",
        "    turn = _fenced(view, turn_id, epoch)\n    if turn.started_at is not None:",
        "    turn = view.work.running or _fenced(view, turn_id, epoch)\n    if turn.started_at is not None:",
        (f"{CORE}/test_work.py::test_a_report_must_name_the_live_turn_and_its_epoch[s-1:t1-0-started]",),
    ),
    Mutant(
        "epoch of a renewal",
        "moorage/core/work.py",
        "draft.drive(_fenced(view, turn_id, epoch))",
        "draft.drive(view.work.running or _fenced(view, turn_id, epoch))",
        (f"{CORE}/test_work.py::test_a_report_must_name_the_live_turn_and_its_epoch[s-1:t1-0-renewed]",),
    ),
    Mutant(
        "epoch of an adoption",
        "moorage/core/work.py",
        "turn = _fenced(view, turn_id, epoch + 1 if is_told_again else epoch)",
        "turn = view.work.running or _fenced(view, turn_id, epoch)",
        (f"{CORE}/test_work.py::test_a_report_must_name_the_live_turn_and_its_epoch[s-1:t1-0-adopted]",),
    ),
    Mutant(
        "epoch of what is given back",
        "moorage/core/work.py",
        "    turn = _fenced(view, turn_id, epoch)\n    if turn.stop_requested:",
        "    turn = view.work.running or _fenced(view, turn_id, epoch)\n    if turn.stop_requested:",
        (f"{CORE}/test_work.py::test_a_report_must_name_the_live_turn_and_its_epoch[s-1:t1-0-released]",),
    ),
    Mutant(
        "epoch of an end",
        "moorage/core/work.py",
        "    turn = _fenced(view, turn_id, epoch)\n    draft = WorkDraft(view, stamp)\n",
        "    turn = view.work.running or _fenced(view, turn_id, epoch)\n    draft = WorkDraft(view, stamp)\n",
        (f"{CORE}/test_work.py::test_a_report_must_name_the_live_turn_and_its_epoch[s-1:t1-0-finished]",),
    ),
    Mutant(
        "hold of who asks a question",
        "moorage/core/session.py",
        "        self.check_open()\n        self.driven(token, stamp.at)\n        stays",
        "        self.check_open()\n        stays",
        (f"{CORE}/test_holds.py::test_a_wrong_token_is_refused",),
    ),
    Mutant(
        "a new epoch for who adopts",
        "moorage/core/work.py",
        "turn = replace(turn, epoch=turn.epoch + 1, launcher_id=launcher_id)",
        "turn = replace(turn, launcher_id=launcher_id)",
        ("tests/launcher/test_losses.py::test_an_adopted_turn_refuses_its_former_life[sqlite]",),
    ),
    Mutant(
        "an adoption told again",
        "moorage/core/work.py",
        "is_told_again = live is not None and live.epoch == epoch + 1 and live.launcher_id in (launcher_id, former)",
        "is_told_again = False",
        (f"{LOST}::test_a_turn_is_adopted_once[sqlite]",),
    ),
    Mutant(
        "an adoption by a life that died of it",
        "moorage/launcher/handles.py",
        'await self._remember({"epoch": turn.epoch, "adopting": launcher_id})',
        "pass",
        (f"{KILLS}::test_a_launcher_killed_while_it_adopts_costs_no_turn",),
    ),
    Mutant(
        "questions of an agent that is gone",
        "moorage/core/work.py",
        "and not end.cut_off:\n        draft.withdraw_approvals(of_turn=True)\n",
        "and not end.cut_off:\n        pass\n",
        (f"{LOST}::test_a_late_question_is_refused[sqlite]",),
    ),
    Mutant(
        "how often turns may fail",
        "moorage/core/work.py",
        "        if failures >= most:",
        "        if False:",
        (f"{CORE}/test_work.py::test_turns_that_failed_and_turns_that_were_lost_count_together",),
    ),
    Mutant(
        "how often turns may get lost",
        "moorage/core/work.py",
        "        if most is not None and failed.failures >= most:",
        "        if False:",
        (f"{CORE}/test_work.py::test_a_lost_turn_is_tried_again_as_often_as_its_agent_says",),
    ),
    Mutant(
        "how often an item is given",
        "moorage/core/work.py",
        "state = _aside(item) if most is not None and given >= most else ItemState.WAITING",
        "state = ItemState.WAITING",
        (f"{CORE}/test_work.py::test_an_item_that_belongs_to_no_run_is_not_given_for_ever",),
    ),
    Mutant(
        "questions of an agent that died",
        "moorage/core/work.py",
        "if end.outcome is not TurnState.COMPLETED and not end.cut_off:",
        "if end.outcome is not TurnState.COMPLETED:",
        (f"{MODEL}::test_interrupted_turn_keeps_its_question_and_blocks_new_turns[died-True]",),
    ),
    Mutant(
        "a run that was cut off is told so after the answer",
        "moorage/core/work.py",
        "cut_off=cut_off or any(run.cut_off for run in runs),",
        "cut_off=cut_off,",
        (f"{MODEL}::test_interrupted_turn_keeps_its_question_and_blocks_new_turns[lost-True]",),
    ),
    Mutant(
        "calls have turns of their own",
        "moorage/core/work.py",
        "        if waiting and waiting[0].run_id in alone:",
        "        if False:",
        (f"{MODEL}::test_each_call_has_a_turn_of_its_own_in_order",),
    ),
    Mutant(
        "a turn serves one agent",
        "moorage/core/work.py",
        "self.of_state(ItemState.WAITING) if self.agent_of(item) == agent]",
        "self.of_state(ItemState.WAITING)]",
        (f"{MODEL}::test_turn_serves_the_runs_of_one_agent",),
    ),
    Mutant(
        "an answer that does not know the turn before it",
        "moorage/core/work.py",
        "    if view.session.turns != after_turns or not draft.is_free():",
        "    if not draft.is_free():",
        (f"{MODEL}::test_answer_is_refused_if_another_turn_came_first[answered]",),
    ),
    Mutant(
        "no turn before the decision",
        "moorage/core/work.py",
        "if not head.launched or head.is_final or head.pending_approvals or self.next_agent()",
        "if not head.launched or head.is_final or self.next_agent()",
        (f"{MODEL}::test_interrupted_turn_keeps_its_question_and_blocks_new_turns[lost-True]",),
    ),
    Mutant(
        "a lost turn tells its run",
        "moorage/core/work.py",
        'failures=run.failures + 1, reason="launcher_lost", cut_off=True)',
        'failures=run.failures + 1, reason="launcher_lost")',
        (f"{MODEL}::test_interrupted_turn_keeps_its_question_and_blocks_new_turns[lost-True]",),
    ),
    Mutant(
        "the same question",
        "moorage/core/approval.py",
        "(self.question, self.options, self.plan_hash) == (other.question, other.options, other.plan_hash)",
        "self.question == other.question",
        (f"{CORE}/test_approvals.py::test_same_question_has_the_same_words_options_and_plan",),
    ),
    Mutant(
        "names of holders",
        "moorage/service/deps.py",
        'return f"{self.scope}:{checked}" if self.scope else checked',
        "return checked",
        (f"{SERVICE}/test_holds.py::test_holder_of_one_key_cannot_be_named_with_another",),
    ),
    Mutant(
        "a person's hold",
        "moorage/service/deps.py",
        "            session.check_holder(self.holder, at)\n",
        "            pass\n",
        (f"{SERVICE}/test_holds.py::test_agent_cannot_release_the_hold_of_a_person_without_its_token",),
    ),
    Mutant(
        "an answer is replayed once",
        "moorage/core/work.py",
        "if approval.approval_id in turn.heard.values() or not approval",
        "if not approval",
        (f"{MODEL}::test_same_question_after_a_cut_replays_the_answer_once[lost]",),
    ),
    Mutant(
        "an answer is replayed only after a cut",
        "moorage/core/work.py",
        "turn is None or not turn.cut_off or item",
        "turn is None or item",
        (f"{MODEL}::test_turn_that_was_not_cut_off_is_asked_anew",),
    ),
    Mutant(
        "an answer that has run out is not replayed",
        "moorage/core/approval.py",
        "return self.decision is not None and (self.expires_at is None or at < self.expires_at)",
        "return self.decision is not None",
        (f"{MODEL}::test_answer_whose_time_has_run_out_since_is_not_replayed",),
    ),
    Mutant(
        "an answer is for its own run",
        "moorage/core/work.py",
        "return ItemState.CONSUMED if item.kind is ItemKind.DECISION else ItemState.DEAD_LETTER",
        "return ItemState.DEAD_LETTER",
        (f"{MODEL}::test_answer_is_never_replayed_to_another_run",),
    ),
    Mutant(
        "a settled run withdraws its questions",
        "moorage/core/work.py",
        "if each.run_ids and not self.runs.keys() & {*each.run_ids}",
        "if False",
        (f"{MODEL}::test_settled_run_withdraws_its_questions_though_another_run_waits[stopped]",),
    ),
    Mutant(
        "a started turn is not given out again",
        "moorage/core/work.py",
        "        elif turn.started_at is None:\n            _given_out_again",
        "        elif True:\n            _given_out_again",
        (f"{CORE}/test_work.py::test_silence_has_consequences_at_its_very_end",),
    ),
    Mutant(
        "joined callbacks",
        "moorage/core/work.py",
        "    elif callback.join is Join.ALL and run_id is not None and view.work.joined.get(run_id, 0):",
        "    elif False:",
        (f"{CORE}/test_work.py::test_joined_callbacks_wait_for_each_other[True]",),
    ),
    Mutant(
        "the line of a callback",
        "moorage/core/inbox.py",
        ".translate(_ENDS_OF_LINES)",
        "",
        ("tests/launcher/test_families.py::test_child_output_cannot_forge_a_callback",),
    ),
    Mutant(
        "started before the agent is",
        "moorage/launcher/loop.py",
        "insist(lambda: self._dispatcher.started(owner, turn))",
        "asyncio.sleep(0, asyncio.ensure_future(self._dispatcher.started(owner, turn)))",
        (f"{LOST}::test_no_agent_begins_before_the_store_has_said_that_it_knows[sqlite]",),
    ),
    Mutant(
        "what a turn begins with while the store is away",
        "moorage/launcher/loop.py",
        "insist(lambda: self._dispatcher.given(claimed)),",
        "self._dispatcher.given(claimed),",
        (f"{LOST}::test_a_turn_claimed_just_before_the_store_goes_away_is_carried_when_it_is_back[sqlite]",),
    ),
    Mutant(
        "claims side by side",
        "moorage/launcher/loop.py",
        "gather(*wishes, return_exceptions=True)",
        "gather(*wishes)",
        (f"{LOST}::test_claims_side_by_side_cost_each_other_nothing[sqlite]",),
    ),
    Mutant(
        "a report told again",
        "moorage/launcher/attending.py",
        "pause, report = min(pause * 2, longest), again or report",
        "pause = min(pause * 2, longest)",
        (f"{LOST}::test_a_launcher_that_hears_of_nothing_at_first_does_everything_once[sqlite]",),
    ),
    Mutant(
        "a question told again",
        "moorage/service/turns.py",
        "approval_id = None if key is None else uuid8(",
        "approval_id = None if key else uuid8(",
        (f"{LOST}::test_a_question_is_asked_once_and_answered_once[sqlite-True]",),
    ),
    Mutant(
        "words of a turn that was given back",
        "moorage/launcher/handles.py",
        'f"{job.turn_id}#{job.epoch}:{number}"',
        'f"{job.turn_id}:{number}"',
        (f"{LOST}::test_a_turn_that_is_given_back_may_say_other_words_the_next_time[sqlite]",),
    ),
    Mutant(
        "what a former life has reported",
        "moorage/launcher/handles.py",
        '                    if self._number <= kept.get("number", 0):\n                        continue\n',
        "",
        (f"{KILLS}::test_turn_survives_kill_9_of_any_process_at_any_step[launcher-talking]",),
    ),
    Mutant(
        "a supervisor's own deadline",
        "moorage/launcher/supervisor.py",
        "if now - self._renewed_at >= patience(self._lost_after):",
        "if False:",
        (f"{SUPERVISOR}::test_an_agent_whose_launcher_is_silent_is_gone_before_its_turn_is_lost",),
    ),
    Mutant(
        "what is tied to its launcher",
        "moorage/launcher/supervisor.py",
        "if self._parent is not None and os.getppid() != self._parent:",
        "if False:",
        (f"{SUPERVISOR}::test_agent_tied_to_its_launcher_dies_with_it",),
    ),
    Mutant(
        "an agent is started once",
        "moorage/launcher/supervisor.py",
        'if os.path.exists(os.path.join(folder, "pid.json")):',
        "if False:",
        (f"{SUPERVISOR}::test_an_agent_is_never_started_twice",),
    ),
    Mutant(
        "an agent goes with its supervisor",
        "moorage/launcher/agent_process.py",
        "            processes.die_with_parent()\n",
        "",
        (f"{SUPERVISOR}::test_the_agent_goes_with_a_supervisor_that_is_killed",),
    ),
    Mutant(
        "start time of a process",
        "moorage/launcher/processes.py",
        'return fields[0] not in ("Z", "X") and started in (None, int(fields[19]))',
        'return fields[0] not in ("Z", "X")',
        (f"{SUPERVISOR}::test_a_process_id_that_is_used_again_is_not_taken_for_the_old_process",),
    ),
    Mutant(
        "one launcher in a folder",
        "moorage/launcher/turn_files.py",
        "        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "        pass\n",
        ("tests/launcher/test_processes.py::test_one_launcher_works_in_one_folder",),
    ),
    Mutant(
        "an idle claim writes nothing",
        f"{SQL}/store.py",
        "            found = await self._claim(wanted, wish, stamp, found) if is_there else None",
        "            found = await self._claim(wanted, wish, stamp, found)",
        (f"{FAULTS}/test_work_statements.py::test_a_launcher_that_finds_nothing_does_not_take_the_write_lock",),
    ),
    Mutant(
        "a hook's watchdog",
        f"{HOOKS}/main.py",
        "        start_new_thread(watch, ())\n",
        "        pass\n",
        (f"{BREAKS}::test_event_of_a_hanging_worker_is_spooled",),
    ),
    Mutant(
        "a hook's last word",
        f"{HOOKS}/main.py",
        "            start_new_thread(speak_at_last, ())\n",
        "",
        (f"{BREAKS}::test_when_the_spool_hangs_too_the_host_is_answered_all_the_same",),
    ),
    Mutant(
        "a hook's limit of input",
        f"{HOOKS}/main.py",
        "                if size <= MAX_INPUT:\n                    return",
        "                if True:\n                    return",
        (f"{BREAKS}::test_more_than_the_limit_is_read_to_its_end_and_left",),
    ),
    Mutant(
        "closed standard streams",
        f"{HOOKS}/main.py",
        "    _fill_gaps()\n    try:",
        "    try:",
        (f"{BREAKS}::test_output_to_a_closed_stream_reaches_no_file",),
    ),
    Mutant(
        "all waits of a hook together",
        f"{SQLITE}/connection.py",
        "now + BUSY_FOR if self._end is None else self._end",
        "now + 1.4",
        (f"{SPOOL}::test_a_verdict_is_given_though_it_cannot_be_counted_now",),
    ),
    Mutant(
        "half an event in the spool",
        f"{HOOKS}/spool.py",
        "config.replacing(path + suffix, mode=0o600)",
        'open(path + suffix, "wb")',
        (f"{SPOOL}::test_who_dies_while_putting_off_leaves_nothing_that_looks_whole[fsync]",),
    ),
    Mutant(
        "an event of the spool on disk",
        "moorage/config.py",
        "            os.fsync(file.fileno())\n",
        "",
        (f"{SPOOL}::test_spooled_event_is_on_disk_when_acknowledged",),
    ),
    Mutant(
        "one at a time at the spool",
        f"{HOOKS}/spool.py",
        "flock(lock, LOCK_EX | LOCK_NB)",
        "pass",
        (f"{SPOOL}::test_stopped_spool_reader_blocks_others_only_briefly",),
    ),
    Mutant(
        "no event overtakes the spool",
        f"{HOOKS}/work.py",
        "                return False\n            context.run(expire_due)\n",
        "                pass\n            context.run(expire_due)\n",
        (f"{SPOOL}::test_stopped_spool_reader_blocks_others_only_briefly",),
    ),
    Mutant(
        "one corrupt session and the spool",
        f"{HOOKS}/work.py",
        "        return error.message  # one session is damaged, not the store\n",
        "        raise\n",
        (f"{SPOOL}::test_corrupt_session_does_not_block_others",),
    ),
    Mutant(
        "when an event happened",
        f"{HOOKS}/context.py",
        "deps = Deps(self.deps.store, ClockAt(at),",
        "deps = Deps(self.deps.store, self.deps.clock,",
        (f"{SPOOL}::test_late_event_keeps_its_time",),
    ),
    Mutant(
        "an end that is told twice",
        "moorage/service/hosts.py",
        "        if session.is_final:\n            return Change(session=session)\n        change = _noted",
        "        change = _noted",
        (f"{SPOOL}::test_an_end_taken_in_twice_is_there_once",),
    ),
    Mutant(
        "last words that are told twice",
        "moorage/service/hosts.py",
        "if text.strip() and (key is None or key not in known)",
        "if text.strip()",
        (f"{SPOOL}::test_an_end_that_only_suspends_taken_in_twice_is_there_once[a phase]",),
    ),
    Mutant(
        "the newest session of a host's id",
        "moorage/service/hosts.py",
        "for ref in (latest_name(host_id), session_id_of(host_id)):",
        "for ref in (session_id_of(host_id),):",
        (f"{MANY}::test_starts_of_a_closed_agent_at_once_make_one_fork",),
    ),
    Mutant(
        "gap in a stream",
        "moorage/service/streams.py",
        "if told.follows > self.after:",
        "if False:",
        (f"{STREAMS}::test_gap_in_pushed_events_is_filled_from_the_store",),
    ),
    Mutant(
        "poll behind the pulse",
        "moorage/service/streams.py",
        "await self._deps.store.wait(seen, LOOK_AGAIN)",
        "await self._deps.store.wait(seen, 3600.0)",
        (f"{STREAMS}::test_events_arrive_though_no_wake_up_does",),
    ),
    Mutant(
        "streams for those who ask for one",
        "moorage/doors/http/streams.py",
        "return exchange.preferred(JSON, SSE) == SSE",
        "return exchange.preferred(SSE, JSON) == SSE",
        (f"{STREAMS}::test_a_stream_comes_to_those_who_prefer_one",),
    ),
    Mutant(
        "signs of life that are no message",
        "moorage/doors/http/streams.py",
        'HEARTBEAT = b":\\n"',
        'HEARTBEAT = b":\\n\\n"',
        (f"{STREAMS}::test_httpx_sse_gets_no_message_besides_the_events",),
    ),
    Mutant(
        "seconds are no instant",
        "moorage/doors/http/reading.py",
        "elif expected is inspect.DateTimeType:",
        "elif False:",
        ("tests/doors/http/test_openapi.py::test_server_agrees_with_its_document",),
    ),
    Mutant(
        "slow readers",
        "moorage/doors/http/streams.py",
        "async with asyncio.timeout(self.settings.drained_within):",
        "async with asyncio.timeout(None):",
        (f"{STREAMS}::test_a_slow_reader_is_dropped_and_misses_nothing_when_it_comes_back[memory]",),
    ),
    Mutant(
        "a question before the end",
        "moorage/launcher/attending.py",
        "approval = await self._ask(handle, event)",
        "approval = self._asking.append(asyncio.create_task(self._ask(handle, event)))",
        (f"{FAMILIES}::test_a_turn_that_ends_with_a_question_does_not_settle_its_run",),
    ),
    Mutant(
        "an answer is told once",
        "moorage/launcher/handles.py",
        'if command["type"] == "decision" and command["key"] in self._answered_before():',
        "if False:",
        ("tests/launcher/test_processes.py::test_an_answer_that_was_passed_on_is_not_one_to_the_next_question",),
    ),
    Mutant(
        "an agent ends before its turn is given back",
        "moorage/launcher/attending.py",
        "        await stop_agent(handle)\n        await self.release()",
        '        await handle.tell({"type": "stop"})\n        await self.release()',
        ("tests/launcher/test_embedded.py::test_an_agent_has_ended_before_its_turn_is_given_to_another",),
    ),
    Mutant(
        "a stopped tree stays so",
        "moorage/core/work.py",
        "(asked_by.stop_requested or asked_by.state is RunState.STOPPED)",
        "False",
        (f"{CORE}/test_work.py::test_callbacks_to_a_stopped_run_queue_no_turn",),
    ),
    Mutant(
        "a callback to a run that is about to stop",
        "moorage/core/work.py",
        "(asked_by.stop_requested or asked_by.state is RunState.STOPPED)",
        "asked_by.state is RunState.STOPPED",
        (f"{STOPPING}::test_callback_to_a_run_that_is_about_to_stop_is_noted",),
    ),
    Mutant(
        "a stop before the end of the turn",
        "moorage/core/work.py",
        "    stopped = [run for run in draft.served_by(turn) if run.stop_requested]\n",
        "    stopped = list[Run]()\n",
        (f"{STOPPING}::test_stopped_run_settles_as_stopped_however_its_turn_ends",),
    ),
    Mutant(
        "a stop before the agent is started",
        "moorage/core/work.py",
        "    if turn.started_at is None:\n        _stopped(draft, replace(turn, stop_requested=True))\n    elif",
        "    if",
        (f"{STOPPING}::test_turn_that_was_claimed_but_not_started_ends_with_the_stop",),
    ),
    Mutant(
        "no birth for a stopped run",
        "moorage/core/session.py",
        'if run is not None and (run.stop_requested or run.state == "stopped"):',
        "if False:",
        (f"{STOPPING}::test_stopped_run_has_no_more_children",),
    ),
    Mutant(
        "no birth for a turn that is told to stop",
        "moorage/core/session.py",
        "if turn is not None and turn.stop_requested:",
        "if False:",
        (f"{STOPPING}::test_other_run_of_a_turn_that_is_told_to_stop_has_no_more_children",),
    ),
    Mutant(
        "no run for a stopped run",
        "moorage/core/work.py",
        'asked of a session."""\n    view.asker.check_not_stopped()\n',
        'asked of a session."""\n',
        (f"{STOPPING}::test_stopped_run_has_no_more_children",),
    ),
    Mutant(
        "a stop between the look and the commit",
        f"{POSTGRES}/writes.py",
        "AND pk = ?3 AND revision = ?4 FOR SHARE",
        "AND pk = ?3 AND ?4::bigint IS NOT NULL",
        (f"{FAULTS}/test_stop_races.py::test_stop_between_the_look_and_the_commit_is_seen",),
    ),
    Mutant(
        "the other run of a stopped turn",
        "moorage/core/work.py",
        "        if cut_short:  # for the sake of another run\n",
        "        if False:\n",
        (f"{STOPPING}::test_other_run_of_a_stopped_turn_gets_another",),
    ),
    Mutant(
        "parents stop first",
        "moorage/service/runs.py",
        "    for session in members:\n        if not session.launched",
        "    for session in reversed(members):\n        if not session.launched",
        (f"{SERVICE}/test_stops.py::test_parents_are_stopped_before_their_children",),
    ),
    Mutant(
        "a stopped tree is looked at again",
        "moorage/service/runs.py",
        "for _ in range(deps.settings.family.depth + 2):",
        "for _ in range(1):",
        (f"{SERVICE}/test_stops.py::test_child_that_is_born_while_its_tree_is_stopped_is_stopped",),
    ),
    Mutant(
        "what a stopped run has asked for",
        "moorage/service/runs.py",
        "    await _stop_below(deps, caller, run, stamp)\n    return",
        "    return",
        (f"{SERVICE}/test_stops.py::test_stopping_a_run_stops_its_children",),
    ),
    Mutant(
        "a question of an agent at work ends a wait",
        "moorage/service/runs.py",
        "or because.is_silence or is_asking",
        "or because.is_silence",
        (f"{FAMILIES}::test_a_turn_that_waits_for_the_answer_gets_it",),
    ),
    Mutant(
        "who hears the question keeps waiting for its answer",
        "moorage/service/runs.py",
        " or (hears and run.is_asking)",
        "",
        (f"{FAMILIES}::test_a_turn_that_waits_for_the_answer_gets_it",),
    ),
    Mutant(
        "the run of a token",
        "moorage/doors/http/authorizer.py",
        "run_id=token.run_id",
        "run_id=None",
        ("tests/doors/http/test_tokens.py::test_token_of_a_stopped_run_starts_nothing_new",),
    ),
    Mutant(
        "the most turns of a run",
        "moorage/core/work.py",
        "if run.turns < run.max_turns:",
        "if True:",
        (f"{STOPPING}::test_run_fails_after_as_many_turns_as_it_may_take",),
    ),
    Mutant(
        "a late callback to a run that took too many turns",
        "moorage/core/work.py",
        "elif asked_by is not None and asked_by.reason == TOO_MANY_TURNS:",
        "elif False:",
        (f"{STOPPING}::test_run_fails_after_as_many_turns_as_it_may_take",),
    ),
    Mutant(
        "If-Match in the transaction",
        DEPS,
        "        if ref not in self._refs or self._is_compared:\n",
        "        if True:\n",
        ("tests/doors/http/test_races.py::test_change_for_a_version_is_not_made_after_another_change[sqlite-delete]",),
    ),
    Mutant(
        "the version of an append",
        f"{SQLITE}/writes.py",
        "        raise VersionConflict(session_id, expected, version)\n",
        "        pass\n",
        (f"{CHANGING}[append]",),
    ),
    Mutant(
        "the version of a deletion",
        f"{SQL}/family.py",
        "    if expected is not None and versions[-1] != expected:\n",
        "    if False:\n",
        (f"{CHANGING}[delete]",),
    ),
    Mutant(
        "the version of a fork",
        f"{SQL}/changes.py",
        "    source.check_version(expected)\n",
        "",
        (f"{CHANGING}[fork]",),
    ),
    Mutant(
        "versions of deleted records",
        "moorage/core/record.py",
        "version=(was or self.floor) + 1,",
        "version=was + 1,",
        (f"{WRITTEN_AGAIN}[session-gone0]",),
    ),
    Mutant(
        "versions of purged records",
        f"{SQL}/records.py",
        "        await write(db, owner, session, tuple(raised_floor(old, version, at)))\n",
        "        pass\n",
        (f"{WRITTEN_AGAIN}[session-None]",),
    ),
    Mutant(
        "last use of a key",
        "moorage/service/keys.py",
        "if known is None or (known.key.last_used_at is not None and known.key.last_used_at >= at):",
        "if known is None:",
        (f"{MODEL}::test_time_of_last_use_never_moves_back",),
    ),
    Mutant(
        "heartbeat of a drained launcher",
        "moorage/service/launchers.py",
        "    if kept.drain:\n        await _DRAINED.put",
        "    if False:\n        await _DRAINED.put",
        (f"{MODEL}::test_launcher_stays_drained_for_as_long_as_it_lives",),
    ),
    Mutant(
        "claim of a drained launcher",
        f"{SQLITE}/queue.py",
        "if await documents.find(db, DocumentKind.DRAINED_LAUNCHER, wanted.launcher_id) is not None:",
        "if False:",
        (f"{STOPPING}::test_launcher_that_is_to_drain_gets_no_turn_until_it_may_again",),
    ),
    Mutant(
        "claim of a drained launcher on PostgreSQL",
        f"{POSTGRES}/queue.py",
        "AND key = ?6)",
        "AND key = ?6 AND false)",
        (f"{CONTRACT_ON_POSTGRES}::test_launcher_that_is_to_drain_gets_no_turn_until_it_may_again",),
    ),
    Mutant(
        "document as it was read on PostgreSQL",
        f"{SQL}/documents.py",
        "AND body = ?3 AND",
        "AND (body = ?3 OR true) AND",
        (f"{CONTRACT_ON_POSTGRES}::test_concurrent_decisions_all_count",),
    ),
    Mutant(
        "what is not copied",
        f"{SQL}/transfer.py",
        "WHERE kind NOT IN ({_KINDS_NOT_COPIED})",
        "WHERE kind NOT IN ('store')",
        (f"{STOPPING}::test_everything_comes_out",),
    ),
    Mutant(
        "revision on PostgreSQL",
        f"{POSTGRES}/migrations/0001_schema.sql",
        "h.has_pins, revision = s.revision + 1\n        WHERE s.owner = who AND s.pk = my_pk AND s.revision = my_",
        "h.has_pins, revision = s.revision + 1\n        WHERE s.owner = who AND s.pk = my_pk AND 0 < my_",
        (f"{TOGETHER}::test_decision_on_an_older_revision_is_made_again",),
    ),
    Mutant(
        "version of a new record of an owner on PostgreSQL",
        f"{POSTGRES}/migrations/0001_schema.sql",
        "PERFORM 1 WHERE r.version > moor.memory_floor(who);",
        "NULL;",
        (f"{TOGETHER}::test_version_of_an_owners_record_never_comes_back",),
    ),
    Mutant(
        "version of a deleted record of an owner on PostgreSQL",
        f"{POSTGRES}/migrations/0001_schema.sql",
        "IF my_pk = 0 AND deleted > 0 AND deleted > moor.memory_floor(who) THEN",
        "IF false THEN",
        (f"{TOGETHER}::test_version_of_an_owners_record_never_comes_back",),
    ),
    Mutant(
        "one queued turn on PostgreSQL",
        f"{POSTGRES}/migrations/0001_schema.sql",
        "CREATE UNIQUE INDEX turns_queued",
        "CREATE INDEX turns_queued",
        (f"{TOGETHER}::test_the_database_refuses_a_second_turn_that_is_live[queued]",),
    ),
    Mutant(
        "skip what is locked",
        f"{POSTGRES}/queue.py",
        '"FOR NO KEY UPDATE OF t, s SKIP LOCKED"',
        '"FOR NO KEY UPDATE OF t, s"',
        (f"{TOGETHER}::test_a_turn_that_another_is_about_to_take_is_passed_by",),
    ),
    Mutant(
        "cursors for what is visible",
        f"{POSTGRES}/migrations/0001_schema.sql",
        "SELECT owner, start + place, subject, root, last, count FROM placed",
        "SELECT owner, n, subject, root, last, count FROM placed",
        (f"{FEED}::test_late_commit_is_not_skipped_and_does_not_block_readers",),
    ),
    Mutant(
        "owner on PostgreSQL",
        f"{SQL}/lookup.py",
        'self.by_id = f"{select} WHERE owner = ? AND id = ?"',
        'self.by_id = f"{select} WHERE (owner = ? OR true) AND id = ?"',
        (f"{TOGETHER}::test_session_of_another_owner_is_unknown",),
    ),
    Mutant(
        "room in a family",
        f"{POSTGRES}/migrations/0001_schema.sql",
        "IF others + current_setting('max_connections')::bigint > open_at_most THEN",
        "IF false THEN",
        (f"{TOGETHER}::test_a_family_does_not_outgrow_its_limit_however_many_have_children_at_once",),
    ),
    Mutant(
        "what is shared goes one by one",
        f"{POSTGRES}/migrations/0001_schema.sql",
        "    IF is_shared THEN  -- one by one",
        "    IF false THEN  -- one by one",
        (f"{TOGETHER}::test_a_source_and_its_fork_that_are_deleted_at_once_leave_nothing_behind[source-fork]",),
    ),
    Mutant(
        "deletions see what is committed after their look",
        f"{POSTGRES}/migrations/0001_schema.sql",
        "pk = keys[place] AND revision = revisions[place]\n",
        "pk = keys[place]\n",
        (f"{DELETION}::test_turn_that_starts_after_the_look_keeps_the_tree",),
    ),
    Mutant(
        "deletions see children that are born after their look",
        f"{POSTGRES}/migrations/0001_schema.sql",
        "EXCEPT SELECT unnest(keys)\n",
        "EXCEPT SELECT pk FROM moor.sessions\n",
        (f"{DELETION}::test_child_born_after_the_look_goes_with_its_tree",),
    ),
    Mutant(
        "a silent network",
        f"{POSTGRES}/connection.py",
        "command_timeout=options.statement_timeout + GRACE,",
        "command_timeout=None,",
        (f"{SILENCE}::test_who_reads_from_a_silent_database_is_told_in_time",),
    ),
    Mutant(
        "streams of revoked keys",
        "moorage/doors/http/streams.py",
        "                await access.check()\n                await self._write(exchange, pieces or silent)\n",
        "                await self._write(exchange, pieces or silent)\n",
        (f"{REVOKED}::test_server_sent_events_end_with_a_refusal",),
    ),
    Mutant(
        "streams of revoked keys by gRPC",
        "moorage/doors/grpc/sessions.py",
        "                await call.access.check()\n",
        "",
        (f"{REVOKED}::test_watching_by_grpc_ends_unauthenticated",),
    ),
    Mutant(
        "registrations elsewhere",
        "moorage/asking/named.py",
        "            await deps.look_for(wanted)\n",
        "",
        ("tests/postgres/test_doors.py::test_registration_is_shared_by_all_servers",),
    ),
    Mutant(
        "an agent floods the log with problems",
        "moorage/launcher/drivers/base.py",
        "        if self.problems <= KEPT_PROBLEMS:",
        "        if True:",
        ("tests/launcher/test_supervisor_jsonl.py::test_a_flood_of_nonsense_is_counted_but_not_repeated",),
    ),
    Mutant(
        "an agent floods the log with refused events",
        "moorage/launcher/attending.py",
        "        if self._refused <= KEPT_PROBLEMS:",
        "        if True:",
        ("tests/launcher/test_problems.py::test_flood_of_refused_events_is_counted_and_the_first_are_kept[memory]",),
    ),
    Mutant(
        "a problem that is told again is kept again",
        "moorage/service/turns.py",
        "        if not await self._is_kept(owner, turn, Kind.PROBLEM, to_builtins(problem), 0):",
        "        if True:",
        ("tests/launcher/test_problems.py::test_problem_reported_twice_is_kept_once[memory]",),
    ),
    Mutant(
        "libraries write what is said into the log",
        "moorage/doors/logs.py",
        "    handler.addFilter(withhold)",
        "    handler.addFilter(lambda record: True)",
        ("tests/doors/test_every_door.py::test_messages_are_never_logged_at_any_level",),
    ),
    Mutant(
        "a tool without an operation does its first one",
        "moorage/service/calls.py",
        "wanted = tool.fitting(given) if operation",
        'wanted = next(iter(tool.operations), "") if operation',
        ("tests/doors/test_every_door.py::test_weather_refuses_the_same_at_all_three_doors",),
    ),
    Mutant(
        "an empty session is one that is not there",
        "moorage/doors/http/reading.py",
        '        if arguments.get(name) == "":',
        "        if False:",
        ("tests/doors/test_every_door.py::test_empty_session_of_a_run_counts_as_absent_at_rest",),
    ),
    Mutant(
        "a parent that is a template is one that is not there",
        "moorage/doors/http/reading.py",
        "and not is_filled_in(parent)",
        "and not parent",
        ("tests/doors/test_every_door.py::test_unnamed_parent_counts_as_absent_at_rest",),
    ),
    Mutant(
        "an empty session id is one that is not there",
        "moorage/doors/mcp/calls.py",
        'for name, value in arguments.items() if value != "" or name not in ("session_id", "parent")}',
        "for name, value in arguments.items()}",
        ("tests/doors/test_every_door.py::test_empty_session_id_counts_as_absent_at_mcp",),
    ),
    Mutant(
        "tools are watched for MCP clients that have gone",
        "moorage/doors/mcp/changes.py",
        "return without < LOOKS_WITHOUT_STREAM",
        "return True",
        ("tests/doors/mcp/test_older_clients.py::test_watching_ends_some_time_after_the_stream_of_its_client",),
    ),
    Mutant(
        "tools are watched after the MCP server was closed",
        "moorage/doors/mcp/changes.py",
        "            watching.cancel()\n",
        "            pass\n",
        ("tests/doors/mcp/test_older_clients.py::test_watching_ends_with_the_server",),
    ),
    Mutant(
        "the task of the metadata is forgotten",
        "moorage/service/sessions.py",
        "task_id=_task_in(cleaned) if request.task_id is None",
        "task_id=None if request.task_id is None",
        ("tests/doors/test_every_door.py::test_metadata_name_the_task_at_every_door",),
    ),
    Mutant(
        "leases after a step of the clock",
        LEASES,
        "        await extend_leases(deps.store, watch.look)\n",
        "",
        (f"{CLOCK}::test_step_loses_no_turn_and_silence_after_it_does",),
    ),
    Mutant(
        "a clock that is set back",
        DEPS,
        "if self.zero_at is not None and abs(zero_at - self.zero_at) > STEP",
        "if self.zero_at is not None and zero_at - self.zero_at > STEP",
        (f"{CLOCK}::test_step_loses_no_turn_and_silence_after_it_does",),
    ),
    Mutant(
        "a step counts once",
        LEASES,
        "        watch.extended = max(watch.extended, steps)\n",
        "        return now\n",
        (f"{CLOCK}::test_step_loses_no_turn_and_silence_after_it_does",),
    ),
    Mutant(
        "a living server vouches for the clock",
        LEASES,
        " or count_live(beats, now))",
        ")",
        (f"{CLOCK}::test_process_on_another_boot_extends_leases_unless_a_server_lives",),
    ),
    Mutant(
        "a server of long ago vouches for nothing",
        LEASES,
        " or count_live(beats, now))",
        " or beats)",
        (f"{CLOCK}::test_process_on_another_boot_extends_leases_unless_a_server_lives",),
    ),
    Mutant(
        "monotonic clocks of this boot alone",
        LEASES,
        "each.zero_at is not None and each.boot == deps.watch.clock.boot",
        "each.zero_at is not None",
        (f"{CLOCK}::test_process_on_another_boot_extends_leases_unless_a_server_lives",),
    ),
    Mutant(
        "the last note of a launcher",
        LEASES,
        "max(noted)[1]",
        "min(noted)[1]",
        (f"{CLOCK}::test_processes_that_live_shortly_lose_a_dead_turn_in_the_end",),
    ),
    Mutant(
        "a process that begins looks at the notes",
        LEASES,
        "    before = await _noted(deps)\n",
        "    before = deps.clock.now() - timedelta(seconds=deps.clock.monotonic())\n",
        (f"{CLOCK}::test_process_that_begins_after_a_step_loses_no_turn",),
    ),
    Mutant(
        "a launcher looks before it notes the clock",
        LEASES,
        "    now, watch = await trusted_now(deps), deps.watch\n",
        "    now, watch = deps.clock.now(), deps.watch\n"
        "    watch.zero_at = now - timedelta(seconds=deps.clock.monotonic())\n",
        (f"{CLOCK}::test_step_right_before_a_process_registers_is_noticed",),
    ),
    Mutant(
        "turns of launchers in this process",
        LEASES,
        "living=deps.launchers",
        "living=()",
        (f"{CLOCK}::test_turn_of_a_launcher_in_this_process_is_never_lost",),
    ),
    Mutant(
        "a turn that a launcher in this process never heard of",
        "moorage/core/work.py",
        "    if turn is not None and (is_gone or turn.is_unresponsive(stamp.at)):\n",
        "    if turn is not None and turn.launcher_id not in living and (is_gone or turn.is_unresponsive(stamp.at)):\n",
        ("tests/faults/test_lost_answers.py::test_a_launcher_that_hears_of_nothing_at_first_does_everything_once",),
    ),
    Mutant(
        "a launcher that has left this process",
        "moorage/service/turns.py",
        "(deps.launchers.discard if launcher.has_left else deps.launchers.add)(launcher.launcher_id)",
        "deps.launchers.add(launcher.launcher_id)",
        (f"{CLOCK}::test_turn_of_a_launcher_in_this_process_is_never_lost",),
    ),
    Mutant(
        "requests and claims compare the same clocks",
        DEPS,
        "ClockWatch(clock) if beside is None else beside.watch",
        "ClockWatch(clock)",
        ("tests/doors/http/test_clock_steps.py::test_request_uses_the_clock_step_seen_by_a_claim",),
    ),
    Mutant(
        "the clock of an event judges no lease",
        DEPS,
        "ClockWatch(clock) if beside is None else beside.watch",
        "ClockWatch(clock)",
        (f"{CLOCK}::test_clock_is_judged_by_its_own_time_whatever_the_time_of_an_event",),
    ),
    Mutant(
        "requests know the launchers of their server",
        DEPS,
        "set() if beside is None else beside.launchers",
        "set()",
        ("tests/doors/http/test_clock_steps.py::test_request_loses_no_turn_of_the_launcher_in_its_server",),
    ),
    Mutant(
        "a server notes the clock for a launcher elsewhere",
        "moorage/doors/http/launching.py",
        "await note_launcher(self._deps, launcher)",
        'await __import__("moorage").service.launchers.save_launcher(self._deps.store, launcher)',
        ("tests/doors/http/test_clock_steps.py::test_process_started_after_a_clock_step_uses_the_noted_clock",),
    ),
    Mutant(
        "a lease that is written late",
        DEPS,
        "return is_extended and self.clock.monotonic() >= self._stepped_at + SETTLING",
        "return is_extended",
        (f"{CLOCK}::test_lease_that_is_written_late_by_the_time_before_a_step_costs_no_turn",),
    ),
    Mutant(
        "a judge who read the clock too early",
        LEASES,
        "turn, now = view.work.running, deps.watch.look()",
        "turn, now = view.work.running, deps.clock.now()",
        (f"{CLOCK}::test_clock_that_steps_before_the_judgement_costs_no_turn",),
    ),
    Mutant(
        "a step that another task noticed",
        DEPS,
        "self.zero_at is not None and self.extended >= self.steps",
        "self.zero_at is not None",
        (f"{CLOCK}::test_clock_that_steps_before_the_judgement_costs_no_turn",),
    ),
    Mutant(
        "a step and back between two judgements",
        "moorage/service/turns.py",
        "        self._deps.watch.look()  #",
        "        #",
        (f"{CLOCK}::test_step_and_back_between_two_judgements_costs_no_turn",),
    ),
    Mutant(
        "a silence as long as its own launcher may keep",
        "moorage/core/turn.py",
        "until = at + max(self.lease, self.lost_after)",
        "until = at + LOST_AFTER",
        (f"{MODEL}::test_turn_is_extended_by_the_silence_that_its_own_launcher_may_keep",),
    ),
    Mutant(
        "a lost turn after the clock was set back",
        "moorage/core/turn.py",
        "lease_until=until, lost_at=until",
        "lease_until=until, lost_at=max(self.lost_at, until)",
        (f"{MODEL}::test_lease_written_before_the_clock_was_set_back_counts_from_now",),
    ),
    Mutant(
        "an unstarted turn after the clock was set back",
        "moorage/core/turn.py",
        "lease_until=until, lost_at=until",
        "lease_until=max(self.lease_until, until), lost_at=until",
        (f"{MODEL}::test_unstarted_turn_from_before_the_clock_was_set_back_is_given_out_again",),
    ),
    Mutant(
        "a server that died before the clock was set back",
        LEASES,
        "abs(at - beat) <= SILENT_AFTER",
        "at - beat <= SILENT_AFTER",
        (f"{SERVICE}/test_servers.py::test_server_that_died_before_the_clock_was_set_back_does_not_count_as_living",),
    ),
    Mutant(
        "a writer that goes on",
        f"{SQLITE}/threads.py",
        "        except Exception as error:  # the writer survives",
        "        except apsw.Error as error:  # whatever it was",
        (f"{FAULTS}/test_groups.py::test_writer_goes_on_after_an_unexpected_error",),
    ),
    Mutant(
        "checkpoint that stops writers",
        f"{SQLITE}/threads.py",
        "mode=apsw.SQLITE_CHECKPOINT_RESTART",
        "mode=apsw.SQLITE_CHECKPOINT_PASSIVE",
        (f"{FAULTS}/test_groups.py::test_writers_wait_while_the_rest_of_the_log_is_moved",),
    ),
    Mutant(
        "who listens to commits",
        f"{SQLITE}/threads.py",
        "        except Exception:\n            import logging",
        "        except apsw.Error:\n            import logging",
        (f"{FAULTS}/test_groups.py::test_listener_that_fails_after_the_commit_fails_no_write",),
    ),
    Mutant(
        "a launcher's time to renew after a sleep",
        "moorage/launcher/supervisor.py",
        "        self._renewed_at = max(self._renewed_at, now - max(0.0, patience(self._lost_after) - WAKE_GRACE))\n",
        "",
        ("tests/launcher/test_clock_steps.py::test_machine_that_sleeps_costs_no_turn",),
    ),
    Mutant(
        "an agent's time stands still while the machine sleeps",
        "moorage/launcher/supervisor.py",
        "        self._allowance.slept(asleep, now)\n",
        "",
        ("tests/launcher/test_clock_steps.py::test_machine_that_sleeps_costs_no_turn",),
    ),
)


def main(arguments: list[str]) -> int:
    """Run the mutants and return the exit code."""
    if arguments == ["--list"]:
        print("\n".join(mutant.name for mutant in on_every_store()))
        return 0
    try:
        wanted = share(int(arguments[1])) if arguments[:1] == ["--share"] else chosen(arguments)
        survivors = run(wanted, partial(print, flush=True))
    except OutOfDate as error:
        print(f"the list is out of date: {error}", file=sys.stderr)
        return 2
    print(f"{len(wanted) - len(survivors)} of {len(wanted)} caught", *survivors, sep="\n")
    return 1 if survivors else 0


def chosen(arguments: list[str]) -> list[Mutant]:
    """The mutants of these names, all from one on, or all."""
    every = on_every_store()
    names = [mutant.name for mutant in every]
    wanted = arguments[1:] if arguments[:1] == ["--from"] else arguments
    if unknown := [name for name in wanted if name not in names]:
        raise OutOfDate(f"there is no mutant {', '.join(unknown)}")
    if arguments[:1] == ["--from"]:
        return every[names.index(wanted[0]) :]
    return [every[names.index(name)] for name in wanted] or every


def on_every_store() -> list[Mutant]:
    """Each mutant of the list; behind one of shared code, the same with its rule on the other stores."""
    return [each for mutant in MUTANTS for each in (mutant, *elsewhere(mutant))]


def elsewhere(mutant: Mutant) -> list[Mutant]:
    """The mutant with its rule on the stores that the list does not name, if they share its code."""
    if not mutant.tests[0].startswith("tests/contract/") or mutant.name.endswith("on PostgreSQL"):
        return []  # not a rule of all stores, or a safeguard that the others need not have
    stores = next((stores for folder, stores in SHARED.items() if mutant.file.startswith(f"{folder}/")), ())
    place, rule = mutant.tests[0].rsplit("::", 1)
    return [
        mutant._replace(name=f"{mutant.name} ({store})", tests=(f"{CONTRACTS[store]}::{rule}",))
        for store in stores
        if CONTRACTS[store] != place
    ]


def share(size: int, commit: str | None = None) -> list[Mutant]:
    """So many mutants in a row, beginning where the commit says: one commit after another takes them all in turn."""
    chance = (
        commit
        or subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.strip()
    )
    first = int(sha256(chance.encode()).hexdigest(), 16) % len(MUTANTS)
    return [*MUTANTS, *MUTANTS][first : first + min(size, len(MUTANTS))]


def run(mutants: list[Mutant], tell: Callable[[str], object] = str) -> list[str]:
    """Names of the mutants that no test caught. Raises OutOfDate."""
    with copied_sources() as sources:
        for mutant in mutants:
            mutated(mutant, (sources / mutant.file).read_text(encoding="utf-8"))  # all of them, before any test runs
        check_tests_pass(sources, sorted({test for mutant in mutants for test in mutant.tests}))
        survivors = []
        for mutant in mutants:
            began = time.monotonic()
            caught = is_caught(sources, mutant)
            verdict = "caught" if caught else "SURVIVED" if is_reached(sources, mutant) else "NOT REACHED"
            tell(f"{verdict:11} {time.monotonic() - began:5.1f} s  {mutant.name}")
            if not caught:
                survivors.append(mutant.name)
    return survivors


@contextmanager
def copied_sources() -> Iterator[Path]:
    """A copy of the package that may be broken."""
    with tempfile.TemporaryDirectory(prefix="moorage-mutants-") as folder:
        sources = Path(folder) / "src"
        shutil.copytree(ROOT / "src", sources)  # times are kept, so what was compiled counts there, too
        found = subprocess.run(
            [sys.executable, "-c", "import moorage; print(moorage.__file__)"],
            env=environment(sources),
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        if not Path(found).is_relative_to(sources):
            raise OutOfDate(f"tests would import {found}, not the copy")
        yield sources


def environment(sources: Path) -> dict[str, str]:
    """The copy goes before whatever is installed."""
    return {**os.environ, "PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1"}


def mutated(mutant: Mutant, source: str) -> str:
    """The source without the safeguard."""
    if (count := source.count(mutant.text)) != 1:
        raise OutOfDate(f"{mutant.name}: {mutant.file} has {count} times {mutant.text!r}, not once")
    return source.replace(mutant.text, mutant.becomes)


def check_tests_pass(sources: Path, tests: list[str]) -> None:
    """A test that fails anyway catches nothing; one that failed may try again, because the machine may be busy."""
    for start in range(0, len(tests), AT_ONCE):
        some = tests[start : start + AT_ONCE]
        done = pytest(sources, some, longest=10 * LONGEST)
        if done.returncode != 0:
            done = pytest(sources, some, longest=10 * LONGEST)
        if done.returncode != 0:
            raise OutOfDate(f"tests fail on unchanged sources:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")


def is_caught(sources: Path, mutant: Mutant) -> bool:
    """Whether a test fails on the mutant, which is taken back afterwards."""
    file = sources / mutant.file
    original = file.read_text(encoding="utf-8")
    file.write_text(mutated(mutant, original), encoding="utf-8")
    try:
        done = pytest(sources, list(mutant.tests))
    except subprocess.TimeoutExpired:
        return True  # it hangs, and a test that hangs fails
    finally:
        file.write_text(original, encoding="utf-8")
    if done.returncode not in (0, 1):  # 1: tests failed; anything else: they were not even run
        raise OutOfDate(f"{mutant.name}: pytest gave {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
    return done.returncode == 1


def is_reached(sources: Path, mutant: Mutant) -> bool:
    """Whether a test runs the code of a mutant; SQL and Lua are not traced, so they count as reached."""
    file = sources / mutant.file
    original, mark = file.read_text(encoding="utf-8"), sources.parent / "reached"
    if (probe := probed(mutant, original, mark)) is None:
        return True
    mark.unlink(missing_ok=True)
    file.write_text(probe, encoding="utf-8")
    try:
        pytest(sources, list(mutant.tests))
    except subprocess.TimeoutExpired:
        pass
    finally:
        file.write_text(original, encoding="utf-8")
    return mark.exists()


def probed(mutant: Mutant, source: str, mark: Path) -> str | None:
    """The source with a statement that makes a file right before the code of a mutant; None if it is not Python."""
    if not mutant.file.endswith(".py"):
        return None
    line = source[: source.index(mutant.text)].count("\n") + 1 + _empty_lines(mutant.text)
    around = [each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.stmt) and _has(each, line)]
    for statement in sorted(around, key=lambda each: each.lineno, reverse=True):  # the innermost that can be preceded
        lines = source.splitlines(keepends=True)
        lines.insert(statement.lineno - 1, f'{" " * statement.col_offset}open({str(mark)!r}, "a").close()\n')
        with suppress(SyntaxError):  # an `elif` or the body of a one-line `if`
            compile("".join(lines), mutant.file, "exec")
            return "".join(lines)
    return None


def _empty_lines(text: str) -> int:
    return len(text) - len(text.lstrip("\n"))


def _has(statement: ast.stmt, line: int) -> bool:
    return statement.lineno <= line <= (statement.end_lineno or statement.lineno)


def pytest(sources: Path, tests: list[str], longest: float = LONGEST) -> subprocess.CompletedProcess[str]:
    """Run some tests against the copy."""
    options = ["-q", "-x", "-p", "no:cacheprovider", "--timeout", "60", "--no-header"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=ROOT,
        env=environment(sources),
        capture_output=True,
        text=True,
        check=False,
        timeout=longest,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
