#!/bin/sh
# Pins the base images of docker/base-images.txt by their digests of today, wherever the files of this folder name them.
set -eu
cd "$(dirname "$0")"
for image in $(cat base-images.txt); do
    tag=${image%@*}
    digest=$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$tag")
    expr "$digest" : 'sha256:[0-9a-f]\{64\}$' > /dev/null || { echo "$tag: expected a digest, got '$digest'" >&2; exit 1; }
    sed -i.before -E "s#$tag(@sha256:[0-9a-f]{64})?#$tag@$digest#" base-images.txt Dockerfile runtime.Dockerfile compose.yaml
    rm -f ./*.before
done
