# Everything a developer runs; `make` alone lists it.
# ARGS goes to the program or the test run: make run ARGS='--listen :9000', make test ARGS='-run Revoke'.

.DEFAULT_GOAL := help
.PHONY: help setup run build test test-browser race clients sdk docs-test diagrams screenshots chaos bench profile lint prose fuzz dist distcheck install chart clean tools withpostgres

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
TEST_TIMEOUT ?= 20m
RACE_TIMEOUT ?= 60m
CHAOS_TIMEOUT ?= 60m
CHAOS_HA_TIMEOUT ?= 3h
UPGRADE_TIMEOUT ?= 60m
FUZZTIME ?= 20s
PREFIX ?= /usr/local
PGO = off
CLIENTS = ./test/sdk ./internal/gateway/responses ./internal/providers/gemini

# One build flavor for the release, the linter, the tests and the browser tests: each package is compiled once.
# Version control is not asked, which may be missing or refuse another user's directory; VERSION does it instead.
export CGO_ENABLED := 0
# Only releases and the benchmark use the profile in default.pgo, which compiles every package once more.
export GOFLAGS := $(strip $(shell go env GOFLAGS) -buildvcs=false -trimpath -pgo=off)

# Lint does what go test would vet, and without symbols test binaries link faster.
TEST = exec bin/withpostgres -- go test -vet=off -ldflags='-s -w'

# The race detector is the other flavor, and `make race` alone uses it.
# SQLite is C translated to Go: instrumented it is 10 to 35 times slower, and its races are not ours to find.
# Not all of modernc.org: its other packages instantiate generics of the standard library (sync.Map's among them), the
# linker keeps one copy of each, and an uninstrumented copy makes the detector report races that don't exist.
RACE = -race -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=modernc.org/memory=-race=false

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what the tests need: PostgreSQL's server binaries, Node, Python, curl, espeak-ng, ffmpeg
	@scripts/setup.sh

run: build ## build and start the server
	@exec bin/turnpike serve $(ARGS)

build: ## build bin/turnpike
	go build -pgo=$(PGO) -ldflags '-s -w -X turnpike/internal/cli.version=$(VERSION)' -o bin/turnpike .

# The packages that take longest start first.
test: setup withpostgres ## run the tests on both databases
	cd sdk/go && go test -vet=off ./...
	$(TEST) -timeout $(TEST_TIMEOUT) $(ARGS) ./test/api ./test/certificates ./test/scripts ./...

test-browser: withpostgres ## use the dashboard in Chromium
	@scripts/setup.sh chromium
	$(TEST) -tags browser -timeout $(TEST_TIMEOUT) $(ARGS) ./test/browser

race: withpostgres ## run the tests with the race detector
	@scripts/setup.sh compiler
	$(TEST) $(RACE) -timeout $(RACE_TIMEOUT) $(ARGS) ./...

clients: setup withpostgres ## run the SDKs and programs of other projects against Turnpike
	@scripts/setup.sh chromium
	go vet -tags clients $(CLIENTS)
	$(TEST) -tags clients -timeout $(TEST_TIMEOUT) $(ARGS) $(CLIENTS)

.PHONY: clients-update
clients-update: ## update the SDKs and programs that `make clients` and the guides run (needs npm)
	scripts/update-clients.sh

sdk: ## generate the SDKs from openapi.yaml (needs npm)
	go test -count=1 -run '^TestSDKDocumentIsCurrent$$' ./internal/api -update
	go generate -C sdk/go ./api
	npm --prefix sdk/typescript ci --no-audit --no-fund --ignore-scripts
	npm --prefix sdk/typescript run generate

docs-test: build ## run the examples of the README, the tutorials and the guides (needs npm, python3, jq, openssl)
	go vet -tags docs ./test/docs
	go test -vet=off -tags docs -count=1 -v -timeout $(TEST_TIMEOUT) $(ARGS) ./test/docs

diagrams: ## render the Mermaid diagrams of docs/ for the server (needs npm)
	@scripts/setup.sh chromium
	scripts/diagrams.sh

screenshots: withpostgres ## take the screenshots in docs/images
	@scripts/setup.sh chromium
	TURNPIKE_SCREENSHOTS=$(CURDIR)/docs/images $(TEST) -tags browser -count=1 -timeout $(TEST_TIMEOUT) -run '^TestScreenshots$$' ./test/browser

