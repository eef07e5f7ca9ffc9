/* Readers of arrays and images, and writers, where a limit is: numbers, names, sizes and paths that
 * are as long as they may be and one longer; a disk that is full. */
#include "gradscale/io.h"
#include "io/append.h"
#include "io/folder.h"
#include "io/idx.h"
#include "io/image.h"
#include "io/tfevents.h"
#include "io/tokens.h"
#include "io/write.h"

#include "data_files.h"
#include "io_files.h"
#include "memory.h"

#include <math.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>

/* ---- arrays ---- */

static void test_types(void)
{
    static const struct {
        const char *name;
        uint64_t bits;
        double value;
        size_t item;
    } types[] = {{"u1", 200, 200, 1},
                 {"i1", 0xFE, -2, 1},
                 {"i2", 0xFFFE, -2, 2},
                 {"u2", 0xFFFE, 65534, 2},
                 {"f2", 0x3E00, 1.5, 2},
                 {"u4", 0xFFFFFFFE, 4294967294.0, 4},
                 {"i4", 0xFFFFFFFE, -2, 4},
                 {"f4", 0x3FC00000, 1.5, 4},
                 {"i8", (uint64_t)-2, -2, 8},
                 {"u8", 1ull << 52, 4503599627370496.0, 8},
                 {"f8", 0x3FF8000000000000, 1.5, 8}};
    gsi_heap heap;
    gs_error error = {0};
    gsi_idx idx;
    gsi_heap_init(&heap, NULL);
    for (size_t i = 0; i < GSI_COUNT(types); i++) {
        const size_t shape[1] = {3};
        double values[2] = {0};
        CHECK_MSG(gsi_idx_new(&idx, "x", types[i].name, 1, shape, &heap, &error) == GS_OK, "%s",
                  error.text);
        memset(idx.data, 0, 3 * types[i].item);
        const uint8_t one = (uint8_t)types[i].bits;
        const uint16_t two = (uint16_t)types[i].bits;
        const uint32_t four = (uint32_t)types[i].bits;
        const void *const from = types[i].item == 1   ? (const void *)&one
                                 : types[i].item == 2 ? (const void *)&two
                                 : types[i].item == 4 ? (const void *)&four
                                                      : (const void *)&types[i].bits;
        memcpy((char *)idx.data + types[i].item, from, types[i].item);
        gsi_idx_values(values, &idx, 1, 2);
        CHECK_MSG(values[0] == types[i].value && values[1] == 0, "%s: %g", types[i].name,
                  values[0]);
        gsi_idx_free(&idx, &heap);
    }
    const size_t large[3] = {(size_t)1 << 31, (size_t)1 << 31, (size_t)1 << 31},
                 wide[1] = {SIZE_MAX / 4}, none[1] = {0};
    CHECK(gsi_idx_new(&idx, "x", "u1", 3, large, &heap, &error) == GS_ENOMEM && !idx.data);
    CHECK(gsi_idx_new(&idx, "x", "f8", 1, wide, &heap, &error) == GS_ENOMEM && !idx.data);
    CHECK(gsi_idx_new(&idx, "x", "u1", 1, none, &heap, &error) == GS_ESIZE && !idx.data);
    CHECK(gsi_idx_new(&idx, "x", "c8", 1, none, &heap, &error) == GS_EDTYPE && !idx.data);
    CHECK(heap.bytes == 0);
}

static void test_idx_header(void)
{
    bytes b = {.n = 0};
    gsi_heap heap;
    gs_error error = {0};
    gsi_idx idx;
    gsi_heap_init(&heap, NULL);
    for (int rank = 2; rank <= 4; rank += 2) { /* elements that 64 bits can count, and not */
        b.n = 0;
        add_big(&b, 0x0E00u | (unsigned)rank, 4); /* f64 */
        for (int i = 0; i < rank; i++)
            add_big(&b, 0xFFFFFFFF, 4);
        write_file("idx", b.data, b.n);
        CHECK(gsi_idx_read(&idx, in_folder("idx"), &heap, &error) == GS_EFORMAT);
        CHECK_MSG(strstr(error.text, "its header announces more than any file can hold"), "%s",
                  error.text);
    }
    CHECK(heap.bytes == 0);
    empty_folder();
}

