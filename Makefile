# Every target makes .venv first if it is missing; nothing else has to be installed but Python 3.10+ and Java 17+.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Spark starts in half the time: `reput prepare`.
PREPARED := $(VENV)/.prepared
DEMO := .work/demo
# Where it is set, every process compiles our sources anew, and pytest the tests' assertions in each of its processes.
unexport PYTHONDONTWRITEBYTECODE
# Tests wait for the disk most of their time; in memory, where there is room for their files, they do not.
ROOMY := $(shell df --output=avail -k /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 > 6000000 {print "/dev/shm"}')
IN_MEMORY := $(if $(ROOMY),TMPDIR=$(ROOMY))
# Three processes share the files, in the order of tests/conftest.py; a third Spark session would cost more than it gives.
SIDE_BY_SIDE := -n 3 --dist loadfile --no-loadscope-reorder
PLOTS = $(BIN)/python -c 'import matplotlib' 2>/dev/null || $(BIN)/python -m pip install --quiet --editable '.[bench]'
BENCH = PYTHONPATH=tests $(BIN)/python -m benchmarks
# Arguments of the live break test: --release, --events, --seed, --only, --rate.
BREAK ?= --release 4.9.3 --events 100 --seed 1
# Arguments of `make soak`: --release, --rate, --minutes.
SOAK ?=
# Arguments of `make consumption`: --minutes, --rate.
CONSUMPTION ?=
# Arguments of `make lifeline`: --minutes, --rate, --restores, --seed.
LIFELINE ?=
# Arguments of `make pythons`: interpreters or versions; all that are supported and found without any.
PYTHONS ?=
# Arguments of `make canary`: packages, RocketMQ, --rocketmq VERSION, --no-tests; all and the newest without any.
CANARY ?=

# Arguments of `make readers`: beginnings of readers' names; all without any.
READERS ?=

# Where `make dist` puts what it builds.
DIST ?= dist

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast break consumption lifeline pythons readers canary deploy-check install-check docs lint format clean bench bench-all bench-scale bench-latency bench-brokers soak soak-lag soak-metrics-cost dist

##@ Use
demo: $(PREPARED)  ## tail a real broker's store, compare every file with the broker's, ask the table
	$(BIN)/python tests/demo.py --work $(DEMO)

##@ Develop
test: $(PREPARED)  ## all tests but the slow ones, a real broker's among them
	$(IN_MEMORY) $(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not slow"

test-fast: $(READY)  ## the tests without Spark and without a broker: a few minutes
	$(IN_MEMORY) $(BIN)/python -m pytest $(SIDE_BY_SIDE) tests/unit tests/faults -m "not slow and not broker and not spark"

break: $(PREPARED)  ## a live broker and its tail, broken 100 times: an hour; BREAK="--release 5.5.0 --seed 2"
	PYTHONPATH=tests $(BIN)/python -m faults.live_break --work .work/break $(BREAK)

consumption: $(PREPARED)  ## 20 consumer groups of two live brokers, and what ask consumed says of each message: half an hour; CONSUMPTION="--minutes 2"
	$(IN_MEMORY) PYTHONPATH=tests $(BIN)/python -m broker.consumption_run --work .work/consumption $(CONSUMPTION)

lifeline: $(PREPARED)  ## two live brokers and their backups, all killed, then 50 stores restored and served: an hour, root; LIFELINE="--minutes 2 --restores 6"
	PYTHONPATH=tests $(BIN)/python -m broker.lifeline_run --work .work/lifeline $(LIFELINE)

pythons: $(READY)  ## fast tests and main commands under Python 3.10 to 3.13: half an hour; PYTHONS="3.12 3.13"
	$(IN_MEMORY) PYTHONPATH=tests $(BIN)/python tests/pythons.py $(PYTHONS)

readers: $(PREPARED)  ## 19 readers of other projects read tables of ours, each value compared with the log: ten minutes; READERS="Spark DuckDB"
	PYTHONPATH=tests $(BIN)/python -m readers --work .work/readers $(READERS)

canary: $(PREPARED)  ## newest releases, also above our pins, of Spark, Delta, Arrow, ... and RocketMQ: half an hour; CANARY="pyspark RocketMQ"
	$(IN_MEMORY) PYTHONPATH=tests $(BIN)/python tests/canary.py $(CANARY)

# What `deploy-check` runs, and the Debian packages that bring it.
DEPLOY_TOOLS := systemd-analyze promtool prometheus docker-compose chromium convert
DEPLOY_PACKAGES := systemd prometheus docker-compose chromium imagemagick
# A directory with the custom resources of Spark's operators; without it their manifests are not checked.
CRDS ?=
deploy-check: $(READY)  ## conf/deploy and the status page by systemd, Prometheus, a browser, ...; installs what is missing (apt-get, root)
	(for tool in $(DEPLOY_TOOLS); do command -v $$tool >/dev/null || exit 1; done) || apt-get install --yes --no-install-recommends $(DEPLOY_PACKAGES)
	$(BIN)/python -m pip install --quiet --editable '.[deploy]'
	$(IN_MEMORY) $(if $(CRDS),REPUT_CRDS=$(CRDS)) $(BIN)/python -m pytest tests/deploy -m "deploy and not slow"

# It takes root, some minutes, a gigabyte from registries and 4 GB of disk.
install-check: $(READY)  ## docs/operating/install.md word for word in a bare Debian 12 under its own systemd (root; apt-get install debootstrap systemd-container)
	$(BIN)/python -m pytest tests/deploy/test_install.py -s -o faulthandler_timeout=0

docs: $(READY)  ## the documentation as a site in .work/site; a link that leads nowhere ends it
	$(BIN)/python -c 'import zensical' 2>/dev/null || $(BIN)/python -m pip install --quiet --editable '.[docs]'
	PYTHONPATH=tests $(BIN)/python tests/documentation.py .work/docs
	cp docs/site/mkdocs.yml .work
	$(BIN)/zensical build --strict --clean --config-file .work/mkdocs.yml

lint: $(READY)  ## ruff, mypy strict, the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)  ## let ruff format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

dist: $(READY)  ## wheel and source distribution in dist/, or DIST=/elsewhere; the wheel is made from the source distribution
	$(BIN)/python -c 'import build, twine' 2>/dev/null || $(BIN)/python -m pip install --quiet --editable '.[dist]'
	rm -f $(DIST)/rocketmq_reput-*
	$(BIN)/python -m build --outdir $(DIST)
	$(BIN)/python -m twine check --strict $(DIST)/rocketmq_reput-*

##@ Measure (a quiet machine; figures go into docs/)
bench: $(PREPARED)  ## brokers' reput and reput on 10 million messages: half an hour
	$(PLOTS)
	$(BENCH).bench --work .work/bench --docs docs

bench-all: $(PREPARED)  ## logs of other shapes, 25 GB of disk: an hour and a half
	$(PLOTS)
	$(BENCH).bench --work .work/bench --docs docs --all --rounds 3

bench-scale: $(PREPARED)  ## curves over messages, queues, cores, and a standalone cluster, 30 GB of disk: an hour and a half
	$(PLOTS)
	$(BENCH).scale --work .work/bench --docs docs

bench-latency: $(PREPARED)  ## the delay behind a live broker at three rates, and with 1,000 topics: eight minutes
	$(PLOTS)
	$(BENCH).latency --work .work/latency --docs docs
	$(BENCH).latency --work .work/latency --docs docs --rates 2000 --topics 1000

bench-brokers: $(PREPARED)  ## 20 brokers in one process on two cores: six minutes; BROKERS="--brokers 5 --seconds 30"
	$(BENCH).brokers --work .work/brokers $(BROKERS)

soak: $(PREPARED)  ## a live broker and its tail as a service for 90 minutes, with faults; SOAK="--minutes 10"
	$(PLOTS)
	$(BENCH).soak --work .work/soak --docs docs $(SOAK)

soak-lag: $(PREPARED)  ## the lag that reput shows, and the one seen from outside: eight minutes
	$(BENCH).soak --only lag --work .work/soak-lag --docs docs

soak-metrics-cost: $(PREPARED)  ## what metrics and page take of the throughput: six minutes
	$(BENCH).soak --only metrics-cost --work .work/soak-metrics-cost --docs docs

##@ Tidy
clean:  ## remove what demo, tests and benchmarks left, and the environment
	rm -rf $(VENV) .work build dist reput/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

help:  ## this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 10) else "reput needs Python 3.10 or later, this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(READY)

$(PREPARED): $(READY)
	-$(BIN)/reput prepare  # where it refuses, Spark starts all the same, later
	touch $(PREPARED)
