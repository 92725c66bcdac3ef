"""What is generated from the code is as the code is; every page is in the navigation."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_generated_pages_are_up_to_date():
    done = subprocess.run(
        [sys.executable, ROOT / ".ci/generate-docs", "--check"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r": (\S+\.md)", (ROOT / "mkdocs.yml").read_text("utf-8")))
    pages = {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")}
    assert pages == listed
