"""Find sentences and names that break the rules of plain English in this repository.

`python -m tests.docs.prose` lists all findings.
"""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

OPENINGS = ("What", "Whoever", "Somebody", "Nobody")
# Words that hide who acts: name the caller, the launcher, the client … instead. "By whom" is plain.
VAGUE = re.compile(
    r"\b(?:whoever|whomever|somebody|nobody|anybody|everybody)(?:'s)?\b|(?<!\bby )\bwhom\b", re.IGNORECASE
)
SENTENCE = re.compile(rf"(?:^|(?<=[.!?] )|(?<=[.!?]\n)|(?<=\n\n))(?:{'|'.join(OPENINGS)})\b[^.?!]*[.?!]?")

SUSPECT = re.compile(rf"\b(?:{'|'.join(OPENINGS)})\b|(?i:{VAGUE.pattern})")  # other files need no parser

RETIRED = frozenset(
    "shelf shelves stone stones bury buried doomed heir heirs strays hearer hearers murmur murmurs carrier carriers "
    "gate gates reach standing desk desks grave graves".split()
)
RETIRED_PAIRS = ("seen_off", "see_off", "set_aside")
TEST_WORDS = frozenset("whoever somebody somebodys nobody nobodys anybody anybodys everybody everybodys whom".split())
PUBLIC = frozenset({"OutOfReach"})  # errors are named after their codes, which are stable

SELF = ("tests/docs/prose.py", "tests/docs/test_plain_english.py")
NOT_OURS = ("/static/vendor/", "src/moorage/protobuf/", "/static/graphiql", "/data/")
MIGRATIONS = "/migrations/"  # they are never edited


class Finding(NamedTuple):
    """One place that breaks a rule."""

    path: str
    line: int
    text: str


def files(*endings: str) -> list[str]:
    """Return the tracked files with one of these endings, without generated and foreign ones."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    return [
        path
        for path in listed
        if path.endswith(endings) and path not in SELF and not any(part in path for part in NOT_OURS)
    ]


def sentences() -> Iterator[Finding]:
    """Yield each sentence of a docstring, a comment or a page that begins with a word of OPENINGS."""
    for path, line, text in texts():
        for match in SENTENCE.finditer(text):
            if not match[0].endswith("?"):
                yield Finding(path, line + text.count("\n", 0, match.start()), " ".join(match[0].split()))


def vague_words() -> Iterator[Finding]:
    """Yield each word of VAGUE in a docstring, a comment, a page or a message of the package, outside of `code`."""
    for path, line, text in [*texts(), *messages()]:
        plain = re.sub(r"`[^`]*`", "", text)
        for match in VAGUE.finditer(plain):
            yield Finding(path, line, plain[max(0, match.start() - 40) : match.end() + 40].replace("\n", " "))


def texts() -> Iterator[Finding]:
    """Yield docstrings, blocks of comments and paragraphs of pages, with their places."""
    for path in [*files(".py"), "dev"]:
        source = (ROOT / path).read_text()
        if SUSPECT.search(source):
            yield from (Finding(path, *each) for each in [*docstrings(source), *comments(source)])
    for path in files(".md"):
        yield from (Finding(path, *each) for each in paragraphs((ROOT / path).read_text()))
    for path in files(".js", ".mjs", ".sql", ".lua", ".proto", ".graphql", ".css", ".sh", ".toml", ".yml", ".yaml"):
        if MIGRATIONS not in path:
            yield from (Finding(path, *each) for each in marked_comments((ROOT / path).read_text()))


def messages() -> Iterator[Finding]:
    """Yield the strings of the package, which users may see."""
    for path in files(".py"):
        source = (ROOT / path).read_text()
        if path.startswith("src/") and "/testing/" not in path and SUSPECT.search(source):
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield Finding(path, node.lineno, node.value)


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, unfolded(node.value.value)


def unfolded(text: str) -> str:
    """Strip the indentation of each line, so that a sentence begins at the start of a text or after another one."""
    return re.sub(r"\n[ \t]*", "\n", text.strip())


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield blocks of comments: lines that follow each other count as one text."""
    block: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        text = token.string.lstrip("#! ")
        if block and (token.start[0] != last + 1 or token.line.strip()[:1] != "#"):
            yield first, "\n".join(block)
            block = []
        if not block:
            first = token.start[0]
        block.append(text)
        last = token.start[0]
    if block:
        yield first, "\n".join(block)


def marked_comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the comments of SQL, JavaScript, Lua and configuration files, one line each."""
    for number, line in enumerate(source.splitlines(), 1):
        if match := re.search(r"(?:--|//|#|/?\*+|\"\"\")\s+(.*)", line):
            yield number, match[1]


def paragraphs(page: str) -> Iterator[tuple[int, str]]:
    """Yield paragraphs, list items and table cells of a page, without code and headings."""
    fenced = False
    block: list[str] = []
    first = 0
    for number, line in enumerate([*page.splitlines(), ""], 1):
        text = line.strip()
        if text.startswith("```"):
            fenced = not fenced
        begins = re.match(r"(?:[-*>|]|\d+\.|<!--) ?", text)
        if block and (not text or fenced or text.startswith(("```", "#")) or begins):
            yield first, "\n".join(block)
            block = []
        if not text or fenced or text.startswith(("```", "#")):
            continue
        if text.startswith("|"):
            for cell in text.strip("|").split(" | "):
                yield number, cell.strip(" *`")
            continue
        if not block:
            first = number
        block.append(re.sub(r"^(?:[-*>]|\d+\.) +", "", text).lstrip("*_`"))


def retired_names() -> Iterator[Finding]:
    """Yield each identifier of Python, and each file name, that contains a retired word."""
    for path in [*files(".py"), "dev"]:
        for word in retired_in(Path(path).stem):
            yield Finding(path, 0, word)
        source, seen = (ROOT / path).read_text(), set()
        if not any(any(retired_in(word)) for word in set(re.findall(r"\w+", source))):
            continue  # without a parser
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.NAME and token.string not in seen and any(retired_in(token.string)):
                seen.add(token.string)
                yield Finding(path, token.start[0], token.string)


def mannered_tests() -> Iterator[Finding]:
    """Yield each test whose name begins with `what` or contains a word of TEST_WORDS."""
    for path in files(".py"):
        for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
            match = re.match(r"\s*(?:async )?def (test_\w+)", line)
            if match and (match[1].startswith("test_what_") or TEST_WORDS & set(match[1].split("_"))):
                yield Finding(path, number, match[1])


def retired_in(name: str) -> Iterator[str]:
    if name.startswith("test_") or name in PUBLIC:
        return
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    words = snake.strip("_").split("_")
    yield from (word for word in words if word in RETIRED)
    yield from (pair for pair in RETIRED_PAIRS if f"_{pair}_" in f"_{snake}_")


if __name__ == "__main__":
    for finding in [*sentences(), *vague_words(), *retired_names(), *mannered_tests()]:
        print(f"{finding.path}:{finding.line}: {finding.text}")
