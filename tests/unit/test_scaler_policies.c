/* The policies that read more than a flag, against recordings of their originals. */
#include "test.h"

#include "gradscale/scaler.h"

#include <math.h>
#include <stdbool.h>

#define ROWS(array) (sizeof(array) / sizeof((array)[0]))

/* ---- recordings of policies that read more than a flag ---- */

/* Columns of a CSV with a header, at most 10. Returns false at the end. */
static bool csv_row(FILE *file, char cells[10][64])
{
    char line[512];
    if (!file || !fgets(line, sizeof line, file))
        return false;
    line[strcspn(line, "\n")] = 0;
    int n = 0;
    for (char *p = line; p && n < 10; n++) {
        char *comma = strchr(p, ',');
        if (comma)
            *comma = 0;
        snprintf(cells[n], 64, "%.63s", p);
        p = comma ? comma + 1 : NULL;
    }
    return true;
}

static FILE *csv(const char *name)
{
    char path[256], cells[10][64];
    snprintf(path, sizeof path, "tests/traces/other/%s.csv", name);
    FILE *file = fopen(path, "r");
    CHECK_MSG(file != NULL, "%s", path);
    csv_row(file, cells);
    return file;
}

static double number(const char *text) { return strtod(text, NULL); }

static void test_nvcaffe(void)
{
    char c[10][64];
    gs_scaler s;
    int rows = 0;
    FILE *file = csv("nvcaffe__adaptive_K1000");
    gs_scaler_init(&s, "adaptive", NULL);
    gs_scaler_set(&s, "lowest=off highest=off", NULL);
    for (; csv_row(file, c); rows++) {
        CHECK_MSG(gs_scaler_scale(&s) == number(c[1]), "row %d: %a", rows, gs_scaler_scale(&s));
        const double amax = number(c[2]);
        gs_scaler_update_with(&s, &(gs_finding){.found = !isfinite(amax), .amax = amax});
    }
    fclose(file);
    CHECK(rows > 50);
    /* fixed: 1, then K. */
    file = csv("nvcaffe__fixed_K1000");
    for (rows = 0; csv_row(file, c); rows++) {
        gs_scaler_init(&s, rows ? "static:1000" : "static:1", NULL);
        CHECK(gs_scaler_scale(&s) == number(c[1]));
    }
    fclose(file);
    CHECK(rows > 50);
}

static void test_logmax(void)
{
    static const char *const names[] = {"openseq2seq_logmax__default__burst",
                                        "openseq2seq_logmax__default__lcg_p0.01_seed3",
                                        "openseq2seq_logmax__default__none300"};
    char c[10][64];
    for (size_t i = 0; i < 3; i++) {
        gs_scaler s;
        FILE *file = csv(names[i]);
        int rows = 0;
        gs_scaler_init(&s, "logmax", NULL);
        for (; csv_row(file, c); rows++) {
            const double amax = number(strchr(c[7], '=') + 1), want = number(c[3]);
            CHECK(fabs(gs_scaler_scale(&s) - number(c[2])) <= 1e-4 * number(c[2]));
            gs_scaler_update_with(&s, &(gs_finding){.found = c[1][0] == '1', .amax = amax});
            CHECK_MSG(fabs(gs_scaler_scale(&s) - want) <= 1e-4 * want, "%s row %d: %a, not %a",
                      names[i], rows, gs_scaler_scale(&s), want);
        }
        fclose(file);
        CHECK(rows >= 60);
    }
    gs_scaler s;
    gs_scaler_init(&s, "logmax", NULL);
    gs_scaler_update_with(&s, &(gs_finding){.amax = 0});
    gs_scaler_update_with(&s, &(gs_finding){.amax = 0.5});
    CHECK(isfinite(gs_scaler_scale(&s)));
}

static void test_popart(void)
{
    char c[10][64];
    gs_scaler s;
    int rows = 0;
    FILE *file = csv("popart__default_threshold1e-7");
    gs_scaler_init(&s, "histogram", NULL);
    CHECK(gs_scaler_set(&s, "band=0 lowest=off highest=off", NULL) == GS_OK);
    for (; csv_row(file, c); rows++) {
        const uint64_t lower = (uint64_t)number(c[1]), upper = (uint64_t)number(c[2]);
        CHECK(gs_scaler_scale(&s) == number(c[3]));
        gs_scaler_update_with(
            &s, &(gs_finding){.amax = (double)NAN, .elements = lower + upper, .above = upper});
        CHECK_MSG(gs_scaler_scale(&s) == number(c[4]), "row %d", rows);
    }
    fclose(file);
    CHECK(rows > 100);
    /* The dead band: what a doubling would send over the edge holds the scale. */
    gs_scaler_init(&s, "histogram", NULL);
    gs_finding f = {.amax = (double)NAN, .elements = 100000, .above = 0, .above_band = 5};
    gs_scaler_update_with(&s, &f);
    CHECK(gs_scaler_scale(&s) == 1);
    f.above_band = 0;
    gs_scaler_update_with(&s, &f);
    CHECK(gs_scaler_scale(&s) == 2);
    f.above = 5;
    gs_scaler_update_with(&s, &f);
    CHECK(gs_scaler_scale(&s) == 1);
    f = (gs_finding){.found = 1, .amax = (double)NAN};
    gs_scaler_update_with(&s, &f);
    CHECK(gs_scaler_scale(&s) == 0.5);
    /* as many as the threshold says are not more */
    CHECK(gs_scaler_set(&s, "threshold=0.5", NULL) == GS_OK);
    f = (gs_finding){.amax = (double)NAN, .elements = 100, .above = 50, .above_band = 50};
    gs_scaler_update_with(&s, &f);
    CHECK(gs_scaler_scale(&s) == 1);
    f.above_band = 51;
    gs_scaler_update_with(&s, &f);
    CHECK(gs_scaler_scale(&s) == 1);
    /* by amax alone */
    gs_scaler_init(&s, "histogram", NULL);
    for (int i = 0; i < 60; i++)
        gs_scaler_update_with(&s, &(gs_finding){.amax = 0.25});
    CHECK(gs_scaler_scale(&s) == 0x1p+14);
}

