"""Known failures of families and launchers, and the tests elsewhere that show that ours do not have them.

They need stages, processes and agents of their own, so they are where those are; this is the table.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CALLBACKS, TURNS, RUNS = (f"src/moorage/testing/contract/{name}.py" for name in ("callbacks", "turns", "runs"))
FAMILIES, PROCESSES, KILLS, SUPERVISOR = (
    f"tests/launcher/test_{name}.py" for name in ("families", "processes", "kills", "supervisor")
)
LOST, REMOTE, APPROVALS = (
    "tests/faults/test_lost_answers.py",
    "tests/launcher/test_remote.py",
    "tests/service/test_approvals.py",
)

PROVEN: dict[int, tuple[str, ...]] = {
    36: (f"{FAMILIES}::test_a_grandparent_hears_the_final_answer_once",),
    37: (f"{CALLBACKS}::test_callback_to_a_failed_run_does_not_wait",),
    38: (f"{CALLBACKS}::test_lost_turn_gives_callbacks_back", f"{RUNS}::test_dead_letter_can_be_sent_again"),
    39: (f"{FAMILIES}::test_a_message_and_a_callback_at_once_both_arrive",),
    40: (f"{CALLBACKS}::test_every_end_of_a_child_calls_back_once",),
    41: (f"{LOST}::test_an_end_is_told_once", f"{TURNS}::test_end_that_is_told_again_is_recognised"),
    42: ("tests/launcher/test_real_families.py::test_every_end_of_a_real_child_is_told_to_its_parent_once",),
    43: (f"{FAMILIES}::test_child_output_cannot_forge_a_callback",),
    44: (f"{FAMILIES}::test_a_long_result_is_cut_and_the_rest_can_be_fetched",),
    45: (f"{FAMILIES}::test_work_asked_of_an_ancestor_is_refused",),
    46: (f"{FAMILIES}::test_a_busy_parent_gets_five_callbacks_in_one_turn_and_in_order",),
    47: (f"{KILLS}::test_turn_survives_kill_9_of_any_process_at_any_step",),
    48: (
        f"{CALLBACKS}::test_deleting_a_parent_while_callbacks_arrive_settles_all_of_them",
        "tests/doors/cli/test_runs.py::test_delete_with_force_takes_a_tree_at_work_and_its_agent_ends",
    ),
    49: (f"{REMOTE}::test_an_agent_outlives_its_server_and_its_result_arrives_once",),
    50: (f"{LOST}::test_a_claim_whose_answer_got_lost_is_given_out_again_when_its_lease_is_over",),
    51: (f"{LOST}::test_events_during_a_store_outage_are_reported_afterwards",),
    52: (f"{FAMILIES}::test_a_later_turn_of_a_session_can_be_stopped_like_the_first",),
    53: (f"{SUPERVISOR}::test_a_program_that_drowns_its_standard_error_is_heard_all_the_same",),
    54: (
        f"{SUPERVISOR}::test_a_tree_of_processes_goes_when_the_agent_is_stopped",
        "tests/launcher/test_embedded.py::test_an_agent_has_ended_before_its_turn_is_given_to_another",
    ),
    55: (f"{TURNS}::test_oldest_turn_is_taken_first",),
    56: (f"{TURNS}::test_report_of_a_launcher_that_lost_its_turn_is_refused",),
    57: (f"{TURNS}::test_started_turn_that_is_silent_for_too_long_is_lost",),
    58: (f"{SUPERVISOR}::test_a_process_id_that_is_used_again_is_not_taken_for_the_old_process",),
    66: (f"{FAMILIES}::test_a_run_that_is_stopped_takes_its_question_along",),
    67: (f"{RUNS}::test_message_does_not_cancel_an_approval",),
    68: (f"{APPROVALS}::test_running_out_of_time_is_expired_and_not_a_refusal",),
    69: (
        f"{APPROVALS}::test_an_old_answer_does_not_count_for_a_new_question",
        f"{PROCESSES}::test_an_answer_that_was_passed_on_is_not_one_to_the_next_question",
    ),
    70: (f"{APPROVALS}::test_approval_of_one_plan_is_not_used_for_another",),
}


def test_every_lesson_of_families_launchers_and_approvals_has_its_test() -> None:
    assert PROVEN.keys() == {*range(36, 59), *range(66, 71)}


@pytest.mark.parametrize(("number", "tests"), PROVEN.items())
def test_the_tests_of_a_lesson_are_there(number: int, tests: tuple[str, ...]) -> None:
    for test in tests:
        path, name = test.split("::")
        assert re.search(rf"def {name}\(", (ROOT / path).read_text(encoding="utf-8")), f"lesson {number}: {test}"
