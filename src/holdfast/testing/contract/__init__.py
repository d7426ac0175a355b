"""What every store promises.

Each module holds the rules about one subject, each test is named after one rule.
`StoreContract` has them all: subclass it and provide a `store` fixture.
"""

from holdfast.testing.contract.approvals import ApprovalRules
from holdfast.testing.contract.callbacks import CallbackRules
from holdfast.testing.contract.changes import ChangeRules
from holdfast.testing.contract.context import ContextRules
from holdfast.testing.contract.counting import CountingRules
from holdfast.testing.contract.deletion import DeletionRules
from holdfast.testing.contract.families import FamilyRules
from holdfast.testing.contract.feed import FeedRules
from holdfast.testing.contract.finding import FindRules
from holdfast.testing.contract.forks import ForkRules
from holdfast.testing.contract.keys import KeyRules
from holdfast.testing.contract.log import LogRules
from holdfast.testing.contract.many import ManyRules
from holdfast.testing.contract.once import OnceRules
from holdfast.testing.contract.owners import OwnerRules
from holdfast.testing.contract.records import RecordRules
from holdfast.testing.contract.registrations import RegistrationRules
from holdfast.testing.contract.runs import RunRules
from holdfast.testing.contract.searching import SearchRules
from holdfast.testing.contract.servers import ServerRules
from holdfast.testing.contract.sessions import SessionRules
from holdfast.testing.contract.sweeps import SweepRules
from holdfast.testing.contract.transfer import TransferRules
from holdfast.testing.contract.turns import TurnRules


class StoreContract(
    SessionRules,
    ChangeRules,
    LogRules,
    FeedRules,
    ForkRules,
    FamilyRules,
    DeletionRules,
    SweepRules,
    FindRules,
    ManyRules,
    ContextRules,
    ApprovalRules,
    CountingRules,
    SearchRules,
    TransferRules,
    RecordRules,
    RunRules,
    TurnRules,
    CallbackRules,
    OnceRules,
    KeyRules,
    ServerRules,
    RegistrationRules,
    OwnerRules,
):
    """What every store promises. Subclass it and provide a `store` fixture: a new, empty store."""


__all__ = ["StoreContract"]
