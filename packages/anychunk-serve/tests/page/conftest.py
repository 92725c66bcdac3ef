"""Fixtures of the tests of the page: a browser, and a tab that shows a served folder.

A module that uses `look` or `tab` has a fixture `address` of scope module, and may have its own `size` and `switches`.
"""

from collections.abc import Callable, Iterator

import pytest

from tests.support.browser import Look, browsers


@pytest.fixture(scope="module")
def size() -> dict[str, int]:
    """Return the size of the window."""
    return {"width": 1280, "height": 800}


@pytest.fixture(scope="module")
def switches() -> tuple[str, ...]:
    """Return further switches of the browser."""
    return ()


@pytest.fixture(scope="module")
def started() -> Iterator[Callable[..., object]]:
    with browsers() as start:
        yield start


@pytest.fixture(scope="module")
def chromium(started, switches) -> object:
    return started(*switches)


@pytest.fixture
def look(chromium, size, address) -> Iterator[Look]:
    with chromium.new_context(viewport=size, reduced_motion="reduce") as context:
        yield Look(context.new_page(), address)


@pytest.fixture(scope="module")
def kept(chromium, size, address) -> Iterator[Look]:
    with chromium.new_context(viewport=size, reduced_motion="reduce") as context:
        yield Look(context.new_page(), address)


@pytest.fixture
def tab(kept) -> Look:
    """Return the same tab for several tests, each of which loads the page anew and changes no setting.

    A tab of its own has a new process, where loading takes three times as long.
    """
    kept.page.mouse.move(0, 0)
    kept.complaints.clear()
    return kept
