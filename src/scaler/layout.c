/* The sizes that programs are compiled with, and whether a struct has them. A change here makes
 * another ABI: new members take the place of reserved ones. */
#include "scaler/scaler.h"

#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type)
SIZE(gs_params, 128);
SIZE(gs_machine, 88);
SIZE(gs_rules, 32);
SIZE(gs_counters, 80);
SIZE(gs_scaler, 512);
/* gs_stats has a hole where a double lies at a multiple of 8 */
enum { HOLE = 4 * (sizeof(gs_stats) % 8 == 0) };
SIZE(gs_stats, 76 + HOLE);
SIZE(gs_step, 572 + HOLE);
SIZE(gs_window, 2 * (572 + HOLE) + 24 - 4 * (HOLE == 0));

_Static_assert(offsetof(gs_scaler, size) == 0 && offsetof(gs_step, size) == 0 &&
                   offsetof(gs_window, step) == 0,
               "every version finds the size in the same place");

bool gsi_scaler_made(const gs_scaler *s) { return s->size == sizeof *s; }
bool gsi_step_made(const gs_step *step) { return step->size == sizeof *step; }

gs_status gsi_scaler_version(const gs_scaler *s, gs_error *error)
{
    return gsi_scaler_made(s)
               ? GS_OK
               : gsi_fail(error, GS_EVERSION,
                          "the scaler's size is %u, not %zu: it was not made by gs_scaler_init, or "
                          "by another version of this library",
                          s->size, sizeof *s);
}

gs_status gsi_step_version(const gs_step *step, gs_error *error)
{
    return gsi_step_made(step)
               ? GS_OK
               : gsi_fail(
                     error, GS_EVERSION,
                     "the step's size is %u, not %zu: it was not made by gs_step_begin, from a "
                     "scaler of this version of the library",
                     step->size, sizeof *step);
}
