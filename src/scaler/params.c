/* The 23 keys of the machine: one row each says how it is read, written and checked. */
#include "scaler/scaler.h"

#include <stdio.h>
#include <string.h>

typedef enum kind { NUMBER, COUNT, WORD, MASK } kind;

static const char *const states[] = {"f16", "f32", "f64", NULL};
static const char *const ops[] = {"wide", "state", "div", "recip", NULL};
static const char *const grow_ops[] = {"wide", "state", NULL};
static const char *const compares[] = {"eq", "ge", "mod", "wrap", NULL};
static const char *const refills[] = {"clean", "growth", "backoff", NULL};
static const char *const no_yes[] = {"no", "yes", NULL};
static const char *const errs[] = {"none", "eq-before", "le-after", "restore-lt", NULL};
static const char *const lags[] = {"0", "1", NULL};

typedef struct row {
    const char *key;
    size_t offset;
    kind kind;
    bool optional;            /* may be none */
    const char *const *words; /* of WORD and MASK */
    double min;               /* of NUMBER: greater than it if `above`, else not less */
    bool above;
    const char *must; /* what a number that is too small is not */
} row;

#define AT(field) .key = #field, .offset = offsetof(gs_params, field)

static const row rows[] = {
    {AT(init), .kind = NUMBER, .above = true, .must = "greater than 0"},
    {AT(state), .kind = WORD, .words = states},
    {AT(growth), .kind = NUMBER, .min = 1, .must = "at least 1"},
    {AT(grow_op), .kind = WORD, .words = grow_ops},
    {AT(backoff), .kind = NUMBER, .above = true, .must = "greater than 0"},
    {AT(back_op), .kind = WORD, .words = ops},
    {AT(interval), .kind = COUNT, .optional = true},
    {AT(extra), .kind = COUNT},
    {AT(credit), .kind = COUNT},
    {AT(compare), .kind = WORD, .words = compares},
    {AT(hyst), .kind = COUNT, .optional = true},
    {AT(refill), .kind = MASK, .words = refills},
    {AT(tolerance), .kind = NUMBER, .must = "at least 0"},
    {AT(track_rescale), .kind = WORD, .words = no_yes},
    {AT(floor), .kind = NUMBER, .optional = true, .must = "at least 0, or none"},
    {AT(max), .kind = NUMBER, .optional = true, .above = true, .must = "greater than 0, or none"},
    {AT(keep_nonfinite), .kind = WORD, .words = no_yes},
    {AT(err), .kind = WORD, .words = errs},
    {AT(err_min), .kind = NUMBER, .optional = true, .must = "at least 0, or none"},
    {AT(bad_limit), .kind = COUNT, .optional = true},
    {AT(lag), .kind = WORD, .words = lags},
    {AT(window_follows), .kind = NUMBER, .optional = true, .min = 1, .must = "at least 1, or none"},
    {AT(warm_growth), .kind = NUMBER, .optional = true, .min = 1, .above = true,
     .must = "greater than 1, or none"},
};
_Static_assert(GSI_COUNT(rows) == GS_PARAM_COUNT, "one row per key");

static const row *find(const char *key)
{
    for (size_t i = 0; key && i < GSI_COUNT(rows); i++)
        if (strcmp(key, rows[i].key) == 0)
            return &rows[i];
    return NULL;
}

const char *gs_param_key(size_t i) { return i < GSI_COUNT(rows) ? rows[i].key : NULL; }

/* ---- reading ---- */

static int find_word(const char *const *words, const char *word, size_t length)
{
    for (int i = 0; words[i]; i++)
        if (strlen(words[i]) == length && memcmp(words[i], word, length) == 0)
            return i;
    return -1;
}

/* "this, that or the other"; there is at least one word. */
static char *join(char *text, size_t size, const char *const *words)
{
    size_t used = 0;
    for (int i = 0; words[i]; i++) {
        const char *before = i == 0 ? "" : words[i + 1] ? ", " : " or ";
        used += (size_t)snprintf(text + used, size - used, "%s%s", before, words[i]);
        used = gsi_min_size(used, size);
    }
    return text;
}

