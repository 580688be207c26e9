# A thin front for CMake: `make help` lists what there is.

# The main job, as `make demo` runs it: a race on a virtual clock, and the same for real.
DEMO      = $(BUILD)/paceline race --demo --seeds 3
DEMO_REAL = $(BUILD)/paceline race --demo --real

BUILD       = build
PREFIX      = /usr/local
DESTDIR     =
CMAKE_FLAGS =
JOBS       := $(shell nproc 2>/dev/null || echo 1)

have_cmake = command -v cmake >/dev/null || \
    { echo "cmake is needed and not here; 'make setup' installs it" >&2; exit 1; }
configure = $(have_cmake); cmake --log-level=WARNING -S . -DCMAKE_BUILD_TYPE=Release $(CMAKE_FLAGS)
# `make -j` of ours must not meddle with the -j of the makes that CMake starts.
compile   = env -u MAKELEVEL MAKEFLAGS=--no-print-directory cmake --build
run_tests = ctest --output-on-failure --no-tests=error --parallel $(JOBS) --test-dir
sources   = find include src tests bench -name '*.[ch]'

.NOTPARALLEL:
.PHONY: help setup setup-dev build demo test agree bench install sanitize check-compilers format clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' Makefile

setup: ## install the packages that are missing (packages.txt; apt-get)
	@scripts/setup

setup-dev: ## those for developers as well: clang, clang-format, g++
	@scripts/setup dev

build: ## build the program and the library into build/, and nothing else
	@$(configure) -B $(BUILD)
	@$(compile) $(BUILD) --parallel $(JOBS) --target product

demo: setup build ## set up, build and run the main job: a race of methods, simulated and real
	$(DEMO)
	$(DEMO_REAL)

test: setup ## set up, build and run every test
	@$(configure) -B $(BUILD)
	@$(compile) $(BUILD) --parallel $(JOBS)
	@$(run_tests) $(BUILD)

agree: setup build ## time per update, simulated and real, within 10 % (three minutes)
	@scripts/agree $(BUILD)/paceline

bench: setup ## set up, build and run the benchmarks
	@$(configure) -B $(BUILD)
	@$(compile) $(BUILD) --parallel $(JOBS) --target product bench
	@for source in bench/bench_*.c; do \
	    program=$(BUILD)/bench/$$(basename $$source .c); \
	    echo "== $$program"; \
	    [ -x $$program ] || { echo "skipped: needs MPI (make setup)"; continue; }; \
	    PACELINE=$(BUILD)/paceline BENCH_PEERS=$(BUILD)/bench \
	        BENCH_SCRIPTS=bench $$program || exit 1; \
	done

install: build ## install program, library, header, manual (PREFIX=/usr/local, DESTDIR=)
	@DESTDIR='$(DESTDIR)' cmake --install $(BUILD) --prefix '$(PREFIX)'
	@if [ -z '$(DESTDIR)' ] && [ "$$(id -u)" = 0 ]; then ldconfig || true; fi

sanitize: setup ## every test under address + undefined (build-asan/) and thread (build-tsan/)
	@$(configure) -B build-asan -DPACELINE_SANITIZE=address,undefined
	@$(compile) build-asan --parallel $(JOBS)
	@$(configure) -B build-tsan -DPACELINE_SANITIZE=thread
	@$(compile) build-tsan --parallel $(JOBS)
	@status=0; for b in build-asan build-tsan; do \
	    echo "== $$b"; $(run_tests) $$b || status=1; \
	done; exit $$status

check-compilers: setup-dev ## everything compiles without a warning, by gcc and by clang
	@for cc in gcc clang; do \
	    echo "== $$cc"; \
	    $(configure) -B build-$$cc -DCMAKE_C_COMPILER=$$cc -DPACELINE_WERROR=ON && \
	    $(compile) build-$$cc --parallel $(JOBS) --target all bench || exit 1; \
	done

format: setup-dev ## clang-format over every C file
	@$(sources) | xargs clang-format -i

clean: ## remove everything built
	rm -rf build build-asan build-tsan build-gcc build-clang
