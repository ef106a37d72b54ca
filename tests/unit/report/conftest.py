"""The command line in this process, as the tests of the command line have it."""

from tests.unit.cli.conftest import opforge as opforge
