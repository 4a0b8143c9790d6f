# The server, and nothing that builds it.
#   docker build -t blockyard .
#   docker run --rm -p 127.0.0.1:8484:8484 -v blockyard:/var/lib/blockyard \
#       -v "$PWD/tokens:/etc/blockyard:ro" -e BLOCKYARD_TOKEN_FILE=/etc/blockyard/tokens.json blockyard
# Who may do what stands in the token file, see deploy/README.md; the server does not start without, unless it has
# BLOCKYARD_TLS_CLIENT_CA, or is told BLOCKYARD_INSECURE=1.

FROM python:3.13.7-slim-bookworm AS build
# Add tracing for what --traces needs.
ARG EXTRAS=server,dashboard,events,cluster
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY service/ service/
COPY clients/ clients/
# The environment has no pip of its own: it is copied whole. What is installed is this folder: no version to pin.
# hadolint ignore=DL3013
RUN python -m venv --without-pip /opt/blockyard \
    && pip --python /opt/blockyard/bin/python install --no-cache-dir ".[${EXTRAS}]"

FROM python:3.13.7-slim-bookworm
LABEL org.opencontainers.image.title="blockyard" \
      org.opencontainers.image.description="A networked allocator of KV-cache blocks for LLM inference" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN pip uninstall --yes pip \
    && useradd --system --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin blockyard \
    && install --directory --owner blockyard --group blockyard --mode 0700 /var/lib/blockyard
COPY --from=build /opt/blockyard /opt/blockyard
ENV PATH="/opt/blockyard/bin:$PATH" \
    PYTHONUNBUFFERED=1 \
    BLOCKYARD_DATA_DIR=/var/lib/blockyard
VOLUME /var/lib/blockyard
USER 10001
EXPOSE 8484
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s \
    CMD ["python", "-m", "blockyard.server.commands.probe"]
ENTRYPOINT ["blockyard"]
# A container's own address; whoever publishes the port decides who reaches it, and tokens who may do what.
CMD ["serve", "--host", "0.0.0.0"]
