# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0

# Needs Go and make, nothing else; every other tool is a Go module pinned in tools/ and built into .tools/ when first used.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

DIST    := dist/otelcol-stream
BUILD   := _build
TOOLS   := .tools
GO      ?= go
# What the official distributions are built with; the tag drops gRPC's debug pages and, with them, code the linker could not prove dead.
GOBUILD := CGO_ENABLED=0 $(GO) build -C $(BUILD) -trimpath -tags grpcnotrace -ldflags "-s -w"

SOURCES = $(shell find streamprocessor streamconnector internal -name '*.go' ! -name '*_test.go' ! -path '*/testdata/*' 2>/dev/null)
CONFIGS = $(shell find examples distribution -name '*.yaml' -path '*config*' 2>/dev/null)

## build: build the distribution into dist/otelcol-stream
.PHONY: build
build: $(DIST)

# ocb writes the program and resolves its modules; that is needed again only when a list of modules changes.
$(BUILD)/go.sum: builder-config.yaml go.mod $(TOOLS)/builder
	@echo "Writing the collector's main package and resolving its modules (downloads them the first time) ..."
	@CGO_ENABLED=0 $(TOOLS)/builder --config builder-config.yaml --skip-compilation >$(TOOLS)/builder.log 2>&1 || { cat $(TOOLS)/builder.log; exit 1; }
	@touch $@

$(DIST): $(BUILD)/go.sum $(SOURCES)
	@mkdir -p dist
	@echo "Compiling (several minutes the first time, seconds after that) ..."
	@total=$$($(GO) list -C $(BUILD) -deps -tags grpcnotrace . 2>/dev/null | wc -l); \
	 { $(GOBUILD) -v -o ../$(DIST) . 2>&1 || echo "::failed"; } | awk -v total="$$total" -f tools/progress.awk
	@ls -l $(DIST) | awk '{ printf "%s: %.0f MB\n", $$NF, $$5 / 1e6 }'

## build-all: cross-compile for linux on each of ARCHES (amd64 arm64), into dist/otelcol-stream_linux_ARCH
ARCHES ?= amd64 arm64
.PHONY: build-all
build-all: $(addprefix dist/otelcol-stream_linux_,$(ARCHES))

dist/otelcol-stream_linux_%: $(BUILD)/go.sum $(SOURCES)
	@mkdir -p dist
	@echo "Compiling for linux/$* ..."
	@total=$$(GOOS=linux GOARCH=$* $(GO) list -C $(BUILD) -deps -tags grpcnotrace . 2>/dev/null | wc -l); \
	 { GOOS=linux GOARCH=$* $(GOBUILD) -v -o ../$@ . 2>&1 || echo "::failed"; } | awk -v total="$$total" -f tools/progress.awk

## run: build, replay real captures through examples/quickstart and say in plain words what came out
.PHONY: run
run: $(DIST)
	@CGO_ENABLED=0 $(GO) run -trimpath -tags grpcnotrace ./test/quickstart -collector $(DIST) -config examples/quickstart/config.yaml -out dist/run

## test: all unit tests, with the race detector where there is a C compiler
.PHONY: test
test:
	@if [ "$$($(GO) env CGO_ENABLED)" = 1 ] && command -v "$$($(GO) env CC)" >/dev/null 2>&1; then \
	  echo "go test -race ./..."; $(GO) test -race -timeout 10m ./... && \
	  echo "go test -run Alloc ./... (the race detector allocates)" && $(GO) test -run Alloc ./streamprocessor ./streamconnector ./internal/...; \
	else \
	  echo "No C compiler, so the race detector is left out."; echo "go test ./..."; CGO_ENABLED=0 $(GO) test -timeout 10m ./...; \
	fi

## e2e: end-to-end tests of the built binary (RUN='^TestName' picks some)
.PHONY: e2e
e2e: $(DIST) kustomizations
	$(GO) test -count=1 -timeout 30m -tags e2e $(if $(RUN),-run '$(RUN)') $(E2E_FLAGS) ./test/...

## fuzz: each fuzz target for FUZZTIME (10s)
FUZZTIME ?= 10s
.PHONY: fuzz
fuzz:
	@grep -rlE --include='*_test.go' '^func Fuzz' streamprocessor streamconnector internal 2>/dev/null | while read -r file; do \
	  for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file"); do \
	    echo "$$target ($$(dirname "$$file"))"; \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "./$$(dirname "$$file")" || exit 1; \
	  done; \
	done

## lint: golangci-lint with the Collector's house rules
.PHONY: lint
lint: $(TOOLS)/golangci-lint
	$(TOOLS)/golangci-lint run ./...

## fmt: gofumpt and import groups, as lint wants them
.PHONY: fmt
fmt: $(TOOLS)/golangci-lint
	$(TOOLS)/golangci-lint fmt ./...

## generate: write what mdatagen makes from each component's metadata.yaml
.PHONY: generate
generate: $(TOOLS)/mdatagen
	@for component in streamprocessor streamconnector; do \
	  if [ -f $$component/metadata.yaml ]; then echo "$$component"; (cd $$component && ../$(TOOLS)/mdatagen metadata.yaml) || exit 1; fi; \
	done

