/* The loader: every item once per epoch, whatever the sizes, the ranks and the interruptions; the
 * order is a function of the seed; no memory. */
#include "data_files.h"
#include "memory.h"
#include "no_threads.h"

#include "train/data.h"

#include <pthread.h>
#include <time.h>

/* ---- order ---- */

static void test_permutation(void)
{
    static uint8_t seen[70000];
    static const uint64_t more[] = {1000, 4095, 4096, 4097, 65535, 65536, 65537};
    for (uint64_t k = 1; k <= 130 + GSI_COUNT(more); k++) {
        const uint64_t n = k <= 130 ? k : more[k - 131];
        uint64_t same = 0;
        memset(seen, 0, sizeof seen);
        for (uint64_t i = 0; i < n; i++) {
            const uint64_t p = gsi_permute(i, n, 7, 3);
            CHECK(p < n && !seen[p]);
            seen[p < n ? p : 0] = 1;
            same += p == gsi_permute(i, n, 7, 4);
        }
        if (n >= 1000) /* another epoch, another order: one in n agrees by chance */
            CHECK_MSG(same < 12, "%d places of %d are the same", (int)same, (int)n);
    }
    /* large sets: in range, and back and forth differ */
    for (uint64_t i = 0; i < 100; i++) {
        CHECK(gsi_permute(i, (uint64_t)1 << 40 | 1, 1, 0) < ((uint64_t)1 << 40 | 1));
        CHECK(gsi_permute(i, UINT64_MAX - 1, 1, 0) < UINT64_MAX - 1);
    }
    /* where an item comes is independent of where it was: of 1000, about 500 move to the left */
    int left = 0;
    for (uint64_t i = 0; i < 1000; i++)
        left += gsi_permute(i, 1000, 1, 0) < i;
    CHECK(left > 400 && left < 600);
}

/* ---- the loader ---- */

/* Sets whose labels tell which item it is. Written once. */
static gs_data *numbered(uint32_t n)
{
    static gs_data *data;
    gs_data_close(data);
    data = NULL;
    if (n == 0)
        return NULL;
    write_images("train-images-idx3-ubyte", "train-labels-idx1-ubyte", n);
    write_images("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", 3);
    data = opened_path("train-images-idx3-ubyte");
    return data;
}

static gs_loader *loader_of(gs_data *data, const gs_loader_config *config)
{
    gs_error error = {0};
    gs_loader *loader;
    CHECK_MSG(gs_loader_create(&loader, data, config, NULL, &error) == GS_OK, "%s", error.text);
    return loader;
}

/* Labels of the next step into order[*at...]; returns the micro-batches. */
static size_t take(gs_loader *loader, int32_t *order, size_t *at)
{
    const gs_batch *micro;
    size_t n = 0;
    gs_error error = {0};
    CHECK_MSG(gs_loader_next(&micro, &n, loader, &error) == GS_OK, "%s", error.text);
    for (size_t m = 0; m < n; m++) {
        CHECK(micro[m].n > 0 && micro[m].x && !micro[m].ids && micro[m].time == 0);
        for (size_t i = 0; i < micro[m].n; i++) {
            order[(*at)++] = micro[m].targets[i];
            /* its pixels are its own: they grow with its number */
            CHECK(micro[m].x[6 * i] < micro[m].x[6 * i + 5]);
        }
    }
    return n;
}

