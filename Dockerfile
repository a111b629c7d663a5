# The whole program with its model in one image: `docker build -t rag-context:0.1.0 .`
# All packages are pinned by hash and installed from wheels, so that nothing is compiled and no setup script runs.
FROM python:3.11.14-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY requirements.lock deploy/build.lock ./
RUN python -m venv --without-pip /opt/rag-context \
    && pip --python /opt/rag-context/bin/python install --require-hashes --only-binary :all: -r requirements.lock \
    && pip install --require-hashes --only-binary :all: -r build.lock
COPY pyproject.toml hatch_build.py README.md LICENSE NOTICE ./
COPY src src
RUN pip wheel --no-deps --no-index --no-build-isolation --wheel-dir /dist . \
    && pip --python /opt/rag-context/bin/python install --no-deps --no-index /dist/*.whl \
    && pip --python /opt/rag-context/bin/python check

FROM python:3.11.14-slim-bookworm
LABEL org.opencontainers.image.title="rag-context" \
      org.opencontainers.image.description="The memory that AI agents share" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --gid 10001 rag-context \
    && useradd --uid 10001 --gid 10001 --home-dir /data --no-create-home --shell /usr/sbin/nologin rag-context \
    && install --directory --owner 10001 --group 10001 --mode 0750 /data
COPY --from=build /opt/rag-context /opt/rag-context
ENV PATH=/opt/rag-context/bin:$PATH \
    HOME=/data \
    PYTHONDONTWRITEBYTECODE=1 \
    RAG_CONTEXT_DATA_DIR=/data \
    RAG_CONTEXT_SERVER__HOST=0.0.0.0
USER 10001:10001
WORKDIR /data
VOLUME ["/data"]
EXPOSE 3000
STOPSIGNAL SIGTERM
# /live, not /ready: a server whose backend is down still answers, and must not be replaced.
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:3000/live', timeout=4)"]
ENTRYPOINT ["rag-context"]
CMD ["serve"]
