/* clang-format off */
/* The state of a scaler as text and as bytes. One table names every field; what is not in it is not
 * state. Version 1:
 *
 *   text      "gradscale scaler 1", one line key=value per field (hex floats), "checksum=" and the
 *             CRC-32 of all that precedes that line, in eight hex digits
 *   binary    "GSSCALER", u32 version, u32 number of fields, 8 bytes per field, u32 CRC-32 of all
 *             that precedes it; little-endian */
/* clang-format on */
#include "scaler/scaler.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { VERSION = 1 };
enum { HEADER = 16, TRAILER = 4 };
static const char magic[] = "GSSCALER", title[] = "gradscale scaler ";

typedef enum kind { F64, F32, I64, U64, U32, U8 } kind;

typedef struct field {
    const char *key;
    size_t offset;
    kind kind;
} field;

#define AT(kind, member)                           \
    {                                              \
#member, offsetof(gs_scaler, member), kind \
    }

static const field fields[] = {
    AT(U8, policy),
    AT(F64, params.init),
    AT(U8, params.state),
    AT(F64, params.growth),
    AT(U8, params.grow_op),
    AT(F64, params.backoff),
    AT(U8, params.back_op),
    AT(I64, params.interval),
    AT(I64, params.extra),
    AT(I64, params.credit),
    AT(U8, params.compare),
    AT(I64, params.hyst),
    AT(U8, params.refill),
    AT(F64, params.tolerance),
    AT(U8, params.track_rescale),
    AT(F64, params.floor),
    AT(F64, params.max),
    AT(U8, params.keep_nonfinite),
    AT(U8, params.err),
    AT(F64, params.err_min),
    AT(I64, params.bad_limit),
    AT(U8, params.lag),
    AT(F64, params.window_follows),
    AT(F64, params.warm_growth),
    AT(F64, tune[0]),
    AT(F64, tune[1]),
    AT(F64, tune[2]),
    AT(F64, rules.lowest),
    AT(F64, rules.highest),
    AT(U8, rules.retries),
    AT(U32, rules.stuck),
    AT(U32, rules.fail_after),
    AT(U8, rules.on_overflow),
    AT(U8, rules.probe),
    AT(U8, rules.half),
    AT(F64, machine.scale),
    AT(F64, machine.shown),
    AT(F64, machine.interval),
    AT(F64, machine.count),
    AT(I64, machine.clean),
    AT(I64, machine.bad),
    AT(I64, machine.run),
    AT(I64, machine.it),
    AT(I64, machine.last_rescale),
    AT(I64, machine.ovf),
    AT(U8, machine.ever),
    AT(U64, counters.attempted),
    AT(U64, counters.applied),
    AT(U64, counters.skipped[1]),
    AT(U64, counters.skipped[2]),
    AT(U64, counters.skipped[3]),
    AT(U64, counters.skipped[4]),
    AT(U64, counters.skipped[5]),
    AT(U64, counters.retried),
    AT(U64, counters.blamed),
    AT(F32, history[0]),
    AT(F32, history[1]),
    AT(F32, history[2]),
    AT(F32, history[3]),
    AT(F32, history[4]),
    AT(F32, history[5]),
    AT(F32, history[6]),
    AT(F32, history[7]),
    AT(F32, history[8]),
    AT(F32, history[9]),
    AT(F32, history[10]),
    AT(F32, history[11]),
    AT(F32, history[12]),
    AT(F32, history[13]),
    AT(F32, history[14]),
    AT(F32, history[15]),
    AT(F64, mean[0]),
    AT(F64, mean[1]),
    AT(F64, mean[2]),
    AT(U32, seen),
    AT(U32, zeros),
    AT(F64, event.scale),
    AT(U8, event.phase),
    AT(U8, event.reruns),
    AT(F32, streak.from),
    AT(F32, streak.to),
    AT(U64, streak.tensor),
    AT(U64, streak.index),
    AT(U32, streak.steps),
    AT(U8, streak.reason),
    AT(U8, streak.nan_only),
    AT(U8, probing),
};
enum { FIELDS = GSI_COUNT(fields) };
_Static_assert(GS_REASON_COUNT == 6, "a field for each reason");
_Static_assert(HEADER + 8 * FIELDS + TRAILER <= GS_STATE_BINARY_MAX, "the promised size");

/* ---- a field as 64 bits ---- */