static void test_epochs(void)
{
    enum { EPOCHS = 3, MOST = 131 };
    static const uint32_t sizes[] = {2, 3, 7, 64, 100, 131};
    static const struct {
        size_t batch, micro;
        int ranks;
    } ways[] = {{1, 1, 1},   {5, 1, 1}, {64, 0, 0}, {3, 2, 1},
                {200, 1, 1}, {2, 2, 3}, {1, 1, 5},  {4, 1, 2}};
    for (size_t k = 0; k < GSI_COUNT(sizes); k++) {
        const uint32_t n = sizes[k];
        int32_t first[EPOCHS * MOST] = {0};
        gs_data *data = numbered(n);
        for (size_t w = 0; w < GSI_COUNT(ways); w++) {
            const int ranks = ways[w].ranks ? ways[w].ranks : 1;
            const size_t micro = ways[w].micro ? ways[w].micro : 1;
            gs_loader *loaders[8];
            for (int r = 0; r < ranks; r++)
                loaders[r] = loader_of(data, &(gs_loader_config){.size = sizeof(gs_loader_config),
                                                                 .batch = ways[w].batch,
                                                                 .micro = ways[w].micro,
                                                                 .seed = 9,
                                                                 .shuffle = 1,
                                                                 .rank = r,
                                                                 .ranks = ways[w].ranks});
            int32_t order[EPOCHS * MOST];
            size_t at = 0;
            for (int epoch = 0; epoch < EPOCHS; epoch++) {
                uint8_t seen[MOST] = {0};
                const size_t begin = at;
                while (at - begin < n) {
                    size_t shares[8];
                    const size_t step = at;
                    for (int r = 0; r < ranks; r++) { /* the ranks' spans follow each other */
                        const size_t before = at, batches = take(loaders[r], order, &at);
                        shares[r] = at - before;
                        CHECK(batches == (shares[r] + ways[w].batch - 1) / ways[w].batch);
                        CHECK(shares[r] <= ways[w].batch * micro);
                        CHECK(shares[r] == shares[0] || shares[r] + 1 == shares[0]);
                    }
                    const size_t most = ways[w].batch * micro * (size_t)ranks;
                    CHECK(at - step == (n - (step - begin) < most ? n - (step - begin) : most));
                    for (int r = 0; r < ranks; r++)
                        CHECK(gs_loader_position(loaders[r]) == at);
                }
                CHECK(at - begin == n);
                for (size_t i = begin; i < at; i++) {
                    CHECK(!seen[order[i]]);
                    seen[order[i]] = 1;
                }
            }
            if (w == 0)
                memcpy(first, order, sizeof first);
            CHECK(memcmp(first, order, at * sizeof *order) == 0); /* the same order every way */
            if (n >= 64)
                CHECK(memcmp(order, order + n, n * sizeof *order) != 0);
            for (int r = 0; r < ranks; r++)
                gs_loader_free(loaders[r]);
        }
    }
    numbered(0);
    empty_folder();
}

static void test_order_choices(void)
{
    gs_data *data = numbered(50);
    int32_t plain[50], one[50], two[50];
    size_t at = 0;
    gs_loader *loader =
        loader_of(data, &(gs_loader_config){.size = sizeof(gs_loader_config), .batch = 50});
    take(loader, plain, &at);
    for (int32_t i = 0; i < 50; i++)
        CHECK(plain[i] == i);
    gs_loader_free(loader);
    for (uint64_t seed = 0; seed < 2; seed++) {
        at = 0;
        loader = loader_of(
            data, &(gs_loader_config){
                      .size = sizeof(gs_loader_config), .batch = 50, .seed = seed, .shuffle = 1});
        take(loader, seed ? two : one, &at);
        gs_loader_free(loader);
    }
    CHECK(memcmp(one, two, sizeof one) != 0 && memcmp(one, plain, sizeof one) != 0);

    at = 0; /* the other split */
    loader = loader_of(
        data,
        &(gs_loader_config){.size = sizeof(gs_loader_config), .split = GS_SPLIT_VALID, .batch = 2});
    take(loader, plain, &at);
    take(loader, plain, &at);
    CHECK(at == 3 && gs_loader_position(loader) == 3);
    gs_loader_free(loader);

    gs_error error;
    static const gs_loader_config bad[] = {
        {.size = sizeof bad[0], .batch = 0},
        {.size = sizeof bad[0], .batch = 1, .split = GS_SPLIT_COUNT},
        {.size = sizeof bad[0], .batch = 1, .rank = 2, .ranks = 2},
        {.size = sizeof bad[0], .batch = 1, .rank = -1, .ranks = 2},
        {.size = sizeof bad[0], .batch = 1, .ranks = -3}};
    for (size_t i = 0; i < GSI_COUNT(bad); i++)
        CHECK(gs_loader_create(&loader, data, &bad[i], NULL, &error) == GS_ERANGE && !loader);
    const gs_loader_config huge = {.size = sizeof huge, .batch = SIZE_MAX / 2, .micro = 3};
    CHECK(gs_loader_create(&loader, data, &huge, NULL, &error) == GS_ENOMEM && !loader);
    CHECK(strstr(error.text, "memory"));
    CHECK(gs_loader_create(&loader, NULL, &bad[0], NULL, &error) == GS_ENULL);
    CHECK(gs_loader_next(NULL, NULL, NULL, &error) == GS_ENULL);
    gs_loader_free(NULL);
    gs_data_close(NULL);
    numbered(0);
    empty_folder();
}

