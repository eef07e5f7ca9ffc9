/* The reference kernels, with which all others are compared. */
#ifndef TEST_REFERENCE_H
#define TEST_REFERENCE_H

#include "kernel/dispatch.h"

static gsi_kernels reference;

__attribute__((constructor)) static void fill_reference(void) { gsi_kernels_init(&reference, 0); }

#endif
