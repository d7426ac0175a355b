"""Where the browser of these tests comes from: what is there, what can be installed, and what is said otherwise."""

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
    """A machine on which there is nothing yet, and whose user is root."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("MOORAGE_TEST_CHROMIUM", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path


def test_one_that_is_there_is_taken(path: Path) -> None:
    there = a_program(path, "google-chrome")
    assert find_chromium() == there


def test_debians_is_installed_where_root_asks(path: Path) -> None:
    made = f"echo '#!/bin/sh' > {path}/chromium; /bin/chmod +x {path}/chromium"
    a_program(path, "apt-get", APT_GET.format(folder=path, then=made))
    assert find_chromium() == str(path / "chromium")
    assert (path / "asked").read_text().splitlines() == [
        "update -qq",
        f"install -y -qq {' '.join(debian.WAIT)} chromium",
    ]


def test_what_apt_says_is_told_with_what_to_do(path: Path) -> None:
    refuses = "echo 'E: Unable to locate package chromium' >&2; exit 100"
    a_program(path, "apt-get", APT_GET.format(folder=path, then=refuses))
    with pytest.raises(NoChromium, match=r"Unable to locate package chromium.*name one in MOORAGE_TEST_CHROMIUM"):
        find_chromium()


def test_who_is_not_root_is_told_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_program(path, "apt-get")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NoChromium, match=r"only root can install it here: install it \(apt-get install chromium\)"):
        find_chromium()


def test_where_there_is_no_apt_that_is_said(path: Path) -> None:
    with pytest.raises(NoChromium, match="no apt-get"):
        find_chromium()