/* From anywhere, however often it is sent about: what follows is what would have followed. */
static void test_seek(void)
{
    enum { N = 37, STEPS = 60, BATCH = 5 };
    gs_data *data = numbered(N);
    const gs_loader_config config = {
        .size = sizeof config, .batch = BATCH, .seed = 3, .shuffle = 1};
    static int32_t all[STEPS * BATCH], some[BATCH];
    size_t begins[STEPS + 1] = {0};
    gs_loader *loader = loader_of(data, &config);
    for (size_t s = 0, at = 0; s < STEPS; begins[++s] = at)
        take(loader, all, &at);
    for (uint32_t k = 0; k < 500; k++) {
        const size_t s = gs_random_u32(11, k) % STEPS;
        CHECK(gs_loader_seek(loader, begins[s], NULL) == GS_OK);
        CHECK(gs_loader_position(loader) == begins[s]);
        for (size_t i = s; i < STEPS && i < s + k % 5; i++) {
            size_t at = 0;
            take(loader, some, &at);
            CHECK(at == begins[i + 1] - begins[i]);
            CHECK(memcmp(some, all + begins[i], at * sizeof *some) == 0);
            CHECK(gs_loader_position(loader) == begins[i + 1]);
        }
    }
    gs_loader_free(loader);
    for (int i = 0; i < 50; i++) { /* ended at any moment */
        loader = loader_of(data, &config);
        if (i % 2)
            gs_loader_seek(loader, (uint64_t)i, NULL);
        gs_loader_free(loader);
    }
    numbered(0);
    empty_folder();
}

/* A file that is cut while it is read: the error comes in its turn, and again, until it is mended.
 */
static void test_read_errors(void)
{
    write_tokens("x.bin", 4001, 0);
    gs_data *data = opened(
        &(gs_data_config){.size = sizeof(gs_data_config), .name = in_folder("x.bin"), .time = 4});
    gs_loader *loader =
        loader_of(data, &(gs_loader_config){.size = sizeof(gs_loader_config), .batch = 100});
    const gs_batch *micro;
    size_t n;
    gs_error error = {0};
    CHECK(gs_loader_next(&micro, &n, loader, &error) == GS_OK && n == 1 && micro->n == 100);
    CHECK(micro->time == 4 && micro->ids[5] == 5 && micro->targets[5] == 6 && !micro->x);
    CHECK(truncate(in_folder("x.bin"), 1100) == 0);
    CHECK(gs_loader_seek(loader, 100, NULL) == GS_OK);
    for (int i = 0; i < 3; i++) {
        CHECK(gs_loader_next(&micro, &n, loader, &error) == GS_EIO && n == 0 && !micro);
        CHECK(strstr(error.text, "x.bin: ") && gs_loader_position(loader) == 100);
    }
    write_tokens("x.bin", 4001, 0);
    gs_loader_seek(loader, 100, NULL);
    CHECK(gs_loader_next(&micro, &n, loader, &error) == GS_OK && micro->ids[0] == 400);
    CHECK(gs_loader_position(loader) == 200);
    gs_loader_free(loader);
    gs_data_close(data);
    empty_folder();
}

