"""Where in a settings or routes file a key is: errors name the file, the line and the key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.agent.config import load_config
from skuwise.rules.base.errors import UsageError
from skuwise.rules.base.toml import TomlTable, line_of, read_toml

TEXT = '''# node = "in a comment"
node = "a"  # and one behind it
"db" = """
cluster = "in a text of several lines"
[report]
"""
cluster = '"#' # =
a.b . 'c d' = 1
names = [
  "x = 1",
  ["report"],
  ["teams"]
]

[teams] # a table
"\\u0061nn" = 1
inline = { to = 1 }
[ teams . "s.q" ]
to = []
[[lists]]
to = 1
[[lists]]
to = 2
[report]
to = 3
'''


def refused(work: Callable[[], object]) -> str:
    with pytest.raises(UsageError) as error:
        work()
    return error.value.message


def read(tmp_path: Path, text: str) -> TomlTable:
    (tmp_path / "a.toml").write_text(text)
    return read_toml(tmp_path / "a.toml", "it")


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("node",), 2), (("db",), 3), (("cluster",), 7), (("a",), 8), (("a", "b"), 8), (("a", "b", "c d"), 8),
        (("names",), 9), (("teams",), 15), (("teams", "ann"), 16), (("teams", "inline"), 17),
        (("teams", "inline", "to"), None), (("teams", "s.q"), 18), (("teams", "s.q", "to"), 19), (("lists",), 20),
        (("report",), 24), (("report", "to"), 25), (("nothing",), None),
    ],
)  # fmt: skip
def test_each_key_has_its_line(tmp_path: Path, path: tuple[str, ...], line: int | None) -> None:
    table: object = read(tmp_path, TEXT)
    for part in path[:-1]:
        assert isinstance(table, dict)
        table = table[part]
    assert line_of(table, path[-1]) == (f":{line}" if line else "")


def test_what_is_no_table_of_a_file_has_no_line() -> None:
    assert line_of({"a": 1}, "a") == line_of(3, "a") == ""


KEYS = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="\\"), min_size=1, max_size=8)


@pytest.mark.property
@given(st.lists(KEYS, unique=True, max_size=8), st.lists(st.sampled_from(["", "# a = 1", "  "]), max_size=4))
def test_keys_of_drawn_files_have_their_lines(
    tmp_path_factory: pytest.TempPathFactory, keys: list[str], between: list[str]
) -> None:
    quoted = ['"' + key.replace('"', '\\"') + '"' for key in keys]
    lines = [line for key in quoted for line in (*between, f"{key} = '''\n{key} = 0'''")]
    table = read(tmp_path_factory.mktemp("toml"), "\n".join(lines))
    assert [line_of(table, key) for key in keys] == [
        f":{(len(between) + 2) * at + len(between) + 1}" for at in range(len(keys))
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('node = "a"\nnodee = "b"', "Unknown setting 'nodee' in {file}:2."),
        ('\nkeep_raw = "soon"', "keep_raw in {file}:2: 'soon' is not a span of time."),
        ('\n\nlisten = ":1"', "listen in {file}:3: ':1' is not an address to listen on."),
        ("interval = 0.01", "interval in {file}:1 is outside 0.1 s to 60 s."),
        ("[kubernetes]\nteam_labels = 3", "kubernetes_team_labels in {file}:2 must be labels of Kubernetes."),
        ("\nnode = \n", "The configuration file {file} is not valid TOML: Invalid value (at line 2, column 8)."),
    ],
)
def test_a_setting_that_is_wrong_is_named_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "skuwise.toml"
    file.write_text(text)
    assert refused(lambda: load_config({"config": file}, {})) == words.format(file=file)
