"""The page of the rows is that of the tests, and no row is left without a word."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path


def made():
    import sys

    spec = spec_from_file_location("seeds_page", Path(__file__).with_name("page.py"))
    module = module_from_spec(spec)
    sys.modules["seeds_page"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date():
    module = made()
    assert module.PAGE.read_text() == module.page(), "python test/seeds/page.py writes it"


def test_every_row_has_tests_or_a_reason():
    rows = made().rows()
    assert len(rows) == 130
    assert [r.id for r in rows if not r.tests and not r.note] == []
