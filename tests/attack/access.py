"""The access matrix: who may ask a server for what.

A row has the verb and path, the scopes of keys that may ask (`|`: either), and the session tokens that may:
`family`: of the session asked about and of those above it; `below`: only of those above it; `all`; `none`.
The rows are written by hand: a row made from the operation would prove nothing.
"""

from __future__ import annotations

from typing import NamedTuple

COVERS = {  # the scopes that each scope of a key includes
    "read": {"read"},
    "write": {"read", "write"},
    "launch": {"launch"},
    "approve": {"approve"},
    "admin": {"read", "write", "launch", "approve", "admin"},
}
TOKENS = {  # sessions whose token may ask about `child`
    "family": {"parent", "child"},
    "below": {"parent"},
    "all": {"parent", "child", "sibling", "grandchild"},
    "none": set[str](),
}

TABLE = """
GET    /                                                 anyone        all
GET    /docs                                             anyone        all
GET    /healthz                                          anyone        all
GET    /openapi.json                                     anyone        all
GET    /readyz                                           anyone        all

GET    /agents                                           read          all
GET    /agents/{name}                                    read          all
GET    /tools                                            read          all
POST   /tools/{tool}                                     write         family

GET    /sessions                                         read          family
GET    /sessions/{session_id}                            read          family
GET    /sessions/{session_id}/ancestors                  read          family
GET    /sessions/{session_id}/checkpoints                read          family
GET    /sessions/{session_id}/checkpoints/newest         read          family
GET    /sessions/{session_id}/checkpoints/{number}       read          family
GET    /sessions/{session_id}/children                   read          family
GET    /sessions/{session_id}/children/count             read          family
GET    /sessions/{session_id}/context                    read          family
GET    /sessions/{session_id}/context-items              read          family
GET    /sessions/{session_id}/context/{key}              read          family
GET    /sessions/{session_id}/events                     read          family
GET    /sessions/{session_id}/export                     read          family
GET    /sessions/{session_id}/id                         read          family
GET    /sessions/{session_id}/log                        read          family
GET    /sessions/{session_id}/messages                   read          family
GET    /sessions/{session_id}/records/{namespace}        read          family
GET    /sessions/{session_id}/records/{namespace}/{record_key} read    family
GET    /sessions/{session_id}/resume-verdict             read          family
GET    /sessions/{session_id}/tree                       read          family
GET    /sessions/{session_id}/words                      read          family
POST   /sessions/{session_id}/records/{namespace}        read          family
GET    /inbox                                            read          family
GET    /runs                                             read          family
GET    /runs/{run_id}                                    read          family
GET    /runs/{run_id}/result                             read          family
GET    /approvals                                        read|approve  family
GET    /approvals/{approval_id}                          read|approve  family
GET    /agent-sessions/{session_id}                      read          family
POST   /agent-sessions/list                              read          family

POST   /sessions                                         write         family
PATCH  /sessions/{session_id}                            write         family
DELETE /sessions/{session_id}                            write         below
POST   /sessions/{session_id}/approvals                  write         family
POST   /sessions/{session_id}/checkpoints                write         family
POST   /sessions/{session_id}/compact                    write         family
PUT    /sessions/{session_id}/context                    write         family
PATCH  /sessions/{session_id}/context                    write         family
DELETE /sessions/{session_id}/context                    write         family
PUT    /sessions/{session_id}/context/{key}              write         family
PATCH  /sessions/{session_id}/context/{key}              write         family
DELETE /sessions/{session_id}/context/{key}              write         family
POST   /sessions/{session_id}/finalize                   write         family
POST   /sessions/{session_id}/messages                   write         family
POST   /sessions/{session_id}/records                    write         family
DELETE /sessions/{session_id}/records/{namespace}        write         family
PUT    /sessions/{session_id}/records/{namespace}/{record_key} write   family
DELETE /sessions/{session_id}/records/{namespace}/{record_key} write   family
POST   /sessions/{session_id}/release                    write         family
POST   /sessions/{session_id}/rename                     write         family
POST   /sessions/{session_id}/resume                     write         family
POST   /sessions/{session_id}/stop                       write         family
POST   /sessions/{session_id}/suspend                    write         family
POST   /runs                                             write         family
POST   /runs/{run_id}/retry                              write         family
POST   /runs/{run_id}/stop                               write         family
POST   /agent-sessions/create                            write         family
POST   /agent-sessions/{session_id}/complete             write         family
POST   /agent-sessions/{session_id}/messages             write         family
POST   /agent-sessions/{session_id}/resume               write         family
POST   /agent-sessions/{session_id}/suspend              write         family

GET    /analytics                                        read          none
GET    /delegations                                      read          none
GET    /deleted                                          read          none
GET    /events                                           read          none
GET    /last-lines                                       read          none
GET    /launchers                                        read          none
GET    /memory/{namespace}                               read          none
GET    /memory/{namespace}/{record_key}                  read          none
POST   /memory/{namespace}                               read          none
POST   /records/{namespace}/{record_key}                 read          none
GET    /metrics                                          read          none
GET    /resumable                                        read          none
GET    /resume-verdict                                   read          none
GET    /search                                           read          none

POST   /cleanup                                          write         none
POST   /delegations                                      write         none
POST   /import                                           write         none
POST   /import/histories                                 write         none
POST   /inbox/{item_id}/resend                           write         none
POST   /memory                                           write         none
DELETE /memory/{namespace}                               write         none
PUT    /memory/{namespace}/{record_key}                  write         none
DELETE /memory/{namespace}/{record_key}                  write         none
POST   /sessions/{session_id}/fork                       write         none

POST   /approvals/{approval_id}/decision                 approve       none

GET    /definitions                                      launch        none
POST   /launchers                                        launch        none
POST   /launchers/{launcher_id}/adopt                    launch        none
POST   /launchers/{launcher_id}/claim                    launch        none
POST   /launchers/{launcher_id}/heartbeat                launch        none
GET    /turns/{turn_id}/approvals/{approval_id}          launch        none
POST   /turns/{turn_id}/entries                          launch        none
POST   /turns/{turn_id}/finish                           launch        none
POST   /turns/{turn_id}/words                            launch        none

POST   /agents                                           admin         none
PUT    /agents/{name}                                    admin         none
DELETE /agents/{name}                                    admin         none
GET    /check                                            admin         none
GET    /keys                                             admin         none
POST   /keys                                             admin         none
DELETE /keys/{key_id}                                    admin         none
POST   /launchers/{launcher_id}/drain                    admin         none
"""


class Row(NamedTuple):
    """Who may ask for one thing."""

    verb: str
    path: str
    scopes: frozenset[str]
    tokens: str

    @property
    def is_open(self) -> bool:
        return self.scopes == {"anyone"}

    def to_key(self, scope: str) -> bool:
        return self.is_open or bool(self.scopes & COVERS[scope])

    def to_token(self, who: str) -> bool:
        return who in TOKENS[self.tokens]


def _read(line: str) -> Row:
    verb, path, scopes, tokens = line.split()
    return Row(verb, path, frozenset(scopes.split("|")), tokens)


ROWS = {(row.verb, row.path): row for row in map(_read, filter(None, TABLE.splitlines()))}
