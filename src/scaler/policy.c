/* The scaler as a whole: which policy, its parameters and rules, and the raw update. */
#include "scaler/scaler.h"

#include <stdio.h>
#include <string.h>

static void nothing(gs_scaler *s) { (void)s; }

static bool machine_step(gs_scaler *s, const gs_finding *f)
{
    return gsi_machine_step(&s->machine, &s->params, f->found);
}

static bool none_step(gs_scaler *s, const gs_finding *f)
{
    (void)s, (void)f;
    return false;
}

#define NO ((double)NAN)

const gsi_policy gsi_policies[GS_POLICY_COUNT] = {
    [GS_POLICY_MACHINE] = {.name = "machine", .init_memory = nothing, .step = machine_step},
    [GS_POLICY_HEADROOM] = {"headroom",
                            {"margin", "history"},
                            {{6, 0, 64, false}, {16, 1, GS_HISTORY_MAX, true}},
                            0x1p+16,
                            NO,
                            NO,
                            gsi_headroom_init,
                            gsi_headroom_step},
    [GS_POLICY_LOGMAX] = {"logmax",
                          {"beta1", "beta2", "sigmas"},
                          {{0.99, 0, 0.999999, false},
                           {0.999, 0, 0.999999, false},
                           {3.09, 0, 100, false}},
                          1,
                          1,
                          0x1p+14,
                          gsi_logmax_init,
                          gsi_logmax_step},
    [GS_POLICY_ADAPTIVE] = {"adaptive",
                            {"gain"},
                            {{1000, 0x1p-64, 0x1p+64, false}},
                            1,
                            NO,
                            NO,
                            nothing,
                            gsi_adaptive_step},
    [GS_POLICY_HISTOGRAM] = {"histogram",
                             {"threshold", "band"},
                             {{1e-7, 0, 0.5, false}, {1, 0, 16, true}},
                             1,
                             NO,
                             NO,
                             nothing,
                             gsi_histogram_step},
    [GS_POLICY_NONE] = {"none", {NULL}, {{0}}, 1, NO, NO, nothing, none_step},
};

/* ---- making one ---- */

void gsi_restart(gs_scaler *s)
{
    gsi_machine_init(&s->machine, &s->params);
    gsi_policies[s->policy].init_memory(s);
    s->probing = s->rules.probe;
}

_Static_assert(offsetof(gs_params, lag) + 1 == offsetof(gs_params, reserved), "the last of them");

static void init(gs_scaler *s, const gs_params *params, gs_policy policy)
{
    memset(s, 0, sizeof *s); /* what is reserved too: equal scalers are equal bytes */
    s->size = sizeof *s;
    memcpy(&s->params, params, offsetof(gs_params, reserved)); /* without theirs */
    s->policy = (uint8_t)policy;
    s->rules.lowest = 0x1p-24;
    s->rules.highest = 0x1p+40;
    s->rules.stuck = 50;
    s->rules.half = (uint8_t)GS_F16;
    for (int i = 0; i < GS_TUNE_COUNT; i++)
        s->tune[i] = gsi_policies[policy].tune[i].value;
    s->streak.tensor = s->streak.index = GS_NONE;
    gsi_restart(s);
}

static gs_status scaler_init_params_in_mode(gs_scaler *scaler, const gs_params *params,
                                            gs_error *error)
{
    const gs_status status = gs_params_check(params, error);
    if (status == GS_OK)
        init(scaler, params, GS_POLICY_MACHINE);
    return status;
}

gs_status gs_scaler_init_params(gs_scaler *scaler, const gs_params *params, gs_error *error)
{
    GSI_RETURN_IN_MODE(gs_status, scaler_init_params_in_mode(scaler, params, error));
}

static gs_status init_static(gs_scaler *s, const char *scale, gs_error *error)
{
    gs_params p;
    gs_params_default(&p);
    p.growth = p.backoff = 1;
    p.state = GS_STATE_F64; /* any scale is kept as given */
    if (!gsi_read_double(&p.init, scale) || !(p.init > 0) || !isfinite(p.init))
        return gsi_fail(error, GS_ERANGE,
                        "static:%.40s: the scale must be a finite number greater than 0", scale);
    init(s, &p, GS_POLICY_MACHINE);
    s->rules.lowest = fmin(s->rules.lowest, p.init);
    s->rules.highest = fmax(s->rules.highest, p.init);
    return GS_OK;
}

static gs_status scaler_init_in_mode(gs_scaler *scaler, const char *spec, gs_error *error)
{
    gs_params p;
    gs_scaler made;
    gs_status status = GS_OK;
    spec = spec ? spec : "pytorch";

    if (strncmp(spec, "static:", 7) == 0 || strcmp(spec, "guard") == 0) {
        status = init_static(&made, spec[0] == 'g' ? "1" : spec + 7, error);
        if (status == GS_OK)
            *scaler = made;
        return status;
    }
    for (int i = 1; i < GS_POLICY_COUNT; i++) {
        const gsi_policy *policy = &gsi_policies[i];
        if (strcmp(spec, policy->name) != 0)
            continue;
        gs_params_default(&p);
        p.state = i == GS_POLICY_HEADROOM ? GS_STATE_F64 : GS_STATE_F32;
        p.init = policy->init;
        p.floor = policy->floor;
        p.max = policy->max;
        init(scaler, &p, (gs_policy)i);
        return GS_OK;
    }
    status = gs_params_preset(&p, spec, NULL);
    if (status != GS_OK)
        return gsi_fail(error, status,
                        strcmp(spec, "static") == 0
                            ? "'%.60s' needs a scale: static:128"
                            : "unknown scaler '%.60s': not a preset, nor static:S, guard, "
                              "headroom, logmax, adaptive, histogram or none",
                        spec);
    return gs_scaler_init_params(scaler, &p, error);
}

