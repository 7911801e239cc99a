"""One server for all tests of this folder that do not end or starve theirs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.service.service_process import ServiceProcess, service


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with service(tmp_path_factory.mktemp("service")) as running:
        yield running
