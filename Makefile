# A thin front end for CMake; `make help` lists the targets.

# `make demo` runs a race on a virtual clock, and four of its methods with real workers at the same
# rates.
DEMO_OUT := demo-$(shell date +%Y%m%d-%H%M%S)
DEMO      = $(BUILD)/paceline race --demo --seeds 3 --out $(DEMO_OUT)
DEMO_REAL = $(BUILD)/paceline race auto sync gap-aware async --demo --real \
    --rates $(DEMO_OUT) --out $(DEMO_OUT)-real

BUILD       = build
PREFIX      = /usr/local
DESTDIR     =
CMAKE_FLAGS =
FAULTS      = 10000
REQUESTS    = 100000
SEEDS       = 100000
PAGES       = 200
FROM        = 1
SECONDS     = 60
PARTS       =
OUT         =
JOBS       := $(shell nproc 2>/dev/null || echo 1)

have_cmake = command -v cmake >/dev/null || \
    { echo "cmake is not installed; 'make setup' installs it" >&2; exit 1; }
# A checkout that was moved is configured from the beginning.
moved     = $(shell sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' $(BUILD)/CMakeCache.txt 2>/dev/null | \
    grep -vxF '$(CURDIR)')
configure = $(have_cmake); cmake --log-level=WARNING $(if $(moved),--fresh) -S . \
    -DCMAKE_BUILD_TYPE=Release $(CMAKE_FLAGS)
# The -j of this make must not reach the makes that CMake starts; they get their own.
compile   = env -u MAKELEVEL MAKEFLAGS=--no-print-directory cmake --build
run_tests = ctest --output-on-failure --no-tests=error --parallel
sources   = find include src tests bench -name '*.[ch]'

.NOTPARALLEL:
.PHONY: help setup setup-test setup-dev build demo test check repeat-tests pages fuzz fuzz-requests agree storm storm-seeds auto-suite bench bench-docs install sanitize sanitize-address sanitize-thread check-compilers format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' Makefile

setup: ## install missing packages (packages.txt; apt-get)
	@scripts/setup

setup-test: ## also install what only tests need: PyTorch, pip, linters, Chromium, Slurm
	@scripts/setup test

setup-dev: ## also install the developer packages: clang, clang-format, g++
	@scripts/setup dev

build: ## build only the program and the library, into build/
	@$(configure) -B $(BUILD)
	@$(compile) $(BUILD) --parallel $(JOBS) --target product

demo: setup build ## install packages, build, race eight methods, then four for real; a page
	$(DEMO)
	$(DEMO_REAL)
	$(BUILD)/paceline report $(DEMO_OUT) $(DEMO_OUT)-real -o $(DEMO_OUT)/report.html

test: setup-test ## install packages, build, run every test
	@$(configure) -B $(BUILD)
	@$(compile) $(BUILD) --parallel $(JOBS)
	@# Tests wait for half of their time, so two run per core.
	@$(run_tests) $$((2 * $(JOBS))) --test-dir $(BUILD)

check: setup ## run the tests that are done within a minute in all, for who is changing something
	@$(configure) -B $(BUILD)
	@$(compile) $(BUILD) --parallel $(JOBS)
	@$(run_tests) $$((2 * $(JOBS))) --test-dir $(BUILD) -LE long

repeat-tests: ## run all tests many times: idle, under load, on one core (RUNS='10 5 5')
	@scripts/repeat-tests $(BUILD) $(RUNS)

fuzz: setup-dev ## fuzz every reader with libFuzzer, SECONDS=60 or RUNS=N each (build-fuzz/)
	@tests/fuzz/run build-fuzz $(if $(RUNS),runs=$(RUNS),seconds=$(SECONDS)) jobs=$(JOBS) \
	    $(if $(LIMIT),limit=$(LIMIT)) $(TARGETS)

fuzz-requests: setup ## send spoilt requests to a server with a worker, and to a standby (REQUESTS=100000 each, two minutes)
	@$(configure) -B $(BUILD)
	@$(compile) $(BUILD) --parallel $(JOBS) --target test_fuzzed_requests
	@FUZZ_REQUESTS=$(REQUESTS) $(BUILD)/tests/test_fuzzed_requests

agree: setup build ## compare simulated and real time per update: within 10 % (four minutes)
	@scripts/agree $(BUILD)/paceline

storm: setup ## kill, stop and lie to real runs of every method (FAULTS=10000; three minutes)
	@$(configure) -B $(BUILD)
	@$(compile) $(BUILD) --parallel $(JOBS) --target paceline test_storm_processes
	@PACELINE=$(BUILD)/paceline STORM_FAULTS=$(FAULTS) $(BUILD)/tests/test_storm_processes

pages: setup-test build ## open random pages in a browser (PAGES=200; LIMIT=2: seconds for each)
	@SOURCE_DIR=. PACELINE=$(BUILD)/paceline PAGES=$(PAGES) $(if $(LIMIT),PAGES_LIMIT=$(LIMIT)) \
	    sh tests/observe/pages.sh

storm-seeds: setup ## whole runs on a virtual clock with faults by seed (SEEDS=100000, FROM=1)
	@$(configure) -B $(BUILD)
	@$(compile) $(BUILD) --parallel $(JOBS) --target test_storm
	@STORM_FROM=$(FROM) STORM_SEEDS=$(SEEDS) $(BUILD)/tests/test_storm

auto-suite: build ## method auto against every fixed policy and K (SUITE='--laws exp --seeds 1')
	@scripts/auto-suite $(BUILD)/paceline $(SUITE)

bench: ## install packages, build, run the benchmarks (PARTS='store reduce', OUT=DIR)
	@scripts/setup bench
	@$(configure) -B $(BUILD)
	@$(compile) $(BUILD) --parallel $(JOBS) --target product bench
	@other=clang; ! grep -q '^CMAKE_C_COMPILER:.*clang' $(BUILD)/CMakeCache.txt || other=gcc; \
	case ' $(or $(PARTS),compilers) ' in \
	*' compilers '*) ! command -v $$other >/dev/null || { \
	    $(configure) -B build-$$other -DCMAKE_C_COMPILER=$$other && \
	    $(compile) build-$$other --parallel $(JOBS) --target bench_reduce; };; \
	esac
	@scripts/bench --build $(BUILD) --out '$(or $(OUT),$(BUILD)/bench)' $(PARTS)

