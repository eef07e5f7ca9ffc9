/* The optimizers' state in true units: read, written, and taken over from another program. */
#include "optim_rig.h"

/* ---- a run goes on ---- */

static void move_slots(const rig *from, rig *to)
{
    static float values[20000];
    for (size_t t = 0; t < WEIGHTS; t++)
        for (int k = 0; k < GS_SLOT_COUNT; k++) {
            const size_t count = gs_optim_slot(from->optim, t, (gs_slot)k).count;
            CHECK(gs_optim_read_slot(values, from->optim, t, (gs_slot)k, count) == GS_OK);
            CHECK(gs_optim_write_slot(to->optim, t, (gs_slot)k, values, count) == GS_OK);
        }
}

/* Weights, slots as f32 and t are all that another optimizer needs, whatever they are stored in:
 * it goes on to the same bits. */
static void test_taken_over(void)
{
    for (size_t k = 0; k < KINDS; k++)
        for (size_t s = 0; s < STORAGES; s++) {
            rig a = {0}, b = {0};
            rig_spec spec;
            char settings[128];
            if (!spec_of(&spec, settings, k, s))
                continue;
            CHECK(rig_open(&a, &spec) == GS_OK && rig_open(&b, &spec) == GS_OK);
            for (unsigned turn = 0; turn < 3; turn++)
                rig_step(&a, turn, 0);
            const gs_tensor from = gs_store_data(a.store), to = gs_store_data(b.store);
            memcpy(to.data, from.data, from.count * gs_dtype_format(from.dtype)->bytes);
            move_slots(&a, &b);
            CHECK(gs_optim_steps(a.optim) == 3);
            CHECK(gs_optim_set_steps(b.optim, gs_optim_steps(a.optim)) == GS_OK);
            b.scaler = a.scaler;
            for (unsigned turn = 3; turn < 6; turn++) {
                rig_step(&a, turn, 0);
                rig_step(&b, turn, 0);
                CHECK_MSG(rig_hash(&a) == rig_hash(&b), "%s %s", spec.kind, spec.settings);
            }
            const gs_optim_state x = gs_optim_get_state(a.optim), y = gs_optim_get_state(b.optim);
            CHECK(memcmp(&x, &y, sizeof x) == 0);
            rig_close(&a);
            rig_close(&b);
        }
}

/* The same with a t for every weight. */
static void test_own_steps(void)
{
    rig a = {0}, b = {0};
    const rig_spec spec = {.kind = "adam", .types = {GS_F32, GS_F32, GS_F32}};
    CHECK(rig_open(&a, &spec) == GS_OK && rig_open(&b, &spec) == GS_OK);
    for (unsigned turn = 0; turn < 4; turn++) {
        gs_tensor grads[WEIGHTS];
        for (size_t t = 0; t < WEIGHTS; t++)
            grads[t] = (gs_tensor){turn < t ? NULL : a.list[t].grad,
                                   a.list[t].rows * a.list[t].cols, GS_F32, NULL, 0};
        CHECK(gs_optim_set_grads(a.optim, grads, WEIGHTS) == GS_OK);
        rig_step(&a, turn, 0);
    }
    const gs_tensor from = gs_store_data(a.store);
    memcpy(gs_store_data(b.store).data, from.data, from.count * sizeof(float));
    move_slots(&a, &b);
    CHECK(gs_optim_set_steps(b.optim, 4) == GS_OK);
    for (size_t t = 0; t < WEIGHTS; t++) {
        CHECK(gs_optim_weight_steps(a.optim, t) == 4 - t);
        CHECK(gs_optim_weight_steps(b.optim, t) == 4);
        CHECK(gs_optim_set_weight_steps(b.optim, t, 4 - t) == GS_OK);
    }
    CHECK(gs_optim_steps(b.optim) == 4);
    b.scaler = a.scaler;
    rig_step(&a, 4, 0);
    rig_step(&b, 4, 0);
    CHECK(rig_hash(&a) == rig_hash(&b));
    const gs_optim_state state = gs_optim_get_state(a.optim);
    CHECK(gs_optim_set_state(b.optim, &state) == GS_OK && gs_optim_weight_steps(b.optim, 2) == 5);
    CHECK(gs_optim_set_steps(b.optim, UINT64_MAX) == GS_ERANGE);
    CHECK(gs_optim_set_weight_steps(b.optim, 0, UINT64_MAX) == GS_ERANGE);
    CHECK(gs_optim_set_weight_steps(b.optim, 3, 1) == GS_ERANGE);
    CHECK(gs_optim_weight_steps(b.optim, 0) == 5 && gs_optim_weight_steps(b.optim, 3) == 0);
    rig_close(&a);
    rig_close(&b);
}

/* ---- true units ---- */

