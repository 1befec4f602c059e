"""Tests of the Python module; they run in build/venv, where `./run test` installs it."""
import pytest

import tally


@pytest.fixture(autouse=True)
def seeded():
    tally.manual_seed(0)