bench-docs: ## write the tables of docs/benchmarks.md from docs/bench/
	@scripts/bench --docs

install: build ## install the program, library, header and man page (PREFIX=/usr/local, DESTDIR=)
	@DESTDIR='$(DESTDIR)' cmake --install $(BUILD) --prefix '$(PREFIX)'
	@if [ -z '$(DESTDIR)' ] && [ "$$(id -u)" = 0 ]; then ldconfig || true; fi
	@case '$(PREFIX)' in /usr|/usr/local) ;; *) \
	    lib=$$(dirname "$$(find '$(DESTDIR)$(PREFIX)' -name libpaceline.so | head -n 1)"); \
	    echo "To use the library from $$lib:"; \
	    echo "  export PKG_CONFIG_PATH=$$lib/pkgconfig LD_LIBRARY_PATH=$$lib";; esac

sanitize: sanitize-address sanitize-thread ## both of the following

sanitize-address: setup-test ## run every test with the address and undefined sanitizers
	@$(configure) -B build-asan -DPACELINE_SANITIZE=address,undefined
	@$(compile) build-asan --parallel $(JOBS)
	@$(run_tests) $(JOBS) --test-dir build-asan

sanitize-thread: setup ## run the test programs with the thread sanitizer
	@$(configure) -B build-tsan -DPACELINE_SANITIZE=thread
	@$(compile) build-tsan --parallel $(JOBS)
	@$(run_tests) $(JOBS) --test-dir build-tsan -LE script

check-compilers: setup-dev ## build with gcc and with clang; any warning is an error
	@for cc in gcc clang; do \
	    echo "== $$cc"; \
	    $(configure) -B build-$$cc -DCMAKE_C_COMPILER=$$cc -DPACELINE_WERROR=ON && \
	    $(compile) build-$$cc --parallel $(JOBS) --target all bench || exit 1; \
	done

format: setup-dev ## run clang-format on every C file
	@$(sources) | xargs clang-format -i

clean: ## remove all build folders
	rm -rf build build-asan build-tsan build-gcc build-clang build-fuzz
