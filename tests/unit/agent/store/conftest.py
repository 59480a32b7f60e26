"""What the tests of the store share: a database with a node, its GPU and its ports."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from skuwise.agent.model import Node
from skuwise.agent.store.node_writer import NodeWriter
from skuwise.agent.store.writer import Writer
from skuwise.tests.support.stored_rows import GPU, HOUR, PORTS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "node.db"


@pytest.fixture
def writer(path: Path) -> Iterator[Writer]:
    with Writer.open(path) as opened:
        yield opened


@pytest.fixture
def node(writer: Writer) -> NodeWriter:
    node_writer = writer.for_node(Node("n1"), HOUR)
    node_writer.set_gpus([GPU], HOUR)
    node_writer.set_ports(PORTS, HOUR)
    return node_writer