static void test_headroom_rules(void)
{
    gs_scaler s;
    gs_scaler_init(&s, "headroom", NULL);
    CHECK(gs_scaler_scale(&s) == 65536);
    gs_scaler_update_with(&s, &(gs_finding){.amax = 1}); /* 65504 / 2^6 -> 2^9 */
    CHECK(gs_scaler_scale(&s) == 0x1p+9);
    for (int i = 0; i < 15; i++)
        gs_scaler_update_with(&s, &(gs_finding){.amax = 0x1p-4});
    CHECK(gs_scaler_scale(&s) == 0x1p+9); /* the 1 is still among the last 16 */
    gs_scaler_update_with(&s, &(gs_finding){.amax = 0x1p-4});
    CHECK(gs_scaler_scale(&s) == 0x1p+13);
    gs_scaler_update(&s, 1);
    CHECK(gs_scaler_scale(&s) == 0x1p+6); /* margin + 1 bits down */
    for (int i = 0; i < 16; i++)
        gs_scaler_update_with(&s, &(gs_finding){.amax = 0x1p-4});
    CHECK(gs_scaler_scale(&s) == 0x1p+13); /* and forgiven */
    for (int i = 0; i < 16; i++)
        gs_scaler_update_with(&s, &(gs_finding){.amax = 0});
    CHECK(gs_scaler_scale(&s) == 0x1p+14);
    gs_scaler_update_with(&s, &(gs_finding){.amax = 0x1p-30});
    CHECK(gs_scaler_scale(&s) == 0x1p+14); /* what was seen before counts for half */
    gs_scaler_update(&s, 0);               /* clean, amax not known: nothing to learn */
    CHECK(gs_scaler_scale(&s) == 0x1p+14);
    gs_scaler_set(&s, "max=8", NULL);
    gs_scaler_update_with(&s, &(gs_finding){.amax = 1e-30});
    CHECK(gs_scaler_scale(&s) == 8);
}

/* Fed by flags alone it does what PyTorch's does, also when the first steps overflow. */
static void test_headroom_by_flags(void)
{
    for (int early = 0; early < 36; early++) { /* more than the history holds, and to the bound */
        gs_scaler s, steps, torch;
        gs_scaler_init(&s, "headroom", NULL);
        gs_scaler_init(&steps, "headroom", NULL);
        gs_scaler_init(&torch, "pytorch", NULL);
        for (int i = 1; i <= 4400; i++) {
            const int found = i <= early || i == 100 || i == 200 || i == 300;
            gs_scaler_update(&s, found);
            gs_scaler_update(&torch, found);
            gs_step step;
            gs_step_begin(&step, &steps);
            gs_step_flag(&step, found);
            gs_step_end(&step, &steps);
            const double want = fmax(gs_scaler_scale(&torch), 0x1p-24);
            CHECK_MSG(i <= early || (early > 16 && want < 0x1p-20) ||
                          (gs_scaler_scale(&s) == want && gs_scaler_scale(&steps) == want),
                      "%d overflows first, step %d: 2^%g and, in steps, 2^%g for 2^%g", early, i,
                      log2(gs_scaler_scale(&s)), log2(gs_scaler_scale(&steps)), log2(want));
        }
    }
    /* an amax brings it back to what it is for */
    gs_scaler s;
    gs_scaler_init(&s, "headroom", NULL);
    gs_scaler_update(&s, 0);
    gs_scaler_update(&s, 1);
    CHECK(gs_scaler_scale(&s) == 0x1p+15);
    gs_scaler_update_with(&s, &(gs_finding){.amax = 1});
    CHECK(gs_scaler_scale(&s) == 0x1p+9);
    gs_scaler_update(&s, 1);
    CHECK(gs_scaler_scale(&s) == 0x1p+2);
    /* more overflows than the history holds, after amax values: where it is, not lower */
    gs_scaler_init(&s, "headroom", NULL);
    CHECK(gs_scaler_set(&s, "margin=0", NULL) == GS_OK);
    for (int i = 0; i < 100; i++)
        gs_scaler_update_with(&s, &(gs_finding){.amax = 0x1p-10});
    for (int i = 0; i < 20; i++)
        gs_scaler_update(&s, 1);
    const double fallen = gs_scaler_scale(&s);
    gs_scaler_update(&s, 0);
    CHECK(fallen > 0x1p-20 && gs_scaler_scale(&s) == fallen);
}

TESTS({"headroom_by_flags", test_headroom_by_flags}, {"nvcaffe", test_nvcaffe},
      {"logmax", test_logmax}, {"popart", test_popart}, {"headroom_rules", test_headroom_rules})
