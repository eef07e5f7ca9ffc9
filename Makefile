# gradscale: `make` builds, `make test` tests, `make demo` shows. GNU make, no configure step.
#
#   make                   libraries and program, in build/
#   make demo              fp16 with and without loss scaling, side by side; a few minutes
#   make suites            the test programs, without running them
#   make test              set up, build, run all suites
#   make test-long         the same with everything there is to test
#   make test-arm          the suites of numbers on AArch64, in an emulator
#   make test-port         one hash of all numbers, on other architectures, C libraries and Windows
#   make fuzz              every reader against any bytes, ASan and UBSan on [SECONDS=10] [ONLY=fuzz_log] [LENGTH=8192]
#   make coverage          lines and branches that the suites run, by folder
#   make mutants           break the library on purpose: do the tests notice? [COUNT=40] [SEED=1]
#   make bench             every pass over gradients against memory bandwidth
#   make bench-advise      `gradscale advise` against 1 GB of files [FOLDER=/dev/shm]
#   make amalgamation      the library as two files, in dist/
#   make dist              a release of the last commit: build/gradscale-VERSION.tar.gz
#   make install           [DESTDIR=] [PREFIX=/usr/local] [LIBDIR=] [STRIP=yes: debug info apart, in .debug/]
#   make install-lib       libgradscale alone, which needs no other library
#   make uninstall         with the same variables
#   make man               the man pages, in build/man
#   make torch             PyPI's torch in build/torch, gigabytes, for the suite of gradscale/torch.hpp
#   make oracle            PyPI's transformers, onnxruntime and others in build/oracle, gigabytes, for suite_use
#   make bench-torch       training steps beside PyTorch's, minutes [BENCH_ARGS="--models cnn --json"]
#   make python            PyPI's packages for the tests of python/ in .cache/python, gigabytes
#   make deps              install the packages that building and testing need
#   make format            apply clang-format
#   make check-format      is it applied?
#   make check-layers      does every include obey the layer law?
#   make check-abi         is the ABI the one that is stored in abi/? (abidiff of abigail-tools)
#   make abi               store it anew
#   make source-lists      write the list of sources into meson.build
#   make source-lists-check      is it as written?
#   make compile_commands.json   for clangd and other tools
#   make clean             remove build/ and build-*/
#   make help              this list
#
# CC=clang, SAN=address,undefined, SAN=thread and (with clang) SAN=memory build in folders of their own; V=1 shows the commands;
# WERROR= lets warnings pass. CMakeLists.txt and meson.build are for programs that are built with those.

ifeq ($(origin CC),default)
CC := gcc
endif
ifeq ($(origin CXX),default)
CXX := $(if $(findstring clang,$(CC)),clang++,g++)
endif
PREFIX  ?= /usr/local
LIBDIR  ?= $(PREFIX)/lib
SAN     ?=
comma   := ,
BUILD   := build$(patsubst %,-%,$(filter-out gcc,$(notdir $(CC))))$(patsubst %,-%,$(subst $(comma),-,$(SAN)))

number  = $(shell sed -n 's/^\#define GS_VERSION_$(1) *//p' include/gradscale/base.h)
MAJOR   := $(call number,MAJOR)
MINOR   := $(call number,MINOR)
VERSION := $(MAJOR).$(MINOR).$(call number,PATCH)
# Of the sonames: until 1.0 every minor version may change the ABI.
SOVERSION := $(if $(filter 0,$(MAJOR)),$(MAJOR).$(MINOR),$(MAJOR))

WERROR   ?= -Werror
MACHINE  := $(shell $(CC) -dumpmachine)
WARN     := -std=c11 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wdouble-promotion \
            -Wstrict-prototypes -Wmissing-prototypes $(WERROR) \
            $(if $(findstring mingw,$(MACHINE)),-Wno-float-conversion) # its isnan is a macro that converts
# No contraction to fma, no wider intermediate results: every machine must round as the reference does.
CFLAGS   ?= -O2 -g
ROUNDING := -ffp-contract=off $(if $(filter i386-% i486-% i586-% i686-%,$(MACHINE)),-msse2 -mfpmath=sse) \
            $(if $(findstring clang,$(CC)),,$(if $(filter s390%,$(MACHINE)),-fexcess-precision=fast))
ALLFLAGS = $(WARN) $(CFLAGS) $(ROUNDING) -fPIC -fvisibility=hidden -pthread -MMD -MP \
            -D_POSIX_C_SOURCE=200809L -Iinclude $(INCLUDE) \
            $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)

# ---- what there is ----

