"""One thread for every test process: the tensors are small, and the processes share the cores. Nothing is downloaded."""

import os
import re

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Parallel processes have to agree on the names of tests: a function's address is not part of one."""
    item._nodeid = re.sub(r" at 0x[0-9a-f]+", "", item._nodeid)