static bool read_mask(uint8_t *out, const char *const *words, const char *text)
{
    *out = 0;
    if (strcmp(text, "none") == 0)
        return true;
    for (const char *at = text;; at++) {
        const size_t length = strcspn(at, "+");
        const int i = find_word(words, at, length);
        if (i < 0)
            return false;
        *out = (uint8_t)(*out | 1u << i);
        at += length;
        if (*at == 0)
            return true;
    }
}

gs_status gsi_params_set_one(gs_params *p, const char *key, const char *value, gs_error *error)
{
    const row *r = find(key);
    if (!r)
        return GS_ENAME;
    void *field = (char *)p + r->offset;
    const bool none = r->optional && strcmp(value, "none") == 0;
    char words[80];

    switch (r->kind) {
    case NUMBER: {
        double x = (double)NAN;
        if (!none && !(gsi_read_double(&x, value) && isfinite(x)))
            return gsi_fail(error, GS_ERANGE, "%s=%s: %s must be a finite number%s", key, value,
                            key, r->optional ? ", or none" : "");
        if (!none && !(r->above ? x > r->min : x >= r->min))
            return gsi_fail(error, GS_ERANGE, "%s=%s: %s must be %s", key, value, key, r->must);
        memcpy(field, &x, sizeof x);
        return GS_OK;
    }
    case COUNT: {
        int64_t n = GS_NO_LIMIT;
        if (!none && !gsi_read_count(&n, value))
            return gsi_fail(error, GS_ERANGE, "%s=%s: %s must be a whole number from 0 to 2^53%s",
                            key, value, key, r->optional ? ", or none" : "");
        memcpy(field, &n, sizeof n);
        return GS_OK;
    }
    case WORD: {
        const int i = find_word(r->words, value, strlen(value));
        if (i < 0)
            return gsi_fail(error, GS_ERANGE, "%s=%s: %s must be %s", key, value, key,
                            join(words, sizeof words, r->words));
        *(uint8_t *)field = (uint8_t)i;
        return GS_OK;
    }
    default:
        if (!read_mask((uint8_t *)field, r->words, value))
            return gsi_fail(error, GS_ERANGE,
                            "%s=%s: %s must be none, or a list joined with + of %s", key, value,
                            key, join(words, sizeof words, r->words));
        return GS_OK;
    }
}

bool gsi_next_pair(const char **list, char key[GSI_WORD], char value[GSI_WORD])
{
    static const char blanks[] = " \t\n\r";
    const char *item = *list + strspn(*list, blanks);
    const size_t length = strcspn(item, blanks);
    const char *equals = memchr(item, '=', length);
    const size_t left = equals ? (size_t)(equals - item) : 0, right = length - left - 1;

    if (length == 0)
        return false;
    *list = item + length;
    key[0] = 0;
    if (left > 0 && left < GSI_WORD && right < GSI_WORD) {
        memcpy(key, item, left);
        key[left] = 0;
        memcpy(value, equals + 1, right);
        value[right] = 0;
    } else {
        snprintf(value, GSI_WORD, "%.*s", length < GSI_WORD ? (int)length : GSI_WORD - 1, item);
    }
    return true;
}

static gs_status params_set_in_mode(gs_params *params, const char *list, gs_error *error)
{
    gs_params next = *params;
    char key[GSI_WORD], value[GSI_WORD];
    while (gsi_next_pair(&list, key, value)) {
        if (!key[0])
            return gsi_fail(error, GS_EFORMAT, "'%s' is not key=value", value);
        const gs_status status = gsi_params_set_one(&next, key, value, error);
        if (status == GS_ENAME)
            return gsi_fail(error, GS_ENAME, "unknown key '%s'", key);
        if (status != GS_OK)
            return status;
    }
    *params = next;
    return GS_OK;
}

gs_status gs_params_set(gs_params *params, const char *list, gs_error *error)
{
    GSI_RETURN_IN_MODE(gs_status, params_set_in_mode(params, list, error));
}

/* ---- writing ---- */

