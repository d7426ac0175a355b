"""Files in deploy/ name only existing flags, settings and files, and their programs can read them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from moorage.doors.cli.app import cli
from moorage.testing.redis import RedisServer
from tests.doors.cli.running import run

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SETTINGS = (ROOT / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
COMPOSE_FILES = ("compose.yaml", "compose.valkey.yaml")
Compose = dict[str, Any]
Services = dict[str, dict[str, Any]]


@pytest.fixture(params=COMPOSE_FILES)
def compose(request: pytest.FixtureRequest) -> Compose:
    read: Compose = yaml.safe_load((DEPLOY / request.param).read_text(encoding="utf-8"))
    return read


@pytest.fixture
def services(compose: Compose) -> Services:
    found: Services = compose["services"]
    return found


def parsed(command: list[str]) -> click.Context:
    """A command line of ours, as far as it can be read without being run."""
    assert Path(command[0]).name == "moorage"
    group: click.Command = cli
    words = command[1:]
    context = click.Context(cli)
    while isinstance(group, click.Group):
        found = group.get_command(context, words[0])
        assert found is not None, f"there is no command {words[0]}"
        group, words = found, words[1:]
    return group.make_context(command[0], list(words))


def unit(path: Path) -> ConfigParser:
    read = ConfigParser(strict=False, interpolation=None)
    read.optionxform = str  # type: ignore[assignment, method-assign]  # names are written as they are
    read.read_string(path.read_text(encoding="utf-8"))
    return read


def told_commands() -> Iterator[list[str]]:
    """The commands that comments tell a person to type."""
    for path in (*(DEPLOY / name for name in COMPOSE_FILES), *UNITS):
        for line in re.findall(r"^# +.*?(moorage (?:keys|serve|launcher) [^#\n]*)", path.read_text(), flags=re.M):
            yield shlex.split(line)


# Compose ----------------------------------------------------------------------------------------


def test_compose_starts_existing_commands(services: Services) -> None:
    assert parsed(services["server"]["command"]).params["launches"] is False
    assert parsed(services["launcher"]["command"]).params["slots"] == 8


def test_compose_refers_to_nothing_that_is_missing(compose: Compose, services: Services) -> None:
    for name, service in services.items():
        assert set(service.get("depends_on", {})) <= services.keys(), name
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (DEPLOY / source).exists() if source.startswith(".") else source in compose["volumes"], volume
        assert "image" in service, name
    build = services["server"]["build"]
    assert (DEPLOY / build["context"]).resolve() == ROOT
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()


def test_compose_sets_only_settings_that_are_documented(services: Services) -> None:
    named = {name for service in services.values() for name in service.get("environment", {})}
    ours = {name for name in named if name.startswith("MOORAGE_")}
    assert ours == {"MOORAGE_URL", "MOORAGE_KEY"}
    assert [name for name in ours if f"`{name}`" not in SETTINGS] == []


def test_ports_are_published_on_loopback_only(services: Services) -> None:
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_every_service_waits_longer_for_an_end_than_the_server_takes(services: Services) -> None:
    from moorage.doors.http.serve import FINISH_WITHIN

    assert int(services["server"]["stop_grace_period"].removesuffix("s")) > FINISH_WITHIN


def test_the_commands_in_comments_can_be_read() -> None:
    commands = list(told_commands())
    assert len(commands) >= 4
    for command in commands:
        parsed(command)


def test_image_starts_an_existing_command() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    (command,) = re.findall(r"^CMD (\[.*\])$", text, flags=re.M)
    parsed(yaml.safe_load(command))
    assert re.search(r"^USER (?!root)", text, flags=re.M)
    assert re.search(r"^HEALTHCHECK ", text, flags=re.M)
    assert len(re.findall(r"^FROM ", text, flags=re.M)) == 2


def test_deploy_files_install_this_checkout_and_nothing_else() -> None:
    """A name on an index may be another project's; a path cannot be."""
    texts = [path.read_text(encoding="utf-8") for path in (DEPLOY / "Dockerfile", *UNITS)]
    installs = [line for text in texts for line in re.findall(r"pip install ([^\\\n]*)", text)]
    wanted = [word for line in installs for word in shlex.split(line) if not word.startswith("-")]
    assert wanted == ["/source[all]", ".[all]"]


