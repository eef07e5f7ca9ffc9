/* Parameters, rules and a policy's own numbers by name: "key=value". */
#include "scaler/scaler.h"

#include <stdio.h>
#include <string.h>

/* ---- the rules from text ---- */

static bool is_bound(double x) { return x > 0 && isfinite(x); }

static gs_status set_bound(double *out, const char *key, const char *value, gs_error *error)
{
    double x = (double)NAN;
    if (strcmp(value, "off") != 0 && !(gsi_read_double(&x, value) && is_bound(x)))
        return gsi_fail(error, GS_ERANGE,
                        "%s=%s: %s must be a finite number greater than 0, or off", key, value,
                        key);
    *out = x;
    return GS_OK;
}

static gs_status set_limit(uint32_t *out, const char *key, const char *value, gs_error *error)
{
    const bool none = strcmp(value, "none") == 0;
    int64_t n = 0;
    if (!none && (!gsi_read_count(&n, value) || n < 1 || n > UINT32_MAX))
        return gsi_fail(error, GS_ERANGE,
                        "%s=%s: %s must be a whole number from 1 to 4294967295, or none", key,
                        value, key);
    *out = (uint32_t)n;
    return GS_OK;
}

static gs_status set_on_overflow(gs_rules *r, const char *key, const char *value, gs_error *error)
{
    int64_t n = 0;
    if (strcmp(value, "skip") == 0) {
        r->on_overflow = GS_ON_SKIP;
    } else if (strcmp(value, "attribute") == 0) {
        r->on_overflow = GS_ON_ATTRIBUTE;
    } else if (strncmp(value, "retry:", 6) == 0 && gsi_read_count(&n, value + 6) && n >= 1 &&
               n <= 100) {
        r->on_overflow = GS_ON_RETRY;
        r->retries = (uint8_t)n;
    } else {
        return gsi_fail(error, GS_ERANGE,
                        "%s=%s: %s must be skip, retry:N with N from 1 to 100, or attribute", key,
                        value, key);
    }
    return GS_OK;
}

static gs_status set_probe(gs_rules *r, const char *key, const char *value, gs_error *error)
{
    if (strcmp(value, "yes") != 0 && strcmp(value, "no") != 0)
        return gsi_fail(error, GS_ERANGE, "%s=%s: %s must be yes or no", key, value, key);
    r->probe = value[0] == 'y';
    return GS_OK;
}

static gs_status set_half(gs_rules *r, const char *key, const char *value, gs_error *error)
{
    gs_dtype type = GS_F32;
    if (gs_dtype_parse(&type, value, NULL) != GS_OK ||
        (type != GS_F16 && type != GS_BF16 && type != GS_F32))
        return gsi_fail(error, GS_ERANGE, "%s=%s: %s must be f16, bf16 or f32", key, value, key);
    r->half = (uint8_t)type;
    return GS_OK;
}

static gs_status set_lowest(gs_rules *r, const char *key, const char *value, gs_error *error)
{
    return set_bound(&r->lowest, key, value, error);
}

static gs_status set_highest(gs_rules *r, const char *key, const char *value, gs_error *error)
{
    return set_bound(&r->highest, key, value, error);
}

static gs_status set_stuck(gs_rules *r, const char *key, const char *value, gs_error *error)
{
    return set_limit(&r->stuck, key, value, error);
}

static gs_status set_fail_after(gs_rules *r, const char *key, const char *value, gs_error *error)
{
    return set_limit(&r->fail_after, key, value, error);
}

/* ---- the rules as text ---- */

static void put_bound(char value[GSI_WORD], double x)
{
    if (isnan(x))
        strcpy(value, "off");
    else
        gsi_write_double(value, x);
}

static void put_limit(char value[GSI_WORD], uint32_t n)
{
    snprintf(value, GSI_WORD, n ? "%u" : "none", n);
}

static void put_lowest(char value[GSI_WORD], const gs_rules *r) { put_bound(value, r->lowest); }
static void put_highest(char value[GSI_WORD], const gs_rules *r) { put_bound(value, r->highest); }
static void put_stuck(char value[GSI_WORD], const gs_rules *r) { put_limit(value, r->stuck); }
static void put_fail_after(char value[GSI_WORD], const gs_rules *r)
{
    put_limit(value, r->fail_after);
}
static void put_probe(char value[GSI_WORD], const gs_rules *r)
{
    strcpy(value, r->probe ? "yes" : "no");
}
static void put_half(char value[GSI_WORD], const gs_rules *r)
{
    strcpy(value, gs_dtype_format((gs_dtype)r->half)->name);
}
static void put_on_overflow(char value[GSI_WORD], const gs_rules *r)
{
    if (r->on_overflow == GS_ON_RETRY)
        snprintf(value, GSI_WORD, "retry:%u", r->retries);
    else
        strcpy(value, r->on_overflow == GS_ON_SKIP ? "skip" : "attribute");
}