chaos: setup withpostgres ## run the long form of the crash tests
	TURNPIKE_CHAOS=full $(TEST) -count=1 -timeout $(CHAOS_TIMEOUT) $(ARGS) ./test/chaos/... ./internal/spend
	$(if $(ARGS),,TURNPIKE_CHAOS=full $(TEST) -count=1 -timeout $(CHAOS_TIMEOUT) -run '^TestManyLostCommitResponses$$' ./test/api)

.PHONY: chaos-ha
chaos-ha: ## fail over a Patroni cluster under load (needs Debian packages; TURNPIKE_HA_ROUNDS=1 is the short form)
	@scripts/setup.sh ha
	go build -C test/chaos/servers -o $(CURDIR)/bin/versitygw github.com/versity/versitygw/cmd/versitygw
	go build -C test/chaos/servers -o $(CURDIR)/bin/toxiproxy github.com/Shopify/toxiproxy/v2/cmd/server
	go vet -tags chaosha ./test/chaos
	TURNPIKE_TEST_SERVERS=$(CURDIR)/bin go test -vet=off -tags chaosha -count=1 -v -timeout $(CHAOS_HA_TIMEOUT) -run '^TestHighAvailability$$' $(ARGS) ./test/chaos

.PHONY: upgrade
upgrade: setup withpostgres ## upgrade from the commit in test/upgrade/BASE under load (TURNPIKE_UPGRADE_PHASE=1m is the long form)
	go vet -tags upgrade ./test/chaos
	$(TEST) -tags upgrade -count=1 -v -timeout $(UPGRADE_TIMEOUT) -run '^TestUpgrade$$' $(ARGS) ./test/chaos

bench: ## measure speed and memory, as docs/benchmarks.md reports them
	go run ./test/bench $(ARGS)

profile: ## update default.pgo, the profile that releases are optimized with
	go run ./test/bench -profile default.pgo

lint: ## gofmt, vet, staticcheck and our own rules; govulncheck where its database can be reached
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "not formatted, run gofmt -w on:"; echo "$$unformatted"; exit 1; }
	go build -o bin/lint ./test/lint
	go vet -vettool=$(CURDIR)/bin/lint -tags browser,docs,chaosha,upgrade ./...
	go vet -tags clients $(CLIENTS)
	cd sdk/go && go vet -vettool=$(CURDIR)/bin/lint -tags clients .
	@scripts/vulncheck.sh

prose: ## check the wording of docs, comments, messages, templates and openapi.yaml (ARGS=-v lists findings and warnings)
	go build -C .vale -o ../bin/vale github.com/errata-ai/vale/v2/cmd/vale
	go run ./test/prose $(ARGS) bin/vale

fuzz: ## run each fuzz target for FUZZTIME
	@scripts/fuzz.sh $(FUZZTIME)

dist: ## build archives, packages, the image, an SBOM and checksums in dist/ (PLATFORMS=linux/amd64 builds for one)
	go build -C .dist -o ../bin/dist .
	bin/dist -version '$(VERSION)' -out dist $(if $(MAINTAINER),-maintainer '$(MAINTAINER)') $(if $(PLATFORMS),-platforms '$(PLATFORMS)')

distcheck: ## install the packages and run the image of dist/ (needs Debian, root, mmdebstrap, lintian, rpm, podman)
	@scripts/distcheck.sh

install: PGO = auto
install: build ## install the program and the systemd unit under PREFIX
	install -D -m 755 bin/turnpike '$(DESTDIR)$(PREFIX)/bin/turnpike'
	install -D -m 644 deploy/package/turnpike.1 '$(DESTDIR)$(PREFIX)/share/man/man1/turnpike.1'
	install -D -m 644 deploy/package/sysusers.conf '$(DESTDIR)$(PREFIX)/lib/sysusers.d/turnpike.conf'
	install -d '$(DESTDIR)$(PREFIX)/lib/systemd/system'
	sed 's|/usr/bin/turnpike|$(PREFIX)/bin/turnpike|' deploy/package/turnpike.service > '$(DESTDIR)$(PREFIX)/lib/systemd/system/turnpike.service'

chart: ## check the Helm chart
	@scripts/chart.sh

clean: ## remove what was built (not turnpike-data)
	rm -rf bin dist

# The programs that the other targets run, and the product, in one build.
tools:
	go build -o bin/ . ./test/lint ./test/prose ./test/withpostgres

# Built rather than `go run`, which hides the exit code, and started by exec: a shell in between would die of SIGTERM
# and leave the tests running.
withpostgres:
	@go build -o bin/withpostgres ./test/withpostgres
