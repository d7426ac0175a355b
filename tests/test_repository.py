"""Rules for the repository as a whole, in every clone."""

import os
import re
import subprocess
import tomllib
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[1]

# Put together from parts, so that this file does not contain what it looks for.
CHECKOUT_PLACES = ("home", "root", "work", "workspace", "workspaces", "builds", "Users")
MACHINE_PATH = re.compile(rf"(?<![\w.~}}/-])(?:[A-Z]:\\Users\\|/(?:{'|'.join(CHECKOUT_PLACES)})/)[\w.-]")
OLD_NAME = re.compile("hold" + r"[\s_-]?" + "fast", re.IGNORECASE)
REGISTRY_HOST = re.compile(r"\b(?:pypi|pythonhosted|npmjs)\.(?:org|com|io)\b")

FENCED = re.compile(r"^ *(`{3,}|~{3,}).*?^ *\1[`~]*\s*?$", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|#", re.IGNORECASE)


def repository_files() -> list[Path]:
    """Return the files git tracks or would track, without those deleted in the work tree."""
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("this is not a git checkout")
    return [ROOT / name for name in sorted(set(listed.stdout.split("\0"))) if name and (ROOT / name).is_file()]


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    """Return each line of the repository's text files in which `pattern` is found, with its place."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in repository_files()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]


def local_links(text: str) -> list[str]:
    """Return the targets of a Markdown text's links that are not elsewhere and not in code."""
    prose = INLINE_CODE.sub("", FENCED.sub("", text))
    targets = [inline or reference for inline, reference in LINK.findall(prose)]
    return [target for target in targets if not ELSEWHERE.match(target)]


def test_no_file_names_an_absolute_path_of_a_machine() -> None:
    assert lines_with(MACHINE_PATH) == []


def test_no_file_names_the_host_of_a_package_registry() -> None:
    assert lines_with(REGISTRY_HOST) == []


def test_old_product_name_is_gone_from_texts_and_paths() -> None:
    assert lines_with(OLD_NAME) == []
    assert [path for path in repository_files() if OLD_NAME.search(str(path.relative_to(ROOT)))] == []


def test_old_product_name_would_be_found_in_any_spelling() -> None:
    for spelling in ("hold" + "fast", "Hold" + "fast", "HOLD" + "FAST", "hold-" + "fast", "hold_" + "fast"):
        assert OLD_NAME.search(f"x-{spelling}-interface"), spelling


@pytest.mark.parametrize("place", CHECKOUT_PLACES)
def test_check_finds_an_absolute_path_of_a_machine(place: str) -> None:
    assert MACHINE_PATH.search(f'open("/{place}/somebody")')
    assert not MACHINE_PATH.search(f"see docs/{place}/somebody")


def test_every_local_link_leads_to_a_file() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in repository_files()
        if page.suffix == ".md"
        for target in local_links(page.read_text(encoding="utf-8"))
        if not (page.parent / unquote(target.partition("#")[0])).exists()
    ]
    assert broken == []


def test_local_links_are_told_from_others() -> None:
    prose = 'A [b](c.md#d "e"), ![f](g.png), `[h](i)`, [j](https://k/l.md), [m](#n).'
    text = f"{prose}\n\n```text\n[o](p)\n```\n\n[q]: r.md\n"
    assert local_links(text) == ["c.md#d", "g.png", "r.md"]


@pytest.mark.parametrize("name", ["dev", ".ci/run"])
def test_commands_can_be_executed(name: str) -> None:
    assert os.access(ROOT / name, os.X_OK)


def test_ci_runs_the_commands_of_developers() -> None:
    assert "exec ./dev test" in (ROOT / ".ci" / "run").read_text().splitlines()


def test_changelog_has_an_unreleased_section() -> None:
    assert "\n## [Unreleased]\n" in (ROOT / "CHANGELOG.md").read_text()


def test_licence_file_and_licence_expression_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert "Apache License\n                           Version 2.0" in (ROOT / "LICENSE").read_text()


def test_text_files_end_with_a_newline_and_have_no_carriage_returns() -> None:
    inputs = ROOT / "tests" / "fuzz" / "corpus"  # byte for byte as they were found
    texts = {path: path.read_bytes() for path in repository_files() if inputs not in path.parents}
    wrong = [
        path for path, text in texts.items() if b"\0" not in text and (b"\r" in text or (text and text[-1:] != b"\n"))
    ]
    assert [str(path.relative_to(ROOT)) for path in wrong] == []
