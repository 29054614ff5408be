# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0

# docker build -t otelcol-stream .                    builds the distribution from source, needs nothing but this folder
# docker build --target prebuilt -t otelcol-stream .  takes dist/otelcol-stream as `make build` left it (this is what `make image` does)

# dist/ca-certificates.crt is a copy of the building machine's, laid there by `make image`, so that this target starts from nothing.
FROM scratch AS prebuilt
COPY dist/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --chmod=755 dist/otelcol-stream /otelcol-stream
COPY distribution/config.yaml /etc/otelcol-stream/config.yaml
USER 10001
EXPOSE 4317 4318 8888 8889 9411 13133
ENTRYPOINT ["/otelcol-stream"]
CMD ["--config", "/etc/otelcol-stream/config.yaml"]

FROM --platform=$BUILDPLATFORM golang:1.26 AS source
ARG TARGETOS=linux
ARG TARGETARCH=amd64
WORKDIR /src
COPY . .
RUN make build-all ARCHES=${TARGETARCH} && cp dist/otelcol-stream_${TARGETOS}_${TARGETARCH} /otelcol-stream

# Certificate authorities, so that exporters can check whom they talk to; an empty image has none.
FROM golang:1.26 AS certificates

FROM scratch
COPY --from=certificates /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=source --chmod=755 /otelcol-stream /otelcol-stream
COPY distribution/config.yaml /etc/otelcol-stream/config.yaml
USER 10001
EXPOSE 4317 4318 8888 8889 9411 13133
ENTRYPOINT ["/otelcol-stream"]
CMD ["--config", "/etc/otelcol-stream/config.yaml"]
