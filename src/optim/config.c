/* Settings of the optimizers: one table of keys that parses and checks them. */
#include "optim/optim.h"
#include "scaler/scaler.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

const char *const gsi_optim_kinds[GS_OPTIM_COUNT] = {
#define X(id, name) name,
    GS_OPTIMS(X)
#undef X
};
const char *const gsi_roundings[GS_ROUNDING_COUNT] = {
#define X(id, name) name,
    GS_ROUNDINGS(X)
#undef X
};
static const char *const schedules[] = {
#define X(id, name) name,
    GS_SCHEDULES(X)
#undef X
};
static const char *const moment_names[] = {"f32", "f16", "bf16"}; /* as gs_dtype counts */
static const char *const no_yes[] = {"no", "yes"};

typedef struct setting {
    const char *key;
    size_t offset;            /* in gs_optim_config */
    const char *const *words; /* of an enum or int; NULL: a number */
    size_t n_words;
    bool count; /* a uint64_t */
    double lo, hi;
    bool below; /* hi is not legal itself */
} setting;

#define AT(field) offsetof(gs_optim_config, field)
#define WORDS(key, field, list)                                   \
    {                                                             \
        key, AT(field), list, GSI_COUNT(list), false, 0, 0, false \
    }
#define COUNT(key, field)                                \
    {                                                    \
        key, AT(field), NULL, 0, true, 0, 0x1p+53, false \
    }

/* eps: a number below the smallest the update keeps would be none. lr: what f32 can multiply. */
static const setting settings[] = {
    {"lr", AT(lr), NULL, 0, false, 0, 1e6, false},
    {"momentum", AT(momentum), NULL, 0, false, 0, 1, true},
    {"dampening", AT(dampening), NULL, 0, false, 0, 1, false},
    WORDS("nesterov", nesterov, no_yes),
    {"beta1", AT(beta1), NULL, 0, false, 0, 1, true},
    {"beta2", AT(beta2), NULL, 0, false, 0, 1, true},
    {"eps", AT(eps), NULL, 0, false, 0, 1, false},
    {"weight_decay", AT(weight_decay), NULL, 0, false, 0, 1, false},
    {"factor_decay", AT(factor_decay), NULL, 0, false, 0, 1, false},
    {"factor_eps", AT(factor_eps), NULL, 0, false, 0, 1, false},
    {"factor_clip", AT(factor_clip), NULL, 0, false, 0, 1e6, false},
    {"factor_least", AT(factor_least), NULL, 0, false, 0, 1e6, false},
    {"clip_norm", AT(clip_norm), NULL, 0, false, 0, 1e30, false},
    {"clip_value", AT(clip_value), NULL, 0, false, 0, 1e30, false},
    {"ema", AT(ema), NULL, 0, false, 0, 1, true},
    WORDS("schedule", schedule.kind, schedules),
    COUNT("warmup", schedule.warmup),
    COUNT("total", schedule.total),
    COUNT("every", schedule.every),
    {"final", AT(schedule.final), NULL, 0, false, 0, 1, false},
    {"gamma", AT(schedule.gamma), NULL, 0, false, 0, 1, false},
    WORDS("rounding", rounding, gsi_roundings),
    WORDS("moments", moments, moment_names),
    COUNT("seed", seed),
    WORDS("clear_grads", clear_grads, no_yes),
};

const char *gs_optim_key(size_t i) { return i < GSI_COUNT(settings) ? settings[i].key : NULL; }

static int find(const char *const *words, size_t n, const char *word)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(words[i], word) == 0)
            return (int)i;
    return -1;
}

