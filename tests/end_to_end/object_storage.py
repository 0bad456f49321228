"""An S3 server on this machine."""

import hashlib
import json

SECRET = "wJalrXUtnFEMI-not-to-be-found-anywhere"
"""The key of the server, which must appear nowhere."""


class S3:
    """An S3 server on loopback and its contents."""

    def __init__(self, address: str) -> None:
        import boto3

        self.client = boto3.client("s3", endpoint_url=address)
        self.client.create_bucket(Bucket="fewstep")

    def objects(self, prefix: str = "") -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for page in self.client.get_paginator("list_objects_v2").paginate(Bucket="fewstep", Prefix=prefix):
            for item in page.get("Contents", []):
                found[item["Key"]] = self.client.get_object(Bucket="fewstep", Key=item["Key"])["Body"].read()
        return found

    def check(self) -> int:
        """Check that every artifact with a manifest is complete, and return the number of artifacts."""
        found = self.objects()
        manifests = [name for name in found if name.endswith("/manifest.json") and name.count("/") == 3]
        for name in manifests:
            manifest, place = json.loads(found[name]), name.removesuffix("/manifest.json")
            for file, entry in manifest["files"].items():
                data = found[f"{place}/{manifest['attempt']}/{file}"]
                assert {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} == entry
        return len(manifests)
