# Everything sets up what it needs: a machine with Python 3.11+ and Java 17 is enough.
#
#   make run       the broker on 127.0.0.1:9092, its admin endpoint on 9093, its data in ./data
#   make test      the short set of tests: 25 minutes of processor time
#   make test-all  all tests: what CI runs, 50 minutes of processor time
#   make demo      produce, delay, share, archive, report: all of it once, with a page to look at
#   make check     lint, format, types, import directions
#   make bench     Kumquat beside Apache Kafka, into bench/RESULTS.md
#   make lock      resolve the dependencies again

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
UV_VERSION := 0.13.7

.PHONY: run test test-all demo check format bench compat-kafka lock clean
.DEFAULT_GOAL := test

# The broker needs a dozen packages; the tests need clients and Spark too. One environment, two stamps.
$(UV):
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

# Bytecode is made at once: the first start should not wait for it, and some machines forbid it later. The
# folders are named because compileall does not follow the links in kumquat/.
INSTALL := $(UV) pip install --quiet --python $(VENV) --compile-bytecode

$(VENV)/.run: $(UV) locks/run.txt pyproject.toml
	$(INSTALL) --require-hashes -r locks/run.txt
	$(INSTALL) --no-deps --editable .
	$(BIN)/python -m compileall -q kumquat core gateway meta spark_connector
	touch $@

$(VENV)/.dev: $(VENV)/.run locks/dev.txt
	$(INSTALL) --require-hashes -r locks/dev.txt
	touch $@

run: $(VENV)/.run
	$(BIN)/kumquat serve --listeners PLAINTEXT://127.0.0.1:9092 --admin-listener HTTP://127.0.0.1:9093 \
	    --log-dirs ./data --hints

# Each process has brokers and clients of its own, so more than a few only get in each other's way. A run
# starts the broker hundreds of times, and without bytecode each start takes half as long again.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile

test: $(VENV)/.dev
	$(PYTEST) -m "not long" --hypothesis-profile short

test-all: $(VENV)/.dev
	$(PYTEST)

demo: $(VENV)/.dev
	$(BIN)/python -m kumquat.spark.demo

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev
	$(BIN)/python -m bench

# The same stories on Apache Kafka: a test is right when it passes there too.
compat-kafka: $(VENV)/.dev
	$(BIN)/python -m pytest compat_tests --broker kafka

lock: $(UV)
	$(UV) pip compile pyproject.toml --universal --generate-hashes --no-emit-index-url --no-header \
	    --python-version 3.11 --quiet -o locks/run.txt
	$(UV) pip compile pyproject.toml --group dev -c locks/run.txt --universal --generate-hashes \
	    --no-emit-index-url --no-header --python-version 3.11 --quiet -o locks/dev.txt

clean:
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
