/* A file is a row of records; a record is
 *
 *     u64 length | u32 crc(length) | bytes[length] | u32 crc(bytes)          little-endian
 *
 * where crc is CRC-32C (Castagnoli), masked so that a checksum of data that holds checksums stays a
 * good one. The bytes are an Event, of which these fields are written (number, wire type):
 *
 *     Event       1 double wall_time  2 varint step  3 string file_version  5 Summary  7 SessionLog
 *     Summary     1 Value, repeated
 *     Value       1 string tag  2 float simple_value
 *     SessionLog  1 varint status: 1 is START */
#include "io/tfevents.h"

#include "io/write.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 }; /* wire types */
enum { VALUE_MAX = GSI_TAG_MAX + 16, EVENT_MAX = GSI_SCALARS_MAX * (VALUE_MAX + 4) + 64 };

typedef struct message {
    uint8_t bytes[EVENT_MAX];
    size_t n;
} message;

/* ---- checksums ---- */

static uint32_t crc32c(const uint8_t *bytes, size_t n)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0x82F63B78 & (0u - (crc & 1)));
    }
    return ~crc;
}

static uint32_t masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xA282EAD8; }

/* ---- protocol buffers ---- */

static void put_little(message *m, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++)
        m->bytes[m->n++] = (uint8_t)(x >> 8 * i);
}

static void put_varint(message *m, uint64_t x)
{
    for (; x >= 0x80; x >>= 7)
        m->bytes[m->n++] = (uint8_t)(x | 0x80);
    m->bytes[m->n++] = (uint8_t)x;
}

static void put_key(message *m, unsigned field, unsigned wire) { put_varint(m, field << 3 | wire); }

static void put_bytes(message *m, unsigned field, const void *bytes, size_t n)
{
    put_key(m, field, BYTES);
    put_varint(m, n);
    memcpy(m->bytes + m->n, bytes, n);
    m->n += n;
}

static void put_double(message *m, unsigned field, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_key(m, field, FIXED64);
    put_little(m, bits, 8);
}

static void put_float(message *m, unsigned field, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_key(m, field, FIXED32);
    put_little(m, bits, 4);
}

/* The beginning of every event: when, and at which step. */
static void begin_event(message *m, uint64_t step)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    m->n = 0;
    put_double(m, 1, (double)t.tv_sec + 1e-9 * (double)t.tv_nsec);
    put_key(m, 2, VARINT);
    put_varint(m, step);
}

/* ---- records ---- */

static gs_status write_record(gsi_append *file, const message *event, gs_error *error)
{
    message length = {.n = 0}, record = {.n = 0};
    put_little(&length, event->n, 8);
    memcpy(record.bytes, length.bytes, 8);
    record.n = 8;
    put_little(&record, masked(crc32c(length.bytes, 8)), 4);
    memcpy(record.bytes + record.n, event->bytes, event->n);
    record.n += event->n;
    put_little(&record, masked(crc32c(event->bytes, event->n)), 4);
    return gsi_append_write(file, record.bytes, record.n, error);
}

/* A name that no other run takes: TensorBoard reads all events.out.tfevents.* of a folder. */
static gs_status new_file(gsi_append *file, const char *folder, gs_error *error)
{
    char path[4096], host[64] = "";
    if (gethostname(host, sizeof host - 1) != 0 || !host[0])
        snprintf(host, sizeof host, "localhost");
    for (int i = 0;; i++) {
        const int n = snprintf(path, sizeof path, "%s/events.out.tfevents.%010lld.%s.%ld.%d",
                               folder, (long long)time(NULL), host, (long)getpid(), i);
        if (n < 0 || (size_t)n >= sizeof path)
            return gsi_fail(error, GS_ESIZE, "%.100s: the path is too long", folder);
        const int fd = gsi_open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC);
        if (fd < 0 && errno == EEXIST)
            continue;
        if (fd < 0)
            return gsi_fail(error, GS_EIO, "%.150s: %s", path, strerror(errno));
        close(fd);
        return gsi_append_open(file, path, error);
    }
}

gs_status gsi_tfevents_open(gsi_append *file, const char *folder, gs_error *error)
{
    static const char version[] = "brain.Event:2";
    message event;
    file->fd = -1;
    gs_status status = gsi_make_folder(folder, error);
    if (status == GS_OK)
        status = new_file(file, folder, error);
    if (status != GS_OK)
        return status;
    begin_event(&event, 0);
    put_bytes(&event, 3, version, sizeof version - 1);
    return write_record(file, &event, error);
}

gs_status gsi_tfevents_resume(gsi_append *file, uint64_t step, gs_error *error)
{
    static const uint8_t start[] = {1 << 3 | VARINT, 1};
    message event;
    begin_event(&event, step + 1); /* what is forgotten begins here */
    put_bytes(&event, 7, start, sizeof start);
    return write_record(file, &event, error);
}

gs_status gsi_tfevents_scalars(gsi_append *file, uint64_t step, const gsi_scalar *list, size_t n,
                               gs_error *error)
{
    message event, summary = {.n = 0};
    for (size_t i = 0; i < n && i < GSI_SCALARS_MAX; i++) {
        const size_t length = strlen(list[i].tag);
        if (!isfinite(list[i].value) || length > GSI_TAG_MAX)
            continue;
        message value = {.n = 0};
        put_bytes(&value, 1, list[i].tag, length);
        put_float(&value, 2, (float)list[i].value);
        put_bytes(&summary, 1, value.bytes, value.n);
    }
    if (file->fd < 0 || summary.n == 0)
        return GS_OK;
    begin_event(&event, step);
    put_bytes(&event, 5, summary.bytes, summary.n);
    return write_record(file, &event, error);
}