# libgradscale needs libc, libm and threads; libgradscale_train zlib, libpng and libjpeg too; the program jansson. The second
# exists as soon as its folders have sources.
below        = $(sort $(shell find $(1) -name '$(2)' 2>/dev/null))
CORE        := $(call below,$(addprefix src/,base num kernel scaler optim comm engine),*.c)
TRAIN       := $(call below,src/io src/train,*.c)
# libgradscale_mpi exists where an MPI compiler does (MPICC=mpicc.mpich: another one; MPICC=: none).
MPICC       ?= $(shell command -v mpicc)
MPI         := $(if $(MPICC),$(wildcard mpi/*.c))
MPI_LIBS    := $(if $(MPI),$(filter -L% -l%,$(shell $(MPICC) -show 2>/dev/null)))
# libgradscale_device opens CUDA's and OpenCL's libraries when it is asked to. Its kernels are one text; where
# nvcc is, they are PTX as well (NVCC=: none).
DEVICE      := $(call below,src/device,*.c)
NVCC        ?= $(shell command -v nvcc)
CLI         := $(call below,cli,*.c)
HEADERS     := $(wildcard include/gradscale/*.h include/gradscale/*.hpp)
# Those of libgradscale: not what needs the other libraries.
CORE_HEADERS = $(filter-out $(addprefix include/gradscale/,io.h trace.h tokenizer.h train.h data.h checkpoint.h infer.h log.h mpi.h \
                 device.h),$(HEADERS))
LIBS        := -lm -pthread
TRAIN_LIBS  := -lz -lpng -ljpeg
obj          = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
names        = $(BUILD)/lib$(1).so $(BUILD)/lib$(1).so.$(SOVERSION)

PARTS   := gradscale gradscale_device $(if $(TRAIN),gradscale_train $(if $(MPI),gradscale_mpi))
STATIC  := $(patsubst %,$(BUILD)/lib%.a,$(PARTS))
SHARED  := $(patsubst %,$(BUILD)/lib%.so.$(VERSION),$(PARTS))
PROGRAM := $(BUILD)/gradscale
# Dependents first: the order of a static link.
LINK    := $(BUILD)/libgradscale_device.a $(if $(TRAIN),$(BUILD)/libgradscale_train.a) $(BUILD)/libgradscale.a
LDLIBS  := $(if $(TRAIN),$(TRAIN_LIBS) -ljansson) $(LIBS) -ldl

# A suite is a file of tests/unit or tests/check with a main or a table of tests, or a script suite_*.sh.
SUITES  := $(addprefix $(BUILD)/tests/,$(basename $(notdir \
             $(shell grep -lwE '^(int main|TESTS)' $(wildcard tests/unit/*.c tests/check/*.c) /dev/null))))
ifeq ($(SAN),thread) # the others have one thread, and it is slow
SUITES  := $(filter-out $(addprefix %/,checkkern checkrows checkoptim test_num test_halves test_math \
             test_rows test_device_cuda),$(SUITES))
endif
SCRIPTS := $(wildcard tests/*/suite_*.sh)
# MSan has to see every write: not the suites whose bytes come from zlib, libpng, libjpeg or jansson, by system calls past
# libc (faults.h), or from another compiler's code. VCVTPS2PH it takes to read lanes that a mask leaves out: test_gemm.
ifeq ($(SAN),memory)
SUITES  := $(filter-out $(addprefix %/test_,data images image_kinds io io_corners io_faults io_limits json_read loader log \
             gemm ptx device device_cuda device_opencl),$(SUITES))
SCRIPTS :=
endif
# What make test-arm runs: all that speaks of numbers.
ARM     := $(filter $(addprefix %/,$(addprefix test_,base num halves dispatch views pass pass_values pass_bad exponents \
             scaler scaler_policies scaler_state scaler_steps scaler_users scaler_groups scaler_edges gemm \
             gemm_bad gemm_pairs gemm_panels int8 attention math rows optim optim_loop optim_rules optim_state \
             parity) checkkern checkrows checkoptim),$(SUITES))

CPUS    := $(shell nproc 2>/dev/null || echo 2)
JOBS     = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(CPUS))

.PHONY: all man suites fuzz run-fuzz coverage run-coverage torch python oracle amalgamation deps test test-long test-arm \
        test-port run-tests run-arm demo bench bench-advise bench-torch \
        mutants install install-lib uninstall dist source-lists source-lists-check format check-format check-layers \
        abi check-abi clean help compile_commands.json
.SECONDARY:

all: $(STATIC) $(SHARED) $(PROGRAM)
suites: $(SUITES) $(BUILD)/tests/port_hash $(BUILD)/tests/iofault $(BUILD)/tests/nomemory.so \
    $(BUILD)/tests/accepts $(if $(filter gradscale_mpi,$(PARTS)),$(BUILD)/tests/mpi_steps)

