# Builds the image from source. `make dist` builds the same one without Docker.
FROM golang:1.26.8@sha256:3c3e25a4da13fd0478eed2df1eb35a0e667094a7124d3993a6a1d30f71c17e79 AS build
WORKDIR /src
COPY . .
ARG VERSION=dev
ENV CGO_ENABLED=0 SOURCE_DATE_EPOCH=0
ENV GOCACHE=/cache/build GOMODCACHE=/cache/modules
RUN --mount=type=cache,target=/cache \
    go build -C .dist -o /usr/local/bin/dist . && dist -version "$VERSION" -root /root-fs

FROM scratch
COPY --from=build /root-fs/ /
COPY --from=build --chown=65532:65532 --chmod=0700 /root-fs/data /data
USER 65532:65532
WORKDIR /data
VOLUME /data
EXPOSE 8080
ENV PATH=/usr/bin \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
    TURNPIKE_DATA=/data \
    TURNPIKE_LISTEN=0.0.0.0:8080 \
    TURNPIKE_LOG_FORMAT=json
HEALTHCHECK --interval=10s --timeout=11s --start-period=30s CMD ["/usr/bin/turnpike", "healthcheck"]
ENTRYPOINT ["/usr/bin/turnpike"]
CMD ["serve"]
