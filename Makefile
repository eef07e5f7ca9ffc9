# gradscale: `make` builds, `make test` tests, `make demo` shows. GNU make, no configure step.
#
#   make [CC=clang] [SAN=address,undefined | SAN=thread]     libraries and program, in build*/
#   make test | test-long | test-arm | demo | bench | mutants [COUNT=40] [SEED=1]
#   make amalgamation                                       the library as two files, in dist/
#   make install | uninstall [DESTDIR=] [PREFIX=/usr/local] [LIBDIR=]
#   make deps | format | check-format | check-layers | clean

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
VERSION := $(MAJOR).$(call number,MINOR).$(call number,PATCH)

WARN     := -std=c11 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wdouble-promotion \
            -Wstrict-prototypes -Wmissing-prototypes -Werror
# No contraction to fma: every instruction set must round as the reference does.
CFLAGS   ?= -O2 -g
ALLFLAGS := $(WARN) $(CFLAGS) -ffp-contract=off -fPIC -fvisibility=hidden -pthread -MMD -MP \
            -D_POSIX_C_SOURCE=200809L -Iinclude -Isrc \
            $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)

# ---- what there is ----

# libgradscale needs libc, libm and threads; libgradscale_train zlib and jansson too. The second
# exists as soon as its folders have sources.
CORE        := $(wildcard $(patsubst %,src/%/*.c,base num kernel scaler optim comm engine))
TRAIN       := $(wildcard $(patsubst %,src/%/*.c,io train))
# libgradscale_mpi exists where an MPI compiler does (MPICC=mpicc.mpich: another one; MPICC=: none).
MPICC       ?= $(shell command -v mpicc)
MPI         := $(if $(MPICC),$(wildcard mpi/*.c))
MPI_LIBS    := $(if $(MPI),$(filter -L% -l%,$(shell $(MPICC) -show 2>/dev/null)))
TOOLS       := $(wildcard tools/*.c)
HEADERS     := $(wildcard include/gradscale/*.h)
LIBS        := -lm -pthread
TRAIN_LIBS  := -lz -ljansson
obj          = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
names        = $(BUILD)/lib$(1).so $(BUILD)/lib$(1).so.$(MAJOR)

PARTS   := gradscale $(if $(TRAIN),gradscale_train $(if $(MPI),gradscale_mpi))
STATIC  := $(patsubst %,$(BUILD)/lib%.a,$(PARTS))
SHARED  := $(patsubst %,$(BUILD)/lib%.so.$(VERSION),$(PARTS))
PROGRAM := $(BUILD)/gradscale
# Dependents first: the order of a static link.
LINK    := $(if $(TRAIN),$(BUILD)/libgradscale_train.a) $(BUILD)/libgradscale.a
LDLIBS  := $(if $(TRAIN),$(TRAIN_LIBS)) $(LIBS)

# A suite is a file in tests/ with a main or a table of tests, or a script suite_*.sh.
SUITES  := $(patsubst tests/%.c,$(BUILD)/tests/%,\
             $(shell grep -lwE '^(int main|TESTS)' $(wildcard tests/*.c) /dev/null))
ifeq ($(SAN),thread) # the others have one thread, and it is slow
SUITES  := $(filter-out $(addprefix %/,checkkern checkrows checkoptim test_num test_halves test_math \
             test_rows),$(SUITES))
endif
SCRIPTS := $(wildcard tests/suite_*.sh)
# What make test-arm runs: all that speaks of numbers.
ARM     := $(filter $(addprefix %/,$(addprefix test_,base num halves lists lists_values lists_bad exponents \
             scaler scaler_policies scaler_state scaler_steps scaler_users scaler_groups scaler_edges gemm \
             gemm_bad math rows optim optim_rules parity) checkkern checkrows checkoptim),$(SUITES))

CPUS    := $(shell nproc 2>/dev/null || echo 2)
JOBS     = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(CPUS))

.PHONY: all suites amalgamation deps test test-long test-arm run-tests run-arm demo bench bench-advise \
        mutants install uninstall format check-format check-layers clean
.SECONDARY:

all: $(STATIC) $(SHARED) $(PROGRAM)
suites: $(SUITES) $(if $(filter gradscale_mpi,$(PARTS)),$(BUILD)/tests/mpi_steps)

# ---- building (V=1 shows the commands) ----

say = @$(if $(V),set -x;,printf '%-5s %s\n' $(1) $@;)

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
$(BUILD)/obj/src/kernel/gemm_avx%.o: ALLFLAGS += -fno-sanitize=all
endif

$(BUILD)/libgradscale.a: $(call obj,$(CORE))
$(BUILD)/libgradscale_train.a: $(call obj,$(TRAIN))
$(BUILD)/libgradscale_mpi.a: $(call obj,$(MPI))
$(STATIC):
	@rm -f $@
	$(call say,AR)$(AR) rcs $@ $^

$(BUILD)/libgradscale.so.$(VERSION): $(call obj,$(CORE))
	$(call say,LINK)$(CC) $(ALLFLAGS) $(LDFLAGS) -shared -Wl,-soname,libgradscale.so.$(MAJOR) -o $@ $^ $(LIBS)
	@for name in $(call names,gradscale); do ln -sf $(@F) $$name; done

# What is private to libgradscale is not exported by its shared form: the archive gives it, hidden.
$(BUILD)/libgradscale_train.so.$(VERSION): $(call obj,$(TRAIN)) $(BUILD)/libgradscale.so.$(VERSION) \
                                           $(BUILD)/libgradscale.a
	$(call say,LINK)$(CC) $(ALLFLAGS) $(LDFLAGS) -shared -Wl,-soname,libgradscale_train.so.$(MAJOR) \
	    -Wl,--exclude-libs,ALL -o $@ $^ $(TRAIN_LIBS) $(LIBS)
	@for name in $(call names,gradscale_train); do ln -sf $(@F) $$name; done

# It needs nothing of libgradscale but headers: the program, which has that inside, opens it when it
# runs as one of several ranks.
$(BUILD)/libgradscale_mpi.so.$(VERSION): $(call obj,$(MPI))
	$(call say,LINK)$(CC) $(ALLFLAGS) $(LDFLAGS) -shared -Wl,-soname,libgradscale_mpi.so.$(MAJOR) \
	    -o $@ $^ $(MPI_LIBS)
	@for name in $(call names,gradscale_mpi); do ln -sf $(@F) $$name; done

$(PROGRAM): $(call obj,$(TOOLS)) $(LINK)
	$(call say,LINK)$(CC) $(ALLFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS) -ldl

$(BUILD)/bench/%: $(BUILD)/obj/bench/%.o $(LINK)
	@mkdir -p $(@D)
	$(call say,LINK)$(CC) $(ALLFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(LINK)
	@mkdir -p $(@D)
	$(call say,LINK)$(CC) $(ALLFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LDLIBS)

# Ranks over MPI: suite_mpi.sh runs it.
$(BUILD)/tests/mpi_steps: $(BUILD)/obj/tests/mpi/steps.o $(BUILD)/libgradscale_mpi.a $(LINK)
	@mkdir -p $(@D)
	$(call say,LINK)$(CC) $(ALLFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LDLIBS) $(MPI_LIBS)

# A caller whose flags are careless.
$(BUILD)/tests/test_lists: $(BUILD)/obj/tests/fastmath.o
$(BUILD)/obj/tests/fastmath.o: ALLFLAGS += -ffast-math

# ---- testing ----

deps:
	@tools/deps.sh build test

# The set-up first, then as many jobs as there are CPUs.
test:
	@tools/deps.sh build test
	@$(MAKE) --no-print-directory $(JOBS) all suites
	@$(MAKE) --no-print-directory run-tests

test-long:
	@GS_LONG=1 $(MAKE) --no-print-directory test

run-tests:
	@BUILD=$(BUILD) CC="$(CC)" CXX="$(CXX)" MPICC="$(MPICC)" SAN="$(SAN)" MAKE="$(MAKE)" MAKEFLAGS= \
	    tests/run.sh $(PROGRAM) $(sort $(SUITES)) $(SCRIPTS)

# The same numbers on another architecture, in an emulator.
test-arm:
	@tools/deps.sh arm
	@$(MAKE) --no-print-directory $(JOBS) run-arm TRAIN= MPICC= LDFLAGS=-static \
	    CC=aarch64-linux-gnu-gcc AR=aarch64-linux-gnu-ar

run-arm: $(ARM)
	@BUILD=$(BUILD) RUN=qemu-aarch64 tests/run.sh $(PROGRAM) $(ARM)

mutants:
	@tools/deps.sh build test
	@tests/mutants.sh $(COUNT) $(SEED)

# ---- showing ----

# Without its data set it shows less.
demo:
	@tools/deps.sh build
	@tools/deps.sh demo || true
	@mkdir -p $(BUILD)
	@$(MAKE) --no-print-directory $(JOBS) all >$(BUILD)/log 2>&1 || { cat $(BUILD)/log; exit 1; }
	@BUILD=$(BUILD) CC="$(CC)" tools/demo.sh $(PROGRAM)

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
export PC_gradscale_mpi := $(call pkgconfig,gradscale_mpi,Mixed-precision training on several machines,gradscale = $(VERSION),$(MPI_LIBS))

# `gradscale train --data self` reads them.
SOURCES := $(wildcard include/gradscale/* src/*/* tools/*)

install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/include/gradscale $(DESTDIR)$(LIBDIR)/pkgconfig
	install -m 644 $(HEADERS) $(DESTDIR)$(PREFIX)/include/gradscale
	install -m 644 $(STATIC) $(SHARED) $(DESTDIR)$(LIBDIR)
	install $(PROGRAM) $(DESTDIR)$(PREFIX)/bin
	@for file in $(SOURCES); do \
	    install -D -m 644 $$file $(DESTDIR)$(PREFIX)/share/gradscale/$$file || exit 1; done
	@for part in $(PARTS); do \
	    ln -sf lib$$part.so.$(VERSION) $(DESTDIR)$(LIBDIR)/lib$$part.so.$(MAJOR) && \
	    ln -sf lib$$part.so.$(VERSION) $(DESTDIR)$(LIBDIR)/lib$$part.so && \
	    printenv PC_$$part >$(DESTDIR)$(LIBDIR)/pkgconfig/$$part.pc || exit 1; done

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/gradscale
	rm -rf $(DESTDIR)$(PREFIX)/include/gradscale $(DESTDIR)$(PREFIX)/share/gradscale
	@for part in $(PARTS); do \
	    rm -f $(DESTDIR)$(LIBDIR)/lib$$part.a $(DESTDIR)$(LIBDIR)/lib$$part.so* \
	        $(DESTDIR)$(LIBDIR)/pkgconfig/$$part.pc; done

# ---- one pair of files ----

amalgamation:
	@tools/amalgamate.sh dist

# ---- keeping order ----

FORMATTED = $(wildcard $(foreach d,include/gradscale src/* tools tests tests/mpi bench examples mpi,\
              $(d)/*.c $(d)/*.h $(d)/*.cpp))

format:
	clang-format -i $(FORMATTED)

check-format:
	@clang-format --dry-run -Werror $(FORMATTED)

check-layers:
	@tools/layers.sh

clean:
	rm -rf build build-*

-include $(patsubst %.o,%.d,$(call obj,$(CORE) $(TRAIN) $(MPI) $(TOOLS) $(wildcard tests/*.c tests/mpi/*.c)))
