"""Configuration: the only reader of files and environment. Picks stores by the scheme of their URL.

Settings come from the file, then the environment, then arguments. The file is `config.toml` in the folder that
`MOORAGE_HOME` names (or the user's data folder); `docs/reference/configuration.md` lists its settings, and a test
compares the two.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from io import BytesIO
from typing import IO, TYPE_CHECKING, Any, cast

from moorage.clocks import SystemClock as SystemClock  # part of this module's interface
from moorage.core import policy
from moorage.core.duration import duration as duration  # likewise
from moorage.core.errors import AgentExists, InvalidField, StoreReadOnly, StoreUnavailable, Unsupported
from moorage.core.family import FamilyLimits
from moorage.core.ids import check_session_name
from moorage.core.redact import SECRET_WORDS
from moorage.core.session import Phase, State
from moorage.core.window import TokenCounter, WindowSize
from moorage.ports import Store
from moorage.service.deps import Deps, HookSettings, MemorySettings, ServerSettings, Settings

if TYPE_CHECKING:
    from moorage.agents.registry import Registry
    from moorage.core.agent import AgentDefinition, Tool, Toolbox, ToolFunction
    from moorage.stores.sealing import Sealer

FILE_NAME = "moorage.db"
CONFIG_NAME = "config.toml"
TABLES = (
    "url", "context_url", "resume", "family", "window", "retention", "redact", "hooks", "server", "memory",
    "encryption",
)  # fmt: skip
AGENTS_NAME = "agents"
ORIGINS = "allowed_origins"
SERVERS_NAME = "servers"
SEALING_KEYS = "MOORAGE_ENCRYPTION_KEYS"
CONTEXT_URL = "MOORAGE_CONTEXT_URL"
NEVER = "never"  # in place of a duration
SHORTEST_SWEEP = timedelta(seconds=1)
_shared_memory: dict[tuple[int, str], Store] = {}  # by process and name: a forked child starts with new ones
_registries: dict[str, Registry] = {}

entropy = os.urandom  # random bytes of the machine


class DrawnEntropy:
    """Randomness of the machine, drawn in bulk, for servers.

    A system call for randomness releases the interpreter's lock, and a busy process waits to get it back: for a few
    bytes that took a sixth of a request's time.
    """

    AT_ONCE = 4096

    def __init__(self) -> None:
        self._drawn, self._process = BytesIO(), os.getpid()

    def __call__(self, size: int) -> bytes:
        found = self._drawn.read(size)  # atomic: no other thread gets the same bytes
        if len(found) < size or self._process != os.getpid():  # a forked child must not repeat its parent
            drawn = BytesIO(os.urandom(max(size, self.AT_ONCE)))
            found = drawn.read(size)
            self._drawn, self._process = drawn, os.getpid()
        return found


def home() -> str:
    """Return the folder for data and configuration."""
    if given := os.environ.get("MOORAGE_HOME"):
        return os.path.abspath(os.path.expanduser(given))
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Application Support/moorage")
    base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return os.path.join(base, "moorage")


def pick_url(url: str | None = None) -> str:
    """Return the given URL, else MOORAGE_URL, else the configuration's, else that of a file in the data folder."""
    if (given := given_url(url)) is not None:
        return given
    if configured := _file().get("url"):
        return str(configured)
    return sqlite_url(os.path.join(home(), FILE_NAME))


def given_url(url: str | None = None) -> str | None:
    """Return the given URL, else MOORAGE_URL; None to use the configuration's."""
    return url if url is not None else os.environ.get("MOORAGE_URL") or None


def pick_context_url(url: str, context_url: str | None = None) -> str | None:
    """Return the server for a store's contexts: the given one, else MOORAGE_CONTEXT_URL, else the configuration's.

    None: the store keeps them. A store that ends with the process keeps its own, unless a server is given.
    """
    picked: Any = context_url
    if picked is None and not url.startswith("memory://"):
        picked = os.environ.get(CONTEXT_URL) or _file().get("context_url")
    if not picked:
        return None
    text = str(picked)
    if not is_redis(text):
        raise InvalidField("context_url", f"is {without_password(text)!r}; write redis://HOST")
    if find_sealer() is not None:
        raise InvalidField("context_url", "stores contexts unencrypted, and encryption is on; use one of the two")
    return text