/* Endless sets do not end, and a patient caller does not wait. */
static void test_endless(void)
{
    gs_data *data =
        opened(&(gs_data_config){.size = sizeof(gs_data_config), .name = "shapes", .seed = 1});
    gs_loader *loader = loader_of(
        data, &(gs_loader_config){
                  .size = sizeof(gs_loader_config), .batch = 3, .micro = 2, .shuffle = 1});
    static float x[2][1024];
    static int32_t y[1024];
    const gs_batch *micro;
    size_t n;
    int waited = 0;
    for (uint64_t s = 0; s < 20; s++) {
        nanosleep(&(struct timespec){0, 5000000}, NULL);
        CHECK(gs_loader_next(&micro, &n, loader, NULL) == GS_OK && n == 2 && micro[1].n == 3);
        CHECK(gs_data_read(x[0], NULL, y, data, GS_SPLIT_TRAIN, 6 * s + 4, NULL) == GS_OK);
        CHECK(memcmp(micro[1].x + 1024, x[0], sizeof x[0]) == 0);
        CHECK(memcmp(micro[1].targets + 1024, y, sizeof y) == 0);
        waited += gs_loader_waited(loader) > 0;
    }
    CHECK_MSG(waited < 20, "it always waits");
    CHECK(gs_loader_position(loader) == 120);
    gs_loader_seek(loader, (uint64_t)1 << 60, NULL);
    CHECK(gs_loader_next(&micro, &n, loader, NULL) == GS_OK);
    CHECK(gs_loader_position(loader) == ((uint64_t)1 << 60) + 6);
    gs_loader_free(loader);
    gs_data_close(data);
}

/* ---- threads ---- */

typedef struct reader {
    gs_data *data;
    uint64_t sum;
} reader;

static void *read_all(void *arg)
{
    reader *r = arg;
    float x[1024];
    int32_t ids[4], targets[1024];
    const gs_data_info *info = gs_data_get_info(r->data);
    for (uint64_t i = 0; i < 50; i++) {
        gs_data_read(x, ids, targets, r->data, GS_SPLIT_TRAIN, i % info->items[0], NULL);
        r->sum = r->sum * 31 + (uint64_t)targets[0] + (info->time ? (uint64_t)ids[3] : 0);
    }
    return NULL;
}

static void test_threads(void)
{
    write_tokens("x.bin", 4001, 0);
    gs_data *sets[] = {opened(&(gs_data_config){
                           .size = sizeof(gs_data_config), .name = in_folder("x.bin"), .time = 4}),
                       opened(&(gs_data_config){.size = sizeof(gs_data_config), .name = "shapes"}),
                       numbered(20)};
    for (int k = 0; k < 3; k++) {
        reader readers[4] = {{0}};
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) {
            readers[i].data = sets[k];
            if (pthread_create(&threads[i], NULL, read_all, &readers[i]) != 0)
                abort();
        }
        for (int i = 0; i < 4; i++) {
            pthread_join(threads[i], NULL);
            CHECK(readers[i].sum == readers[0].sum);
        }
    }
    gs_data_close(sets[0]);
    gs_data_close(sets[1]);
    numbered(0);
    empty_folder();
}

/* ---- no memory ---- */