# ---- building (V=1 shows the commands) ----

say = @$(if $(V),set -x;,printf '%-5s %s\n' $(1) $@;)

# The program sees public headers and its own, the library its layers, the tests everything.
INCLUDE = -Isrc
$(BUILD)/obj/cli/%.o: INCLUDE = -I.
$(BUILD)/obj/tests/%.o: INCLUDE = -Isrc -I. -Itests/support -Itests/ptx

$(BUILD)/obj/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(ALLFLAGS) -c -o $@ $<

$(call obj,$(MPI)): export OMPI_CC := $(CC)
$(call obj,$(MPI)): export MPICH_CC := $(CC)
$(BUILD)/obj/mpi/%.o: mpi/%.c Makefile
	@mkdir -p $(@D)
	$(call say,MPICC)$(MPICC) $(ALLFLAGS) -c -o $@ $<

# With checks in them the unrolled products take minutes, to compile or to run: test_gemm has guard
# pages around every matrix instead.
ifneq ($(findstring address,$(SAN)),)
$(BUILD)/obj/src/kernel/gemm/avx%.o: ALLFLAGS += -fno-sanitize=all
endif
ifneq ($(findstring memory,$(SAN)),) # what these write counts as written only if they are checked: by calls
$(BUILD)/obj/src/kernel/gemm/avx%.o: ALLFLAGS += -mllvm -msan-instrumentation-with-call-threshold=0
endif

$(BUILD)/libgradscale.a: $(call obj,$(CORE))
$(BUILD)/libgradscale_train.a: $(call obj,$(TRAIN))
$(BUILD)/libgradscale_mpi.a: $(call obj,$(MPI))
$(BUILD)/libgradscale_device.a: $(call obj,$(DEVICE)) $(BUILD)/obj/device/text.o
$(STATIC):
	@rm -f $@
	$(call say,AR)$(AR) rcs $@ $^

$(BUILD)/libgradscale.so.$(VERSION): $(call obj,$(CORE))
	$(call say,LINK)$(CC) $(ALLFLAGS) $(LDFLAGS) -shared -Wl,-soname,libgradscale.so.$(SOVERSION) -o $@ $^ $(LIBS)
	@for name in $(call names,gradscale); do ln -sf $(@F) $$name; done

# What is private to libgradscale is not exported by its shared form: the archive gives it, hidden.
$(BUILD)/libgradscale_train.so.$(VERSION): $(call obj,$(TRAIN)) $(BUILD)/libgradscale.so.$(VERSION) \
                                           $(BUILD)/libgradscale.a
	$(call say,LINK)$(CC) $(ALLFLAGS) $(LDFLAGS) -shared -Wl,-soname,libgradscale_train.so.$(SOVERSION) \
	    -Wl,--exclude-libs,ALL -o $@ $^ $(TRAIN_LIBS) $(LIBS)
	@for name in $(call names,gradscale_train); do ln -sf $(@F) $$name; done

$(BUILD)/libgradscale_device.so.$(VERSION): $(call obj,$(DEVICE)) $(BUILD)/obj/device/text.o \
                                            $(BUILD)/libgradscale.so.$(VERSION) $(BUILD)/libgradscale.a
	$(call say,LINK)$(CC) $(ALLFLAGS) $(LDFLAGS) -shared -Wl,-soname,libgradscale_device.so.$(SOVERSION) \
	    -Wl,--exclude-libs,ALL -o $@ $^ -ldl $(LIBS)
	@for name in $(call names,gradscale_device); do ln -sf $(@F) $$name; done

