import pickle

from anychunk.io.cache import Cache


def test_cache_is_bounded():
    kept = Cache(100, largest=50)
    for number in range(30):
        kept.put(number, f"v{number}", 10)
        kept.get(0)
    assert (len(kept), kept.nbytes) == (10, 100)
    assert kept.get(0) == "v0"
    assert kept.get(1) is None
    kept.put("large", "x", 51)
    assert kept.get("large") is None, "it would push out all others"
    kept.put(0, "again", 20)
    assert (kept.get(0), kept.nbytes) == ("again", 100)


def test_least_recently_used_is_evicted_first():
    bound = 20
    kept = Cache(lambda: bound)
    for key in "ab":
        kept.put(key, key, 10)
    assert kept.get("a") == "a"
    kept.put("c", "c", 10)
    assert [key in kept for key in "abc"] == [True, False, True]
    kept.put("d", "d", 21)
    assert "d" not in kept
    bound = 10
    kept.put("e", "e", 10)
    assert (len(kept), kept.nbytes) == (1, 10), "the bound in force counts"


def test_a_copy_arrives_empty():
    kept = Cache(20, largest=5)
    kept.put("a", "a", 5)
    copy = pickle.loads(pickle.dumps(kept))
    assert (len(copy), copy.most_bytes) == (0, 20)
    copy.put("b", "b", 6)
    assert "b" not in copy
