# What people type. Each target says in one line what it is for: `make help`.

RAY_VENV  := .venv
PYTHON    ?= python3
GO        ?= go
PLANES    := .planes
RAYFLEET  := target/debug/rayfleet
SEEDS     ?= 500
# Of `make sim` alone: many seeds are worth the second build (PROFILE=release).
PROFILE   ?= dev
SEED_BASE ?= 1
REPLICAS  ?= 1
JOBS      ?= 100
# Of `make fuzz`, per decoder.
SECONDS   ?= 60
# Tests that could not do their work here get a line each in this file: the test, a tab, why.
SKIPPED   := $(CURDIR)/target/skipped
skip       = printf '%s\t%s\n' '$(1)' '$(2)' >>$(SKIPPED)

.PHONY: help build demo demo-planes sandbox planes-if-go test fmt tidy clippy generated unit kube-api api samples golden crash-points mutants sim fuzz none-skipped ray planes $(PLANES)/made-from

help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | column -t -s "$$(printf '\t')"

build: ## The one binary, in the one profile that everything here uses
	cargo build --locked --workspace

demo: ray build ## Three members, real Ray, jobs placed and withdrawn, controllers killed; ends by itself
	$(RAYFLEET) demo --ray $(RAY_VENV)

demo-planes: planes ray build ## The demo on real API servers, hub and two members, with an independent recorder's verdict
	target/debug/kit demo-planes --ray $(RAY_VENV)

sandbox: ray build ## A fleet that stays, for a person with kubectl
	$(RAYFLEET) sandbox --ray $(RAY_VENV)

# Quickest first: what fails early fails cheap.
test: export RAYFLEET_SKIPPED := $(SKIPPED)
test: none-skipped fmt tidy clippy build generated planes-if-go unit kube-api api samples mutants crash-points ## Everything that is tested
	$(MAKE) crash-points REPLICAS=3
	$(MAKE) sim SEEDS=16
	$(MAKE) sim SEEDS=4 REPLICAS=3
	$(MAKE) fuzz SECONDS=10
	$(MAKE) demo
	@if test -x $(PLANES)/control-plane; then $(MAKE) demo-planes; else $(call skip,demo-planes,no real API server here: `make planes` builds one); fi
	@awk -F '\t' '{ all++; of[$$2]++ } END { for (why in of) text = text (text ? "; " : "") of[why] " × " why; \
		printf "skipped: %d tests%s\n", all, text ? " (" text ")" : "" }' $(SKIPPED)

none-skipped:
	@mkdir -p $(dir $(SKIPPED)) && : >$(SKIPPED)

fmt: ## Formatting
	cargo fmt --all --check

tidy: ## The rules of the house: purity, direction of dependencies, names
	cargo test --locked --package rayfleet --test tidy --quiet

clippy: ## Lints; warnings are errors
	cargo clippy --locked --workspace --all-targets --quiet -- --deny warnings

generated: build ## crds/ is what the types say
	$(RAYFLEET) crds --check

unit: ray ## Unit tests, and tests with processes, kubectl and real Ray
	cargo test --locked --workspace

kube-api: ## Recorded answers of a real API server, replayed on the sandbox's
	cargo run --locked --quiet --package conformance -- kube-api

samples: ## Sample manifests of KubeRay: accepted, kept whole, valid, carried out as far as they are built
	cargo run --locked --quiet --package conformance -- samples --strict

# Not yet part of `make test`: what differs is being mended.
golden: ## What KubeRay's operator was recorded to do, played against our core: every case of every kind, write by write
	cargo run --locked --quiet --package conformance -- golden

# Exit code 3 says that there is no real server here: that is a line, no failure; in CI it is one.
api: ## A table of requests sent to the sandbox's API server and to a real one (make planes): equal answers
	@cargo run --locked --quiet --package conformance -- api || { test $$? -eq 3 && test -z "$$CI" && $(call skip,api,no real API server here: `make planes` builds one); }

