/* Any bytes as the state of a scaler, text or binary, with a checksum that fits: refused, or steps
 * go on from it with a scale that is finite and inside its bounds; what is saved again loads. */
#define _GNU_SOURCE
#include "fuzz.h"

#include "gradscale/scaler.h"

#include <math.h>
#include <string.h>

static uint32_t crc32(const uint8_t *p, size_t n)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0xEDB88320 & -(crc & 1));
    }
    return ~crc;
}

static void go_on(gs_scaler *s)
{
    char text[GS_STATE_TEXT_MAX];
    size_t used;
    gs_scaler again;
    for (int i = 0; i < 24; i++) {
        gs_step step;
        gs_step_begin(&step, s);
        if (!isnan(s->rules.lowest) && !isnan(s->rules.highest) &&
            !(step.scale >= s->rules.lowest && step.scale <= s->rules.highest))
            abort();
        if (i % 3 == 1)
            gs_step_flag(&step, 1);
        else
            gs_step_amax(&step, ldexp(1, i - 12) * step.scale);
        gs_step_end(&step, s);
    }
    if (gs_scaler_save_text(text, sizeof text, &used, s, NULL) != GS_OK ||
        gs_scaler_load_text(&again, text, used, NULL) != GS_OK)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    uint8_t copy[GS_STATE_TEXT_MAX + 64];
    gs_scaler s;
    gs_error error = {0};
    if (n > GS_STATE_TEXT_MAX)
        return 0;
    memcpy(copy, data, n);
    if (n > 4 && memcmp(data, "GSSC", 4) == 0) {
        const uint32_t sum = crc32(copy, n - 4);
        for (int i = 0; i < 4; i++)
            copy[n - 4 + (size_t)i] = (uint8_t)(sum >> 8 * i);
        if (gs_scaler_load(&s, copy, n, &error) == GS_OK)
            go_on(&s);
        return 0;
    }
    /* the text up to its last line gets the checksum that it needs */
    const uint8_t *at = memmem(data, n, "checksum=", 9);
    const size_t body = at ? (size_t)(at - data) : n;
    const int tail = sprintf((char *)copy + body, "checksum=%08x\n", (unsigned)crc32(copy, body));
    if (gs_scaler_load_text(&s, (char *)copy, body + (size_t)tail, &error) == GS_OK)
        go_on(&s);
    return 0;
}