static void test_units(void)
{
    static const char *const moments[] = {"f32", "f16", "bf16"};
    for (int k = 0; k < 3; k++) {
        char settings[40];
        snprintf(settings, sizeof settings, "moments=%s", moments[k]);
        rig r = {0};
        const rig_spec spec = {
            .kind = "adamw", .settings = settings, .types = {GS_F32, GS_F16, GS_F16}};
        CHECK(rig_open(&r, &spec) == GS_OK);
        static float x[1000], y[1000];
        for (size_t i = 0; i < 1000; i++)
            x[i] = noise(1, i);
        x[0] = -3;
        x[1] = 0x1p-100f; /* below what is kept */
        CHECK(gs_optim_write_slot(r.optim, 1, GS_SLOT_M, x, 1000) == GS_OK);
        CHECK(gs_optim_read_slot(y, r.optim, 1, GS_SLOT_M, 1000) == GS_OK);
        const float unit = k == 0 ? 0 : k == 1 ? 0x1p-11f : 0x1p-8f;
        CHECK(y[0] == -3 && y[1] == 0);
        for (size_t i = 2; i < 1000; i++)
            CHECK(fabsf(y[i] - x[i]) <= unit * fabsf(x[i]) + (k == 1 ? 0x1p-36f : 0));
        for (size_t i = 0; i < 1000; i++)
            x[i] = fabsf(noise(2, i)) * 1e-6f;
        x[0] = 4;
        CHECK(gs_optim_write_slot(r.optim, 1, GS_SLOT_V, x, 1000) == GS_OK);
        CHECK(gs_optim_read_slot(y, r.optim, 1, GS_SLOT_V, 1000) == GS_OK);
        CHECK(y[0] == 4);
        for (size_t i = 1; i < 1000; i++)
            CHECK(fabsf(y[i] - x[i]) <= 2.1f * unit * x[i] + (k == 1 ? 1e-12f : 0));
        /* a larger one of another weight moves the scale: nothing overflows, nothing else moves */
        const float large = 0x1p+20f;
        CHECK(gs_optim_write_slot(r.optim, 2, GS_SLOT_M, &large, 1) == GS_OK);
        CHECK(gs_optim_read_slot(y, r.optim, 2, GS_SLOT_M, 1) == GS_OK && y[0] == large);
        CHECK(gs_optim_read_slot(y, r.optim, 1, GS_SLOT_M, 1000) == GS_OK);
        for (size_t i = 1; i < 1000; i++)
            CHECK(fabsf(y[i] - noise(1, i)) <= 2 * unit || i == 1);
        rig_close(&r);
    }
}

static void test_bad_values(void)
{
    rig r = {0};
    const rig_spec spec = {
        .kind = "adamw", .settings = "moments=f16", .types = {GS_F32, GS_F16, GS_F16}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    rig_step(&r, 0, 0);
    const uint64_t before = rig_hash(&r);
    const gs_optim_state state = gs_optim_get_state(r.optim);
    static float x[1000];
    static const struct {
        size_t t;
        gs_slot slot;
        size_t count;
        float value;
        gs_status want;
        const char *says;
    } table[] = {
        {1, GS_SLOT_M, 1000, NAN, GS_ERANGE, "element 999 of slot m of weight bias is"},
        {1, GS_SLOT_M, 1000, -INFINITY, GS_ERANGE, "element 999 of slot m"},
        {1, GS_SLOT_V, 1000, -1, GS_ERANGE, "element 999 of slot v of weight bias is -1"},
        {1, GS_SLOT_V, 1000, NAN, GS_ERANGE, "element 999 of slot v"},
        {1, GS_SLOT_M, 1000, 0x1p+75f, GS_ERANGE, "element 999 of slot m"},
        {1, GS_SLOT_M, 999, 0, GS_ESIZE, "slot m of weight bias has 1000 elements, not 999"},
        {1, GS_SLOT_EMA, 1000, 0, GS_ESIZE, "slot ema of weight bias has 0 elements"},
        {3, GS_SLOT_M, 1000, 0, GS_ERANGE, "no slot 0 of a weight 3"},
        {1, GS_SLOT_COUNT, 1000, 0, GS_ERANGE, "no slot 6"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        x[999] = table[i].value;
        CHECK_MSG(gs_optim_write_slot(r.optim, table[i].t, table[i].slot, x, table[i].count) ==
                      table[i].want,
                  "row %zu", i);
        CHECK_MSG(strstr(gs_context_error(r.ctx)->text, table[i].says), "row %zu: %s", i,
                  gs_context_error(r.ctx)->text);
    }
    CHECK(gs_optim_write_slot(r.optim, 1, GS_SLOT_M, NULL, 1000) == GS_ENULL);
    CHECK(gs_optim_read_slot(NULL, r.optim, 1, GS_SLOT_M, 1000) == GS_ENULL);
    CHECK(gs_optim_read_slot(x, r.optim, 1, GS_SLOT_M, 1) == GS_ESIZE);
    const gs_optim_state after = gs_optim_get_state(r.optim);
    CHECK(rig_hash(&r) == before && memcmp(&state, &after, sizeof state) == 0);
    rig_close(&r);
}

TESTS({"taken_over", test_taken_over}, {"own_steps", test_own_steps}, {"units", test_units},
      {"bad_values", test_bad_values})