static const struct rule {
    const char *key;
    gs_status (*set)(gs_rules *r, const char *key, const char *value, gs_error *error);
    void (*put)(char value[GSI_WORD], const gs_rules *r);
} rules[] = {
    {"on_overflow", set_on_overflow, put_on_overflow},
    {"probe", set_probe, put_probe},
    {"lowest", set_lowest, put_lowest},
    {"highest", set_highest, put_highest},
    {"stuck", set_stuck, put_stuck},
    {"fail_after", set_fail_after, put_fail_after},
    {"half", set_half, put_half},
};

static const struct rule *find_rule(const char *key)
{
    for (size_t i = 0; key && i < GSI_COUNT(rules); i++)
        if (strcmp(key, rules[i].key) == 0)
            return &rules[i];
    return NULL;
}

/* ---- all keys ---- */

static int find_tune(const gs_scaler *s, const char *key)
{
    for (int i = 0; key && i < GS_TUNE_COUNT && gsi_policies[s->policy].keys[i]; i++)
        if (strcmp(key, gsi_policies[s->policy].keys[i]) == 0)
            return i;
    return -1;
}

static gs_status check_tune(const gs_scaler *s, int i, double x, gs_error *error)
{
    const gsi_policy *policy = &gsi_policies[s->policy];
    const double min = policy->tune[i].min, max = policy->tune[i].max;
    if (!(x >= min && x <= max) || (policy->tune[i].whole && x != trunc(x)))
        return gsi_fail(error, GS_ERANGE, "%s=%g: %s must be a %snumber from %g to %g",
                        policy->keys[i], x, policy->keys[i], policy->tune[i].whole ? "whole " : "",
                        min, max);
    return GS_OK;
}

static bool in(const char *key, const char *const *keys)
{
    for (; *keys; keys++)
        if (strcmp(key, *keys) == 0)
            return true;
    return false;
}

/* A raw update or gs_scaler_set_scale is no attempt, but moves the machine. */
static bool has_moved(const gs_scaler *s)
{
    gs_machine start;
    gsi_machine_init(&start, &s->params);
    return s->counters.attempted > 0 || s->seen > 0 || s->zeros > 0 ||
           memcmp(&s->machine, &start, sizeof start) != 0;
}

static gs_status set_one(gs_scaler *s, bool moved, const char *key, const char *value,
                         gs_error *error)
{
    static const char *const at_start[] = {"init", "state", "credit", NULL};
    static const char *const shared[] = {"init", "floor", "max", NULL};
    const char *const name = gsi_policies[s->policy].name;
    const int tune = find_tune(s, key);
    if (tune >= 0) {
        double x;
        if (!gsi_read_double(&x, value))
            return gsi_fail(error, GS_ERANGE, "%s=%s: %s must be a number", key, value, key);
        s->tune[tune] = x;
        return check_tune(s, tune, x, error);
    }
    if (find_rule(key))
        return find_rule(key)->set(&s->rules, key, value, error);
    const gs_status status = gsi_params_set_one(&s->params, key, value, error);
    if (status == GS_ENAME)
        return gsi_fail(error, GS_ENAME, "unknown key '%s'", key);
    if (status == GS_OK && s->policy != GS_POLICY_MACHINE && !in(key, shared))
        return gsi_fail(error, GS_ENAME, "%s is not a key of the policy %s", key, name);
    if (status == GS_OK && moved && in(key, at_start))
        return gsi_fail(error, GS_ESTATE, "%s can only be set before the first step", key);
    return status;
}

