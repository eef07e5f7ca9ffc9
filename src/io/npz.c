/* NumPy's .npz: a zip file whose members are .npy files, stored or deflated.
 *
 * Only what the central directory says is believed, and only after it has been tested against the
 * file and the local headers:
 * (1) the directory, with its end record, is the last thing in the file, and exactly as long and
 *     as many as that record says;
 * (2) members lie before the directory and do not overlap;
 * (3) a member cannot say it unpacks to more than deflate could make of its packed size.
 * Unpacking goes through a window of fixed size, so what a member unpacks to costs time, never
 * memory; it must give exactly the bytes that were announced, with the right checksum. */
#include "io/io.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { STORED = 0, DEFLATED = 8 };
enum { END_SIZE = 22, END64_SIZE = 56, LOCATOR_SIZE = 20, CENTRAL_SIZE = 46, LOCAL_SIZE = 30 };
enum { MAX_COMMENT = 65535, PIECE = 1 << 16 };
_Static_assert(PIECE <= GSI_NPY_PREFIX + GSI_NPY_HEADER, "a piece is discarded at a time");
enum { MAX_RATIO = 1032 }; /* of deflate: 258 bytes in 2 bits */

typedef struct gsi_member {
    uint64_t local;            /* offset of its local header */
    uint64_t data;             /* offset of its packed bytes */
    uint64_t packed, unpacked; /* bytes */
    uint64_t header;           /* unpacked bytes before the elements */
    uint32_t crc;
    int method;
} gsi_member;

/* One member is being unpacked at a time. */
typedef struct gsi_unzip {
    const gsi_member *member; /* NULL: none */
    uint64_t in, out;         /* bytes consumed and produced so far */
    uint32_t crc;
    bool ended; /* deflate said so */
    bool ready; /* z is initialised */
    z_stream z;
    uint8_t piece[PIECE];                             /* packed bytes */
    uint8_t discard[GSI_NPY_PREFIX + GSI_NPY_HEADER]; /* skipped elements, array headers */
} gsi_unzip;

/* ---- unpacking ---- */

static void *zip_alloc(void *heap, unsigned n, unsigned size)
{
    return gsi_new(heap, (size_t)n * size); /* its state, or a window of 2^15 bytes */
}

static void zip_free(void *heap, void *block) { gsi_free(heap, block); }

static gs_status start(gs_source *s, const gsi_member *m, gs_error *error)
{
    gsi_unzip *u = s->unzip;
    u->member = m;
    u->in = u->out = 0;
    u->crc = 0;
    u->ended = m->method == STORED;
    u->z.avail_in = 0;
    if (m->method == STORED)
        return GS_OK;
    if (u->ready) {
        inflateReset(&u->z);
        return GS_OK;
    }
    u->z.zalloc = zip_alloc;
    u->z.zfree = zip_free;
    u->z.opaque = &s->heap;
    if (inflateInit2(&u->z, -MAX_WBITS) != Z_OK)
        return gsi_no_memory(s, error);
    u->ready = true;
    return GS_OK;
}

static gs_status bad_member(gs_source *s, const gsi_member *m, gs_error *error, gs_status status,
                            const char *what)
{
    s->unzip->member = NULL; /* what was unpacked is not to be trusted */
    return gsi_bad_file(s, error, status, "the member at byte %llu %s",
                        (unsigned long long)m->local, what);
}

/* One step: up to n bytes to dst, at least one unless the deflate stream has ended. */
static gs_status inflate_some(gs_source *s, void *dst, size_t n, size_t *made, gs_error *error)
{
    gsi_unzip *u = s->unzip;
    const gsi_member *m = u->member;
    u->z.next_out = dst;
    u->z.avail_out = n < PIECE ? (unsigned)n : PIECE;
    const unsigned room = u->z.avail_out;
    while (u->z.avail_out == room && !u->ended) {
        if (u->z.avail_in == 0 && u->in < m->packed) {
            const size_t want = m->packed - u->in < PIECE ? (size_t)(m->packed - u->in) : PIECE;
            const gs_status status = gsi_read_at(s, u->piece, want, m->data + u->in, error);
            if (status != GS_OK)
                return status;
            u->in += want;
            u->z.next_in = u->piece;
            u->z.avail_in = (unsigned)want;
        }
        const int code = inflate(&u->z, Z_NO_FLUSH);
        u->ended = code == Z_STREAM_END;
        if (code == Z_MEM_ERROR)
            return gsi_no_memory(s, error);
        if (code != Z_OK && code != Z_STREAM_END)
            return bad_member(s, m, error, GS_EFORMAT, "is damaged: it cannot be unpacked");
    }
    *made = room - u->z.avail_out;
    return GS_OK;
}

