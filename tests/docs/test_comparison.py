"""docs/comparison.md: what it says of others was read lately when a version is released."""

import re
from datetime import date, timedelta

from helpers.page_commands import ROOT

PAGE = (ROOT / 'docs' / 'comparison.md').read_text()
CHANGES = (ROOT / 'CHANGELOG.md').read_text()
LASTS = timedelta(days=60)


def outdated(page: str, changes: str) -> list[str]:
    """Lines of a page that were read more than 60 days before the newest release.

    None before its date is in the heading of the changes.
    """
    heading = re.search(r'^## \S+, (.+)$', changes, re.MULTILINE)[1]
    if not re.fullmatch(r'\d{4}-\d\d-\d\d', heading):
        return []
    oldest = (date.fromisoformat(heading) - LASTS).isoformat()
    return [line for line in page.splitlines() if min(days(line), default='9') < oldest]


def days(line: str) -> list[str]:
    """Days on which the content of a line was read."""
    return re.findall(r'\b\d{4}-\d\d-\d\d\b', line)


def test_nothing_is_older_than_two_months_at_a_release() -> None:
    assert outdated(PAGE, CHANGES) == []


def test_rows_that_were_read_long_ago_are_named() -> None:
    page = '| a | read 2026-11-25, depth 2026-09-01 |\n| b | read 2026-11-25 |'
    old = ['| a | read 2026-11-25, depth 2026-09-01 |']
    assert outdated(page, '# Changes\n\n## 0.1.0, not released yet\n') == []
    assert outdated(page, '# Changes\n\n## 0.1.0, 2026-10-31\n') == []
    assert outdated(page, '# Changes\n\n## 0.1.0, 2026-12-24\n\n## 0.0.9, x\n') == old
    assert len(outdated(PAGE, '## 1.0.0, 2028-01-01\n')) > 8


def test_all_rows_of_projects_have_a_day() -> None:
    """Of the projects, of others' results and beside mmrotate; another table, one above it."""
    dated = re.findall(r'^\|.*(?<!-)\| +\|\n\|[-|]+\n((?:\|.*\n)+)', PAGE, re.MULTILINE)
    assert len(dated) == 3
    assert all(days(row) for table in dated for row in table.splitlines())
