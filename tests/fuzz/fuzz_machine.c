/* Any parameters and any outcomes: the scaler's machine against the model of
 * tests/support/scaler_model.h, which knows nothing of it. Four bytes choose the parameters, the
 * bits after them the outcomes. */
#define _GNU_SOURCE
#include "fuzz.h"

#include "tests/support/scaler_model.h"
#include "tests/support/scaler_params.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    bool found[STEPS], raised[STEPS];
    double shown[STEPS];
    uint32_t seed;
    gs_scaler s;
    if (n < 5)
        return 0;
    memcpy(&seed, data, sizeof seed);
    random_at = (uint64_t)seed << 8;
    const gs_params p = random_params();
    for (size_t i = 0; i < STEPS; i++)
        found[i] = data[4 + i / 8 % (n - 4)] >> i % 8 & 1;
    model(&p, found, shown, raised);
    if (gs_scaler_init_params(&s, &p, NULL) != GS_OK ||
        gs_scaler_set(&s, "lowest=off highest=off", NULL) != GS_OK)
        abort();
    for (int i = 0; i < STEPS; i++) {
        const bool raises = gs_scaler_update(&s, found[i]);
        const double got = gs_scaler_scale(&s);
        if (raises != raised[i] || !(got == shown[i] || (isnan(got) && isnan(shown[i]))))
            abort();
    }
    return 0;
}
