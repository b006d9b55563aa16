# The front door. Needs Python 3.11, make and, where Spark runs, Java 17; the rest is installed into .venv.
# Where pip and Spark download from is their own setting: PIP_INDEX_URL or pip.conf, and for Spark ~/.ivy2 or SPARK_CONF_DIR.

.DEFAULT_GOAL := help
.PHONY: help demo cluster-demo test test-long test-compiled test-workers test-cluster wheel torture torture-workers torture-cluster soak extremes check bench bench-growth interop docs clean

# Further words for what is run:  make test ARGS='-k groups -x'    make demo ARGS='--data-dir ~/flights'
ARGS ?=
export PYTHON
# Bytecode is kept whatever the environment says. Without it, each worker of the tests compiles all of them anew (12 s),
# and each broker that is started as a process all of Halfmoon (0.2 s).
export PYTHONDONTWRITEBYTECODE :=

PREPARE := @tools/prepare.sh
JVMS    := @.venv/bin/python tools/spark_connectors.py && .venv/bin/python tools/class_archive.py
# exec: make's child is the runner itself, so that a signal to make reaches what can clean up.
RUN     := @exec .venv/bin/python tools/tidy_run.py .venv/bin/python

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 18

demo:  ## 336,776 flights of 2013 through the broker into Spark: tables and charts under out/
	$(PREPARE) --java
	$(RUN) -m halfmoon.demo $(ARGS)

cluster-demo:  ## the same against three nodes over PostgreSQL and an object store, while one is killed every 10 s
	$(PREPARE) --java
	@tools/cluster_services.sh
	$(RUN) -m halfmoon.demo.cluster $(ARGS)

# Four at once on two processors, since a third of the time is waiting. tests/scheduling.py says who gets what.
test:  ## the tests, but for those that take long
	$(PREPARE) --java
	$(JVMS)
	$(RUN) -m pytest -n 4 --dist loadfile -m "not interop and not torture and not long" $(ARGS)

test-long:  ## those that take long: kill -9 again and again, whole pipelines, clusters of Spark
	$(PREPARE) --java
	$(JVMS)
	$(RUN) -m pytest -n 3 --dist loadfile -m long $(ARGS)

# In a tree of its own: an extension beside a newer .py would win silently. PYTHONPATH, since .venv knows this tree.
test-compiled:  ## the tests of core, services, adapters and server with the hot modules compiled
	$(PREPARE)
	@.venv/bin/python tools/compiled_tree.py
	@cd build/compiled && PYTHONPATH=$$PWD exec $(CURDIR)/.venv/bin/python tools/tidy_run.py $(CURDIR)/.venv/bin/python \
		-m pytest -n 4 --dist loadfile -m "not interop and not torture and not long and not spark" $(COMPILED) $(ARGS)

COMPILED := tests/compiled tests/core tests/services tests/adapters tests/server tests/limits tests/plugins tests/cluster

# What speaks to a broker and does not look into it; tests/several_workers.py. A short selection of it is in `make test`.
test-workers:  ## the tests over the wire once more, with brokers that are two processes
	$(PREPARE) --java
	$(JVMS)
	@HALFMOON_TEST_WORKERS=2 exec .venv/bin/python tools/tidy_run.py .venv/bin/python -m pytest -n 3 --dist loadfile \
		-m "not interop and not torture and not long" $(OVER_THE_WIRE) $(ARGS)

OVER_THE_WIRE := tests/clients tests/client/live tests/cli tests/kafka tests/pipeline tests/plugins/store tests/security \
	tests/examples/test_orders.py tests/hooks/test_guard.py tests/server/test_metrics.py \
	tests/adapters/kafka/test_api_18502_messages.py tests/test_docs_client.py tests/test_docs_features.py \
	tests/test_docs_retry.py

# The same with brokers that are three nodes, over a PostgreSQL and a versitygw of their own.
test-cluster:  ## the tests over the wire once more, with brokers that are three nodes of a cluster
	$(PREPARE) --java
	@tools/cluster_services.sh
	$(JVMS)
	@HALFMOON_TEST_NODES=3 exec .venv/bin/python tools/tidy_run.py .venv/bin/python -m pytest -n 2 --dist loadfile \
		-m "not interop and not torture and not long" $(OVER_THE_WIRE) $(ARGS)

wheel:  ## dist/: the wheel that is compiled, for this platform, and the one that runs everywhere
	$(PREPARE)
	@HALFMOON_COMPILE=0 .venv/bin/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	@HALFMOON_COMPILE=1 .venv/bin/python -m pip wheel --quiet --no-deps --wheel-dir dist .

SEEDS ?= 300
torture:  ## SEEDS=300 scenarios with crashes and failing disks, from new seeds; then kill -9 of brokers and clients
	$(PREPARE)
	$(RUN) -m tests.torture --seeds $(SEEDS) $(ARGS)
	$(RUN) -m pytest -m torture tests/torture --ignore tests/torture/cluster

torture-workers:  ## SEEDS=100 brokers of several workers that are killed at random, a minute and a half each; see ARGS=--help
	$(PREPARE)
	$(RUN) -m tests.torture.workers --seeds $(SEEDS) $(ARGS)
torture-workers: SEEDS = 100

# Once with each of the scenarios that look for one thing, and with nodes from which that was taken; then by chance.
torture-cluster:  ## SEEDS=100 clusters of three nodes whose nodes, database, store and links fail, a minute and a half each
	$(PREPARE)
	@tools/cluster_services.sh
	@tools/toxiproxy.sh
	$(RUN) -m pytest -m torture tests/torture/cluster
	$(RUN) -m tests.torture.cluster --seeds $(SEEDS) $(ARGS)
torture-cluster: SEEDS = 100

HOURS ?= 8
soak:  ## HOURS=8 of a mixed load at half of the machine's speed: one page about memory, latencies and disk
	$(PREPARE)
	$(RUN) -m benchmarks.soak --hours $(HOURS) $(ARGS)

extremes:  ## the most that clients may send: how long it holds up the loop, and others; writes docs/longest-turns.md
	$(PREPARE)
	$(RUN) -m tests.extremes $(ARGS)

check:  ## ruff, mypy --strict, who may import whom
	$(PREPARE)
	@code=0; for tool in "ruff check ." "ruff format --check ." mypy "lint-imports --no-logo"; do .venv/bin/$$tool || code=1; done; exit $$code

interop:  ## other people's test suites and programs against the broker
	$(PREPARE) --java
	$(JVMS)
	$(RUN) -m pytest -m interop $(ARGS)

bench:  ## speed, side by side with a Kafka where one is given
	$(PREPARE) --java
	$(RUN) -m benchmarks $(ARGS)

bench-growth:  ## what a request costs as partitions, connections, groups, delays and backlog grow; writes docs/growth.md
	$(PREPARE)
	$(RUN) -m benchmarks.growth $(ARGS)

docs:  ## write docs/cli.md anew from the command line's own help, then test what the documents claim
	$(PREPARE)
	@.venv/bin/python tools/cli_reference.py docs/cli.md
	$(RUN) -m pytest tests/cli/test_reference.py tests/test_readme.py tests/test_docs_*.py \
		tests/testing/test_docs.py tests/config/test_settings.py tests/server/test_metrics.py -m "not spark" $(ARGS)

clean:  ## remove .venv, caches and what the demo wrote
	rm -rf .venv out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
	rm -rf spark-warehouse metastore_db derby.log
	rm -f halfmoon/*/*/_*.c halfmoon/*/*/_*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
