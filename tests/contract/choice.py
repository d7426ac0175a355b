"""Which rules run where: all of them on every store, unless what is left is the same code once more.

MOORAGE_TEST_ALL=1 runs them all everywhere.
"""

from __future__ import annotations

import os

import pytest

from moorage.testing.contract import StoreContract
from moorage.testing.contract.approvals import ApprovalRules
from moorage.testing.contract.callbacks import CallbackRules
from moorage.testing.contract.context import ContextRules
from moorage.testing.contract.cut_off import CutOffRules
from moorage.testing.contract.feed import FeedRules
from moorage.testing.contract.forks import ForkRules
from moorage.testing.contract.log import LogRules
from moorage.testing.contract.records import RecordRules
from moorage.testing.contract.runs import RunRules
from moorage.testing.contract.transfer import TransferRules
from moorage.testing.contract.turns import TurnRules


class RulesOfVersions(TurnRules, CallbackRules, FeedRules, LogRules):
    """Rules that depend most on how a server locks, plans and counts."""


class RulesOfSealing(
    LogRules, ForkRules, ContextRules, RecordRules, ApprovalRules, TransferRules, RunRules, CutOffRules, CallbackRules
):
    """Rules about bodies, which are encrypted."""


class RulesOfSealedBodies(LogRules, ForkRules, RecordRules, TransferRules):
    """Fewer rules, for stores that share the code of sealing with one that keeps all of them."""


IS_ALL = bool(os.environ.get("MOORAGE_TEST_ALL"))
all_only = pytest.mark.skipif(not IS_ALL, reason="MOORAGE_TEST_ALL=1 runs it")


def unless_all(rules: type) -> type:
    """These rules, or the whole contract if that is asked for; `object` has none."""
    return StoreContract if IS_ALL else rules