static uint64_t get(const gs_scaler *s, const field *f)
{
    const char *at = (const char *)s + f->offset;
    uint64_t u64 = 0;
    uint32_t u32;
    if (f->kind == U8)
        return *(const uint8_t *)at;
    if (f->kind == U32 || f->kind == F32) {
        memcpy(&u32, at, sizeof u32);
        return u32;
    }
    memcpy(&u64, at, sizeof u64);
    return u64;
}

/* False: it does not fit. */
static bool put(gs_scaler *s, const field *f, uint64_t bits)
{
    char *at = (char *)s + f->offset;
    const uint32_t u32 = (uint32_t)bits;
    if (f->kind == U8)
        *(uint8_t *)at = (uint8_t)bits;
    else if (f->kind == U32 || f->kind == F32)
        memcpy(at, &u32, sizeof u32);
    else
        memcpy(at, &bits, sizeof bits);
    return bits <= (f->kind == U8                      ? UINT8_MAX
                    : f->kind == U32 || f->kind == F32 ? UINT32_MAX
                                                       : UINT64_MAX);
}

static uint32_t crc32(const unsigned char *p, size_t n)
{
    uint32_t half[16], crc = ~0u; /* half a byte at a time */
    for (uint32_t i = 0; i < 16; i++) {
        half[i] = i;
        for (int bit = 0; bit < 4; bit++)
            half[i] = half[i] >> 1 ^ (0xEDB88320 & -(half[i] & 1));
    }
    for (size_t i = 0; i < n; i++) {
        crc = crc >> 4 ^ half[(crc ^ p[i]) & 15];
        crc = crc >> 4 ^ half[(crc ^ (uint32_t)p[i] >> 4) & 15];
    }
    return ~crc;
}

/* What a checksum cannot see: a state that was written by hand, or by another program. */
static gs_status check(const gs_scaler *s, gs_error *error)
{
    const gs_machine *m = &s->machine;
    if (s->policy >= GS_POLICY_COUNT)
        return gsi_fail(error, GS_ERANGE, "the state has policy %u, of which there is none",
                        s->policy);
    if (s->rules.half != GS_F16 && s->rules.half != GS_BF16 && s->rules.half != GS_F32)
        return gsi_fail(error, GS_ERANGE, "the state has half format %u, of which there is none",
                        s->rules.half);
    if (s->rules.on_overflow > GS_ON_ATTRIBUTE || s->rules.probe > 1 || s->streak.nan_only > 1 ||
        s->streak.reason >= GS_REASON_COUNT || s->probing >= GSI_PROBES ||
        s->event.phase >= GSI_PHASES)
        return gsi_fail(error, GS_ERANGE, "the state has a rule or phase that does not exist");
    if (m->scale < 0 || m->shown < 0 || !(m->interval >= 0) || !(m->count >= 0) || m->clean < 0 ||
        m->bad < 0 || m->run < 0 || m->it < 0 || m->ovf < 0 || m->last_rescale < -1)
        return gsi_fail(error, GS_ERANGE, "the state has a negative counter or scale");
    const int64_t most = GSI_COUNT_MOST;
    if (m->clean > most || m->bad > most || m->run > most || m->it > most || m->ovf > most ||
        m->last_rescale > most)
        return gsi_fail(error, GS_ERANGE, "the state has a counter beyond 2^62");
    for (int i = 0; i < GS_HISTORY_MAX; i++)
        if (!(s->history[i] >= 0) || !isfinite(s->history[i]))
            return gsi_fail(error, GS_ERANGE, "the state has an amax in its history that is none");
    if (s->event.phase ? !(s->event.scale > 0 && isfinite(s->event.scale) && s->event.reruns > 0)
                       : s->event.scale != 0 || s->event.reruns != 0)
        return gsi_fail(error, GS_ERANGE,
                        "the state has a rerun without a scale, or a scale without a rerun");
    for (int i = 0; i < 3; i++)
        if (!isfinite(s->mean[i]))
            return gsi_fail(error, GS_ERANGE, "the state has a mean that is not finite");
    if (m->interval == 0 && s->params.interval != 0) /* counts would be taken modulo 0 */
        return gsi_fail(error, GS_ERANGE, "the state has no interval, and its parameters have one");
    if (m->ever > 1 || !isfinite(m->count))
        return gsi_fail(error, GS_ERANGE, "the state has a count that no step makes");
    /* NaN without bounds, where the machine's is */
    if (s->streak.from < 0 || s->streak.to < 0)
        return gsi_fail(error, GS_ERANGE, "the state has a streak at scales that are none");
    if (s->rules.on_overflow == GS_ON_RETRY && s->rules.retries == 0)
        return gsi_fail(error, GS_ERANGE, "the state has a rule or phase that does not exist");
    return gsi_scaler_check(s, error);
}

