# make demo        the main job on embedded data, with a report to look at
# make test        the tests
# make test-all    with the long ones: every night, and before a release
# make lint        ruff and mypy
# make reference   write the generated pages, docs/commands.md and docs/api.md
# make docs        build the documentation site into site, strictly
# make wheel       build the package into dist
# make release     build sdist and wheel, check them in a clean environment, write a bill of materials
# make soak        the service under kills, races, restarts, lost power, a million cases; half a day
# make lock        resolve the dependencies anew (needs uv)
#
# Each creates .venv on first use, with all extras; Python 3.11 or newer, pip and make are all it needs.

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$p; break; }; done)
BIN := .venv/bin
# one more than there are cores: many tests wait for a browser, a database or a process of their own;
# each computes in one thread, and the many processes that they start find compiled modules
PYTEST = PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal
WORKERS ?= $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) + 1 )))

.PHONY: demo test test-all lint reference docs wheel release soak lock clean

demo: .venv/ready
	$(BIN)/deccaf demo --out deccaf-demo

test: .venv/ready
	sh tools/test-packages
	$(PYTEST) -m "not long"

test-all: .venv/ready
	sh tools/test-packages
	$(PYTEST)

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

reference: .venv/ready
	$(BIN)/python -m deccaf.cli.reference docs/commands.md
	$(BIN)/python -m deccaf.cli.api_reference docs/api.md

docs: .venv/ready
	$(BIN)/python -m mkdocs build --strict --quiet

wheel: .venv/ready
	$(BIN)/python -m hatchling build -t wheel

release: .venv/ready
	$(BIN)/python tools/release.py

soak: .venv/ready
	sh tools/test-packages
	$(BIN)/python benchmarks/soak.py

.venv/ready: requirements.lock pyproject.toml tools/system-packages
	@test -n "$(PYTHON)" || { echo "deccaf needs Python 3.11 or newer; none was found. Try: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	sh tools/system-packages
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

lock:
	uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --generate-hashes \
		--no-annotate --no-header --quiet --output-file requirements.lock

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis deccaf-demo dist site
