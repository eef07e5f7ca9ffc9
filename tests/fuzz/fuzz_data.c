/* Any bytes as a data set, its own labels: refused, or every item can be read. Needs clang and
 * Linux:
 *
 *     clang -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude -Isrc tests/fuzz/fuzz_data.c \
 *         src/base/[ahrs]*.c src/num/*.c \
 *         src/io/{file,folder,idx,image,line,lines,npy,npz,safetensors,source,stream,tokens}.c \
 *         src/train/{data*,permute}.c -lz -ljansson -lpng -ljpeg -lm -o fuzz_data
 *     ./fuzz_data -max_len=4096 -max_total_time=300 CORPUS */
#define _GNU_SOURCE
#include "fuzz.h"

#include "gradscale/data.h"

enum { ITEM = 1 << 14 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static float x[ITEM];
    static int32_t ids[ITEM], targets[ITEM];
    const char *const path = file_of(data, n);
    const gs_alloc alloc = {limited, NULL};
    const gs_data_config config = {
        .size = sizeof config, .name = path, .labels = path, .time = 1 + n % 7};
    gs_error error = {0};
    gs_data *set;
    if (gs_data_open(&set, &config, &alloc, &error) != GS_OK) {
        if (set || !error.text[0])
            abort();
        return 0;
    }
    const gs_data_info *info = gs_data_get_info(set);
    const int fits = info->height * info->width * info->channels <= ITEM && info->time <= ITEM;
    for (int split = 0; split < GS_SPLIT_COUNT && fits; split++)
        for (uint64_t i = 0; i < info->items[split] && i < 1000; i++) {
            const gs_status status = gs_data_read(x, ids, targets, set, (gs_split)split, i, &error);
            if (status != GS_OK &&
                info->task != GS_TASK_TOKENS) /* tokens are checked as they come */
                abort();
        }
    gs_data_close(set);
    return 0;
}
