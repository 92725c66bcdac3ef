"""Single edits of TIFF entries and JPEG 2000 bytes: our pixels are those of another reader, or none.

`python -m fuzz --tables` runs the same for all seeds, and every byte.
"""

from fuzz import explained, state
from fuzz.pool import Pool
from fuzz.tables import codestream_bytes, tiff_entries


def findings(cases):
    """Return {label: outcome} of what is neither refused, nor equal, nor explained; and the count."""
    bad, count = {}, 0
    with Pool(2) as pool:
        for label, case, outcome in pool.run(cases):
            count += 1
            if outcome["outcome"] in state.BAD and not explained.reason(case, outcome):
                bad[label] = outcome
    return bad, count


def test_tiff_entries():
    bad, count = findings(tiff_entries(["tiff/rgba"]))
    assert bad == {}
    assert count > 400


def test_jpeg2000_bytes():
    bad, count = findings(codestream_bytes(["jpeg2000/tiles", "jpeg2000/one-tile"], step=97))
    assert bad == {}
    assert count > 200
