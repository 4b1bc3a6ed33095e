# Thin: every target is one script or one CMake preset.
BUILD ?= build
JOBS ?= $(shell nproc)
# Options of CMakeLists.txt that can be given here, too: make build LAMINA_CUDA=ON. They stay until others are given.
OPTIONS := $(foreach name,LAMINA_CUDA LAMINA_SIMD,$(if $($(name)),-D$(name)=$($(name))))
# What quickstart builds: the program alone, for this machine's CPU.
NATIVE := $(BUILD)/native
NATIVE_OPTIONS := -DLAMINA_SIMD=native -DLAMINA_CUDA=$(or $(LAMINA_CUDA),OFF) -DLAMINA_TESTS=OFF -DLAMINA_BENCH=OFF \
  -DLAMINA_EXAMPLES=OFF

.PHONY: help deps build quickstart test bench lint docs stories install package clean
help:
	@echo "make deps        install what the build needs (Debian packages, by name)"
	@echo "make build       build/bin/lamina, for every CPU; GPU kernels if there is a GPU, or with LAMINA_CUDA=ON"
	@echo "make quickstart  build for this CPU, train a small model on Shakespeare for three minutes, draw its loss, let it write"
	@echo "make test        everything CI runs: tests, sanitizers, fuzzing, the installed library"
	@echo "make bench       measure against the machine's limits and other libraries; table and build/bench.json"
	@echo "make lint        includes between rooms, sizes, clang-format, clang-tidy"
	@echo "make docs        regenerate the generated pages of docs/, and build the API reference in build/api (Doxygen)"
	@echo "make stories     fetch a small trained model into build/stories15M.bin (npm package, 61 MB)"
	@echo "make install     install the library and program (PREFIX=/usr/local)"
	@echo "make package     build/packages: a Debian package and a tarball that runs from any folder"

deps:
	@tools/deps

ifneq ($(OPTIONS),)
.PHONY: $(BUILD)/build.ninja
endif
$(BUILD)/build.ninja: CMakeLists.txt CMakePresets.json | deps
	cmake --preset release -B $(BUILD) $(OPTIONS)

build: deps $(BUILD)/build.ninja
	cmake --build $(BUILD) -j $(JOBS) --target lamina_program

quickstart: deps
	@tools/deps --quickstart
	cmake --preset release -B $(NATIVE) $(NATIVE_OPTIONS)
	cmake --build $(NATIVE) -j $(JOBS) --target lamina_program
	@BUILD=$(BUILD) LAMINA=$(NATIVE)/bin/lamina tools/quickstart

test:
	@tools/deps --test
	@JOBS=$(JOBS) tools/test

bench:
	@tools/deps --bench
	cmake --preset release -B $(BUILD) $(OPTIONS)
	cmake --build $(BUILD) -j $(JOBS) --target lamina_bench
	$(BUILD)/bin/lamina_bench --json $(BUILD)/bench.json

lint:
	@tools/deps --lint
	@tools/lint

# Replaces the lines between two markers of a page by the standard input.
REPLACE_FIELDS := -e '/<!-- fields -->/,/<!-- end of fields -->/{//!d}' -e '/<!-- fields -->/r /dev/stdin'
docs: deps $(BUILD)/build.ninja
	@tools/deps --test --docs
	cmake --build $(BUILD) -j $(JOBS) --target op_test lamina_program
	$(BUILD)/bin/op_test --support-table > docs/reference/operators.md
	$(BUILD)/bin/lamina presets schema > docs/reference/architecture-file.md
	$(BUILD)/bin/lamina presets options docs/options
	$(BUILD)/bin/lamina train --fields | sed -i $(REPLACE_FIELDS) docs/reference/recipe-file.md
	$(BUILD)/bin/lamina compare --fields | sed -i $(REPLACE_FIELDS) docs/reference/study-file.md
	tools/api-docs $(BUILD)/api

stories:
	@tools/fetch-stories $(BUILD)/stories15M.bin

install: build
	cmake --install $(BUILD) $(if $(PREFIX),--prefix $(PREFIX))

package: build
	@tools/deps --package
	cd $(BUILD) && cpack

clean:
	rm -rf build build-*