/* All bytes are there: the stream must end here, with this checksum. */
static gs_status finish(gs_source *s, gs_error *error)
{
    gsi_unzip *u = s->unzip;
    const gsi_member *m = u->member;
    if (!u->ended) {
        uint8_t extra;
        size_t made;
        const gs_status status = inflate_some(s, &extra, 1, &made, error);
        if (status != GS_OK)
            return status;
        if (made > 0)
            return bad_member(s, m, error, GS_EFORMAT, "unpacks to more than it says");
    }
    if (m->method == DEFLATED && u->in - u->z.avail_in != m->packed)
        return bad_member(s, m, error, GS_EFORMAT, "has bytes after the end of its packed data");
    if (u->crc != m->crc)
        return bad_member(s, m, error, GS_ECHECKSUM, "is damaged: its checksum does not match");
    return GS_OK;
}

/* The next n unpacked bytes of the member. n must be there. */
static gs_status unpack(gs_source *s, void *dst, size_t n, gs_error *error)
{
    gsi_unzip *u = s->unzip;
    const gsi_member *m = u->member;
    for (uint8_t *p = dst; n > 0;) {
        size_t made = n < PIECE ? n : PIECE;
        gs_status status;
        if (m->method == STORED) {
            status = gsi_read_at(s, p, made, m->data + u->out, error);
        } else {
            status = inflate_some(s, p, n, &made, error);
            if (status == GS_OK && made == 0)
                return bad_member(s, m, error, GS_EFORMAT, "unpacks to less than it says");
        }
        if (status != GS_OK)
            return status;
        u->crc = (uint32_t)crc32(u->crc, p, (unsigned)made);
        u->out += made;
        p += made;
        n -= made;
    }
    return u->out == m->unpacked ? finish(s, error) : GS_OK;
}

static gs_status read_member(gs_source *s, const gsi_entry *e, uint64_t first, size_t count,
                             void *dst, gs_error *error)
{
    gsi_unzip *u = s->unzip;
    const gsi_member *m = e->member;
    const uint64_t from = m->header + first * e->item;
    gs_status status = GS_OK;
    if (u->member != m || u->out > from)
        status = start(s, m, error);
    while (status == GS_OK && u->out < from) {
        const uint64_t left = from - u->out;
        status = unpack(s, u->discard, left < PIECE ? (size_t)left : PIECE, error);
    }
    return status == GS_OK && count > 0 ? unpack(s, dst, count * (size_t)e->item, error) : status;
}

/* ---- the directory ---- */

typedef struct directory {
    uint64_t offset, size, count;
} directory;

static gs_status bad_zip(const gs_source *s, gs_error *error, const char *what)
{
    return gsi_bad_file(s, error, GS_EFORMAT, "is not a sound zip file: %s", what);
}