static void test_memory(void)
{
    write_images("train-images-idx3-ubyte", "train-labels-idx1-ubyte", 9);
    make_folder("set");
    write_text("set/a", "all the bytes of a text");
    idx(&file, 0x08, SHAPE(9, 2, 3), 0);
    static bytes packed;
    gz(&packed, &file);
    write_file("packed-images", packed.data, packed.n);
    write_file("set/b.gz", packed.data, packed.n);
    write_tokens("x.bin", 42, 0);
    const gs_data_config configs[] = {
        {.size = sizeof(gs_data_config), .name = in_folder("train-images-idx3-ubyte")},
        {.size = sizeof(gs_data_config),
         .name = in_folder("packed-images"),
         .labels = in_folder("train-labels-idx1-ubyte")},
        {.size = sizeof(gs_data_config), .name = in_folder("set"), .time = 4},
        {.size = sizeof(gs_data_config), .name = in_folder("x.bin"), .time = 4},
        {.size = sizeof(gs_data_config), .name = "shapes"}};
    for (size_t c = 0; c < GSI_COUNT(configs); c++) {
        for (size_t k = 1; k < 200; k++) {
            books b = {.fail_from = k};
            const gs_alloc alloc = books_hook(&b);
            gs_data *data;
            gs_loader *loader = NULL;
            gs_error error = {0};
            gs_status status = gs_data_open(&data, &configs[c], &alloc, &error);
            if (status == GS_OK) {
                const gs_loader_config how = {.size = sizeof how, .batch = 2, .shuffle = 1};
                status = gs_loader_create(&loader, data, &how, &alloc, &error);
            }
            CHECK_MSG(status == (b.calls >= k ? GS_ENOMEM : GS_OK), "%zu, call %zu: %s %s", c, k,
                      gs_status_name(status), error.text);
            if (status == GS_OK) { /* steady steps ask for nothing */
                const size_t calls = b.calls;
                const gs_batch *micro;
                size_t n;
                for (int i = 0; i < 10; i++)
                    CHECK(gs_loader_next(&micro, &n, loader, &error) == GS_OK);
                CHECK(b.calls == calls);
            } else {
                CHECK_MSG(strstr(error.text, "memory"), "%s", error.text);
            }
            gs_loader_free(loader);
            gs_data_close(data);
            CHECK(b.blocks == 0 && b.bytes == 0 && !b.wrong);
            if (status == GS_OK)
                break;
            CHECK_MSG(k < 199, "it never succeeds");
        }
    }
    empty_folder();
}

/* Arrays that each need a block of their own, and images that are varied. */
static void test_large_memory(void)
{
    write_tokens("x.bin", 30000, 0);
    const gs_data_config configs[] = {
        {.size = sizeof(gs_data_config), .name = in_folder("x.bin"), .time = 1024},
        {.size = sizeof(gs_data_config), .name = "shapes"}};
    for (size_t c = 0; c < GSI_COUNT(configs); c++) {
        gs_data *data = opened(&configs[c]);
        const gs_loader_config how = {
            .size = sizeof how, .batch = 20, .micro = 200, .augment.flip = c == 1};
        for (size_t k = 1; k < 100; k++) {
            books b = {.fail_from = k};
            const gs_alloc alloc = books_hook(&b);
            gs_loader *loader;
            gs_error error = {0};
            const gs_status status = gs_loader_create(&loader, data, &how, &alloc, &error);
            CHECK_MSG(status == (b.calls >= k ? GS_ENOMEM : GS_OK), "%zu, call %zu: %s", c, k,
                      error.text);
            gs_loader_free(loader);
            CHECK(b.blocks == 0 && b.bytes == 0 && !b.wrong);
            if (status == GS_OK)
                break;
            CHECK(k < 99);
        }
        gs_data_close(data);
    }
    /* slots that fill a block to its end: what is to vary images in needs the next */
    gs_data *data = numbered(9);
    for (size_t batch = 560; batch < 600; batch++) {
        const gs_loader_config how = {.size = sizeof how, .batch = batch, .augment.flip = 1};
        for (size_t k = 1; k < 100; k++) {
            books b = {.fail_from = k};
            const gs_alloc alloc = books_hook(&b);
            gs_loader *loader;
            const gs_status status = gs_loader_create(&loader, data, &how, &alloc, NULL);
            CHECK(status == (b.calls >= k ? GS_ENOMEM : GS_OK));
            gs_loader_free(loader);
            CHECK(b.blocks == 0 && !b.wrong);
            if (status == GS_OK)
                break;
        }
    }
    numbered(0);
    empty_folder();
}

/* ---- what is refused ---- */

