/* A caller's floating-point mode changes no bit of a scaler: rounding up, down, towards zero,
 * subnormals flushed, in every combination, set before each call and still set after it. */
#include "test.h"

#include "gradscale/scaler.h"
#include "kernel/fpenv.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#define ROWS(array) (sizeof(array) / sizeof((array)[0]))
enum { STEPS = 300 };

#if defined(__x86_64__)
static const uint64_t modes[] = {0x1F80, 0x3F80, 0x5F80, 0x7F80, 0x9FC0, 0xBFC0, 0xDFC0, 0xFFC0,
                                 0x1FC0, 0x9F80, 0x3FC0, 0x5FC0, 0x7FC0, 0xBF80, 0xDF80, 0xFF80};
#elif defined(__aarch64__)
static const uint64_t modes[] = {0, 1 << 22, 2 << 22, 3 << 22, 4 << 22, 5 << 22, 6 << 22, 7 << 22};
#else
static const uint64_t modes[] = {0};
#endif

static const char *const specs[] = {"pytorch",   "megatron",  "metaseq",  "mxnet",     "fairseq",
                                    "deepspeed", "apex",      "keras",    "jmp",       "tensorflow",
                                    "headroom",  "logmax",    "adaptive", "histogram", "none",
                                    "guard",     "static:0.3"};
static const char *const sets[] = {"", "on_overflow=retry:3", "on_overflow=attribute",
                                   "lowest=1e-7 highest=1e7"};

static uint64_t mode_now(void) { return gsi_fpenv_read() & ~(uint64_t)GSI_FPENV_FLAGS; }

/* A stream of steps of every kind, in the mode; out[] is what the scaler has become, and a hash of
 * every scale, inverse and verdict on the way. */
#define IN_MODE(call)                        \
    do {                                     \
        gsi_fpenv_write(mode);               \
        __asm__ volatile("" : : : "memory"); \
        call;                                \
        *kept &= mode_now() == mode;         \
        __asm__ volatile("" : : : "memory"); \
        gsi_fpenv_write(GSI_FPENV_DEFAULT);  \
    } while (0)

static size_t run(unsigned char out[GS_STATE_BINARY_MAX + 8], uint64_t mode, const char *spec,
                  const char *set, int *kept)
{
    gs_scaler s;
    gs_step step, other;
    gs_window window;
    gs_verdict v;
    gs_status made, status;
    char words[512], text[GS_STATE_TEXT_MAX];
    double shown;
    uint64_t hash = 1, bits;
    size_t used = 0;
    IN_MODE(made = gs_scaler_init(&s, spec, NULL));
    IN_MODE(status = gs_scaler_set(&s, set, NULL));
    if (s.policy == GS_POLICY_MACHINE && s.params.growth > 1)
        IN_MODE(status = gs_scaler_set(&s, "interval=3 growth=1.7", NULL));
    for (uint64_t i = 0; made == GS_OK && i < STEPS; i++) {
        const uint32_t r = gs_random_u32(7, i);
        gs_stats stats;
        gs_stats_init(&stats);
        IN_MODE(gs_step_begin(&step, &s));
        IN_MODE(gs_step_begin(&other, &s));
        stats.elements = 10;
        stats.amax = (float)(r % 1000) * 0x1p-13f;
        stats.sumsq = (double)(r % 77) / 3;
        const volatile double amax = (double)(r % 555) / 7e-3, sumsq = (double)r / 11;
        const volatile double one = (double)(r % 999) / 3e5 * step.scale;
        if (r % 3 == 0)
            IN_MODE(gs_step_scan_unscaled(&step, &stats));
        else if (r % 3 == 1)
            IN_MODE(gs_step_sums(&step, 5, 0, amax, sumsq));
        else
            IN_MODE(gs_step_amax(&step, one));
        if (r % 11 == 0)
            gs_step_flag(&other, 1);
        IN_MODE(gs_step_merge(&step, &other));
        IN_MODE(v = gs_step_decide(&step, &s));
        if (r % 13 == 0) {
            IN_MODE(gs_window_begin(&window, &s, GS_DROP_MICROBATCH));
            IN_MODE(gs_window_add(&window, &step));
            IN_MODE(gs_window_add(&window, &other));
            IN_MODE(gs_window_add(&window, &step));
            IN_MODE(v = gs_window_end(&window, &s));
        } else {
            IN_MODE(v = gs_step_end(&step, &s));
        }
        IN_MODE(shown = gs_scaler_scale(&s));
        const double seen[] = {step.scale, step.inverse,     v.scale,
                               v.factor,   step.stats.sumsq, (double)step.stats.amax,
                               shown};
        for (size_t k = 0; k < ROWS(seen); k++) {
            memcpy(&bits, &seen[k], sizeof bits);
            hash = (hash ^ bits) * 0x9E3779B97F4A7C15u;
            hash ^= hash >> 29;
        }
        hash = hash * 31 + (uint64_t)v.action * 7 + (uint64_t)v.reason;
        if (i == STEPS / 2) {
            IN_MODE(status = gs_scaler_save_text(text, sizeof text, &used, &s, NULL));
            if (status == GS_OK)
                IN_MODE(status = gs_scaler_load_text(&s, text, used, NULL));
        }
        if (i == STEPS / 3)
            IN_MODE(status = gs_scaler_set_scale(&s, 1000.0 / 3, NULL));
    }
    IN_MODE(gs_scaler_explain(words, sizeof words, &s, NULL, 0));
    IN_MODE(gs_scaler_save(out, GS_STATE_BINARY_MAX, &used, &s, NULL));
    for (const char *p = words; *p; p++)
        hash = hash * 31 + (unsigned char)*p;
    CHECK_MSG(made == GS_OK && status == GS_OK, "%s %s: %d %d", spec, set, (int)made, (int)status);
    memcpy(out + used, &hash, sizeof hash);
    return used + sizeof hash;
}

