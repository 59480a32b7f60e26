"""The package of a checkout is links into its tree: copies, which a merge once put there, would stay as they are."""

from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_package_of_a_checkout_is_links_into_its_tree() -> None:
    parts = [path for path in (ROOT / ".dev/skuwise").iterdir() if path.name != "__pycache__"]
    assert {"__init__.py", "__main__.py", "advisor", "agent", "rules", "tests", "tui"} <= {path.name for path in parts}
    assert [path.name for path in parts if not path.is_symlink() or path.resolve() != ROOT / path.name] == []