## validate-examples: kustomize builds every kustomization, the built binary checks every collector configuration, in files and in manifests
.PHONY: validate-examples
validate-examples: $(DIST) kustomizations
	$(GO) test -count=1 -tags e2e -run '^TestValidate' -v ./test/e2e

# One file of plain manifests for each kustomization, into dist/kustomized/, where the test finds them.
.PHONY: kustomizations
kustomizations: $(TOOLS)/kustomize
	@rm -rf dist/kustomized && mkdir -p dist/kustomized
	@find examples -name kustomization.yaml | sort | while read -r file; do \
	  dir=$$(dirname "$$file"); echo "kustomize build $$dir"; \
	  $(TOOLS)/kustomize build "$$dir" >"dist/kustomized/$$(echo "$$dir" | tr / -).yaml" || exit 1; \
	done

## bench: measure against peers, into bench/RESULTS.md
.PHONY: bench
bench: $(DIST) $(TOOLS)/benchstat
	$(MAKE) -C bench PATH="$(CURDIR)/$(TOOLS):$$PATH"

## image: container image of the built binary, with buildah or docker (IMAGE=name:tag)
IMAGE ?= otelcol-stream:dev
.PHONY: image
image: $(DIST) dist/ca-certificates.crt
	@if command -v buildah >/dev/null 2>&1; then \
	  buildah build --isolation chroot --layers=false --target prebuilt -t $(IMAGE) .; \
	elif docker info >/dev/null 2>&1; then \
	  docker build --target prebuilt -t $(IMAGE) .; \
	else \
	  echo "make image needs buildah, or docker with its daemon running." >&2; exit 1; \
	fi

# The places where Linux distributions keep the bundle, as crypto/x509 looks for it.
CA_BUNDLE ?= $(firstword $(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem /etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem /etc/ssl/cert.pem))
dist/ca-certificates.crt: $(CA_BUNDLE)
	@test -n "$(CA_BUNDLE)" || { echo "No bundle of CA certificates found; name one with CA_BUNDLE=..." >&2; exit 1; }
	@mkdir -p dist
	@cp $(CA_BUNDLE) $@

## image-check: run the image and check size, user, health and an answer to OTLP (needs buildah and root)
.PHONY: image-check
image-check: image
	IMAGE=$(IMAGE) $(GO) test -count=1 -tags 'e2e image' -run '^TestImage' -v ./test/e2e

## sbom: CycloneDX bill of materials of the built binary, into dist/otelcol-stream.cdx.json
.PHONY: sbom
sbom: dist/otelcol-stream.cdx.json

dist/otelcol-stream.cdx.json: $(DIST) $(TOOLS)/cyclonedx-gomod
	$(TOOLS)/cyclonedx-gomod bin -json -output $@ $(DIST)

## vulncheck: govulncheck over the sources and the built binary (reads the database at vuln.go.dev)
.PHONY: vulncheck
vulncheck: $(TOOLS)/govulncheck
	$(TOOLS)/govulncheck ./...
	$(TOOLS)/govulncheck -C $(BUILD) -tags grpcnotrace .

## tools: build every pinned tool into .tools/
.PHONY: tools
tools: $(addprefix $(TOOLS)/,builder benchstat cyclonedx-gomod golangci-lint govulncheck kustomize mdatagen telemetrygen)

$(TOOLS)/builder:         PKG := go.opentelemetry.io/collector/cmd/builder
$(TOOLS)/benchstat:       PKG := golang.org/x/perf/cmd/benchstat
$(TOOLS)/cyclonedx-gomod: PKG := github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod
$(TOOLS)/govulncheck:     PKG := golang.org/x/vuln/cmd/govulncheck
$(TOOLS)/kustomize:       PKG := sigs.k8s.io/kustomize/kustomize/v5
$(TOOLS)/telemetrygen:    PKG := github.com/open-telemetry/opentelemetry-collector-contrib/cmd/telemetrygen
$(TOOLS)/golangci-lint:   PKG := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(TOOLS)/mdatagen:        PKG := go.opentelemetry.io/collector/cmd/mdatagen

$(addprefix $(TOOLS)/,builder benchstat cyclonedx-gomod govulncheck kustomize telemetrygen): tools/go.mod
$(TOOLS)/golangci-lint: tools/golangci-lint/go.mod
$(TOOLS)/mdatagen: tools/mdatagen/go.mod

$(TOOLS)/%:
	@echo "Building $(@F) ..."
	@mkdir -p $(TOOLS)
	@CGO_ENABLED=0 $(GO) build -C $(dir $(firstword $(filter %/go.mod,$^))) -o $(CURDIR)/$@ $(PKG)

## clean: remove everything that was built
.PHONY: clean
clean:
	rm -rf $(BUILD) dist $(TOOLS)

## help: this list
.PHONY: help
help:
	@echo "make TARGET, where TARGET is one of"
	@sed -n 's/^## \([a-z0-9-]*\): \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "  %-18s %s\n", $$1, $$2 }'
