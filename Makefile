# What people type. Each target says in one line what it is for: `make help`.

RAY_VENV := .venv
PYTHON   ?= python3

.PHONY: help ray

help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | column -t -s "$$(printf '\t')"

ray: $(RAY_VENV)/.ray-installed ## Real Ray for the sandbox, in a virtual environment of this folder (once)

# Stamped with the file that it was made from: a changed pin is a new set-up.
$(RAY_VENV)/.ray-installed: requirements-ray.txt
	@command -v $(PYTHON) >/dev/null || { echo "make ray: no '$(PYTHON)' here. Install Python 3.10 or later, or name one: make ray PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "make ray: $$($(PYTHON) --version) is too old for this Ray: 3.10 or later is needed (make ray PYTHON=...)" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "make ray: this Python cannot make virtual environments (on Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(RAY_VENV)
	$(RAY_VENV)/bin/pip install --quiet --disable-pip-version-check --requirement requirements-ray.txt
	@touch $@