static void test_foreign_modes(void)
{
    int different = 0, kept = 1;
    for (size_t k = 0; k < ROWS(specs); k++)
        for (size_t m = 0; m < ROWS(sets); m++) {
            unsigned char want[GS_STATE_BINARY_MAX + 8], got[GS_STATE_BINARY_MAX + 8];
            const size_t n = run(want, modes[0], specs[k], sets[m], &kept);
            for (size_t i = 1; i < ROWS(modes); i++) {
                const bool same =
                    run(got, modes[i], specs[k], sets[m], &kept) == n && memcmp(want, got, n) == 0;
                different += !same;
                CHECK_MSG(same, "%s %s in mode %llx", specs[k], sets[m],
                          (unsigned long long)modes[i]);
            }
        }
    CHECK_MSG(different == 0, "%d of %zu combinations", different,
              ROWS(specs) * ROWS(sets) * (ROWS(modes) - 1));
    CHECK(kept);
}

/* ---- bounds ---- */

static void test_bounds_the_state_cannot_hold(void)
{
    static const struct {
        const char *set;
        gs_status status;
    } rows[] = {{"state=f16 init=1024 lowest=1e-9", GS_ERANGE},
                {"lowest=off highest=1e-60", GS_ERANGE},
                {"lowest=1e-60", GS_ERANGE},
                {"lowest=1e60 highest=1e70", GS_ERANGE},
                {"state=f64 lowest=1e-60", GS_OK},
                {"state=f16 init=1024 lowest=0.01", GS_OK},
                {"floor=0", GS_OK}};
    for (size_t i = 0; i < ROWS(rows); i++) {
        gs_scaler s;
        gs_error error = {0};
        CHECK(gs_scaler_init(&s, "pytorch", NULL) == GS_OK);
        const gs_status status = gs_scaler_set(&s, rows[i].set, &error);
        CHECK_MSG(status == rows[i].status, "%s: %d %s", rows[i].set, (int)status, error.text);
    }
}

/* Every field of a state, as bytes with a checksum that fits, set to the strangest values: refused,
 * or steps go on with a scale that is finite and > 0. */
static uint32_t crc_of(const unsigned char *p, size_t n)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0xEDB88320 & -(crc & 1));
    }
    return ~crc;
}

static void test_states_made_by_hand(void)
{
    static const uint64_t odd[] = {0,
                                   1,
                                   2,
                                   7,
                                   255,
                                   UINT32_MAX,
                                   UINT64_MAX,
                                   1ull << 63,
                                   0x7FF0000000000000, /* inf */
                                   0xFFF0000000000000,
                                   0x7FF8000000000000, /* nan */
                                   0x7F800000,         /* of f32 */
                                   0x7FC00000,
                                   0xFF800000,
                                   0xBFF0000000000000, /* -1 */
                                   0x7FEFFFFFFFFFFFFF,
                                   0x0000000000000001,
                                   0x3FF0000000000000};
    size_t refused = 0, taken = 0;
    for (size_t k = 0; k < ROWS(specs); k++)
        for (size_t m = 0; m < ROWS(sets); m++) {
            gs_scaler s;
            unsigned char bytes[GS_STATE_BINARY_MAX], changed[GS_STATE_BINARY_MAX];
            size_t n;
            gs_scaler_init(&s, specs[k], NULL);
            gs_scaler_set(&s, sets[m], NULL);
            CHECK(gs_scaler_save(bytes, sizeof bytes, &n, &s, NULL) == GS_OK);
            for (size_t at = 16; at + 12 <= n; at += 8)
                for (size_t v = 0; v < ROWS(odd); v++) {
                    memcpy(changed, bytes, n);
                    for (int b = 0; b < 8; b++)
                        changed[at + (size_t)b] = (unsigned char)(odd[v] >> 8 * b);
                    const uint32_t sum = crc_of(changed, n - 4);
                    for (int b = 0; b < 4; b++)
                        changed[n - 4 + (size_t)b] = (unsigned char)(sum >> 8 * b);
                    gs_scaler made;
                    if (gs_scaler_load(&made, changed, n, NULL) != GS_OK) {
                        refused++;
                        continue;
                    }
                    taken++;
                    for (uint64_t i = 0; i < 20; i++) {
                        gs_step step;
                        gs_step_begin(&step, &made);
                        const bool unbounded =
                            isnan(made.rules.lowest) || isnan(made.rules.highest);
                        CHECK_MSG(unbounded || (isfinite(step.scale) && step.scale > 0),
                                  "%s %s: field %zu as %llx gives the scale %g", specs[k], sets[m],
                                  (at - 16) / 8, (unsigned long long)odd[v], step.scale);
                        if (i % 4 == 1)
                            gs_step_flag(&step, 1);
                        else
                            gs_step_amax(&step, 0.25 * step.scale);
                        gs_step_end(&step, &made);
                    }
                }
        }
    CHECK_MSG(refused > 1000 && taken > 1000, "%zu refused, %zu taken", refused, taken);
}

TESTS({"foreign_modes", test_foreign_modes},
      {"bounds_the_state_cannot_hold", test_bounds_the_state_cannot_hold},
      {"states_made_by_hand", test_states_made_by_hand})
