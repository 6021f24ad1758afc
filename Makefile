# Everything a developer runs; `make` alone lists it.
# ARGS goes to the program or the test run: make run ARGS='--listen :9000', make test ARGS='-run Revoke'.

.DEFAULT_GOAL := help
.PHONY: help setup run build test test-browser screenshots chaos bench lint fuzz clean withpostgres

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
TEST_TIMEOUT ?= 20m
BROWSER_TIMEOUT ?= 5m
CHAOS_TIMEOUT ?= 60m
FUZZTIME ?= 20s

# Stamping asks git, which may be missing or refuse a folder of another user; VERSION does it instead.
export GOFLAGS := $(strip $(shell go env GOFLAGS) -buildvcs=false)

# SQLite is C translated to Go: instrumented it is 10 to 35 times slower, and its races are not ours to find.
# Not the whole of modernc.org: its other packages instantiate generics of the standard library (sync.Map's among
# them), the linker keeps one copy of each for the program, and an uninstrumented one hides the order that it makes.
# The detector then reports races that are none.
RACE = -race -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=modernc.org/memory=-race=false

# With the tests' flags, so that what both need is compiled once.
LINT = env CGO_ENABLED=1 GOFLAGS='$(GOFLAGS) $(RACE)'

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what the tests need: PostgreSQL's server binaries, a C compiler
	@scripts/setup.sh

run: build ## build and start the server
	@exec bin/turnpike serve $(ARGS)

build: ## build bin/turnpike
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X turnpike/internal/cli.version=$(VERSION)' -o bin/turnpike .

test: setup withpostgres ## run all tests on both databases, with the race detector
	exec env CGO_ENABLED=1 bin/withpostgres -- go test $(RACE) -timeout $(TEST_TIMEOUT) $(ARGS) ./...

test-browser: setup withpostgres ## use the dashboard in Chromium, which is installed if it is missing
	@scripts/setup.sh chromium
	exec env CGO_ENABLED=1 bin/withpostgres -- go test -tags browser -timeout $(BROWSER_TIMEOUT) $(ARGS) ./test/browser

screenshots: setup withpostgres ## take the pictures of docs/dashboard.md anew
	@scripts/setup.sh chromium
	exec env CGO_ENABLED=1 TURNPIKE_SCREENSHOTS=$(CURDIR)/docs/images bin/withpostgres -- go test -tags browser -count=1 -timeout $(BROWSER_TIMEOUT) -run '^TestScreenshots$$' ./test/browser

chaos: setup withpostgres ## run the long form of the crash tests
	exec env CGO_ENABLED=1 TURNPIKE_CHAOS=full bin/withpostgres -- go test $(RACE) -count=1 -timeout $(CHAOS_TIMEOUT) $(ARGS) ./test/chaos/... ./internal/spend

bench: ## measure speed and memory, as docs/benchmarks.md reports them
	go run ./test/bench $(ARGS)

lint: ## gofmt, vet, staticcheck; govulncheck where its database can be reached
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "not formatted, run gofmt -w on:"; echo "$$unformatted"; exit 1; }
	$(LINT) go vet ./...
	$(LINT) go vet -tags browser ./test/browser
	$(LINT) $$(go tool -n staticcheck) ./...
	$(LINT) $$(go tool -n staticcheck) -tags browser ./test/browser
	@scripts/vulncheck.sh

fuzz: ## run each fuzz target for FUZZTIME
	@scripts/fuzz.sh $(FUZZTIME)

clean: ## remove what was built (not turnpike-data)
	rm -rf bin

# Built rather than `go run`, which hides the exit code, and started by exec, as a shell between would,
# like `go run`, die of SIGTERM and leave the tests running.
# With the tests' flags, so that the packages they share are compiled once.
withpostgres:
	@CGO_ENABLED=1 go build $(RACE) -o bin/withpostgres ./test/withpostgres