crash-points: ## The controller dies at every write of one RayJob's life, in three variants; REPLICAS=3: another takes over
	cargo run --locked --quiet --package kit -- crash-points --replicas $(REPLICAS)

mutants: ## Replicas that break one rule of the protocol each: a story must notice every one
	cargo run --locked --quiet --package kit -- mutants

fuzz: ## Hostile input for every decoder of bytes from outside, on all cores: make fuzz SECONDS=60 FUZZ_SEED=1
	cargo run --locked --quiet --package kit -- fuzz --seconds $(SECONDS)

sim: ## 100 RayJobs over 3 members on bad days: make sim SEEDS=500 SEED_BASE=1 JOBS=200 REPLICAS=3 PROFILE=release
	cargo run --locked --quiet --profile $(PROFILE) --package kit -- sim --seeds $(SEEDS) --seed-base $(SEED_BASE) --jobs $(JOBS) --replicas $(REPLICAS)

ray: $(RAY_VENV)/.ray-installed ## Real Ray for the sandbox, in a virtual environment of this folder (once)

# Stamped with the file that it was made from: a changed pin is a new set-up.
$(RAY_VENV)/.ray-installed: requirements-ray.txt
	@command -v $(PYTHON) >/dev/null || { echo "make ray: no '$(PYTHON)' here. Install Python 3.10 or later, or name one: make ray PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "make ray: $$($(PYTHON) --version) is too old for this Ray: 3.10 or later is needed (make ray PYTHON=...)" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "make ray: this Python cannot make virtual environments (on Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(RAY_VENV)
	$(RAY_VENV)/bin/pip install --quiet --disable-pip-version-check --requirement requirements-ray.txt
	@touch $@

# The order is the tests': they compare `made-from` with what is here.
PLANE_SOURCES := tests/planes/go.mod tests/planes/go.sum tests/planes/main.go
# What the server says about itself. Without it clients meet `v0.0.0-master+$Format:%H$`.
KUBERNETES     = $(shell awk '$$1 == "k8s.io/kubernetes" { print $$2 }' tests/planes/go.mod)
KUBERNETES_IS  = -X k8s.io/component-base/version.$(1)
PLANE_LINK     = -s -w $(call KUBERNETES_IS,gitVersion=$(KUBERNETES)) $(call KUBERNETES_IS,gitMajor=1) $(call KUBERNETES_IS,gitMinor=$(word 2,$(subst ., ,$(KUBERNETES))))

planes: ## Real API servers for tests: Kubernetes and etcd as one binary, without containers (once; needs Go, takes minutes)
	@test -x $(PLANES)/control-plane && cat $(PLANE_SOURCES) | cmp -s - $(PLANES)/made-from || $(MAKE) --no-print-directory $(PLANES)/made-from

# CI must have Go; a person may do without, and the tests that need a plane then say that they skip.
planes-if-go:
	@if command -v $(GO) >/dev/null || test -n "$$CI"; then $(MAKE) --no-print-directory planes; \
	elif test ! -x $(PLANES)/control-plane; then \
		echo "make test: no '$(GO)' here: the tests on real API servers are skipped (https://go.dev/dl)"; fi

# Stamped with the text of all that it was made from, not with times: a fresh checkout takes what a cache brings.
$(PLANES)/made-from:
	@command -v $(GO) >/dev/null || { echo "make planes: no '$(GO)' here. Install Go (https://go.dev/dl), or name one: make planes GO=/path/to/go" >&2; exit 1; }
	@cd tests/planes && $(GO) list -m >/dev/null || { echo "make planes: $$($(GO) env GOVERSION) cannot build this Kubernetes: $$(grep '^go ' go.mod) or later is needed (make planes GO=...)" >&2; exit 1; }
	@mkdir -p $(PLANES) && rm -f $@
	cd tests/planes && CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(PLANE_LINK)' -o $(CURDIR)/$(PLANES)/control-plane .
	@cat $(PLANE_SOURCES) >$@