gs_status gsi_scaler_check(const gs_scaler *s, gs_error *error)
{
    const gs_rules *r = &s->rules;
    const gs_status status = gs_params_check(&s->params, error);
    if (status != GS_OK)
        return status;
    for (int i = 0; i < GS_TUNE_COUNT && gsi_policies[s->policy].keys[i]; i++)
        if (check_tune(s, i, s->tune[i], error) != GS_OK)
            return GS_ERANGE;
    if (!(isnan(r->lowest) || is_bound(r->lowest)) || !(isnan(r->highest) || is_bound(r->highest)))
        return gsi_fail(error, GS_ERANGE,
                        "lowest=%g highest=%g: each must be a finite number greater than 0, or off",
                        r->lowest, r->highest);
    if (r->lowest > r->highest)
        return gsi_fail(error, GS_ERANGE, "lowest=%g is greater than highest=%g", r->lowest,
                        r->highest);
    /* floor and max are the raw machine's, which follows its framework where that goes; too high a
       top is none, for the type's own holds */
    const char *const type = gs_dtype_format(gsi_state_types[s->params.state])->name;
    const double lowest = gsi_round_state(&s->params, r->lowest);
    if (lowest == 0 || isinf(lowest))
        return gsi_fail(error, GS_ERANGE, "lowest=%g: a scale in %s cannot hold it", r->lowest,
                        type);
    if (gsi_round_state(&s->params, r->highest) == 0)
        return gsi_fail(error, GS_ERANGE, "highest=%g: a scale in %s cannot hold it", r->highest,
                        type);
    if (r->lowest > s->params.max || s->params.floor > r->highest)
        return gsi_fail(error, GS_ERANGE,
                        "the bounds %g..%g (lowest, highest) and %g..%g (floor, max) do not meet",
                        r->lowest, r->highest, s->params.floor, s->params.max);
    if (r->probe && s->policy != GS_POLICY_MACHINE)
        return gsi_fail(error, GS_ERANGE, "probe=yes: the policy %s finds its scale by itself",
                        gsi_policies[s->policy].name);
    return GS_OK;
}

static gs_status scaler_set_in_mode(gs_scaler *scaler, const char *list, gs_error *error)
{
    const gs_status made = gsi_scaler_version(scaler, error);
    if (made != GS_OK)
        return made;
    gs_scaler next = *scaler;
    char key[GSI_WORD], value[GSI_WORD];
    const bool moved = has_moved(scaler);
    while (gsi_next_pair(&list, key, value)) {
        if (!key[0])
            return gsi_fail(error, GS_EFORMAT, "'%s' is not key=value", value);
        const gs_status status = set_one(&next, moved, key, value, error);
        if (status != GS_OK)
            return status;
    }
    const gs_status status = gsi_scaler_check(&next, error);
    if (status != GS_OK)
        return status;
    if (next.counters.attempted == 0)
        next.probing = next.rules.probe;
    if (!moved)
        gsi_restart(&next);
    else if (next.params.interval != scaler->params.interval)
        next.machine.interval = gsi_interval(&next.params);
    *scaler = next;
    return GS_OK;
}

gs_status gs_scaler_set(gs_scaler *scaler, const char *list, gs_error *error)
{
    GSI_RETURN_IN_MODE(gs_status, scaler_set_in_mode(scaler, list, error));
}

const char *gs_scaler_key(const gs_scaler *scaler, size_t i)
{
    if (!gsi_scaler_made(scaler))
        return NULL;
    const gsi_policy *policy = &gsi_policies[scaler->policy];
    size_t tunes = 0;
    while (tunes < GS_TUNE_COUNT && policy->keys[tunes])
        tunes++;
    if (i < tunes)
        return policy->keys[i];
    i -= tunes;
    return i < GSI_COUNT(rules) ? rules[i].key : gs_param_key(i - GSI_COUNT(rules));
}

static gs_status scaler_get_in_mode(char *text, size_t size, const gs_scaler *scaler,
                                    const char *key, gs_error *error)
{
    char value[GSI_WORD];
    const gs_status status = gsi_scaler_version(scaler, error);
    if (status != GS_OK)
        return status;
    const int tune = find_tune(scaler, key);
    if (tune < 0 && !find_rule(key))
        return gs_params_get(text, size, &scaler->params, key, error);
    if (tune >= 0)
        gsi_write_double(value, scaler->tune[tune]);
    else
        find_rule(key)->put(value, &scaler->rules);
    if (strlen(value) >= size)
        return gsi_fail(error, GS_ESIZE, "%zu bytes are too few for %s=%s", size, key, value);
    strcpy(text, value);
    return GS_OK;
}

gs_status gs_scaler_get(char *text, size_t size, const gs_scaler *scaler, const char *key,
                        gs_error *error)
{
    GSI_RETURN_IN_MODE(gs_status, scaler_get_in_mode(text, size, scaler, key, error));
}