static gs_status params_get_in_mode(char *text, size_t size, const gs_params *params,
                                    const char *key, gs_error *error)
{
    const row *r = find(key);
    char value[GSI_WORD] = "";
    if (!r)
        return gsi_fail(error, GS_ENAME, "there is no parameter %.60s",
                        key ? key : "without a name");
    const void *field = (const char *)params + r->offset;
    double x;
    int64_t n;
    const uint8_t word = *(const uint8_t *)field;

    switch (r->kind) {
    case NUMBER:
        memcpy(&x, field, sizeof x);
        gsi_write_double(value, x);
        if (isnan(x))
            strcpy(value, "none");
        break;
    case COUNT:
        memcpy(&n, field, sizeof n);
        snprintf(value, sizeof value, "%lld", (long long)n);
        if (n == GS_NO_LIMIT)
            strcpy(value, "none");
        break;
    case WORD:
        for (uint8_t i = 0; i <= word; i++)
            if (!r->words[i])
                return gsi_fail(error, GS_ERANGE, "%s holds %u, which means nothing", key, word);
        strcpy(value, r->words[word]);
        break;
    default:
        for (int i = 0; r->words[i]; i++)
            if (word >> i & 1) {
                strcat(value, value[0] ? "+" : "");
                strcat(value, r->words[i]);
            }
        if (!word)
            strcpy(value, "none");
        break;
    }
    if (strlen(value) >= size)
        return gsi_fail(error, GS_ESIZE, "%zu bytes are too few for %s=%s", size, key, value);
    strcpy(text, value);
    return GS_OK;
}

gs_status gs_params_get(char *text, size_t size, const gs_params *params, const char *key,
                        gs_error *error)
{
    GSI_RETURN_IN_MODE(gs_status, params_get_in_mode(text, size, params, key, error));
}

/* ---- checking ---- */

/* Each value alone: what gs_params_set would refuse, a struct filled by hand can hold. */
static gs_status check_values(const gs_params *p, gs_error *error)
{
    for (size_t i = 0; i < GSI_COUNT(rows); i++) {
        const row *r = &rows[i];
        char value[GSI_WORD];
        unsigned words = 0;
        while (r->words && r->words[words])
            words++;
        const uint8_t word = *((const uint8_t *)p + r->offset);
        if ((r->kind == WORD && word >= words) || (r->kind == MASK && word >> words))
            return gsi_fail(error, GS_ERANGE, "%s holds %u, which means nothing", r->key, word);
        gs_params copy = *p;
        /* its word is one, and any value fits */
        gs_params_get(value, sizeof value, p, r->key, NULL);
        const gs_status status = gsi_params_set_one(&copy, r->key, value, error);
        if (status != GS_OK)
            return status;
    }
    return GS_OK;
}

static gs_status params_check_in_mode(const gs_params *p, gs_error *error)
{
    const gs_status status = check_values(p, error);
    const bool divides = p->back_op == GS_ARITH_DIV || p->back_op == GS_ARITH_RECIP;
    const bool constant = p->growth == 1 && p->backoff == 1;
    if (status != GS_OK)
        return status;
    if (p->growth == 1 && !constant)
        return gsi_fail(error, GS_ERANGE,
                        "growth=1 makes a constant scale, which needs backoff=1 too, not %g",
                        p->backoff);
    if (!constant && divides && p->backoff <= 1)
        return gsi_fail(error, GS_ERANGE,
                        "backoff=%g: with back_op=%s it is a divisor and must be greater than 1",
                        p->backoff, ops[p->back_op]);
    if (!constant && !divides && p->backoff >= 1)
        return gsi_fail(error, GS_ERANGE,
                        "backoff=%g: with back_op=%s it is a factor and must be less than 1",
                        p->backoff, ops[p->back_op]);
    if (p->floor > p->max)
        return gsi_fail(error, GS_ERANGE, "floor=%g is greater than max=%g", p->floor, p->max);
    if (p->compare == GS_COMPARE_WRAP && p->interval < 1)
        return gsi_fail(error, GS_ERANGE, "interval=0: with compare=wrap it must be at least 1");
    if (p->err != GS_ERR_NONE && isnan(p->err_min))
        return gsi_fail(error, GS_ERANGE, "err=%s needs err_min", errs[p->err]);
    return GS_OK;
}

gs_status gs_params_check(const gs_params *p, gs_error *error)
{
    GSI_RETURN_IN_MODE(gs_status, params_check_in_mode(p, error));
}