/* Without a header they are known by their names alone: these, and no others. */
static void test_bare_tokens(void)
{
    static const struct {
        const char *name, *data;
        size_t n;
        int tokens; /* -1: it is refused */
    } files[] = {{"train.bin", "\1\0\2\0\3\0", 6, 3},
                 {"val.bin", "\1\0", 2, 1},
                 {"train.bin", "\1\0\2", 3, -1},
                 {"xtrain.bin", "\1\0\2\0", 4, -1},
                 {"n.bin", "\1\0\2\0", 4, -1},
                 {"val.bin", "\x88\xD8\x34\x01", 4, -1},  /* llm.c's magic, and no more */
                 {"val.bin", "\xA1\xD9\x34\x01", 4, -1}}; /* that of wide tokens */
    for (size_t i = 0; i < GSI_COUNT(files); i++) {
        gsi_tokens t = {0};
        gs_error error = {0};
        write_file(files[i].name, files[i].data, files[i].n);
        const gs_status status = gsi_tokens_open(&t, in_folder(files[i].name), &error);
        CHECK_MSG((status == GS_OK ? (int)t.count : -1) == files[i].tokens, "%zu: %s", i,
                  error.text);
        if (status == GS_OK)
            gsi_tokens_close(&t);
    }
    empty_folder();
}

/* ---- images ---- */

/* The sizes of a JPEG are two big-endian numbers behind its marker. */
static void test_image_sizes(void)
{
    static const struct {
        unsigned height, width;
    } sizes[] = {{16385, 8}, {8, 16385}, {16384, 16384}, {65500, 1}};
    uint8_t jpeg[512];
    gsi_heap heap;
    gsi_image8 image;
    gs_error error = {0};
    gsi_heap_init(&heap, NULL);
    FILE *f = fopen("tests/fuzz/corpus/image/grey.jpg", "rb");
    const size_t n = f ? fread(jpeg, 1, sizeof jpeg, f) : 0;
    CHECK(n > 100 && n < sizeof jpeg);
    if (f)
        fclose(f);
    size_t at = 0;
    while (at + 9 < n && !(jpeg[at] == 0xFF && jpeg[at + 1] == 0xC0))
        at++;
    CHECK(at + 9 < n);
    for (size_t i = 0; i < GSI_COUNT(sizes); i++) {
        jpeg[at + 5] = (uint8_t)(sizes[i].height >> 8);
        jpeg[at + 6] = (uint8_t)sizes[i].height;
        jpeg[at + 7] = (uint8_t)(sizes[i].width >> 8);
        jpeg[at + 8] = (uint8_t)sizes[i].width;
        write_file("size.jpg", jpeg, n);
        CHECK_MSG(gsi_image_look(&image, in_folder("size.jpg"), &heap, &error) == GS_ESIZE &&
                      strstr(error.text, "at most 16384 a side"),
                  "%u x %u: %s", sizes[i].height, sizes[i].width, error.text);
    }
    CHECK(heap.bytes == 0);
    empty_folder();
}

/* ---- writing ---- */

static void test_append(void)
{
    gsi_append log;
    gs_error error = {0};
    struct stat about;
    struct rlimit before, small;
    CHECK(gsi_append_open(&log, "/dev/null", &error) == GS_OK);
    CHECK(gsi_append_sync(&log, &error) == GS_OK); /* it has nothing to bring to a disk */
    gsi_append_close(&log);
    CHECK(gsi_append_write(&log, "x", 1, &error) == GS_OK); /* of one that failed: passed over */
    CHECK(gsi_append_sync(&log, &error) == GS_OK && gsi_append_cut(&log, 0, &error) == GS_OK);

    /* a disk that is full in the middle of a line: the line is taken back */
    CHECK(gsi_append_open(&log, in_folder("log"), &error) == GS_OK);
    CHECK(gsi_append_write(&log, "whole\n", 6, &error) == GS_OK);
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 10;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    const gs_status status = gsi_append_write(&log, "too long\n", 9, &error);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_DFL);
    CHECK(status == GS_EIO && strstr(error.text, "writing failed") && log.fd < 0);
    CHECK(stat(in_folder("log"), &about) == 0 && about.st_size == 6);
    empty_folder();
}

