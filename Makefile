# gradscale: `make` builds, `make test` tests, `make demo` shows. GNU make, no configure step.
#
#   make [CC=clang] [SAN=address,undefined | SAN=thread]     libraries and program, in build*/
#   make test | test-long | bench | demo | mutants
#   make install [DESTDIR=] [PREFIX=/usr/local]

ifeq ($(origin CC),default)
CC := gcc
endif
PREFIX  ?= /usr/local
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
LDLIBS   := -lm -pthread

CORE   := $(wildcard $(addprefix src/,$(addsuffix /*.c,base num kernel scaler optim comm engine)))
TOOLS  := $(wildcard tools/*.c)
SUITES := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_*.c))
obj     = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))

STATIC  := $(BUILD)/libgradscale.a
SHARED  := $(BUILD)/libgradscale.so.$(VERSION)
PROGRAM := $(BUILD)/gradscale

.PHONY: all deps test test-long bench demo mutants install check-format format clean
.SECONDARY:

all: $(STATIC) $(SHARED) $(PROGRAM)

$(BUILD)/obj/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(ALLFLAGS) -c -o $@ $<

$(STATIC): $(call obj,$(CORE))
	@rm -f $@
	$(AR) rcs $@ $^

$(SHARED): $(call obj,$(CORE))
	$(CC) $(ALLFLAGS) $(LDFLAGS) -shared -Wl,-soname,libgradscale.so.$(MAJOR) -o $@ $^ $(LDLIBS)
	@ln -sf $(@F) $(BUILD)/libgradscale.so.$(MAJOR)
	@ln -sf $(@F) $(BUILD)/libgradscale.so

$(PROGRAM): $(call obj,$(TOOLS)) $(STATIC)
	$(CC) $(ALLFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(STATIC)
	@mkdir -p $(@D)
	$(CC) $(ALLFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

clean:
	rm -rf build build-*

-include $(patsubst %.o,%.d,$(call obj,$(CORE) $(TOOLS) $(wildcard tests/*.c)))
