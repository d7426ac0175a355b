"""The browser of these tests: found, installed, or reported as missing."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests import debian
from tests.doors.web.stage import NoChromium, find_chromium

APT_GET = """#!/bin/sh
echo "$@" >> "{folder}/asked"
[ "$1" = install ] || exit 0
{then}
"""


def a_program(folder: Path, name: str, text: str = "#!/bin/sh\n") -> str:
    path = folder / name
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without programs whose user is root."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("MOORAGE_TEST_CHROMIUM", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path


def test_present_browser_is_used(path: Path) -> None:
    there = a_program(path, "google-chrome")
    assert find_chromium() == there


def test_root_installs_the_browser_of_debian(path: Path) -> None:
    made = f"echo '#!/bin/sh' > {path}/chromium-headless-shell; /bin/chmod +x {path}/chromium-headless-shell"
    a_program(path, "apt-get", APT_GET.format(folder=path, then=made))
    assert find_chromium() == str(path / "chromium-headless-shell")
    assert (path / "asked").read_text().splitlines() == [
        "update -qq",
        f"install -y -qq {' '.join((*debian.WAIT, *debian.SMALL))} chromium-headless-shell",
    ]


def test_error_of_apt_is_reported_with_a_way_out(path: Path) -> None:
    refuses = "echo 'E: Unable to locate package chromium' >&2; exit 100"
    a_program(path, "apt-get", APT_GET.format(folder=path, then=refuses))
    with pytest.raises(NoChromium, match=r"Unable to locate package chromium.*name one in MOORAGE_TEST_CHROMIUM"):
        find_chromium()


def test_missing_root_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_program(path, "apt-get")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(
        NoChromium, match=r"only root can install it here: .*\(apt-get install chromium-headless-shell\)"
    ):
        find_chromium()


def test_missing_apt_is_reported(path: Path) -> None:
    with pytest.raises(NoChromium, match="no apt-get"):
        find_chromium()


def test_all_missing_packages_are_installed_at_once_before_the_tests(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_program(path, "dpkg-query", '#!/bin/sh\n[ "$3" = redis-server ] && printf "install ok installed"\n')
    a_program(path, "apt-get", APT_GET.format(folder=path, then=""))
    debian.main()
    wanted = [package for package in debian.PACKAGES if package != "redis-server"]
    assert (path / "asked").read_text().splitlines()[-1].endswith(" ".join(("", *wanted)))
    assert capsys.readouterr().out.startswith(f"installing {', '.join(wanted)} … ")
