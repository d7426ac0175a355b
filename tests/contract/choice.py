"""Which rules run where: all of them on every store, unless what is left is the same code once more.

HOLDFAST_TEST_ALL=1 runs them all everywhere.
"""

from __future__ import annotations

import os

from holdfast.testing.contract import StoreContract
from holdfast.testing.contract.approvals import ApprovalRules
from holdfast.testing.contract.callbacks import CallbackRules
from holdfast.testing.contract.context import ContextRules
from holdfast.testing.contract.feed import FeedRules
from holdfast.testing.contract.forks import ForkRules
from holdfast.testing.contract.log import LogRules
from holdfast.testing.contract.runs import RunRules
from holdfast.testing.contract.transfer import TransferRules
from holdfast.testing.contract.turns import TurnRules


class RulesOfVersions(TurnRules, CallbackRules, FeedRules, LogRules):
    """What depends most on how a version locks, plans and counts."""


class RulesOfSealing(LogRules, ForkRules, ContextRules, ApprovalRules, TransferRules, RunRules, CallbackRules):
    """What is about bodies, which are sealed."""


def unless_all(rules: type) -> type:
    """These rules, or the whole contract if that is asked for."""
    return StoreContract if os.environ.get("HOLDFAST_TEST_ALL") else rules