/* What TensorBoard cannot show is passed over. */
static void test_events(void)
{
    static char path[5000];
    const char tag[] = "a tag that is longer than the forty-eight bytes of one";
    const gsi_scalar none[] = {{"x", (double)NAN}, {tag, 1}},
                     some[] = {{"x", 1}, {"y", (double)INFINITY}};
    gsi_append log;
    gs_error error = {0};
    struct stat before, after;
    CHECK(gsi_tfevents_open(&log, in_folder("events"), &error) == GS_OK);
    CHECK(fstat(log.fd, &before) == 0);
    CHECK(gsi_tfevents_scalars(&log, 1, none, 2, &error) == GS_OK);
    CHECK(fstat(log.fd, &after) == 0 && after.st_size == before.st_size);
    CHECK(gsi_tfevents_scalars(&log, 1, some, 2, &error) == GS_OK);
    CHECK(fstat(log.fd, &after) == 0 && after.st_size > before.st_size);
    gsi_append_close(&log);
    CHECK(gsi_tfevents_scalars(&log, 1, some, 2, &error) == GS_OK);
    size_t n = (size_t)snprintf(path, sizeof path, "%s", in_folder("events"));
    while (n + 2 < 4080) /* a folder that is there, by a name that leaves no room for a file's */
        n += (size_t)snprintf(path + n, sizeof path - n, "/.");
    CHECK(gsi_tfevents_open(&log, path, &error) == GS_ESIZE && log.fd < 0);
    CHECK(strstr(error.text, "the path is too long"));
    gsi_heap heap;
    gsi_heap_init(&heap, NULL);
    gsi_paths paths = {.heap = &heap};
    CHECK(gsi_paths_walk(&paths, in_folder("events/"), &error) == GS_OK && paths.n == 1);
    CHECK(!strstr(paths.list[0], "//"));
    gsi_paths_free(&paths);
    CHECK(heap.bytes == 0);
    empty_folder();
}

static void test_temporaries(void)
{
    static const char *const stay[] = {"x.tmp",      ".tmp",      "x.1-.tmp",  "x.-1.tmp",
                                       "x.1-1.tmp2", "x1-1.tmp",  "1-1.tmp",   ".1-1.tmp",
                                       "x.1-1x.tmp", "y.1-1.tmp", "xx.1-1.tmp"};
    char name[64];
    struct stat st;
    gsi_replace r;
    gs_error error = {0};
    for (size_t i = 0; i < GSI_COUNT(stay); i++)
        write_text(stay[i], "");
    write_text("x.1-1.tmp", "");
    write_text("x.123-45.tmp", "");
    CHECK(symlink("/nowhere", in_folder("x.7-7.tmp")) == 0);
    gsi_remove_temporaries(folder, "x");
    CHECK(stat(in_folder("x.1-1.tmp"), &st) != 0 && stat(in_folder("x.123-45.tmp"), &st) != 0);
    CHECK(lstat(in_folder("x.7-7.tmp"), &st) == 0); /* links are not followed, nor removed */
    for (size_t i = 0; i < GSI_COUNT(stay); i++)
        CHECK_MSG(stat(in_folder(stay[i]), &st) == 0, "%s", stay[i]);
    write_text("a.safetensors.1-1.tmp", "");
    write_text("safetensors.1-1.tmp", "");
    gsi_remove_temporaries(folder, NULL);
    CHECK(stat(in_folder("a.safetensors.1-1.tmp"), &st) != 0);
    CHECK(stat(in_folder("safetensors.1-1.tmp"), &st) == 0 && stat(in_folder("x.tmp"), &st) == 0);
    gsi_remove_temporaries("/nowhere", NULL);

    /* one that another process is writing stays, and the next name is taken */
    snprintf(name, sizeof name, "f.%ld-0.tmp", (long)getpid());
    write_text(name, "");
    const int fd = open(in_folder(name), O_RDONLY);
    CHECK(flock(fd, LOCK_EX | LOCK_NB) == 0);
    CHECK(gsi_replace_begin(&r, in_folder("f"), &error) == GS_OK);
    CHECK(strstr(r.temporary, "-1.tmp") && stat(in_folder(name), &st) == 0);
    CHECK(gsi_replace_end(&r, &error) == GS_OK && stat(in_folder("f"), &st) == 0);
    close(fd);
    unlink(in_folder(name));
    for (int i = 0; i < 1000; i++) { /* no name is free */
        char path[160];
        snprintf(path, sizeof path, "%s/g.%ld-%d.tmp", folder, (long)getpid(), i);
        CHECK(mkdir(path, 0700) == 0);
    }
    CHECK(gsi_replace_begin(&r, in_folder("g"), &error) == GS_EIO);
    CHECK(strstr(error.text, "cannot be written: File exists"));
    empty_folder();
}

