"""The files of the web page, and how the server sends them."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from moorage import config
from moorage.doors.http import pages
from moorage.doors.http.app import Door
from moorage.doors.http.authorizer import Authorizer
from moorage.doors.http.pages import FOLDER
from tests.doors.http.server import address_of, running

STATIC = Path(FOLDER)
VENDORED = (STATIC / "vendor", Path(__file__).parent / "vendor")


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    deps = config.open_deps(f"memory://{tmp_path}", threaded=True)
    door = Door(deps, Authorizer(deps, closed=True))
    pages.add_to(door)
    async with running(door) as server, httpx2.AsyncClient(base_url=address_of(server)) as client:
        yield client
    await deps.store.close()


@pytest.mark.parametrize("folder", VENDORED, ids=["page", "tests"])
def test_vendored_files_match_their_hashes(folder: Path) -> None:
    told = {name: digest for digest, name, _ in map(str.split, (folder / "HASHES").read_text().splitlines())}
    found = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.iterdir()
        if file.name != "HASHES" and not file.name.endswith(".d.mts")  # types, for the checks: our own
    }
    assert found == told


@pytest.mark.parametrize("folder", VENDORED, ids=["page", "tests"])
def test_vendored_packages_have_their_licences(folder: Path) -> None:
    rows = [line.split() for line in (folder / "HASHES").read_text().splitlines()]
    packages = {package for _, _, package in rows}
    assert {package for _, name, package in rows if name.startswith("LICENSE.")} == packages


def test_modules_import_existing_files() -> None:
    broken = [
        f"{file.relative_to(STATIC)}: {target}"
        for file in STATIC.rglob("*.*js")
        for target in re.findall(r"""^(?:import|export)\b[^'"]*?from\s*["']([^"']+)["']""", file.read_text(), re.M)
        if not target.startswith(".") or not (file.parent / target).is_file()
    ]
    assert broken == []


async def test_page_needs_no_key(http: httpx2.AsyncClient) -> None:
    answer = await http.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert "/web/app.js" in answer.text


async def test_policy_allows_only_files_of_the_page(http: httpx2.AsyncClient) -> None:
    policy = (await http.get("/")).headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    page = (STATIC / "index.html").read_text()
    assert re.findall(r"<script(?![^>]* src=)|<style|\son\w+=", page) == []


async def test_known_file_is_not_sent_again(http: httpx2.AsyncClient) -> None:
    first = await http.get("/web/app.js")
    again = await http.get("/web/app.js", headers={"If-None-Match": first.headers["etag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    assert again.headers["etag"] == first.headers["etag"]


async def test_files_are_compressed_on_request(http: httpx2.AsyncClient) -> None:
    async with http.stream("GET", "/web/app.css", headers={"Accept-Encoding": "gzip"}) as answer:
        raw = b"".join([piece async for piece in answer.aiter_raw()])
    assert answer.headers["content-encoding"] == "gzip"
    assert gzip.decompress(raw) == (STATIC / "app.css").read_bytes()
    plain = await http.get("/web/app.css", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers


@pytest.mark.parametrize("path", ["/web/nothing.js", "/web/..%2f__init__.py", "/web/vendor/HASHES", "/web/README.md"])
async def test_only_files_of_the_page_are_sent(http: httpx2.AsyncClient, path: str) -> None:
    assert (await http.get(path)).status_code == 404
