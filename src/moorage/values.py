"""The types of the API: what its methods take and give.

Loading them takes a while, so `api.py` names them for type checkers only.
"""

from __future__ import annotations

from datetime import datetime as datetime

from moorage.core.agent import Tool as Tool
from moorage.core.agent import ToolAnswer as ToolAnswer
from moorage.core.answer import Answer as Answer
from moorage.core.answer import RunAnswer as RunAnswer
from moorage.core.approval import Approval as Approval
from moorage.core.context import ContextItem as ContextItem
from moorage.core.entry import Entry as Entry
from moorage.core.entry import Event as Event
from moorage.core.entry import Hit as Hit
from moorage.core.family import Deletion as Deletion
from moorage.core.family import Tombstone as Tombstone
from moorage.core.inbox import Item as Item
from moorage.core.key import Key as Key
from moorage.core.policy import Delegation as Delegation
from moorage.core.policy import Verdict as Verdict
from moorage.core.query import Page as Page
from moorage.core.run import Run as Run
from moorage.core.session import Session as Session
from moorage.core.turn import Launcher as Launcher
from moorage.core.window import TokenCounter as TokenCounter
from moorage.files.finding import Source as Source
from moorage.records import Memory as Memory
from moorage.records import Records as Records
from moorage.service.agents import AgentList as AgentList
from moorage.service.analytics import Analytics as Analytics
from moorage.service.delegation import Delegated as Delegated
from moorage.service.family import TreeNode as TreeNode
from moorage.service.keys import NewKey as NewKey
from moorage.service.packet import HeldPacket as HeldPacket
from moorage.service.packet import ResumePacket as ResumePacket
from moorage.service.records import ContextWritten as ContextWritten
from moorage.service.retention import Cleanup as Cleanup
from moorage.service.sessions import Checkpoint as Checkpoint
from moorage.service.transfer import ImportReport as ImportReport

# `list` is a method of the API, so the answers that are lists have names of their own.
SessionList = list[Session]
EntryList = list[Entry]
Hits = list[Hit]
ApprovalList = list[Approval]
Tools = list[Tool]
Texts = list[str]
