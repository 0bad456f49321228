"""Fixtures of several modules."""

from collections.abc import Iterator
from urllib.request import Request, urlopen

import pytest

from tests.end_to_end.object_storage import S3, SECRET


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    server = pytest.importorskip("moto.server")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    environment = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "AKIANOTTOBEFOUND", "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
    }  # fmt: skip
    # Its objects are those of the process, which may have had a server before.
    urlopen(Request(f"{environment['AWS_ENDPOINT_URL']}/moto-api/reset", method="POST")).close()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield S3(environment["AWS_ENDPOINT_URL"])
    running.stop()
