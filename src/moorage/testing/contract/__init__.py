"""The contract of every store.

Each module holds the rules about one subject, each test is named after one rule.
`StoreContract` has them all: subclass it and provide a `store` fixture.
"""

from moorage.testing.contract.approvals import ApprovalRules
from moorage.testing.contract.callbacks import CallbackRules
from moorage.testing.contract.calls import CallRules
from moorage.testing.contract.changes import ChangeRules
from moorage.testing.contract.context import ContextRules
from moorage.testing.contract.counting import CountingRules
from moorage.testing.contract.cut_off import CutOffRules
from moorage.testing.contract.deletion import DeletionRules
from moorage.testing.contract.documents import DocumentRules
from moorage.testing.contract.dump import DumpRules
from moorage.testing.contract.families import FamilyRules
from moorage.testing.contract.feed import FeedRules
from moorage.testing.contract.finding import FindRules
from moorage.testing.contract.forks import ForkRules
from moorage.testing.contract.keys import KeyRules
from moorage.testing.contract.log import LogRules
from moorage.testing.contract.many import ManyRules
from moorage.testing.contract.once import OnceRules
from moorage.testing.contract.owners import OwnerRules
from moorage.testing.contract.records import RecordRules
from moorage.testing.contract.registrations import RegistrationRules
from moorage.testing.contract.runs import RunRules
from moorage.testing.contract.searching import SearchRules
from moorage.testing.contract.servers import ServerRules
from moorage.testing.contract.sessions import SessionRules
from moorage.testing.contract.status import StatusRules
from moorage.testing.contract.stopping import StopRules
from moorage.testing.contract.sweeps import SweepRules
from moorage.testing.contract.transfer import TransferRules
from moorage.testing.contract.turns import TurnRules


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
    RecordRules,
    ApprovalRules,
    CountingRules,
    SearchRules,
    TransferRules,
    DumpRules,
    RunRules,
    TurnRules,
    StopRules,
    CutOffRules,
    StatusRules,
    CallbackRules,
    CallRules,
    OnceRules,
    DocumentRules,
    KeyRules,
    ServerRules,
    RegistrationRules,
    OwnerRules,
):
    """The contract of every store. Subclass it and provide a `store` fixture: a new, empty store."""


__all__ = ["StoreContract"]