/* ---- text ---- */

static const char *write_field(char text[GSI_WORD], const gs_scaler *s, const field *f)
{
    const uint64_t bits = get(s, f);
    const uint32_t low = (uint32_t)bits;
    double x;
    float y;
    memcpy(&x, &bits, sizeof x);
    memcpy(&y, &low, sizeof y);
    if (f->kind == F64 || f->kind == F32)
        return gsi_write_double(text, f->kind == F64 ? x : (double)y);
    if (f->kind == I64)
        snprintf(text, GSI_WORD, "%" PRId64, (int64_t)bits);
    else
        snprintf(text, GSI_WORD, "%" PRIu64, bits);
    return text;
}

static bool read_field(gs_scaler *s, const field *f, const char *text)
{
    uint64_t bits = 0;
    double x;
    if (f->kind == F64 || f->kind == F32) {
        if (!gsi_read_double(&x, text))
            return false;
        const float y = (float)x;
        uint32_t low;
        memcpy(&low, &y, sizeof low);
        memcpy(&bits, &x, sizeof bits);
        return put(s, f, f->kind == F64 ? bits : low);
    }
    const bool minus = f->kind == I64 && text[0] == '-';
    const char *p = text + minus;
    if (!*p)
        return false;
    for (; *p; p++) {
        const uint64_t digit = (uint64_t)(*p - '0');
        if (digit > 9 || bits > (UINT64_MAX - digit) / 10)
            return false;
        bits = bits * 10 + digit;
    }
    if (f->kind == I64 && bits > INT64_MAX)
        return false;
    return put(s, f, minus ? 0 - bits : bits);
}

static gs_status scaler_save_text_in_mode(char *text, size_t size, size_t *used,
                                          const gs_scaler *scaler, gs_error *error)
{
    char value[GSI_WORD];
    const gs_status status = gsi_scaler_version(scaler, error);
    if (status != GS_OK)
        return status;
    size_t n = (size_t)snprintf(text, size, "%s%d\n", title, VERSION);
    for (size_t i = 0; i < FIELDS && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s=%s\n", fields[i].key,
                              write_field(value, scaler, &fields[i]));
    if (n < size)
        n += (size_t)snprintf(text + n, size - n, "checksum=%08" PRIx32 "\n",
                              crc32((const unsigned char *)text, n));
    if (n >= size)
        return gsi_fail(error, GS_ESIZE, "%zu bytes are too few for the state of a scaler", size);
    *used = n;
    return GS_OK;
}

gs_status gs_scaler_save_text(char *text, size_t size, size_t *used, const gs_scaler *scaler,
                              gs_error *error)
{
    GSI_RETURN_IN_MODE(gs_status, scaler_save_text_in_mode(text, size, used, scaler, error));
}

/* The line that begins at *at, without its end, cut to fit. False: there is none that ends. */
static bool next_line(const char *text, size_t length, size_t *at, char line[2 * GSI_WORD])
{
    const char *begin = text + *at, *end = NULL;
    if (*at < length)
        end = memchr(begin, '\n', length - *at);
    if (!end)
        return false;
    const size_t n = (size_t)(end - begin);
    const size_t kept = n < 2 * GSI_WORD ? n : 2 * GSI_WORD - 1;
    memcpy(line, begin, kept);
    line[kept] = 0;
    *at += n + 1;
    return true;
}