static void check_refused(gs_data *data, gs_loader_config how, gs_status expected,
                          const char *words)
{
    gs_loader *loader;
    gs_error error = {0};
    how.size = sizeof how;
    const gs_status status = gs_loader_create(&loader, data, &how, NULL, &error);
    CHECK_MSG(status == expected && !loader && strstr(error.text, words), "%s: %s",
              gs_status_name(status), error.text);
    gs_loader_free(loader);
}

static void test_refused(void)
{
    write_tokens("x.bin", 4001, 0);
    gs_data *tokens_of = opened_path("x.bin"); /* 3x2 images are higher than wide, 2x3 are not */
    gs_data *low = numbered(9);
    idx(&file, 0x08, SHAPE(9, 3, 2), 0);
    write_file("high-images", file.data, file.n);
    gs_data *high = opened(&(gs_data_config){.size = sizeof(gs_data_config),
                                             .name = in_folder("high-images"),
                                             .labels = in_folder("train-labels-idx1-ubyte")});
    static const gs_augment varied[] = {{.crop = 1}, {.flip = 1}, {.cutout = 1}, {.color = 0.5f}};
    for (size_t i = 0; i < GSI_COUNT(varied); i++) {
        check_refused(tokens_of, (gs_loader_config){.batch = 1, .augment = varied[i]}, GS_ERANGE,
                      "tokens cannot be varied");
        gs_loader *loader =
            loader_of(low, &(gs_loader_config){
                               .size = sizeof(gs_loader_config), .batch = 2, .augment = varied[i]});
        const gs_batch *micro;
        size_t n;
        CHECK(gs_loader_next(&micro, &n, loader, NULL) == GS_OK && micro->n == 2);
        gs_loader_free(loader);
    }
    gs_data *const images[] = {low, high};
    for (size_t i = 0; i < 2; i++) {
        check_refused(images[i], (gs_loader_config){.batch = 1, .augment.crop = 2}, GS_ERANGE,
                      "cannot be moved by 2 pixels");
        check_refused(images[i], (gs_loader_config){.batch = 1, .augment.cutout = 3}, GS_ERANGE,
                      "have no square of 3 pixels");
    }
    check_refused(low, (gs_loader_config){.batch = 1, .augment.color = -0.5f}, GS_ERANGE,
                  "colours vary by 0 to 1");
    check_refused(low, (gs_loader_config){.batch = 1, .augment.color = 1.5f}, GS_ERANGE,
                  "colours vary by 0 to 1");
    /* sizes that overflow: of the items, of images, of tokens */
    check_refused(low, (gs_loader_config){.batch = SIZE_MAX / 2, .micro = 3}, GS_ENOMEM, "memory");
    check_refused(low, (gs_loader_config){.batch = SIZE_MAX / 4}, GS_ENOMEM, "memory");
    check_refused(tokens_of, (gs_loader_config){.batch = SIZE_MAX / 4}, GS_ENOMEM, "memory");
    if (no_threads(1))
        check_refused(low, (gs_loader_config){.batch = 1}, GS_ETHREAD, "thread does not start");
    else
        test_skip_part("a loader without a thread", "threads start with stacks of any size");
    no_threads(0);

    const gs_loader_config how = {.size = sizeof how, .batch = 2000};
    gs_loader *loader;
    const gs_batch *micro;
    size_t n;
    CHECK(gs_loader_create(NULL, low, &how, NULL, NULL) == GS_ENULL);
    CHECK(gs_loader_create(&loader, NULL, &how, NULL, NULL) == GS_ENULL);
    CHECK(gs_loader_create(&loader, low, NULL, NULL, NULL) == GS_ENULL);
    loader = loader_of(tokens_of, &how);
    CHECK(gs_loader_next(&micro, &n, NULL, NULL) == GS_ENULL);
    CHECK(gs_loader_next(NULL, &n, loader, NULL) == GS_ENULL);
    CHECK(gs_loader_next(&micro, NULL, loader, NULL) == GS_ENULL);
    CHECK(gs_loader_seek(NULL, 0, NULL) == GS_ENULL);
    /* an error without a place for it */
    CHECK(truncate(in_folder("x.bin"), 1100) == 0);
    gs_loader_seek(loader, 0, NULL);
    CHECK(gs_loader_next(&micro, &n, loader, NULL) == GS_EIO);
    gs_loader_free(loader);
    gs_data_close(tokens_of);
    gs_data_close(high);
    numbered(0);
    empty_folder();
}

