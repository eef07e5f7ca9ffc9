/* NumPy's .npy: the magic, a version, the length of a header, the header, the elements.
 *
 * The header is a Python dictionary with exactly three keys, read here by a small strict parser:
 *
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 *
 * padded with spaces. Structured types (a list in place of the type) are refused. */
#include "io/io.h"

#include <string.h>

typedef struct cursor {
    const char *p, *end;
} cursor;

static void skip_spaces(cursor *c)
{
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\n' || *c->p == '\t'))
        c->p++;
}

static bool take(cursor *c, char what)
{
    skip_spaces(c);
    if (c->p == c->end || *c->p != what)
        return false;
    c->p++;
    return true;
}

static bool take_word(cursor *c, const char *word)
{
    const size_t n = strlen(word);
    skip_spaces(c);
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, word, n) != 0)
        return false;
    c->p += n;
    return true;
}

/* A string of at most 15 plain characters, in either kind of quotes. */
static bool take_string(cursor *c, char out[16])
{
    const char quote = take(c, '\'') ? '\'' : '"';
    if (quote == '"' && !take(c, '"'))
        return false;
    for (size_t n = 0; n < 16 && c->p < c->end; n++) {
        const char ch = *c->p++;
        if (ch == quote) {
            out[n] = 0;
            return true;
        }
        if (ch == '\\' || ch < ' ' || ch > '~')
            return false;
        out[n] = ch;
    }
    return false;
}

/* A decimal number below 2^63; Python 2 wrote an L after it. */
static bool take_number(cursor *c, uint64_t *out)
{
    skip_spaces(c);
    const char *start = c->p;
    uint64_t x = 0;
    for (; c->p < c->end && *c->p >= '0' && *c->p <= '9'; c->p++) {
        const uint64_t digit = (uint64_t)(*c->p - '0');
        if (x > (INT64_MAX - digit) / 10)
            return false;
        x = x * 10 + digit;
    }
    if (c->p == start || (*start == '0' && c->p - start > 1))
        return false;
    if (c->p < c->end && *c->p == 'L')
        c->p++;
    *out = x;
    return true;
}

/* "()", "(3,)", "(3, 4)", "(3, 4,)": a single number needs its comma. -1: too many. */
static int take_shape(cursor *c, gs_entry *e)
{
    bool comma = true;
    if (!take(c, '('))
        return 0;
    for (e->rank = 0; !take(c, ')');) {
        if (!comma)
            return 0;
        if (e->rank == GS_MAX_RANK)
            return -1;
        if (!take_number(c, &e->shape[e->rank]))
            return 0;
        e->rank++;
        comma = take(c, ',');
    }
    return e->rank != 1 || comma;
}

/* Type strings: byte order, kind, bytes. Kinds beside 'f' are listed and cannot be read. */
static bool set_type(gsi_entry *e, const char *type)
{
    static const struct {
        uint64_t item;
        gs_dtype dtype;
    } floats[] = {{2, GS_F16}, {4, GS_F32}, {8, GS_F64}};

    if (!strchr("<>|=", type[0]) || !type[0] || !type[1] || !strchr("?bBiufcmMSUV", type[1]))
        return false;
    cursor c = {type + 2, type + strlen(type)};
    uint64_t item = 0;
    if (!take_number(&c, &item))
        return false;
    const bool date = type[1] == 'm' || type[1] == 'M'; /* a unit follows, as in <M8[ns] */
    if (c.p != c.end && !(date && *c.p == '['))
        return false;
    e->pub.dtype = GS_DTYPE_COUNT;
    e->item = type[1] == 'U' ? item * 4 : item; /* UCS-4; the number has 13 digits at most */
    if (type[1] != 'f')
        return true;
    e->swap = type[0] == '>';
    for (size_t i = 0; i < GSI_COUNT(floats); i++)
        if (floats[i].item == item)
            e->pub.dtype = floats[i].dtype;
    return item > 0;
}