static gs_status scaler_load_text_in_mode(gs_scaler *scaler, const char *text, size_t length,
                                          gs_error *error)
{
    gs_scaler s;
    char line[2 * GSI_WORD], sum[24];
    size_t at = 0;
    memset(&s, 0, sizeof s);
    s.size = sizeof s;

    if (!next_line(text, length, &at, line) || strncmp(line, title, sizeof title - 1) != 0)
        return gsi_fail(error, GS_EFORMAT, "this is not the state of a scaler");
    if (strcmp(line + sizeof title - 1, "1") != 0)
        return gsi_fail(error, GS_EVERSION,
                        "the state has version %.20s; this library knows version %d",
                        line + sizeof title - 1, VERSION);
    const size_t first = at;
    for (size_t i = 0; i < FIELDS; i++)
        if (!next_line(text, length, &at, line))
            return gsi_fail(error, GS_EFORMAT, "the state is cut off before %s", fields[i].key);
    const size_t body = at;
    if (!next_line(text, length, &at, line))
        return gsi_fail(error, GS_EFORMAT, "the state is cut off before its checksum");
    snprintf(sum, sizeof sum, "checksum=%08" PRIx32, crc32((const unsigned char *)text, body));
    if (strcmp(line, sum) != 0)
        return gsi_fail(error, GS_ECHECKSUM, "the state is damaged: its checksum does not match");
    if (at != length)
        return gsi_fail(error, GS_EFORMAT, "the state goes on behind its checksum");

    at = first;
    for (size_t i = 0; i < FIELDS; i++) {
        const size_t width = strlen(fields[i].key);
        next_line(text, length, &at, line);
        if (strncmp(line, fields[i].key, width) != 0 || line[width] != '=' ||
            !read_field(&s, &fields[i], line + width + 1))
            return gsi_fail(error, GS_EFORMAT, "the state has '%.40s' where %s is expected", line,
                            fields[i].key);
    }
    const gs_status status = check(&s, error);
    if (status == GS_OK)
        *scaler = s;
    return status;
}

gs_status gs_scaler_load_text(gs_scaler *scaler, const char *text, size_t length, gs_error *error)
{
    GSI_RETURN_IN_MODE(gs_status, scaler_load_text_in_mode(scaler, text, length, error));
}

/* ---- bytes ---- */

static void put_le(unsigned char *p, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++)
        p[i] = (unsigned char)(x >> (8 * i));
}

static uint64_t get_le(const unsigned char *p, int bytes)
{
    uint64_t x = 0;
    for (int i = 0; i < bytes; i++)
        x |= (uint64_t)p[i] << (8 * i);
    return x;
}

gs_status gs_scaler_save(void *bytes, size_t size, size_t *used, const gs_scaler *scaler,
                         gs_error *error)
{
    unsigned char *p = bytes;
    const size_t body = HEADER + 8 * FIELDS;
    const gs_status status = gsi_scaler_version(scaler, error);
    if (status != GS_OK)
        return status;
    if (size < body + TRAILER)
        return gsi_fail(error, GS_ESIZE, "%zu bytes are too few for the state of a scaler", size);
    memcpy(p, magic, 8);
    put_le(p + 8, VERSION, 4);
    put_le(p + 12, FIELDS, 4);
    for (size_t i = 0; i < FIELDS; i++)
        put_le(p + HEADER + 8 * i, get(scaler, &fields[i]), 8);
    put_le(p + body, crc32(p, body), 4);
    *used = body + TRAILER;
    return GS_OK;
}

static gs_status scaler_load_in_mode(gs_scaler *scaler, const void *bytes, size_t length,
                                     gs_error *error)
{
    const unsigned char *p = bytes;
    const size_t body = HEADER + 8 * FIELDS;
    gs_scaler s;
    memset(&s, 0, sizeof s);
    s.size = sizeof s;
    if (length < 8 || memcmp(p, magic, 8) != 0)
        return gsi_fail(error, GS_EFORMAT, "this is not the state of a scaler");
    if (length < HEADER)
        return gsi_fail(error, GS_EFORMAT, "the state is cut off in its header");
    if (get_le(p + 8, 4) != VERSION)
        return gsi_fail(error, GS_EVERSION,
                        "the state has version %llu; this library knows version %d",
                        (unsigned long long)get_le(p + 8, 4), VERSION);
    if (get_le(p + 12, 4) != FIELDS || length != body + TRAILER)
        return gsi_fail(error, GS_EFORMAT,
                        "the state is cut off or too long: %zu bytes, where version %d has %zu",
                        length, VERSION, body + TRAILER);
    if (get_le(p + body, 4) != crc32(p, body))
        return gsi_fail(error, GS_ECHECKSUM, "the state is damaged: its checksum does not match");
    for (size_t i = 0; i < FIELDS; i++)
        if (!put(&s, &fields[i], get_le(p + HEADER + 8 * i, 8)))
            return gsi_fail(error, GS_EFORMAT, "the state has a %s that does not fit",
                            fields[i].key);
    const gs_status status = check(&s, error);
    if (status == GS_OK)
        *scaler = s;
    return status;
}

gs_status gs_scaler_load(gs_scaler *scaler, const void *bytes, size_t length, gs_error *error)
{
    GSI_RETURN_IN_MODE(gs_status, scaler_load_in_mode(scaler, bytes, length, error));
}
