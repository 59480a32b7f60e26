"""What JSON may take once it is read, and reading a large one in pieces."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.agent.base.json_weight import json_memory_bytes
from skuwise.agent.slurm_jobs.json_pieces import list_entries

COUNT = 2_000
SHAPES = ["[]", '{"a":[]}', "1.5", '"ab"', '"漢字"', '[1700000000,"0.12345"]', '{"%d":"x","b%d":2}']


def taken(read: Callable[[bytes], object], text: bytes) -> int:
    """Bytes that are held when the text has been read, those of the text among them."""
    tracemalloc.start()
    try:
        held = read(text)
        taken = tracemalloc.get_traced_memory()[0] + len(text)
        del held
        return taken
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("read", [orjson.loads, json.loads])
def test_no_shape_takes_more_than_its_weight(read: Callable[[bytes], object]) -> None:
    for shape in SHAPES:
        many = ",".join(shape.replace("%d", str(n)) for n in range(COUNT))
        text = f"[{many}]".encode()
        # json makes a text of the bytes first.
        assert taken(read, text) <= json_memory_bytes(text) + 4096, shape


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20,
)  # fmt: skip


@given(st.lists(values, max_size=5), st.dictionaries(st.text().filter(lambda name: name != "jobs"), values, max_size=3))
def test_a_list_in_pieces_is_the_list(jobs: list[object], beside: dict[str, object]) -> None:
    for document in ({**beside, "jobs": jobs}, {"jobs": jobs, **beside}):
        for text in (json.dumps(document), json.dumps(document, indent=1, ensure_ascii=False)):
            raw = text.encode("utf-8", "surrogatepass")
            try:
                raw.decode()
            except UnicodeDecodeError:
                continue  # half a pair of surrogates is no UTF-8
            assert list(list_entries(raw, "jobs")) == jobs


@pytest.mark.parametrize("text", [
    b"", b"{", b"[]", b"7", b'{"jobs":[}', b'{"jobs":[1,]}', b'{"jobs":[1 2]}', b'{"jobs":[1]', b'{"jobs":[1]}x',
    b'{"jobs":[1],}', b'{"jobs":[],"jobs":[]}', b'{7:[]}', b'{"a" 1,"jobs":[]}', b'{"jobs":["\xff"]}', b'{"jobs":[' +
    b"[" * 100_000, b'{"jobs":["' + b"x" * (5 << 20) + b'"]}', b'{"a":' + b"9" * 6000 + b',"jobs":[]}',
    b'\xff\xfe{\x00}\x00',
])  # fmt: skip
def test_what_is_no_such_document_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        list(list_entries(text, "jobs"))
