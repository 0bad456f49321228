# The runtime as an image of less than 250 MB, without torch and the pipeline: serves the system in a mounted directory.
#   docker build -f docker/runtime.Dockerfile -t fewstep-runtime .
#   docker run --publish 127.0.0.1:8080:8080 --volume DIR:/system:ro --env FEWSTEP_TOKEN fewstep-runtime
#   docker run --interactive --volume DIR:/system:ro fewstep-runtime translate /system < source.txt
# `make pin-images` moves the base on to the image of the day. The image runs on all processors of its architecture: the best level
# of instructions is chosen at the start (FEWSTEP_ISA).
ARG BASE=python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b

FROM ${BASE} AS build
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
# The distribution keeps no earlier versions to pin.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
RUN python -m venv /opt/build
WORKDIR /source
COPY constraints.txt pyproject.toml README.md LICENSE THIRD_PARTY.md ./
RUN /opt/build/bin/pip install --no-cache-dir -c constraints.txt --upgrade pip \
    && /opt/build/bin/pip install --no-cache-dir -c constraints.txt --group build
COPY kernels kernels
COPY fewstep fewstep
RUN PATH=/opt/build/bin:$PATH /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /source/wheels .
# pip stays outside of the environment that runs.
RUN python -m venv --without-pip /opt/fewstep \
    && wheel=$(echo /source/wheels/*.whl) \
    && /opt/build/bin/pip --python /opt/fewstep/bin/python install --no-cache-dir --no-compile -c constraints.txt "${wheel}[serve]"

FROM ${BASE} AS run
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
RUN useradd --uid 1000 --create-home fewstep
COPY --from=build /opt/fewstep /opt/fewstep
ENV PATH=/opt/fewstep/bin:$PATH \
    PYTHONUNBUFFERED=1
USER 1000
WORKDIR /home/fewstep
RUN fewstep --help && python -c "from fewstep.native import fewstep_native; print(fewstep_native.LEVEL)"
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/healthz', timeout=4)"]
ENTRYPOINT ["fewstep"]
# Other machines are served only with a token: the environment variable FEWSTEP_TOKEN, or --token-file.
CMD ["serve", "/system", "--host", "0.0.0.0", "--port", "8080"]
