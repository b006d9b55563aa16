# The front door. Needs Python 3.11, make and, where Spark runs, Java 17; the rest is installed into .venv.
# Where pip and Spark download from is their own setting: PIP_INDEX_URL or pip.conf, and for Spark ~/.ivy2 or SPARK_CONF_DIR.

.DEFAULT_GOAL := help
.PHONY: help demo test check bench interop docs clean

# Further words for what is run:  make test ARGS='-k groups -x'    make demo ARGS='--data-dir ~/flights'
ARGS ?=
export PYTHON

PREPARE := @tools/prepare.sh
# exec: make's child is the runner itself, so that a signal to make reaches what can clean up.
RUN     := @exec .venv/bin/python tools/tidy_run.py .venv/bin/python

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 18

demo:  ## 336,776 flights of 2013 through the broker into Spark: tables and charts under out/
	$(PREPARE) --java
	$(RUN) -m halfmoon.demo $(ARGS)

# Three at once on two processors, since a third of the time is waiting. A file stays together: what a module sets up is
# set up once.
test:  ## all tests
	$(PREPARE) --java
	$(RUN) -m pytest -n 3 --dist loadfile -m "not interop" $(ARGS)

check:  ## ruff, mypy --strict, who may import whom
	$(PREPARE)
	@code=0; for tool in "ruff check ." "ruff format --check ." mypy "lint-imports --no-logo"; do .venv/bin/$$tool || code=1; done; exit $$code

interop:  ## other people's test suites and programs against the broker
	$(PREPARE) --java
	$(RUN) -m pytest -m interop $(ARGS)

bench:  ## speed, side by side with a Kafka where one is given
	$(PREPARE) --java
	$(RUN) -m benchmarks $(ARGS)

docs:  ## write docs/cli.md anew from the command line's own help, then test what the documents claim
	$(PREPARE)
	@.venv/bin/python tools/cli_reference.py docs/cli.md
	$(RUN) -m pytest tests/cli/test_reference.py tests/test_readme.py tests/test_docs_*.py \
		tests/testing/test_docs.py tests/core/test_config.py tests/server/test_metrics.py -m "not spark" $(ARGS)

clean:  ## remove .venv, caches and what the demo wrote
	rm -rf .venv out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
	rm -rf spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