/* PyTorch 1.13's, You et al. 2019, Shazeer and Stern 2018. */
static const gs_optim_config defaults[] = {
    [GS_SGD] = {.kind = GS_SGD, .lr = 1e-3},
    [GS_ADAM] = {.kind = GS_ADAM, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
    [GS_ADAMW] = {.kind = GS_ADAMW,
                  .lr = 1e-3,
                  .beta1 = 0.9,
                  .beta2 = 0.999,
                  .eps = 1e-8,
                  .weight_decay = 1e-2},
    [GS_LAMB] = {.kind = GS_LAMB,
                 .lr = 1e-3,
                 .beta1 = 0.9,
                 .beta2 = 0.999,
                 .eps = 1e-6,
                 .weight_decay = 1e-2},
    [GS_ADAFACTOR] = {.kind = GS_ADAFACTOR,
                      .lr = 1e-2,
                      .factor_decay = 0.8,
                      .factor_eps = 1e-30,
                      .factor_clip = 1,
                      .factor_least = 1e-3},
};

gs_status gs_optim_config_init(gs_optim_config *config, const char *kind, gs_error *error)
{
    const int k = kind ? find(gsi_optim_kinds, GSI_COUNT(gsi_optim_kinds), kind) : -1;
    if (!config)
        return gsi_fail(error, GS_ENULL, "there is no place for the settings");
    if (k < 0)
        return gsi_fail(error, GS_ENAME,
                        "there is no optimizer %s: sgd, adam, adamw, lamb and adafactor exist",
                        kind ? kind : "NULL");
    gs_optim_config next;
    const gs_status status = gsi_config(&next, sizeof next, config, "gs_optim_config", error);
    if (status != GS_OK)
        return status;
    next = defaults[k];
    next.schedule.every = 1;
    next.schedule.gamma = 1;
    next.clear_grads = 1;
    next.size = config->size;
    memcpy(config, &next, next.size); /* no more than the caller's header has */
    return GS_OK;
}

static gs_status check_number(const setting *s, double x, gs_error *error)
{
    if (x >= s->lo && (s->below ? x < s->hi : x <= s->hi)) /* false for a NaN */
        return GS_OK;
    return gsi_fail(error, GS_ERANGE, "%s=%g: %s must be from %g to %s%g", s->key, x, s->key, s->lo,
                    s->below ? "below " : "", s->hi);
}

static gs_status fail_word(const setting *s, const char *value, gs_error *error)
{
    char words[200] = "";
    for (size_t i = 0, n = 0; i < (size_t)s->n_words && n < sizeof words; i++)
        n += (size_t)snprintf(words + n, sizeof words - n, "%s%s",
                              i == 0                        ? ""
                              : i + 1 == (size_t)s->n_words ? " and "
                                                            : ", ",
                              s->words[i]);
    return gsi_fail(error, GS_ERANGE, "%s=%s: %s exist", s->key, value, words);
}

static gs_status set_one(gs_optim_config *config, const char *key, const char *value,
                         gs_error *error)
{
    const setting *s = settings, *const end = settings + GSI_COUNT(settings);
    while (s < end && strcmp(s->key, key) != 0)
        s++;
    if (s == end)
        return gsi_fail(error, GS_ENAME, "there is no setting %s", key);

    char *const field = (char *)config + s->offset;
    int64_t count;
    double x;
    if (s->words) {
        const int word = find(s->words, s->n_words, value);
        if (word < 0)
            return fail_word(s, value, error);
        memcpy(field, &word, sizeof word);
        return GS_OK;
    }
    if (s->count) {
        if (!gsi_read_count(&count, value))
            return gsi_fail(error, GS_ERANGE, "%s=%s: %s must be a whole number", key, value, key);
        memcpy(field, &count, sizeof count);
        return GS_OK;
    }
    if (!gsi_read_double(&x, value))
        return gsi_fail(error, GS_ERANGE, "%s=%s: %s must be a number", key, value, key);
    memcpy(field, &x, sizeof x);
    return check_number(s, x, error);
}

gs_status gs_optim_config_set(gs_optim_config *config, const char *list, gs_error *error)
{
    if (!config || !list)
        return gsi_fail(error, GS_ENULL, "the settings are NULL");
    gs_optim_config next, before;
    char key[GSI_WORD], value[GSI_WORD];
    gs_status status = gsi_config(&next, sizeof next, config, "gs_optim_config", error);
    before = next;
    while (status == GS_OK && gsi_next_pair(&list, key, value))
        status = key[0] ? set_one(&next, key, value, error)
                        : gsi_fail(error, GS_EFORMAT, "'%s' is not key=value", value);
    if (status == GS_OK)
        status = gs_optim_config_check(&next, error);
    const size_t size = config->size;
    if (status == GS_OK &&
        memcmp((char *)&next + size, (char *)&before + size, sizeof next - size) != 0)
        status = gsi_fail(error, GS_EVERSION, "a setting is newer than the program's optim.h");
    next.size = size;
    if (status == GS_OK)
        memcpy(config, &next, size);
    return status;
}

/* What the table does not know: settings that do not go together. */
static gs_status check_together(const gs_optim_config *c, gs_error *error)
{
    const gs_schedule *s = &c->schedule;
    const bool adam = c->kind == GS_ADAM || c->kind == GS_ADAMW || c->kind == GS_LAMB;
    if (c->nesterov && (c->momentum == 0 || c->dampening != 0))
        return gsi_fail(error, GS_ERANGE, "nesterov needs a momentum and no dampening");
    if (c->momentum != 0 && c->kind != GS_SGD)
        return gsi_fail(error, GS_ERANGE, "momentum is a setting of sgd: %s has beta1",
                        gsi_optim_kinds[c->kind]);
    if (adam && c->eps != 0 && c->eps < 1e-30)
        return gsi_fail(error, GS_ERANGE, "eps=%g: eps must be 0 or at least 1e-30", c->eps);
    if (c->kind == GS_ADAFACTOR && (c->factor_eps < 1e-30 || c->factor_clip <= 0))
        return gsi_fail(error, GS_ERANGE,
                        "adafactor needs a factor_eps of at least 1e-30 and a factor_clip");
    if (c->kind == GS_ADAFACTOR && c->moments != GS_F32)
        return gsi_fail(error, GS_EDTYPE, "adafactor keeps so little that it keeps it in f32");
    if (s->kind == GS_SCHEDULE_STEP && s->every == 0)
        return gsi_fail(error, GS_ERANGE, "every=0: every must be at least 1");
    if ((s->kind == GS_SCHEDULE_LINEAR || s->kind == GS_SCHEDULE_COSINE ||
         s->kind == GS_SCHEDULE_ONECYCLE) &&
        s->total <= s->warmup)
        return gsi_fail(error, GS_ERANGE,
                        "warmup=%llu total=%llu: the schedule %s needs a total above its warmup",
                        (unsigned long long)s->warmup, (unsigned long long)s->total,
                        schedules[s->kind]);
    if (c->lr * c->weight_decay > 1)
        return gsi_fail(error, GS_ERANGE, "lr times weight_decay is %g: weights would change sign",
                        c->lr * c->weight_decay);
    return GS_OK;
}

gs_status gs_optim_config_check(const gs_optim_config *config, gs_error *error)
{
    if (!config)
        return gsi_fail(error, GS_ENULL, "the settings are NULL");
    gs_optim_config today;
    gs_status status = gsi_config(&today, sizeof today, config, "gs_optim_config", error);
    if (status != GS_OK)
        return status;
    config = &today;
    if ((unsigned)config->kind >= GS_OPTIM_COUNT)
        return gsi_fail(error, GS_ENAME, "there is no optimizer number %d", (int)config->kind);
    for (size_t i = 0; i < GSI_COUNT(settings); i++) {
        const setting *s = &settings[i];
        const char *field = (const char *)config + s->offset;
        double x = 0;
        unsigned word = 0;
        if (s->words) {
            memcpy(&word, field, sizeof word);
            if (word >= s->n_words)
                return gsi_fail(error, GS_ERANGE, "%s has no value number %u", s->key, word);
        } else if (!s->count) {
            memcpy(&x, field, sizeof x);
            status = check_number(s, x, error);
            if (status != GS_OK)
                return status;
        }
    }
    return check_together(config, error);
}