/* NULL, or what is wrong. */
static const char *parse_dictionary(cursor c, gsi_entry *e, char type[16])
{
    enum { DESCR = 1, ORDER = 2, SHAPE = 4 };
    unsigned seen = 0;
    if (!take(&c, '{'))
        return "the header is not a dictionary";
    for (bool comma = true; !take(&c, '}');) {
        char key[16];
        if (!comma || !take_string(&c, key) || !take(&c, ':'))
            return "the dictionary in the header is malformed";
        const unsigned which = strcmp(key, "descr") == 0           ? DESCR
                               : strcmp(key, "fortran_order") == 0 ? ORDER
                               : strcmp(key, "shape") == 0         ? SHAPE
                                                                   : 0;
        if (which == 0)
            return "the header has a key that is none of descr, fortran_order and shape";
        if (seen & which)
            return "the header has a key twice";
        seen |= which;
        if (which == DESCR) {
            if (take(&c, '['))
                return "structured types cannot be read";
            if (!take_string(&c, type))
                return "the header's descr is not a type";
            if (strcmp(type, "|O") == 0)
                return "arrays of Python objects cannot be read";
            if (!set_type(e, type))
                return "the header's descr is not a type";
        } else if (which == ORDER) {
            e->fortran = take_word(&c, "True");
            if (!e->fortran && !take_word(&c, "False"))
                return "the header's fortran_order is neither True nor False";
        } else {
            const int legal = take_shape(&c, &e->pub);
            if (legal <= 0)
                return legal < 0 ? "the shape has more than 8 dimensions"
                                 : "the header's shape is not a tuple of numbers";
        }
        comma = take(&c, ',');
    }
    skip_spaces(&c);
    if (c.p != c.end)
        return "something follows the dictionary in the header";
    return seen == (DESCR | ORDER | SHAPE) ? NULL
                                           : "the header lacks descr, fortran_order or shape";
}

gs_status gsi_npy_header(const gs_source *s, gsi_entry *e, uint64_t *header, const char *what,
                         const uint8_t *bytes, size_t n, uint64_t total, char type[16],
                         gs_error *error)
{
    if (n < 10 || memcmp(bytes, "\x93NUMPY", 6) != 0)
        return gsi_bad_file(s, error, GS_EFORMAT, "%sis not a NumPy array", what);
    const int major = bytes[6], minor = bytes[7];
    if (major < 1 || major > 3 || minor != 0)
        return gsi_bad_file(s, error, GS_EVERSION,
                            "%sis of format version %d.%d: 1.0, 2.0 and 3.0 can be read", what,
                            major, minor);
    const size_t prefix = major == 1 ? 10 : 12;
    if (n < prefix)
        return gsi_bad_file(s, error, GS_EFORMAT, "%sends within its header", what);
    const uint64_t length = gsi_little(bytes + 8, major == 1 ? 2 : 4);
    if (length > GSI_NPY_HEADER)
        return gsi_bad_file(s, error, GS_ESIZE,
                            "%ssays that its header has %llu bytes; %d are"
                            " read at most",
                            what, (unsigned long long)length, (int)GSI_NPY_HEADER);
    if (length > n - prefix)
        return gsi_bad_file(s, error, GS_EFORMAT, "%sends within its header", what);

    const char *text = (const char *)bytes + prefix;
    const char *wrong = parse_dictionary((cursor){text, text + length}, e, type);
    if (wrong)
        return gsi_bad_file(s, error, GS_EFORMAT, "%s%s", what, wrong);
    if (!gsi_set_count(&e->pub, 8 * e->item))
        return gsi_bad_file(s, error, GS_ESIZE, "%sthe product of the shape overflows", what);
    *header = prefix + length;
    if (e->pub.bytes != total - *header)
        return gsi_bad_file(s, error, GS_EFORMAT,
                            "%sthe shape and type ask for %llu bytes of data, but there are %llu",
                            what, (unsigned long long)e->pub.bytes,
                            (unsigned long long)(total - *header));
    return GS_OK;
}

gs_status gsi_open_npy(gs_source *s, gs_error *error)
{
    const size_t most = GSI_NPY_PREFIX + GSI_NPY_HEADER;
    const size_t n = s->file.size < most ? (size_t)s->file.size : most;
    uint8_t *bytes = gsi_new(&s->heap, n);
    if (!bytes || !gsi_new_entries(s, 1)) {
        gsi_free(&s->heap, bytes);
        return gsi_no_memory(s, error);
    }
    gsi_entry *e = &s->entries[0];
    char type[16];
    uint64_t header = 0;
    gs_status status = gsi_read_at(s, bytes, n, 0, error);
    if (status == GS_OK)
        status = gsi_npy_header(s, e, &header, "", bytes, n, s->file.size, type, error);
    gsi_free(&s->heap, bytes);
    if (status != GS_OK)
        return status;
    e->pub.name = "";
    e->pub.offset = header;
    e->pub.type = gsi_keep_string(s, type, strlen(type));
    s->count = 1;
    return e->pub.type ? GS_OK : gsi_no_memory(s, error);
}