def open_deps(
    url: str | None = None,
    *,
    threaded: bool,
    patience: float | None = None,
    context_url: str | None = None,
    is_known: bool = False,
) -> Deps:
    """Return everything a service needs, on the store that the URL names.

    Threaded stores suit an event loop; the others run inline and never suspend. With `patience`, an inline store waits
    for others at most this number of seconds in all. A store's server that was never reached and refuses is given up at
    once, unless it `is_known` to be there.
    """
    settings, picked = read_settings(), pick_url(url)
    beside = pick_context_url(picked, context_url)
    store = open_store(picked, threaded=threaded, patience=patience, is_known=is_known)
    chance = DrawnEntropy() if threaded else entropy
    clock = getattr(store, "clock", None) or SystemClock()  # a store of several machines has a common clock
    if beside is not None:
        store = _with_context_beside(store, beside, clock, threaded=threaded)
    return Deps(store, clock, chance, settings, find_agent, defined_agents=agents)


def open_store(url: str, *, threaded: bool, patience: float | None = None, is_known: bool = False) -> Store:
    """Open the store of a URL as `open_deps` does. Raise Unsupported for an unknown scheme."""
    is_known = is_known or run_from_environment() is not None  # it was running when the agent was started
    scheme, separator, rest = url.partition("://")
    if scheme == "sqlite" and separator:
        return _open_sqlite(sqlite_path(url), threaded=threaded, patience=patience)
    if scheme == "memory" and separator:
        return _open_memory(rest)
    if is_postgres(url) or is_redis(url):
        store = _open_remote(url, patience=patience, is_known=is_known)
        return store if threaded else _inline(store)
    shown = without_password(url)
    if is_server(url):
        raise Unsupported(f"{shown} is a server, and this needs the store itself; use sqlite:///FILE", url=shown)
    raise Unsupported(
        f"{shown!r} is not a store; use sqlite:///FILE, postgresql://HOST/DATABASE, redis://HOST, http://HOST:PORT "
        "or memory://",
        url=shown,
    )


def sqlite_path(url: str) -> str:
    """Return the file of a sqlite:/// URL: three slashes and a path, a fourth if it is absolute."""
    path = url.removeprefix("sqlite://")
    if not path.startswith("/") or len(path) < 2:
        raise InvalidField("url", f"is {url!r}; write sqlite:///relative/file.db or sqlite:////absolute/file.db")
    path = path[1:]
    if "%" in path:
        from urllib.parse import unquote

        path = unquote(path)
    if "\0" in path:
        raise InvalidField("url", "has a NUL character in it; remove it")
    return path


def sqlite_url(path: str) -> str:
    """Return the URL of a file, for `sqlite_path` to read back."""
    return "sqlite:///" + path.replace("%", "%25")


def make_folder(path: str) -> None:
    """Create a private folder for data, if it is missing."""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except PermissionError as error:
        raise StoreReadOnly(path) from error
    except OSError as error:
        raise StoreUnavailable(f"the folder {path} cannot be made ({error.strerror})", store=path) from error