/* ---- all together: shapes, loader, a model for pixels, the step ---- */

static void test_pixels(void)
{
    gs_context *ctx;
    gs_model *model;
    gs_trainer *trainer;
    gs_error error = {0};
    CHECK(gs_context_create(&ctx, &(gs_config){.size = sizeof(gs_config), .threads = 1}, NULL) ==
          GS_OK);
    static const gs_fcn_config bad[] = {
        {sizeof bad[0], 0, 32, 1, 4, 8, 1},  {sizeof bad[0], 32, 32, 0, 4, 8, 1},
        {sizeof bad[0], 32, 32, 1, 1, 8, 1}, {sizeof bad[0], 32, 32, 1, 4, 1, 1},
        {sizeof bad[0], 32, 32, 1, 4, 8, 0}, {sizeof bad[0], 1 << 20, 32, 1, 4, 8, 1}};
    for (size_t i = 0; i < GSI_COUNT(bad); i++) {
        CHECK(gs_fcn_create(&model, ctx, &bad[i]) == GS_ERANGE && !model);
        CHECK(strstr(gs_context_error(ctx)->text, "an fcn "));
    }
    const gs_fcn_config config = {.size = sizeof config, 32, 32, 1, 4, 8, 2};
    CHECK(gs_fcn_create(&model, ctx, &config) == GS_OK && model->n == 6);
    gs_trainer_config how = {
        .size = sizeof how,
        .optim.size = sizeof(gs_optim_config),
        .tape = {.size = sizeof(gs_tape_config), .mode = GS_O2, .half = GS_F16},
        .seed = 1};
    CHECK(gs_optim_config_init(&how.optim, "adam", &error) == GS_OK);
    CHECK(gs_optim_config_set(&how.optim, "lr=2e-2", &error) == GS_OK);
    CHECK(gs_scaler_init(&how.scaler, "pytorch", &error) == GS_OK);
    CHECK(gs_trainer_create(&trainer, ctx, model, &how) == GS_OK);
    gs_data *data =
        opened(&(gs_data_config){.size = sizeof(gs_data_config), .name = "shapes", .seed = 1});
    gs_loader *loader =
        loader_of(data, &(gs_loader_config){.size = sizeof(gs_loader_config), .batch = 4});
    const gs_batch *micro;
    size_t n, right;
    gs_train_row row;
    double first = 0, loss;
    for (int i = 0; i < 25; i++) {
        CHECK(gs_loader_next(&micro, &n, loader, &error) == GS_OK);
        CHECK(gs_trainer_step(trainer, micro, n, &row) == GS_OK);
        if (i == 0)
            first = row.loss;
    }
    CHECK_MSG(first > 1 && row.loss < 0.25 * first, "from %g to %g", first, row.loss);
    CHECK(gs_trainer_evaluate(&loss, &right, trainer, micro) == GS_OK);
    CHECK_MSG(right > 4 * 1024 * 8 / 10 && right <= 4 * 1024, "%zu pixels are right", right);
    gs_loader_free(loader);
    gs_data_close(data);
    gs_trainer_free(trainer);
    gs_model_free(model);
    gs_context_free(ctx);
}

TESTS({"permutation", test_permutation}, {"epochs", test_epochs},
      {"order choices", test_order_choices}, {"seek", test_seek}, {"read errors", test_read_errors},
      {"endless", test_endless}, {"threads", test_threads}, {"memory", test_memory},
      {"large memory", test_large_memory}, {"refused", test_refused}, {"pixels", test_pixels})
