# SPDX-License-Identifier: Apache-2.0
import pytest

from server import Server


@pytest.fixture(scope="module")
def chat():
    """SmolLM2, shared by the tests of a module."""
    with Server() as server:
        yield server
