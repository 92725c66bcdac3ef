"""Fixtures of the tests of the page: a browser, and a tab that shows a served folder.

A module that uses `look` or `tab` has a fixture `address` of scope module, and may have its own
`size` of the window, and `switches` of the browser.
"""

from collections.abc import Iterator

import pytest

from tests.support.browser import Look, browser


@pytest.fixture(scope="module")
def size() -> dict[str, int]:
    return {"width": 1280, "height": 800}


@pytest.fixture(scope="module")
def switches() -> tuple[str, ...]:
    return ()


@pytest.fixture(scope="module")
def chromium(switches) -> Iterator[object]:
    with browser(*switches) as started:
        yield started


def opened(chromium, size, address) -> Iterator[Look]:
    with chromium.new_context(viewport=size, reduced_motion="reduce") as context:
        yield Look(context.new_page(), address)


look = pytest.fixture(opened)
kept = pytest.fixture(opened, scope="module")


@pytest.fixture
def tab(kept) -> Look:
    """Return the same tab for several tests, each of which loads the page anew and changes no setting.

    A tab of its own has a new process, where loading takes three times as long.
    """
    kept.page.mouse.move(0, 0)
    kept.complaints.clear()
    return kept