@contextmanager
def replacing(path: str, *, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Yield a new file that takes the place of the one at `path` when it is complete and on disk.

    Its name is its own: another writer of the same file, or the rest of one that was killed, is not in its way.
    """
    beside = f"{path}.{os.urandom(4).hex()}.part"
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        with suppress(OSError):
            os.unlink(beside)


def _open_sqlite(path: str, *, threaded: bool, patience: float | None) -> Store:
    from moorage.stores.sqlite.connection import ForeignDatabase
    from moorage.stores.sqlite.store import SqliteStore

    folder = os.path.dirname(os.path.abspath(path))
    if folder == home():
        make_folder(folder)
    sealer = find_sealer()

    def opened() -> Store:
        return SqliteStore.serve(path, sealer) if threaded else SqliteStore.open(path, patience, sealer)

    try:
        return opened()
    except ForeignDatabase:
        from moorage.legacy.database import bring_in_and_log  # few users have such a file

        bring_in_and_log(path, sealer, patience)
        return opened()  # raises again if the file is no older orchestrator's


def _open_remote(url: str, **how: Any) -> Store:
    from moorage.core.extras import provided_by

    if is_postgres(url):
        with provided_by("postgres", "PostgreSQL"):
            from moorage.stores.postgres.store import PostgresStore
        return PostgresStore(url, find_sealer(), **how)
    with provided_by("redis", "Redis"):
        from moorage.stores.redis.store import RedisStore
    return RedisStore(url, find_sealer(), **how)


def _with_context_beside(store: Store, url: str, clock: SystemClock, *, threaded: bool) -> Store:
    from moorage.core.extras import provided_by
    from moorage.stores.context_beside import ContextBeside

    def opened() -> Any:
        with provided_by("redis", "Redis"):
            from moorage.stores.redis.session_context import SessionContext
        return SessionContext(url) if threaded else _inline(SessionContext(url))

    return cast(Store, ContextBeside(store, opened, clock))


def _inline(store: Any) -> Store:
    from moorage.stores.inline import InlineStore

    return cast(Store, InlineStore(store))


def _open_memory(name: str) -> Store:
    from moorage.stores.sqlite.store import SqliteStore

    if not name:
        return SqliteStore.in_memory()
    place = os.getpid(), name
    known = _shared_memory.get(place)
    return known or _shared_memory.setdefault(place, SqliteStore.in_memory(f"memory://{name}"))


def without_password(url: str) -> str:
    """Return a URL without its password."""
    return re.sub(r"(?<=//)([^/@]*)@", "…@", url)


# Encryption at rest -----------------------------------------------------------------------------


def find_sealer() -> Sealer | None:
    """Return the encryption keys of the environment, else of the key file; None without any."""
    table = _section(_file(), "encryption", ("key_file", "seal"))
    text = os.environ.get(SEALING_KEYS, "")
    if not text.strip() and "key_file" in table:
        text = _key_file(table["key_file"])
    elif not text.strip():
        return None
    from moorage.stores.sealing import Sealer, read_keys  # not needed without encryption

    return Sealer(read_keys(text), seals=_yes_or_no("encryption.seal", table.get("seal", True)))


def _key_file(given: object) -> str:
    if not isinstance(given, str) or not given:
        raise InvalidField("encryption.key_file", f"is {given!r}; write the path of a file")
    path = os.path.join(home(), os.path.expanduser(given))
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidField("encryption.key_file", f"{path} cannot be read ({error})") from None


# Who is calling ---------------------------------------------------------------------------------


def is_postgres(url: str) -> bool:
    """Return whether a URL names a PostgreSQL database."""
    return url.startswith(("postgresql://", "postgres://"))


def is_redis(url: str) -> bool:
    """Return whether a URL names a Redis or Valkey server, or a cluster of them."""
    return url.startswith(("redis://", "rediss://", "unix://", "redis+cluster://", "rediss+cluster://"))


def is_server(url: str) -> bool:
    """Return whether a URL names a server rather than a store."""
    return url.startswith(("http://", "https://"))


def take_key() -> str | None:
    """Return the key or token of this process, and remove it from its environment, so that no agent inherits it."""
    found = [os.environ.pop(name, "").strip() for name in ("MOORAGE_KEY", "MOORAGE_TOKEN")]
    return next((key for key in found if key), None)


def parent_from_environment() -> str | None:
    """Return the session of this process, as set by its launcher; None outside of any."""
    for name in ("AGENT_SESSION_ID", "AGENT_SESSION_NAME"):
        value = os.environ.get(name, "").strip()
        if value.startswith("${"):
            warnings.warn(
                f"{name} still reads {value}: the variable was not filled in; it counts as absent", stacklevel=3
            )
        elif value:
            return value
    return None


def run_from_environment() -> str | None:
    """Return the run of this process, as set by its launcher; None outside of any."""
    run = os.environ.get("AGENT_RUN_ID", "").strip()
    return run if run and not run.startswith("${") else None


def agent_environment(url: str | None, context_url: str | None = None) -> dict[str, str]:
    """Return the variables of an agent's environment that name the store or the server.

    An agent that works through a server needs neither the encryption keys of the store's file nor the URL of the
    context server.
    """
    picked = pick_url(url)
    if is_server(picked):
        return {"MOORAGE_URL": picked, "MOORAGE_HOME": home(), SEALING_KEYS: "", CONTEXT_URL: ""}
    beside = pick_context_url(picked, context_url) or ""
    if picked.startswith("sqlite://"):  # the agent may work in another folder
        picked = sqlite_url(os.path.abspath(sqlite_path(picked)))
    return {"MOORAGE_URL": picked, "MOORAGE_HOME": home(), CONTEXT_URL: beside}


def launcher_folder(name: str) -> str:
    """Return the folder of the launcher with that name, which is never a path."""
    return os.path.join(home(), "launcher", check_session_name(name))


# Servers on this machine ------------------------------------------------------------------------


def tell_of_server(url: str, address: str) -> None:
    """Record where this process serves a store, for programs that prefer the server to the store."""
    with suppress(OSError, StoreUnavailable, StoreReadOnly):  # then they open the store themselves
        AgentFiles(os.path.join(home(), SERVERS_NAME)).write(_server_file(url), f"{os.getpid()}\n{address}\n")


def forget_server(url: str) -> None:
    """Remove the record of `tell_of_server`, unless another server has written since."""
    if _server_note(url)[0] == os.getpid():
        with suppress(OSError):
            os.unlink(os.path.join(home(), SERVERS_NAME, _server_file(url)))


def known_server(url: str) -> str | None:
    """Return the address of a local server for the store of this URL; None if no live one is known."""
    pid, address = _server_note(url)
    try:
        if pid is not None:
            os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:  # it lives, and belongs to another user
        return address
    return address


def _server_note(url: str) -> tuple[int | None, str | None]:
    try:
        with open(os.path.join(home(), SERVERS_NAME, _server_file(url)), encoding="utf-8") as file:
            pid, address = file.read(4096).split()
        return int(pid), address
    except (OSError, ValueError):  # ValueError: the content is invalid
        return None, None


def _server_file(url: str) -> str:
    """Return the name of a store's file, the same however the store's URL is written."""
    from hashlib import sha256

    if url.startswith("sqlite://"):
        url = sqlite_url(os.path.realpath(sqlite_path(url)))
    return sha256(url.encode(errors="replace")).hexdigest()[:32]


def server_key() -> str | None:
    """Return the credential for a server: the token of this process's session, else the user's key."""
    for name in ("MOORAGE_TOKEN", "MOORAGE_KEY"):
        if value := os.environ.get(name, "").strip():
            return value
    return None


def user() -> str:
    """Return the user of this process, for the log."""
    name = os.environ.get("USER") or os.environ.get("LOGNAME") or f"uid{os.getuid()}"
    return name.encode(errors="replace").decode()  # the environment is bytes, the log is text


def unique_holder() -> str:
    """Return the holder's name for sessions resumed through this connection."""
    return f"{user()}@{os.uname().nodename}:{os.getpid()}:{os.urandom(3).hex()}"


# Agents -----------------------------------------------------------------------------------------


def registry() -> Registry:
    """Return the registry of agents, those that come with Moorage and those of the data folder, with its cache."""
    known = _registries.get(home())
    if known is None:
        from moorage.agents.registry import Registry

        known = _registries[home()] = Registry(AgentFiles(os.path.join(home(), AGENTS_NAME)))
    return known


def agents() -> dict[str, AgentDefinition]:
    """Return every built-in or defined agent, by name."""
    return registry().all()


def agents_of(deps: Deps) -> dict[str, AgentDefinition]:
    """Return every agent by name, including registered ones."""
    return {**deps.registered.agents(), **agents()}


def find_agent(name: str) -> AgentDefinition | None:
    """Return a built-in or defined agent, or None. Raise InvalidDefinition if its file is invalid."""
    return registry().find(name)


def tools_of(deps: Deps) -> Toolbox:
    """Return every tool by name: the built-in one, those of files, and registered ones."""
    from moorage.agents import builtin

    return {**_tools_elsewhere(deps.registered.tools()), builtin.WEATHER.name: (builtin.WEATHER, builtin.weather)}


def _tools_elsewhere(registered: dict[str, Tool]) -> dict[str, tuple[Tool, ToolFunction]]:
    defined = [agent for agent in registry().all().values() if agent.is_remote_tool]
    if not registered and not defined:
        return {}
    from moorage.agents.grpc import calling, tool_of

    found = {name: (tool, calling(tool, None, environment)) for name, tool in registered.items()}
    for agent in defined:
        key = None if agent.api_key_env is None else environment(agent.api_key_env)
        found[agent.name] = (tool_of(agent), calling(tool_of(agent), key, environment))
    return found


def check_free(name: str) -> None:
    """Raise AgentExists if a file or Moorage itself has the name already."""
    from moorage.agents.builtin import WEATHER

    known = registry().all().get(name)
    if known is not None or name == WEATHER.name:
        raise AgentExists(name, (known.source if known is not None else None) or "Moorage itself")


def environment(name: str) -> str | None:
    """Return a variable of this process, such as the variable with a key that a definition names."""
    return os.environ.get(name)


class AgentFiles:
    """The folder with a file for each agent: the `DefinitionFiles` of a registry."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def stamps(self) -> dict[str, tuple[int, ...]]:
        stamps = dict[str, tuple[int, ...]]()
        with suppress(OSError), os.scandir(self._folder) as files:  # no folder, no files
            for file in files:
                with suppress(OSError):  # deleted meanwhile, or a link that leads nowhere
                    if file.name.endswith(".toml") and not file.name.startswith(".") and file.is_file():
                        status = file.stat()
                        stamps[file.path] = (status.st_mtime_ns, status.st_size, status.st_ino)
        return stamps

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write(self, name: str, text: str) -> str:
        path = os.path.join(self._folder, name)
        make_folder(self._folder)
        try:
            with replacing(path) as file:
                file.write(text.encode())
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be written ({error.strerror})", store=path) from error
        return path

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return  # another process was faster
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be removed ({error.strerror})", store=path) from error


# Settings ---------------------------------------------------------------------------------------


def read_settings() -> Settings:
    """Return the settings of the configuration file, with defaults for missing ones."""
    file = _file()
    if not file:
        return Settings()
    _check_known("the configuration file", file, TABLES)
    resume = _section(file, "resume", policy.ResumePolicy.__struct_fields__)
    family = _section(file, "family", FamilyLimits.__struct_fields__)
    redact, memory = _section(file, "redact", ("words",)), _section(file, "memory", MemorySettings.__struct_fields__)
    hooks = _section(file, "hooks", HookSettings.__struct_fields__)
    limits = {Phase.APPROVAL.value: policy.APPROVAL_IDLE_LIMIT}
    for phase, limit in _table(resume, "idle_limits").items():
        if phase not in tuple(Phase):
            raise InvalidField("resume.idle_limits", f"has {phase!r}; use some of {', '.join(Phase)}")
        limits[phase] = duration(f"resume.idle_limits.{phase}", limit)
    return Settings(
        resume=policy.ResumePolicy(
            idle_limit=duration("resume.idle_limit", resume.get("idle_limit", policy.IDLE_LIMIT)),
            idle_limits=limits,
            max_errors=_count("resume.max_errors", resume.get("max_errors", policy.MAX_ERRORS)),
        ),
        family=FamilyLimits(**{name: _count(f"family.{name}", value) for name, value in family.items()}),
        secret_words=_words(redact.get("words", list(SECRET_WORDS))),
        **_window(_section(file, "window", (*WindowSize.__struct_fields__, "counter"))),
        retention=_retention(_section(file, "retention", policy.RetentionPolicy.__struct_fields__)),
        hooks=HookSettings(**{name: _yes_or_no(f"hooks.{name}", value) for name, value in hooks.items()}),
        server=_server(_section(file, "server", ServerSettings.__struct_fields__)),
        memory=MemorySettings(context_ttl=_duration_or_never("memory.context_ttl", memory.get("context_ttl", NEVER))),
    )


def _window(table: dict[str, Any]) -> dict[str, Any]:
    """Return the limit on the history for an agent that continues, and the counter of tokens."""
    settings: dict[str, Any] = {}
    sizes = {name: _count(f"window.{name}", value) for name, value in table.items() if name != "counter"}
    if sizes:
        settings["window"] = WindowSize(**sizes)
    if "counter" in table:
        settings["count_tokens"] = _counter(table["counter"])
    return settings


def _counter(place: object) -> TokenCounter:
    from importlib import import_module

    module, _, name = place.partition(":") if isinstance(place, str) else ("", "", "")
    try:
        counter = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidField("window.counter", f"is {place!r}, which cannot be loaded ({error})") from None
    if not callable(counter):
        raise InvalidField("window.counter", f"is {place!r}, which is not a function")
    return cast(TokenCounter, counter)


def _server(table: dict[str, Any]) -> ServerSettings:
    given: dict[str, Any] = {name: _count(f"server.{name}", value) for name, value in table.items() if name != ORIGINS}
    return ServerSettings(**given, allowed_origins=_origins(table.get(ORIGINS, [])))


def _origins(value: Any) -> frozenset[str]:
    """Return the origins of pages that may ask a server, each as a browser sends it: scheme, host and port."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise InvalidField(f"server.{ORIGINS}", "must be a list of texts, such as ['https://dash.example.org']")
    for each in value:
        if not re.fullmatch(r"https?://[a-z0-9.-]+(:\d{1,5})?|https?://\[[0-9a-f:]+\](:\d{1,5})?", each):
            raise InvalidField(f"server.{ORIGINS}", f"has {each!r}; write scheme, host and port alone, in lower case")
    return frozenset(value)


def _retention(table: dict[str, Any]) -> policy.RetentionPolicy:
    ages = _table(table, "ages", "retention.ages")
    for state in ages:
        if state not in tuple(State):
            raise InvalidField("retention.ages", f"has {state!r}, which is not a state; use some of {', '.join(State)}")
    every = _duration_or_never("retention.every", table.get("every", policy.SWEEP_EVERY))
    if every is not None and every < SHORTEST_SWEEP:
        raise InvalidField("retention.every", f"is {table['every']!r}; give 1s or more, or never")
    return policy.RetentionPolicy(
        age=_duration_or_never("retention.age", table.get("age", policy.RETENTION_AGE)),
        ages={state: _duration_or_never(f"retention.ages.{state}", age) for state, age in ages.items()},
        every=every,
    )


def _duration_or_never(name: str, value: object) -> timedelta | None:
    if isinstance(value, str) and value.strip() == NEVER:
        return None
    try:
        return duration(name, value)
    except InvalidField:
        raise InvalidField(name, f"is {value!r}; write a duration such as 30m, 24h or 7d, or never") from None


def _check_known(where: str, table: dict[str, Any], known: tuple[str, ...]) -> None:
    unknown = sorted(table.keys() - set(known))
    if unknown:
        raise InvalidField("config", f"has {', '.join(unknown)} in {where}; known are {', '.join(known)}")


def _words(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(word, str) and word for word in value):
        raise InvalidField("redact.words", "must be a list of words")
    return tuple(value)


def _yes_or_no(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidField(name, f"is {value!r}; write true or false")
    return value


def _count(name: str, value: object) -> int:
    if type(value) is not int or value < 1:
        raise InvalidField(name, f"is {value!r}; give a whole number above 0")
    return value


def _section(file: dict[str, Any], name: str, known: tuple[str, ...]) -> dict[str, Any]:
    """Return a table of the configuration file, once it has no other keys than the known ones."""
    table = _table(file, name)
    _check_known(name, table, known)
    return table


def _table(file: dict[str, Any], name: str, full_name: str | None = None) -> dict[str, Any]:
    table = file.get(name, {})
    if not isinstance(table, dict):
        raise InvalidField(full_name or name, "must be a table in the configuration file")
    return table


def _file() -> dict[str, Any]:
    path = os.path.join(home(), CONFIG_NAME)
    if not os.path.exists(path):
        return {}
    import tomllib  # 18 milliseconds that are saved without a file

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, too large an integer, nested too deeply
        raise InvalidField("config", f"file {path} is not valid TOML: {error}") from None