def test_image_is_built_from_files_that_are_there_and_let_in() -> None:
    let_in = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (DEPLOY / "Dockerfile").read_text(), flags=re.M)
    sources = [source for line in copied for source in line.split()]
    assert sorted(sources) == sorted(let_in)
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_containers_of_ours_cannot_write_their_image(services: Services) -> None:
    for name in ("server", "launcher"):
        assert services[name]["read_only"] is True
        assert services[name]["cap_drop"] == ["ALL"]


def test_valkey_of_compose_is_a_durable_store_that_evicts_nothing(tmp_path: Path) -> None:
    """The server is started as the file says, and doctor is asked about the URL that servers get."""
    services = yaml.safe_load((DEPLOY / "compose.valkey.yaml").read_text(encoding="utf-8"))["services"]
    name, *words = services["store"]["command"]
    assert name == "valkey-server"
    flags = {flag.removeprefix("--"): value for flag, value in zip(words[::2], words[1::2], strict=True)}
    password = flags.pop("requirepass")
    assert password == "${VALKEY_PASSWORD:?set it in .env}"
    url = services["server"]["environment"]["MOORAGE_URL"].replace("${VALKEY_PASSWORD}", "secret")
    with RedisServer(settings={**flags, "requirepass": "secret"}) as server:
        found = run("--json", "doctor", env={
            "MOORAGE_URL": url.replace("store:6379", f"127.0.0.1:{server.port}"), "MOORAGE_HOME": str(tmp_path)
        })  # fmt: skip
    assert (found.code, found.json["problems"]) == (0, []), found
    assert (found.json["durability"], found.json["maxmemory_policy"]) == ("fsync", "noeviction")


# systemd ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_unit_starts_an_existing_command(path: Path) -> None:
    command = shlex.split(unit(path)["Service"]["ExecStart"].replace("%i", "build-box"))
    parsed(command)


def test_agents_outlive_their_launcher() -> None:
    assert unit(DEPLOY / "systemd" / "moorage-launcher@.service")["Service"]["KillMode"] == "process"


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_understands_a_unit(path: Path, tmp_path: Path) -> None:
    systemd = shutil.which("systemd-analyze")
    if systemd is None:
        pytest.skip("there is no systemd-analyze on this machine")
    program = tmp_path / "moorage"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    copy = tmp_path / path.name.replace("@", "@one")
    copy.write_text(path.read_text().replace("/opt/moorage/bin/moorage", str(program)))
    done = subprocess.run(
        [systemd, "verify", "--man=no", copy], capture_output=True, text=True, check=False, timeout=60
    )
    told = [line for line in done.stderr.splitlines() if path.name.partition(".")[0].partition("@")[0] in line]
    assert told == []


# nginx ------------------------------------------------------------------------------------------


def test_nginx_buffers_no_stream_and_waits_longer_than_the_longest_poll() -> None:
    text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    assert "proxy_buffering off;" in text
    (seconds,) = re.findall(r"proxy_read_timeout (\d+)s;", text)
    assert int(seconds) > 60
    assert text.count("{") == text.count("}")


# Alerts -----------------------------------------------------------------------------------------


def test_every_metric_to_alert_on_exists() -> None:
    page = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
    source = (ROOT / "src" / "moorage" / "doors" / "http" / "monitoring.py").read_text(encoding="utf-8")
    named = set(re.findall(r"`(moorage_[a-z_]+?)(?:_total)?(?:\{[^`]*)?`", page))
    assert len(named) >= 10
    assert [name for name in sorted(named) if f'"{name}"' not in source] == []