/* The end record is found from the back: after it comes nothing but its comment. */
static gs_status find_directory(gs_source *s, directory *d, gs_error *error)
{
    const size_t most = END_SIZE + MAX_COMMENT;
    const size_t n = s->file.size < most ? (size_t)s->file.size : most;
    uint8_t *tail = gsi_new(&s->heap, n);
    if (!tail)
        return gsi_no_memory(s, error);
    gs_status status = gsi_read_at(s, tail, n, s->file.size - n, error);
    const uint8_t *end = NULL;
    for (size_t i = n; status == GS_OK && !end && i >= END_SIZE; i--) {
        const uint8_t *p = tail + i - END_SIZE;
        if (memcmp(p, "PK\5\6", 4) == 0 && gsi_little(p + 20, 2) == n - i)
            end = p;
    }
    uint8_t record[END_SIZE] = {0};
    uint64_t at = 0;
    if (end) {
        memcpy(record, end, END_SIZE);
        at = s->file.size - n + (uint64_t)(end - tail);
    }
    gsi_free(&s->heap, tail);
    if (status != GS_OK)
        return status;
    if (!end)
        return bad_zip(s, error, "it has no end record, so it may be cut off");
    if (gsi_little(record + 4, 2) != 0 || gsi_little(record + 6, 2) != 0 ||
        gsi_little(record + 8, 2) != gsi_little(record + 10, 2))
        return bad_zip(s, error, "it is a part of several");
    *d = (directory){.count = gsi_little(record + 10, 2),
                     .size = gsi_little(record + 12, 4),
                     .offset = gsi_little(record + 16, 4)};

    uint8_t locator[LOCATOR_SIZE], end64[END64_SIZE];
    const bool wide = d->count == 0xFFFF || d->size == 0xFFFFFFFF || d->offset == 0xFFFFFFFF;
    if (wide && at >= LOCATOR_SIZE + END64_SIZE) {
        status = gsi_read_at(s, locator, LOCATOR_SIZE, at - LOCATOR_SIZE, error);
        if (status != GS_OK)
            return status;
        if (memcmp(locator, "PK\6\7", 4) == 0) {
            const uint64_t where = gsi_little(locator + 8, 8);
            if (where != at - LOCATOR_SIZE - END64_SIZE)
                return bad_zip(s, error, "its zip64 end record is not where it is said to be");
            status = gsi_read_at(s, end64, END64_SIZE, where, error);
            if (status != GS_OK)
                return status;
            if (memcmp(end64, "PK\6\6", 4) != 0 || gsi_little(end64 + 4, 8) != END64_SIZE - 12 ||
                gsi_little(end64 + 16, 4) != 0 || gsi_little(end64 + 20, 4) != 0 ||
                gsi_little(end64 + 24, 8) != gsi_little(end64 + 32, 8))
                return bad_zip(s, error, "its zip64 end record is malformed");
            *d = (directory){.count = gsi_little(end64 + 32, 8),
                             .size = gsi_little(end64 + 40, 8),
                             .offset = gsi_little(end64 + 48, 8)};
            at = where;
        }
    }
    if (d->offset > at || d->size != at - d->offset)
        return bad_zip(s, error, "its directory does not end where its end record starts");
    if (d->count > d->size / CENTRAL_SIZE)
        return bad_zip(s, error, "its directory is too short for its members");
    if (d->size > SIZE_MAX)
        return bad_zip(s, error, "its directory is too long");
    return GS_OK;
}

/* Replaces the sizes that are all ones by those of the zip64 field, in the order of the
 * specification: unpacked, packed, offset. */
static bool read_extra(gsi_member *m, const uint8_t *p, size_t n)
{
    bool wide_unpacked = m->unpacked == 0xFFFFFFFF, wide_packed = m->packed == 0xFFFFFFFF,
         wide_local = m->local == 0xFFFFFFFF;
    while (n >= 4) {
        const uint64_t id = gsi_little(p, 2), size = gsi_little(p + 2, 2);
        p += 4;
        n -= 4;
        if (size > n)
            return false;
        if (id == 1) {
            struct {
                bool *wide;
                uint64_t *value;
            } fields[] = {{&wide_unpacked, &m->unpacked},
                          {&wide_packed, &m->packed},
                          {&wide_local, &m->local}};
            size_t at = 0;
            for (size_t i = 0; i < GSI_COUNT(fields); i++)
                if (*fields[i].wide) {
                    if (size - at < 8)
                        return false;
                    *fields[i].value = gsi_little(p + at, 8);
                    *fields[i].wide = false;
                    at += 8;
                }
        }
        p += size;
        n -= (size_t)size;
    }
    return n == 0 && !wide_unpacked && !wide_packed && !wide_local;
}