# The kernels as one text, and as PTX for the oldest architecture that nvcc knows; both as arrays of bytes.
KERNEL_SOURCES := scripts/device_source.sh $(wildcard src/device/kernels/*.h) include/gradscale/num.h \
                  $(addprefix include/gradscale/,tensor.h scaler.h optim.h) src/num/convert.h src/base/rng.c \
                  src/scaler/machine.c src/scaler/scaler.h
NVCCFLAGS := -O3 -fmad=false
$(BUILD)/device/kernels.txt: $(KERNEL_SOURCES)
	@mkdir -p $(@D)
	$(call say,TEXT)scripts/device_source.sh >$@.tmp && mv $@.tmp $@

$(BUILD)/device/sm_%.ptx: $(BUILD)/device/kernels.txt Makefile
	$(call say,NVCC)cp $< $(@D)/kernels_$*.cu && $(NVCC) $(NVCCFLAGS) -arch=compute_$* -ptx $(@D)/kernels_$*.cu -o $@

$(BUILD)/device/text.c: $(BUILD)/device/kernels.txt $(if $(NVCC),$(BUILD)/device/sm_75.ptx)
	@scripts/device_text.sh $^ >$@.tmp && mv $@.tmp $@

$(BUILD)/obj/device/text.o: $(BUILD)/device/text.c
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(ALLFLAGS) -c -o $@ $<

# It needs nothing of libgradscale but headers: the program, which has that inside, opens it when it
# runs as one of several ranks.
$(BUILD)/libgradscale_mpi.so.$(VERSION): $(call obj,$(MPI))
	$(call say,LINK)$(CC) $(ALLFLAGS) $(LDFLAGS) -shared -Wl,-soname,libgradscale_mpi.so.$(SOVERSION) \
	    -o $@ $^ $(MPI_LIBS)
	@for name in $(call names,gradscale_mpi); do ln -sf $(@F) $$name; done

$(PROGRAM): $(call obj,$(CLI)) $(LINK)
	$(call say,LINK)$(CC) $(ALLFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/bench/%: $(BUILD)/obj/bench/%.o $(LINK)
	@mkdir -p $(@D)
	$(call say,LINK)$(CC) $(ALLFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/tests/%: $(BUILD)/obj/tests/unit/%.o $(LINK)
	@mkdir -p $(@D)
	$(call say,LINK)$(CC) $(ALLFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LDLIBS)

$(BUILD)/tests/%: $(BUILD)/obj/tests/check/%.o $(LINK)
	@mkdir -p $(@D)
	$(call say,LINK)$(CC) $(ALLFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LDLIBS)

# Ranks over MPI: suite_mpi.sh runs it.
$(BUILD)/tests/mpi_steps: $(BUILD)/obj/tests/mpi/steps.o $(BUILD)/libgradscale_mpi.a $(LINK)
	@mkdir -p $(@D)
	$(call say,LINK)$(CC) $(ALLFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LDLIBS) $(MPI_LIBS)

# Fails system calls of a program: suite_trust.sh, suite_faults.sh. It needs no library, and is no sanitizer's matter.
$(BUILD)/tests/iofault: tests/fault/iofault.c Makefile
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(WARN) $(CFLAGS) -o $@ $<

# Fails allocations of a program that preloads it: suite_trust.sh.
$(BUILD)/tests/nomemory.so: tests/fault/nomemory.c Makefile
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(WARN) $(CFLAGS) -fPIC -shared -o $@ $<

# What our readers accept: tests/fuzz/against.py asks it.
$(BUILD)/tests/accepts: $(BUILD)/obj/tests/fuzz/accepts.o $(LINK)
	@mkdir -p $(@D)
	$(call say,LINK)$(CC) $(ALLFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LDLIBS)

# Fuzz targets: with clang and SAN=fuzzer-no-link,... alone, as `make fuzz` has it. Those of the program have all of it
# but its main; the others have not, since libFuzzer looks at every counter after every input.
FUZZ := $(notdir $(basename $(wildcard tests/fuzz/fuzz_*.c)))
$(BUILD)/obj/tests/fuzz/%.o: INCLUDE = -Isrc -I.
# Inputs are kept for what they reach in the product, not in the target.
$(BUILD)/obj/tests/fuzz/fuzz_%.o: ALLFLAGS += -fno-sanitize=fuzzer-no-link
$(addprefix $(BUILD)/fuzz/fuzz_,config report): $(filter-out %/core/main.o,$(call obj,$(CLI)))
$(BUILD)/fuzz/%: $(BUILD)/obj/tests/fuzz/%.o $(LINK)
	@mkdir -p $(@D)
	$(call say,LINK)$(CC) $(ALLFLAGS) -fsanitize=fuzzer $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LDLIBS) -ldl

# The bits of everything as one hash: suite_port.sh.
$(BUILD)/tests/port_hash: $(BUILD)/obj/tests/port/hash.o $(BUILD)/libgradscale.a
	@mkdir -p $(@D)
	$(call say,LINK)$(CC) $(ALLFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

# CUDA without a GPU: PTX of the oldest and newest architecture, and a stand-in for libcuda.so.1 that
# interprets it; with a soname of its own, because NVRTC looks whether libcuda.so.1 is there and calls it.
PTX     := $(if $(NVCC),$(patsubst %,$(BUILD)/device/sm_%.ptx,75 121))
$(BUILD)/tests/ptx/libcuda.so.1: $(call obj,$(wildcard tests/ptx/*.c))
	@mkdir -p $(@D)
	$(call say,LINK)$(CC) $(ALLFLAGS) $(LDFLAGS) -shared -Wl,-soname,stand-in.so -o $@ $^ $(LIBS)
$(BUILD)/tests/test_device_cuda: | $(BUILD)/tests/ptx/libcuda.so.1 $(PTX)
suites: $(BUILD)/tests/ptx/libcuda.so.1 $(PTX) # suite_device takes it as well
$(BUILD)/tests/ptx/numbers_%.ptx: tests/ptx/numbers.cu Makefile
	@mkdir -p $(@D)
	$(call say,NVCC)$(NVCC) $(NVCCFLAGS) -arch=compute_$* -ptx $< -o $@
$(BUILD)/tests/test_ptx: $(call obj,$(wildcard tests/ptx/ptx_*.c)) \
    | $(if $(NVCC),$(patsubst %,$(BUILD)/tests/ptx/numbers_%.ptx,75 121))

# An OpenCL device that cannot be used.
$(BUILD)/tests/libno_f64.so: $(call obj,tests/device/no_f64.c)
	@mkdir -p $(@D)
	$(call say,LINK)$(CC) $(ALLFLAGS) $(LDFLAGS) -shared -o $@ $^ $(LIBS)
$(BUILD)/tests/test_device: | $(BUILD)/tests/libno_f64.so

# A caller whose flags are careless.
$(BUILD)/tests/test_pass: $(BUILD)/obj/tests/unit/fastmath.o
$(BUILD)/obj/tests/unit/fastmath.o: ALLFLAGS += -ffast-math

# ---- testing ----

deps:
	@scripts/deps.sh build test

# The set-up first, then as many jobs as there are CPUs.
test:
	@scripts/deps.sh build test
	@$(MAKE) --no-print-directory $(JOBS) all suites
	@$(MAKE) --no-print-directory run-tests

test-long:
	@GS_LONG=1 $(MAKE) --no-print-directory test

run-tests:
	@BUILD=$(BUILD) CC="$(CC)" CXX="$(CXX)" MPICC="$(MPICC)" SAN="$(SAN)" MAKE="$(MAKE)" MAKEFLAGS= \
	    tests/support/run.sh $(PROGRAM) $(sort $(SUITES)) $(SCRIPTS)

# The same numbers on another architecture, in an emulator.
test-arm:
	@scripts/deps.sh arm
	@$(MAKE) --no-print-directory $(JOBS) run-arm TRAIN= MPICC= LDFLAGS=-static \
	    CC=aarch64-linux-gnu-gcc AR=aarch64-linux-gnu-ar

run-arm: $(ARM)
	@BUILD=$(BUILD) RUN=qemu-aarch64 tests/support/run.sh $(PROGRAM) $(ARM)

# The same bits on other architectures, C libraries and systems.
test-port:
	@scripts/deps.sh port
	@GS_LONG=1 $(MAKE) --no-print-directory $(JOBS) $(BUILD)/tests/port_hash
	@GS_LONG=1 BUILD=$(BUILD) CC="$(CC)" MAKE="$(MAKE)" MAKEFLAGS= tests/support/run.sh $(PROGRAM) tests/tree/suite_port.sh

# Every reader against any bytes. The records of executions: doc/security.md.
SECONDS ?= 10
ONLY    ?= $(FUZZ)
LENGTH  ?= 8192
fuzz:
	@$(MAKE) --no-print-directory $(JOBS) run-fuzz CC=clang SAN=fuzzer-no-link,$(or $(SAN),address$(comma)undefined) MPICC=

run-fuzz: $(addprefix $(BUILD)/fuzz/,$(ONLY))
	@LENGTH=$(LENGTH) tests/fuzz/run.sh $(BUILD) $(SECONDS) $(ONLY)

# What the suites run of the code, as a table: gcov's counts. Nothing is inlined, so that a branch is counted where it is written.
# Some suites fail here, since gcov's own code crashes without memory and programs that they link lack it: the table counts.
coverage:
	@$(MAKE) --no-print-directory $(JOBS) run-coverage BUILD=build-coverage \
	    CFLAGS="-O1 -g -fno-inline --coverage -fprofile-update=atomic" LDFLAGS=--coverage WERROR=

COVERED = $(filter-out suite_package.sh suite_install.sh suite_torch.sh suite_amalgamation.sh suite_browser.sh suite_fuzz.sh, \
            $(notdir $(SCRIPTS)))
run-coverage: all suites
	@find $(BUILD) -name '*.gcda' -delete
	-@BUILD=$(BUILD) CC="$(CC)" CXX="$(CXX)" MPICC="$(MPICC)" MAKE="$(MAKE)" MAKEFLAGS= tests/support/run.sh $(PROGRAM) \
	    $(sort $(SUITES)) $(filter $(addprefix tests/cli/,$(COVERED)),$(SCRIPTS))
	@scripts/coverage.py $(BUILD)

# No part of the tests' set-up: where it is not there, suite_torch skips. (What PYTHONPATH has would be taken for
# installed.)
PIP = env -u PYTHONPATH $@ -m pip install -q
torch: build/torch/bin/python
build/torch/bin/python:
	@python3 -m venv build/torch && $(PIP) torch numpy || \
	    { rm -rf build/torch; exit 1; }

# The same for what reads and writes models: transformers, onnxruntime, torchvision, tokenizers.
oracle: build/oracle/bin/python
build/oracle/bin/python:
	@python3 -m venv build/oracle && $(PIP) torch torchvision transformers \
	    tokenizers onnx onnxruntime safetensors numpy pillow || { rm -rf build/oracle; exit 1; }

bench-torch: $(PROGRAM) torch
	@build/torch/bin/python bench/torch_step.py --program $(PROGRAM) $(BENCH_ARGS)

# The same for suite_python, which makes the package and tests it. Kept outside of build/: it is large.
python: .cache/python/bin/python
.cache/python/bin/python: python/tests/requirements.txt
	@python3 -m venv .cache/python && $(PIP) -r $< && touch $@ || { rm -rf .cache/python; exit 1; }

mutants:
	@scripts/deps.sh build test
	@tests/mutants/mutants.sh $(COUNT) $(SEED)

# ---- showing ----

# Without its data set it shows less.
demo:
	@scripts/deps.sh build
	@scripts/deps.sh demo || true
	@mkdir -p $(BUILD)
	@$(MAKE) --no-print-directory $(JOBS) all >$(BUILD)/log 2>&1 || { cat $(BUILD)/log; exit 1; }
	@BUILD=$(BUILD) CC="$(CC)" scripts/demo.sh $(PROGRAM)

bench: all
	$(PROGRAM) bench kernels

# Needs 1 GB of memory in FOLDER.
FOLDER ?= /dev/shm
bench-advise: all $(BUILD)/bench/advise
	$(BUILD)/bench/advise $(PROGRAM) $(FOLDER)

# ---- installing ----

# $(1) name, $(2) description, $(3) what it requires, $(4) what its static form links besides
define pkgconfig
prefix=$(PREFIX)
libdir=$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))
includedir=$${prefix}/include

Name: $(1)
Description: $(2)
Version: $(VERSION)
Requires: $(3)
Libs: -L$${libdir} -l$(1)
Libs.private: $(4)
Cflags: -I$${includedir}
endef
export PC_gradscale := $(call pkgconfig,gradscale,Loss scaling for mixed-precision training,,$(LIBS))
export PC_gradscale_train := $(call pkgconfig,gradscale_train,Mixed-precision training: data sets$(comma) checkpoints$(comma) the step,gradscale = $(VERSION),$(TRAIN_LIBS))
export PC_gradscale_device := $(call pkgconfig,gradscale_device,Loss scaling on CUDA and OpenCL devices,gradscale = $(VERSION),-ldl)
export PC_gradscale_mpi := $(call pkgconfig,gradscale_mpi,Mixed-precision training on several machines,gradscale = $(VERSION),$(MPI_LIBS))

# What `gradscale train --data self` reads where there is no source tree: each source with a 0 after it.
SOURCES := $(foreach d,include src cli,$(call below,$(d),*.[ch]*))
$(BUILD)/self.txt: $(SOURCES)
	@for file in $^; do cat $$file && printf '\0' || exit 1; done >$@

# CMake's find_package reads these; the parts that are installed say which targets there are.
$(BUILD)/gradscaleConfigVersion.cmake: cmake/gradscaleConfigVersion.cmake.in include/gradscale/base.h
	@sed 's/@VERSION@/$(VERSION)/; s/@SOVERSION@/$(SOVERSION)/' $< >$@

# $(1) parts. Unstripped, as distributions want it: they strip by themselves. With STRIP=yes debug info goes
# into .debug/ beside each file, where gdb looks for it.
OBJCOPY ?= objcopy
apart    = $(if $(filter yes,$(STRIP)),d=$$(dirname $(1))/.debug && install -d $$d && \
               $(OBJCOPY) --only-keep-debug $(1) $$d/$(notdir $(1)).debug && chmod 644 $$d/$(notdir $(1)).debug && \
               $(OBJCOPY) --strip-unneeded --add-gnu-debuglink=$$d/$(notdir $(1)).debug $(1),:)
define install_parts
	install -d $(DESTDIR)$(PREFIX)/include/gradscale $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(LIBDIR)/cmake/gradscale
	install -m 644 $(patsubst %,$(BUILD)/lib%.a,$(1)) $(patsubst %,$(BUILD)/lib%.so.$(VERSION),$(1)) \
	    $(DESTDIR)$(LIBDIR)
	$(if $(filter yes,$(STRIP)),@for part in $(1); do $(OBJCOPY) --strip-debug $(DESTDIR)$(LIBDIR)/lib$$part.a || exit 1; done)
	@for part in $(1); do \
	    $(call apart,$(DESTDIR)$(LIBDIR)/lib$$part.so.$(VERSION)) && \
	    ln -sf lib$$part.so.$(VERSION) $(DESTDIR)$(LIBDIR)/lib$$part.so.$(SOVERSION) && \
	    ln -sf lib$$part.so.$(VERSION) $(DESTDIR)$(LIBDIR)/lib$$part.so && \
	    printenv PC_$$part >$(DESTDIR)$(LIBDIR)/pkgconfig/$$part.pc || exit 1; done
	install -m 644 cmake/gradscaleConfig.cmake $(BUILD)/gradscaleConfigVersion.cmake \
	    $(DESTDIR)$(LIBDIR)/cmake/gradscale
endef

# Pages from the tables of options: the program prints them, and says which commands there are.
SHARE   := $(PREFIX)/share
commands = $$($(PROGRAM) $(1) --help=words | sed -n '/^-/d; s/\t.*//p')
man: $(BUILD)/man/done
$(BUILD)/man/done: $(PROGRAM)
	@rm -rf $(@D) && mkdir -p $(@D) && $(PROGRAM) --help=man >$(@D)/gradscale.1
	@for c in $(call commands,); do $(PROGRAM) $$c --help=man >$(@D)/gradscale-$$c.1 || exit 1; done
	@for of in bench tokenize; do for c in $(call commands,$$of); do \
	    $(PROGRAM) $$of $$c --help=man >$(@D)/gradscale-$$of-$$c.1 || exit 1; done; done
	@touch $@

# $(1) folder in the tree, $(2) where: all of its files
copy_files = (cd $(1) && find . -type f) | while read -r f; do \
                 install -D -m 644 "$(1)/$$f" "$(2)/$$f" || exit 1; done

install: all man $(BUILD)/self.txt $(BUILD)/gradscaleConfigVersion.cmake
	$(call install_parts,$(PARTS))
	install -m 644 $(HEADERS) $(DESTDIR)$(PREFIX)/include/gradscale
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/gradscale
	install $(PROGRAM) $(DESTDIR)$(PREFIX)/bin
	@$(call apart,$(DESTDIR)$(PREFIX)/bin/gradscale)
	install -m 644 $(BUILD)/self.txt $(DESTDIR)$(PREFIX)/share/gradscale
	install -D -m 644 completion/gradscale.bash $(DESTDIR)$(SHARE)/bash-completion/completions/gradscale
	install -D -m 644 completion/_gradscale $(DESTDIR)$(SHARE)/zsh/site-functions/_gradscale
	install -D -m 644 completion/gradscale.fish $(DESTDIR)$(SHARE)/fish/vendor_completions.d/gradscale.fish
	install -d $(DESTDIR)$(SHARE)/man/man1 $(DESTDIR)$(SHARE)/doc/gradscale
	install -m 644 $(BUILD)/man/*.1 $(DESTDIR)$(SHARE)/man/man1
	install -m 644 README.md CHANGELOG.md LICENSE $(DESTDIR)$(SHARE)/doc/gradscale
	@$(call copy_files,doc,$(DESTDIR)$(SHARE)/doc/gradscale/doc)
	@$(call copy_files,examples,$(DESTDIR)$(SHARE)/doc/gradscale/examples)

install-lib: $(BUILD)/libgradscale.a $(BUILD)/libgradscale.so.$(VERSION) $(BUILD)/gradscaleConfigVersion.cmake
	$(call install_parts,gradscale)
	install -m 644 $(CORE_HEADERS) $(DESTDIR)$(PREFIX)/include/gradscale

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/gradscale $(DESTDIR)$(PREFIX)/bin/.debug/gradscale.debug
	rm -rf $(DESTDIR)$(PREFIX)/include/gradscale $(DESTDIR)$(PREFIX)/share/gradscale \
	    $(DESTDIR)$(LIBDIR)/cmake/gradscale $(DESTDIR)$(SHARE)/doc/gradscale
	rm -f $(DESTDIR)$(SHARE)/man/man1/gradscale.1 $(DESTDIR)$(SHARE)/man/man1/gradscale-*.1 \
	    $(DESTDIR)$(SHARE)/bash-completion/completions/gradscale \
	    $(DESTDIR)$(SHARE)/zsh/site-functions/_gradscale \
	    $(DESTDIR)$(SHARE)/fish/vendor_completions.d/gradscale.fish
	@for part in $(PARTS); do \
	    rm -f $(DESTDIR)$(LIBDIR)/lib$$part.a $(DESTDIR)$(LIBDIR)/lib$$part.so* \
	        $(DESTDIR)$(LIBDIR)/.debug/lib$$part.so* $(DESTDIR)$(LIBDIR)/pkgconfig/$$part.pc; done

# ---- one pair of files ----

amalgamation:
	@scripts/amalgamate.sh dist

# The last commit and its amalgamation; the same bytes whoever makes it.
RELEASE := gradscale-$(VERSION)
dist:
	@git rev-parse -q --verify HEAD >/dev/null || { echo "make dist: a release is made of a git tree" >&2; exit 1; }
	@rm -rf $(BUILD)/dist && mkdir -p $(BUILD)/dist
	@git archive --prefix=$(RELEASE)/ HEAD | tar -x -C $(BUILD)/dist
	@$(BUILD)/dist/$(RELEASE)/scripts/amalgamate.sh dist
	@tar --sort=name --mtime=@$$(git log -1 --format=%ct) --owner=0 --group=0 --numeric-owner --mode=go-w \
	    -C $(BUILD)/dist -c $(RELEASE) | gzip -9n >$(BUILD)/$(RELEASE).tar.gz
	@echo $(BUILD)/$(RELEASE).tar.gz

# ---- keeping order ----

FORMATTED = $(foreach name,*.c *.h *.cpp *.hpp,$(call below,include src cli mpi python/native tests bench examples,$(name)))

format:
	clang-format -i $(FORMATTED)

check-format:
	@clang-format --dry-run -Werror $(FORMATTED)

check-layers:
	@scripts/layers.sh

# What a linked program depends on: functions, sizes, offsets, enums. No paths, no lines, no hosts.
ABI_PARTS = $(filter-out gradscale_mpi,$(PARTS))
abidw = abidw --headers-dir include --drop-private-types --drop-undefined-syms --no-corpus-path \
        --no-comp-dir-path --no-show-locs --no-elf-needed --out-file $(2) $(BUILD)/lib$(1).so.$(VERSION)

abi: all
	@mkdir -p abi
	@$(foreach part,$(ABI_PARTS),$(call abidw,$(part),abi/lib$(part).abi) &&) true

# Types that the headers name but do not show may change. (abidw's --headers-dir goes by the name of a file alone,
# and src/engine/engine.h has that of a public header.)
OPAQUE = sed -n 's/^typedef struct \(gs_[a-z_]*\) \1;.*/\1/p' $(HEADERS) | sort -u | while read -r name; do \
         grep -qE "^(typedef )?struct $$name \{" $(HEADERS) || printf '[suppress_type]\n  name = %s\n' $$name; done
check-abi: all
	@$(OPAQUE) >$(BUILD)/opaque.abignore
	@$(foreach part,$(ABI_PARTS),$(call abidw,$(part),$(BUILD)/lib$(part).abi) && \
	    abidiff --suppressions $(BUILD)/opaque.abignore abi/lib$(part).abi $(BUILD)/lib$(part).abi && ) true || \
	    { echo "the ABI has changed: if it was meant to, make abi" >&2; exit 1; }

# Meson cannot ask for all files of a folder; CMake does.
WITH_SOURCES = { sed '/^sources = files(/q' meson.build; printf "  '%s',\n" $(CORE); \
                 sed '1,/^sources = files(/d' meson.build | sed -n '/^)/,$$p'; }
source-lists:
	@$(WITH_SOURCES) >meson.build.tmp && mv meson.build.tmp meson.build

source-lists-check:
	@$(WITH_SOURCES) | diff meson.build -

clean:
	rm -rf build build-*

# The list at the head of this file.
help:
	@sed -n '/^$$/q; s/^# \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

# One entry per source: what make would run, from a dry run that takes everything for out of date.
COMPILED = $(CORE) $(TRAIN) $(DEVICE) $(MPI) $(CLI) $(call below,tests bench,*.c)
compile_commands.json:
	@$(MAKE) -nB --no-print-directory V= $(call obj,$(COMPILED)) | awk -v folder='$(CURDIR)' ' \
	    / -c -o / { \
	        sub(/^[^;]*;/, ""); gsub(/[\\"]/, "\\\\&"); \
	        printf "%s\n{\"directory\": \"%s\", \"file\": \"%s\", \"output\": \"%s\", \"command\": \"%s\"}", \
	            n++ ? "," : "[", folder, $$NF, $$(NF - 1), $$0 } \
	    END { print "\n]"; exit !n }' >$@.tmp && mv $@.tmp $@

-include $(patsubst %.o,%.d,$(call obj,$(COMPILED)))