static void test_long_paths(void)
{
    static char path[2 * GSI_PATH];
    gsi_replace r;
    gs_error error = {0};
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 3] = '/';
    CHECK(gsi_replace_begin(&r, path, &error) == GS_ESIZE &&
          gsi_make_folder(path, &error) != GS_OK);
    for (int twice = 0; twice < 2; twice++)
        CHECK(gsi_make_folder(in_folder("a/b/c"), &error) == GS_OK);
    CHECK(gsi_make_folder("", &error) == GS_ESIZE);
    empty_folder();
}

static void test_names_of_tensors(void)
{
    static const struct {
        const char *first, *second, *wrong;
    } names[] = {{"a", "b", ""},
                 {"", "b", "no file can hold a tensor with the name"},
                 {"a", "__metadata__", "no file can hold a tensor with the name __metadata__"},
                 {"a", "\xFF", "no file can hold"},
                 {"a", "a", "two tensors of the file would be called a"},
                 {"a", GSI_CHECKSUM_NAME, "two tensors of the file would be called"}};
    float value = 1;
    gsi_heap heap;
    gsi_heap_init(&heap, NULL);
    for (size_t i = 0; i < GSI_COUNT(names); i++) {
        gsi_tensor list[2] = {
            {.name = names[i].first, .data = &value, .dtype = GS_F32, .count = 1},
            {.name = names[i].second, .data = &value, .dtype = GS_F32, .count = 1}};
        gs_error error = {0};
        gs_source *s = NULL;
        const gs_status status =
            gsi_safetensors_export(in_folder("t"), list, 2, NULL, 0, &heap, &error);
        CHECK_MSG((status == GS_OK) == !names[i].wrong[0] && strstr(error.text, names[i].wrong),
                  "%zu: %s", i, error.text);
        if (status != GS_OK)
            continue;
        CHECK(gs_source_open(&s, in_folder("t"), NULL, &error) == GS_OK && gs_source_count(s) == 2);
        gs_source_close(s);
        CHECK(gsi_safetensors_export(in_folder("none/t"), list, 2, NULL, 0, &heap, &error) ==
              GS_EIO);
        CHECK(gsi_safetensors_export(in_folder("t"), list, 0, NULL, 0, &heap, &error) == GS_OK);
    }
    enum { LONG = 100 << 20 };
    char *name = malloc(LONG + 1);
    memset(name, 'n', LONG);
    name[LONG] = 0;
    gsi_tensor list[1] = {{.name = name, .data = &value, .dtype = GS_F32, .count = 1}};
    gs_error error = {0};
    CHECK(gsi_safetensors_export(in_folder("t"), list, 1, NULL, 0, &heap, &error) == GS_ESIZE);
    CHECK(strstr(error.text, "are too long for one file"));
    free(name);
    CHECK(heap.bytes == 0);
    empty_folder();
}
TESTS({"types", test_types}, {"idx_header", test_idx_header}, {"bare_tokens", test_bare_tokens},
      {"image_sizes", test_image_sizes}, {"append", test_append}, {"events", test_events},
      {"temporaries", test_temporaries}, {"long_paths", test_long_paths},
      {"names_of_tensors", test_names_of_tensors})