/* One record of the central directory; *used is its length. */
static gs_status read_central(gs_source *s, gsi_entry *e, const uint8_t *p, size_t left,
                              size_t *used, gs_error *error)
{
    if (left < CENTRAL_SIZE || memcmp(p, "PK\1\2", 4) != 0)
        return bad_zip(s, error, "its directory is malformed");
    const size_t name = (size_t)gsi_little(p + 28, 2), extra = (size_t)gsi_little(p + 30, 2);
    const size_t comment = (size_t)gsi_little(p + 32, 2);
    if (name + extra + comment > left - CENTRAL_SIZE)
        return bad_zip(s, error, "its directory is malformed");
    *used = CENTRAL_SIZE + name + extra + comment;

    const char *text = (const char *)p + CENTRAL_SIZE;
    char shown[GSI_SHOWN];
    if (name == 0 || !gsi_utf8(text, name))
        return bad_zip(s, error, "a member's name is empty or not valid UTF-8");
    gsi_show(shown, text, name);
    if (gsi_little(p + 8, 2) & 0x61) /* bits 0 and 6; 5: a patch */
        return gsi_bad_file(s, error, GS_EFORMAT, "member %s is encrypted, or a patch", shown);
    gsi_member *m = gsi_arena_new(&s->arena, 1, sizeof *m);
    if (!m)
        return gsi_no_memory(s, error);
    *m = (gsi_member){.method = (int)gsi_little(p + 10, 2),
                      .crc = (uint32_t)gsi_little(p + 16, 4),
                      .packed = gsi_little(p + 20, 4),
                      .unpacked = gsi_little(p + 24, 4),
                      .local = gsi_little(p + 42, 4)};
    if (m->method != STORED && m->method != DEFLATED)
        return gsi_bad_file(s, error, GS_EFORMAT,
                            "member %s is packed by method %d: stored and deflated can be read",
                            shown, m->method);
    if (!read_extra(m, p + CENTRAL_SIZE + name, extra))
        return gsi_bad_file(s, error, GS_EFORMAT, "the zip64 sizes of member %s are malformed",
                            shown);
    if (m->method == STORED ? m->unpacked != m->packed : m->unpacked / MAX_RATIO > m->packed)
        return gsi_bad_file(s, error, GS_EFORMAT,
                            "member %s cannot be %llu bytes packed and %llu"
                            " unpacked",
                            shown, (unsigned long long)m->packed, (unsigned long long)m->unpacked);

    const bool npy = name > 4 && memcmp(text + name - 4, ".npy", 4) == 0;
    e->member = m;
    e->pub.dtype = GS_DTYPE_COUNT;
    e->pub.type = npy ? NULL : "not .npy"; /* NULL: its header is still to be read */
    e->pub.sequential = 1;
    e->pub.name = gsi_keep_string(s, text, npy ? name - 4 : name);
    return e->pub.name ? GS_OK : gsi_no_memory(s, error);
}

static int by_local(const void *pa, const void *pb)
{
    const gsi_member *a = ((const gsi_entry *)pa)->member, *b = ((const gsi_entry *)pb)->member;
    return a->local < b->local ? -1 : a->local > b->local;
}

/* Whether the local header, which has n bytes of name behind it, speaks of the same member as the
 * directory: readers that go by one or the other are to find the same. */
static gs_status same_name(gs_source *s, const gsi_entry *e, size_t n, bool *same, gs_error *error)
{
    const bool npy = !e->pub.type; /* the name is without .npy */
    const size_t kept = strlen(e->pub.name);
    *same = n == kept + (npy ? 4 : 0);
    for (size_t at = 0; *same && at < n; at += sizeof(char[256])) {
        char piece[256], want[256];
        const size_t m = gsi_min_size(n - at, sizeof piece);
        for (size_t i = 0; i < m; i++)
            want[i] = at + i < kept ? e->pub.name[at + i] : ".npy"[at + i - kept];
        const gs_status status =
            gsi_read_at(s, piece, m, e->member->local + LOCAL_SIZE + at, error);
        if (status != GS_OK)
            return status;
        *same = memcmp(piece, want, m) == 0;
    }
    return GS_OK;
}

/* Where the data starts: local header, name and extra field are between. `end`: what follows. */
static gs_status read_local(gs_source *s, gsi_entry *e, uint64_t end, gs_error *error)
{
    gsi_member *m = e->member;
    uint8_t p[LOCAL_SIZE];
    if (m->local > end || end - m->local < LOCAL_SIZE)
        return bad_member(s, m, error, GS_EFORMAT, "overlaps what follows it");
    bool same = false;
    gs_status status = gsi_read_at(s, p, sizeof p, m->local, error);
    if (status == GS_OK && memcmp(p, "PK\3\4", 4) == 0 &&
        end - m->local - LOCAL_SIZE >= gsi_little(p + 26, 2))
        status = same_name(s, e, (size_t)gsi_little(p + 26, 2), &same, error);
    if (status != GS_OK)
        return status;
    if (!same || gsi_little(p + 8, 2) != (uint64_t)m->method || (gsi_little(p + 6, 2) & 1))
        return bad_member(s, m, error, GS_EFORMAT, "differs from what the directory says of it");
    m->data = m->local + LOCAL_SIZE + gsi_little(p + 26, 2) + gsi_little(p + 28, 2);
    if (m->data > end || m->packed > end - m->data)
        return bad_member(s, m, error, GS_EFORMAT, "overlaps what follows it");
    e->pub.offset = m->data;
    return GS_OK;
}

