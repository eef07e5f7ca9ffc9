/* Any bytes as CSV, or as the files of CIFAR-10 and CIFAR-100: refused, or every item can be read,
 * its class below the number of classes. The first byte says which, and whether the length of a
 * CIFAR file is made to fit. */
#define _GNU_SOURCE
#include "fuzz.h"

#include "gradscale/data.h"

#include <string.h>
#include <sys/stat.h>

enum { ITEM = 1 << 13, ROOM = 1 << 14, RECORD = 3073 };

static char folder[] = "/tmp/fuzz_rows_XXXXXX";
static const char *const names[] = {"x.csv",
                                    "ten/data_batch_1.bin",
                                    "ten/test_batch.bin",
                                    "ten/batches.meta.txt",
                                    "hundred/train.bin",
                                    "hundred/test.bin",
                                    "hundred/fine_label_names.txt"};

static void at_path(char path[256], const char *name)
{
    snprintf(path, 256, "%s/%s", folder, name);
}

static void end(void)
{
    char path[256];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        at_path(path, names[i]);
        unlink(path);
    }
    at_path(path, "ten");
    rmdir(path);
    at_path(path, "hundred");
    rmdir(path);
    rmdir(folder);
}

/* All names are links to the one file in memory. */
static void begin(const char *target)
{
    char path[256];
    if (!mkdtemp(folder))
        abort();
    at_path(path, "ten");
    mkdir(path, 0700);
    at_path(path, "hundred");
    mkdir(path, 0700);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        at_path(path, names[i]);
        if (symlink(target, path) != 0)
            abort();
    }
    atexit(end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const kinds[] = {"x.csv", "ten", "hundred"};
    static float x[ITEM];
    static int32_t ids[ITEM], targets[ITEM];
    static uint8_t content[ROOM];
    static int began;
    char path[256];
    if (!began)
        begin(file_of(data, n));
    began = 1;
    if (n == 0 || n > ROOM / 2)
        return 0;
    const int kind = data[0] % 3;
    size_t length = n - 1;
    memset(content, 0, sizeof content);
    memcpy(content, data + 1, length);
    if (kind && data[0] & 0x80) { /* one image or more, in whole */
        const size_t record = RECORD + (kind == 2);
        length = (length / record + (length % record > 0)) * record;
    }
    file_of(content, length);
    at_path(path, kinds[kind]);
    const gs_alloc alloc = {limited, NULL};
    const gs_data_config config = {.size = sizeof config, .name = path};
    gs_error error = {0};
    gs_data *set;
    if (gs_data_open(&set, &config, &alloc, &error) != GS_OK) {
        if (set || !error.text[0])
            abort();
        return 0;
    }
    const gs_data_info *info = gs_data_get_info(set);
    const int fits = info->height * info->width * info->channels <= ITEM;
    for (int split = 0; split < GS_SPLIT_COUNT && fits; split++)
        for (uint64_t i = 0; i < info->items[split] && i < 100; i++)
            if (gs_data_read(x, ids, targets, set, (gs_split)split, i, &error) != GS_OK ||
                targets[0] < 0 || (size_t)targets[0] >= info->classes)
                abort();
    gs_data_close(set);
    return 0;
}
