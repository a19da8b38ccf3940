"""The page of the rows is that of the tests, and no row is left without a word."""

from __future__ import annotations

from helpers import seeds_page


def test_the_page_is_up_to_date():
    assert seeds_page.PAGE.read_text() == seeds_page.page(), "python test/helpers/seeds_page.py writes it"


def test_every_row_has_tests_or_a_reason():
    rows = seeds_page.rows()
    assert len(rows) == 130
    assert [r.id for r in rows if not r.tests and not r.note] == []