static gs_status read_array(gs_source *s, gsi_entry *e, uint8_t *bytes, gs_error *error)
{
    gsi_member *m = e->member;
    char what[GSI_SHOWN + 16], shown[GSI_SHOWN], type[16];
    snprintf(what, sizeof what, "member %s ", gsi_show(shown, e->pub.name, strlen(e->pub.name)));
    /* The fixed part first: it says how long the rest is. */
    size_t n = m->unpacked < GSI_NPY_PREFIX ? (size_t)m->unpacked : GSI_NPY_PREFIX;
    gs_status status = start(s, m, error);
    if (status == GS_OK)
        status = unpack(s, bytes, n, error);
    if (status == GS_OK && n == GSI_NPY_PREFIX) {
        const bool v1 = bytes[6] == 1;
        const uint64_t end = v1 ? 10 + gsi_little(bytes + 8, 2) : 12 + gsi_little(bytes + 8, 4);
        const uint64_t most = GSI_NPY_PREFIX + GSI_NPY_HEADER;
        const uint64_t want = end < most ? end : most;
        const uint64_t upto = want < m->unpacked ? want : m->unpacked;
        if (upto > n) {
            status = unpack(s, bytes + n, (size_t)upto - n, error);
            n = (size_t)upto;
        }
    }
    if (status == GS_OK)
        status = gsi_npy_header(s, e, &m->header, what, bytes, n, m->unpacked, type, error);
    if (status != GS_OK)
        return status;
    e->pub.type = gsi_keep_string(s, type, strlen(type));
    return e->pub.type ? GS_OK : gsi_no_memory(s, error);
}

static gs_status read_members(gs_source *s, const directory *d, const uint8_t *records,
                              gs_error *error)
{
    gs_status status = GS_OK;
    size_t at = 0;
    for (size_t i = 0; status == GS_OK && i < d->count; i++) {
        size_t used = 0;
        status = read_central(s, &s->entries[i], records + at, (size_t)d->size - at, &used, error);
        at += used;
    }
    if (status == GS_OK && at != d->size)
        status = bad_zip(s, error, "its directory has more than its members");
    if (status != GS_OK)
        return status;
    s->count = (size_t)d->count;
    qsort(s->entries, s->count, sizeof *s->entries, by_local);
    for (size_t i = 0; status == GS_OK && i < s->count; i++) {
        const bool last = i + 1 == s->count;
        status = read_local(s, &s->entries[i], last ? d->offset : s->entries[i + 1].member->local,
                            error);
    }
    for (size_t i = 0; status == GS_OK && i < s->count; i++)
        if (!s->entries[i].pub.type)
            status = read_array(s, &s->entries[i], s->unzip->discard, error);
    return status == GS_OK ? gsi_check_names(s, error) : status;
}

gs_status gsi_open_npz(gs_source *s, gs_error *error)
{
    directory d = {0};
    gs_status status = find_directory(s, &d, error);
    if (status != GS_OK)
        return status;
    uint8_t *records = gsi_new(&s->heap, (size_t)d.size);
    s->unzip = gsi_new(&s->heap, sizeof *s->unzip);
    if (s->unzip)
        memset(s->unzip, 0, offsetof(gsi_unzip, piece));
    s->read = read_member;
    if (!records || !s->unzip || !gsi_new_entries(s, (size_t)d.count))
        status = gsi_no_memory(s, error);
    else
        status = gsi_read_at(s, records, (size_t)d.size, d.offset, error);
    if (status == GS_OK)
        status = read_members(s, &d, records, error);
    gsi_free(&s->heap, records);
    return status;
}

void gsi_close_npz(gs_source *s)
{
    if (s->unzip && s->unzip->ready)
        inflateEnd(&s->unzip->z);
    gsi_free(&s->heap, s->unzip);
    s->unzip = NULL;
}