gs_status gs_scaler_init(gs_scaler *scaler, const char *spec, gs_error *error)
{
    GSI_RETURN_IN_MODE(gs_status, scaler_init_in_mode(scaler, spec, error));
}

/* ---- what it knows of itself ---- */

const gs_dtype gsi_state_types[] = {GS_F16, GS_F32, GS_F64};

bool gsi_is_static(const gs_scaler *s)
{
    return s->policy == GS_POLICY_MACHINE && s->params.growth == 1;
}

double gsi_half_max(const gs_scaler *s) { return gs_dtype_format((gs_dtype)s->rules.half)->max; }

double gsi_power_of_two_below(double x)
{
    int e;
    frexp(x, &e);
    return ldexp(1, e - 1);
}

double gsi_lowest(const gs_scaler *s) { return fmax(s->rules.lowest, s->params.floor); }

double gsi_highest(const gs_scaler *s)
{
    const double bound =
        fmin(s->rules.highest, gs_dtype_format(gsi_state_types[s->params.state])->max);
    return fmin(bound, s->params.max);
}

/* What the rules' bounds leave of a scale; !(x >= lowest) moves a NaN too. They hold what floor and
 * max of the machine let through: a floor is looked at in a backoff only, a max in a growth. */
double gsi_bounded(const gs_scaler *s, double x)
{
    const double most = gs_dtype_format(gsi_state_types[s->params.state])->max;
    const double top = s->rules.highest < most ? s->rules.highest : most;
    if (!isnan(s->rules.lowest) && !(x >= s->rules.lowest))
        return s->rules.lowest;
    return !isnan(s->rules.highest) && x > top ? top : x;
}

void gsi_go_to(gs_scaler *s, double x)
{
    const double floor = gsi_round_state(&s->params, s->params.floor);
    const double max = gsi_round_state(&s->params, s->params.max);
    x = gsi_round_state(&s->params, x);
    x = x > max ? max : x < floor ? floor : x;
    s->machine.scale = s->machine.shown = x;
    s->machine.clean = 0;
    s->machine.count = 0;
}

static double scaler_scale_in_mode(const gs_scaler *scaler)
{
    if (!gsi_scaler_made(scaler))
        return (double)NAN;
    return scaler->policy == GS_POLICY_NONE ? 1 : gsi_bounded(scaler, scaler->machine.shown);
}

double gs_scaler_scale(const gs_scaler *scaler)
{
    GSI_RETURN_IN_MODE(double, scaler_scale_in_mode(scaler));
}

static gs_status scaler_set_scale_in_mode(gs_scaler *scaler, double scale, gs_error *error)
{
    GSI_AFTER_MODE(scale);
    const gs_status status = gsi_scaler_version(scaler, error);
    if (status != GS_OK)
        return status;
    const double kept = gsi_round_state(&scaler->params, fmax(scale, 0));
    if (!(kept > 0) || !isfinite(kept))
        return gsi_fail(error, GS_ERANGE,
                        "a scale of %g: it must be finite and greater than 0 in %s", scale,
                        gs_dtype_format(gsi_state_types[scaler->params.state])->name);
    scaler->machine.scale = scaler->machine.shown = gsi_bounded(scaler, kept);
    return GS_OK;
}

gs_status gs_scaler_set_scale(gs_scaler *scaler, double scale, gs_error *error)
{
    GSI_RETURN_IN_MODE(gs_status, scaler_set_scale_in_mode(scaler, scale, error));
}

static gs_status scaler_resume_in_mode(gs_scaler *scaler, double scale, int64_t clean_steps,
                                       gs_error *error)
{
    GSI_AFTER_MODE(scale);
    gs_status status = gsi_scaler_version(scaler, error);
    if (status == GS_OK && (clean_steps < 0 || clean_steps > INT64_C(1) << 53))
        status = gsi_fail(error, GS_ERANGE, "%lld clean steps: the count must be 0 to 2^53",
                          (long long)clean_steps);
    if (status == GS_OK)
        status = gs_scaler_set_scale(scaler, scale, error);
    if (status != GS_OK)
        return status;
    scaler->machine.clean = clean_steps;
    scaler->machine.count = (double)clean_steps;
    scaler->machine.bad = scaler->machine.run = 0;
    scaler->probing = GSI_PROBED;
    memset(&scaler->event, 0, sizeof scaler->event);
    return GS_OK;
}

gs_status gs_scaler_resume(gs_scaler *scaler, double scale, int64_t clean_steps, gs_error *error)
{
    GSI_RETURN_IN_MODE(gs_status, scaler_resume_in_mode(scaler, scale, clean_steps, error));
}

/* ---- the raw update ---- */

static int scaler_update_with_in_mode(gs_scaler *scaler, const gs_finding *finding)
{
    if (!gsi_scaler_made(scaler))
        return -1;
    return gsi_policies[scaler->policy].step(scaler, finding);
}

int gs_scaler_update_with(gs_scaler *scaler, const gs_finding *finding)
{
    GSI_RETURN_IN_MODE(int, scaler_update_with_in_mode(scaler, finding));
}

int gs_scaler_update(gs_scaler *scaler, int found)
{
    const gs_finding finding = {.found = found != 0, .amax = (double)NAN};
    return gs_scaler_update_with(scaler, &finding);
}
