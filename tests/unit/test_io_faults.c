/* Every reader and writer of src/io and src/train, with every allocation and every system call
 * failing once. What must hold each time:
 *
 *  (1) an error comes with an error message, and its memory and descriptors are given back;
 *  (2) signals (EINTR) and short counts change nothing;
 *  (3) a writer that fails leaves the file that was there as it was;
 *  (4) of a file that is written whole or not at all, no failed write, fsync or rename goes untold.
 */
#include "faults.h"

#include "gradscale/checkpoint.h"
#include "gradscale/io.h"
#include "gradscale/log.h"
#include "gradscale/trace.h"
#include "io/append.h"
#include "io/image.h"
#include "io/json.h"
#include "io/lines.h"
#include "io/tfevents.h"
#include "io/write.h"

#include "data_files.h" /* its names are short: behind those of the library */
#include "io_files.h"
#include "memory.h"

#include <math.h>

/* A scenario does all that it does with one file; a name for it, and what it works on. */
typedef struct scenario {
    const char *name;
    gs_status (*run)(const char *path, const gs_alloc *alloc, gs_error *error);
    const char *path;
    const char *kept; /* NULL, or a file that a failure leaves as it is, or as it becomes */
} scenario;

/* ---- readers ---- */

static gs_status read_tensors(const char *path, const gs_alloc *alloc, gs_error *error)
{
    gs_source *s;
    gs_status status = gs_source_open(&s, path, alloc, error);
    for (size_t t = 0; status == GS_OK && t < gs_source_count(s); t++) {
        const gs_entry *e = gs_source_entry(s, t);
        double values[64];
        gs_source_map(s, t);
        for (uint64_t at = 0; status == GS_OK && gs_entry_readable(e) && at < e->count; at += 64) {
            const uint64_t left = e->count - at;
            status = gs_source_read(values, s, t, at, left < 64 ? (size_t)left : 64, error);
        }
    }
    gs_source_close(s);
    return status;
}

static gs_status read_traces(const char *path, const gs_alloc *alloc, gs_error *error)
{
    gs_trace_file *f;
    const gs_trace *trace = NULL;
    int same;
    gs_status status = gs_trace_open(&f, path, alloc, error);
    if (status != GS_OK)
        return status;
    while ((status = gs_trace_next(&trace, f, error)) == GS_OK && trace)
        CHECK(gs_trace_compare(&same, trace, error) == GS_OK && same);
    gs_trace_close(f);
    return status;
}

static gs_status read_log(const char *path, const gs_alloc *alloc, gs_error *error)
{
    gs_log_file *f;
    gs_log_line line;
    int more = 1;
    gs_status status = gs_log_open(&f, path, alloc, error);
    while (status == GS_OK && more)
        status = gs_log_next(&line, &more, f, error);
    gs_log_close(f);
    return status;
}

static gs_status read_data(const char *path, const gs_alloc *alloc, gs_error *error)
{
    static float x[1 << 14];
    static int32_t ids[1 << 14], targets[1 << 14];
    char labels[GSI_PATH], text[4096];
    size_t used;
    const bool pair = strstr(path, "images") && gsi_path_replace(labels, path, "images", "labels");
    const gs_data_config config = {
        .size = sizeof config, .name = path, .labels = pair ? labels : NULL, .time = 8};
    gs_data *set;
    gs_status status = gs_data_open(&set, &config, alloc, error);
    if (status != GS_OK)
        return status;
    for (uint64_t i = 0; status == GS_OK && i < 3; i++)
        if (i < gs_data_get_info(set)->items[GS_SPLIT_TRAIN])
            status = gs_data_read(x, ids, targets, set, GS_SPLIT_TRAIN, i, error);
    if (status == GS_OK)
        gs_data_describe(text, sizeof text, &used, set, NULL);
    gs_data_close(set);
    return status;
}

static gs_status read_json(const char *path, const gs_alloc *alloc, gs_error *error)
{
    static const char text[] =
        "{\"a\": [1, \"two\", {\"b\": null, \"c\": [true, false]}], \"d\": {}, \"e\": \"\\u00e9\"}";
    (void)path;
    gsi_heap heap;
    gsi_arena arena;
    const gsi_node *root;
    const char *wrong = NULL;
    gsi_heap_init(&heap, alloc);
    gsi_arena_init(&arena, &heap);
    gsi_json j = gsi_json_of(text, strlen(text));
    const gs_status status = gsi_json_tree(&root, &j, &arena, &wrong);
    if (status != GS_OK)
        gsi_fail(error, status, "%s", wrong ? wrong : "there is no memory");
    gsi_arena_free(&arena);
    return status;
}

static gs_status read_image(const char *path, const gs_alloc *alloc, gs_error *error)
{
    gsi_heap heap;
    gsi_image8 image;
    gsi_heap_init(&heap, alloc);
    const gs_status status = gsi_image_read(&image, path, 3, false, &heap, error);
    gsi_free(&heap, image.data);
    return status;
}

static gs_status walk(const char *path, const gs_alloc *alloc, gs_error *error)
{
    gsi_heap heap;
    gsi_heap_init(&heap, alloc);
    gsi_paths paths = {.heap = &heap};
    const gs_status status = gsi_paths_walk(&paths, path, error);
    gsi_paths_free(&paths);
    return status;
}

/* ---- writers ---- */

static gs_status replace(const char *path, const gs_alloc *alloc, gs_error *error)
{
    (void)alloc;
    gsi_replace r;
    gs_status status = gsi_replace_begin(&r, path, error);
    if (status == GS_OK)
        status = gsi_replace_write(&r, "new text\n", 9, error);
    return status == GS_OK ? gsi_replace_end(&r, error) : status;
}

static gs_status make_folders(const char *path, const gs_alloc *alloc, gs_error *error)
{
    (void)alloc;
    char deep[GSI_PATH];
    snprintf(deep, sizeof deep, "%s/a/b/c", path);
    const gs_status status = gsi_make_folder(deep, error);
    for (int i = 0; i < 3; i++) {
        unlinkat(AT_FDCWD, deep, AT_REMOVEDIR);
        *strrchr(deep, '/') = 0;
    }
    return status;
}

/* What a killed writer left goes; errors there are nobody's. */
static gs_status tidy(const char *path, const gs_alloc *alloc, gs_error *error)
{
    (void)alloc, (void)error;
    char other[GSI_PATH];
    gsi_remove_temporaries(path, NULL);
    snprintf(other, sizeof other, "%s/text", path);
    snprintf(other + strlen(other) + 1, 8, "x");
    gsi_replace_by_link(in_folder("linked"), other);
    return GS_OK;
}

static gs_status write_log(const char *path, const gs_alloc *alloc, gs_error *error)
{
    gs_logger *log;
    const gs_logger_config config = {.size = sizeof config,
                                     .json = path,
                                     .csv = in_folder("log.csv"),
                                     .tensorboard = in_folder("events"),
                                     .resume = strstr(path, "old") != NULL,
                                     .step = 3};
    const gs_log_end end = {.status = "done"};
    gs_log_step step = {.step = 4, .loss = 0.5, .scale = 8, .verdict = "apply", .reason = "fine"};
    gs_status status = gs_logger_open(&log, &config, alloc, error);
    if (status != GS_OK)
        return status;
    for (; status == GS_OK && step.step < 7; step.step++)
        status = gs_logger_step(log, &step, error);
    if (status == GS_OK)
        status = gs_logger_valid(log, 6, 0.25, (double)NAN, 1, error);
    if (status == GS_OK)
        status = gs_logger_checkpoint(log, 6, "a", 0.1, error);
    const gs_status last = gs_logger_end(log, &end, status == GS_OK ? error : NULL);
    gs_logger_close(log);
    return status == GS_OK ? last : status;
}

/* ---- checkpoints: of one trainer, whose context has the hook ---- */

static gs_status with_trainer(const char *path, const gs_alloc *alloc, gs_error *error,
                              gs_status (*use)(const char *, gs_trainer *, const gs_alloc *,
                                               gs_error *))
{
    const gs_config config = {.size = sizeof config, .threads = 1, .alloc = *alloc};
    const gs_mlp_config mlp = {.size = sizeof mlp, (const size_t[]){4, 3, 2}, 3};
    gs_trainer_config tc = {
        .size = sizeof tc,
        .optim.size = sizeof(gs_optim_config),
        .tape = {.size = sizeof(gs_tape_config), .mode = GS_O2, .half = GS_F16}};
    gs_context *ctx;
    gs_model *model = NULL;
    gs_trainer *trainer = NULL;
    gs_optim_config_init(&tc.optim, "adamw", NULL);
    gs_scaler_init(&tc.scaler, "pytorch", NULL);
    gs_status status = gs_context_create(&ctx, &config, error);
    if (status != GS_OK)
        return status;
    status = gs_mlp_create(&model, ctx, &mlp);
    if (status == GS_OK)
        status = gs_trainer_create(&trainer, ctx, model, &tc);
    if (status != GS_OK)
        *error = *gs_context_error(ctx);
    else
        status = use(path, trainer, alloc, error);
    gs_trainer_free(trainer);
    gs_model_free(model);
    gs_context_free(ctx);
    return status;
}

static const gs_checkpoint about = {.step = 3, .config = "lr = 1\n", .model = "mlp", .best = 0.5};

static gs_status save_it(const char *path, gs_trainer *t, const gs_alloc *alloc, gs_error *error)
{
    (void)alloc;
    return gs_checkpoint_save(path, t, &about, error);
}

static gs_status load_it(const char *path, gs_trainer *t, const gs_alloc *alloc, gs_error *error)
{
    (void)alloc;
    static gs_checkpoint_text text;
    gs_checkpoint found = {0};
    gs_status status = gs_checkpoint_peek(&text, path, error);
    if (status == GS_OK)
        status = gs_checkpoint_verify(path, error);
    return status == GS_OK ? gs_checkpoint_load(path, t, &found, error) : status;
}

static gs_status saver_it(const char *path, gs_trainer *t, const gs_alloc *alloc, gs_error *error)
{
    gs_saver *saver;
    gs_checkpoint now = about;
    char newest[GSI_PATH];
    gs_status status = gs_saver_create(&saver, path, 1, alloc, error);
    if (status != GS_OK)
        return status;
    for (int i = 0; i < 3 && status == GS_OK; i++) {
        now.step++;
        status = gs_saver_save(saver, t, &now, i == 1 ? GS_SAVE_BEST : 0, error);
        if (status == GS_OK)
            status = gs_saver_wait(saver, error);
        if (status != GS_OK && gs_saver_get_state(saver).failed)
            gs_saver_retry(saver, NULL);
    }
    gs_saver_free(saver);
    return status == GS_OK ? gs_saver_newest(newest, sizeof newest, path, error) : status;
}

static gs_status save(const char *path, const gs_alloc *alloc, gs_error *error)
{
    return with_trainer(path, alloc, error, save_it);
}

static gs_status load(const char *path, const gs_alloc *alloc, gs_error *error)
{
    return with_trainer(path, alloc, error, load_it);
}

static gs_status saver(const char *path, const gs_alloc *alloc, gs_error *error)
{
    return with_trainer(path, alloc, error, saver_it);
}

/* ---- all of them ---- */

static size_t slurp(char *to, size_t room, const char *path)
{
    FILE *f = fopen(path, "rb");
    const size_t n = f ? fread(to, 1, room, f) : 0;
    if (f)
        fclose(f);
    return n;
}

/* Metadata and a name that no block of memory for the ones before has room for. */
static void write_long_texts(void)
{
    static bytes b;
    static char header[1 << 13];
    snprintf(header, sizeof header,
             "{\"__metadata__\":{\"%0999d\":\"%01499d\"},"
             "\"%02999d\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
             1, 2, 3);
    safetensors(&b, header, 8);
    write_file("texts.safetensors", b.data, b.n);
}

/* zip64, and a name of n letters */
static void write_array(const char *name, size_t n)
{
    static bytes b, zip;
    char letters[1024];
    memset(letters, 'n', n);
    strcpy(letters + n, ".npy");
    npy(&b, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (20,), }", 80);
    member m = member_of(letters, b.data, b.n, 8);
    m.zip64 = true;
    zip_of(&zip, &m, 1);
    write_file(name, zip.data, zip.n);
}

static void write_files(void)
{
    static uint8_t records[2 * 3073], tokens[1024 + 200];
    write_text("words.txt", "some words that are longer than one item, and then some more of them");
    write_text("rows.csv", "a,b,label\n1,2,\"x\"\n3,4,y\n5,6,x\n7,8,y\n");
    write_text("trace",
               "trace t\npreset pytorch\nset interval=2\nfound 5 2 1 2\nscale start=65536\n");
    make_folder("text");
    write_text("text/a.txt", "one file of a folder, and what is in it\n");
    make_folder("text/deeper");
    write_text("text/deeper/b.txt", "another file, one folder further down\n");
    make_folder("cifar");
    write_file("cifar/data_batch_1.bin", records, sizeof records);
    write_file("cifar/test_batch.bin", records, sizeof records);
    write_text("cifar/batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n");
    const uint32_t head[3] = {GSI_TOKENS_MAGIC, 1, 100};
    memcpy(tokens, head, sizeof head);
    write_file("tokens.bin", tokens, sizeof tokens);
    static const uint8_t images[16 + 2 * 4] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 9};
    static const uint8_t labels[8 + 2] = {0, 0, 8, 1, 0, 0, 0, 2, 0, 1};
    write_file("images", images, sizeof images);
    write_file("labels", labels, sizeof labels);
    static bytes plain, packed;
    plain.n = 0;
    add(&plain, images, sizeof images);
    gz(&packed, &plain);
    write_file("packed-images", packed.data, packed.n);
    write_file("packed-labels", labels, sizeof labels);
    write_file("train.bin", tokens + 1024, 200);
    write_array("wide.npz", 40);
    write_long_texts();
    make_folder("run");
    make_folder("made");
    make_folder("pictures");
    for (int i = 0; i < 4; i++) { /* two classes of two */
        static const char *const names[] = {"pictures/a", "pictures/a/1.png", "pictures/a/2.png",
                                            "pictures/b", "pictures/b/1.png", "pictures/b/2.png"};
        char picture[4096];
        const size_t n = slurp(picture, sizeof picture, "tests/fuzz/corpus/image/rgb.png");
        if (i % 2 == 0)
            make_folder(names[3 * (i / 2)]);
        write_file(names[3 * (i / 2) + 1 + i % 2], picture, n);
    }
    make_folder("arrays");
    static const char *const arrays[] = {"arrays/x_train.npy", "arrays/y_train.npy"};
    bytes b = {0};
    npy(&b, 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (4, 2, 2), }", 16);
    write_file(arrays[0], b.data, b.n);
    npy(&b, 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }", 4);
    write_file(arrays[1], b.data, b.n);
}

static scenario scenarios[] = {{"npy", read_tensors, "tests/data/f8_big_endian.npy", NULL},
                               {"npy in order", read_tensors, "tests/data/f4.npy", NULL},
                               {"npz", read_tensors, "tests/data/stored.npz", NULL},
                               {"deflated npz", read_tensors, "tests/data/deflated.npz", NULL},
                               {"safetensors", read_tensors, "tests/data/grads.safetensors", NULL},
                               {"zip64", read_tensors, "wide.npz", NULL},
                               {"long texts", read_tensors, "texts.safetensors", NULL},
                               {"trace", read_traces, "tests/traces/pytorch.trace", NULL},
                               {"log", read_log, "tests/fuzz/corpus/log/own", NULL},
                               {"text", read_data, "words.txt", NULL},
                               {"folder of text", read_data, "text", NULL},
                               {"csv", read_data, "rows.csv", NULL},
                               {"cifar", read_data, "cifar", NULL},
                               {"pictures", read_data, "pictures", NULL},
                               {"arrays", read_data, "arrays", NULL},
                               {"tokens", read_data, "tokens.bin", NULL},
                               {"bare tokens", read_data, "train.bin", NULL},
                               {"idx", read_data, "images", NULL},
                               {"packed idx", read_data, "packed-images", NULL},
                               {"jpeg", read_image, "tests/fuzz/corpus/image/rgb.jpg", NULL},
                               {"png", read_image, "tests/fuzz/corpus/image/palette.png", NULL},
                               {"files of a folder", walk, "text", NULL},
                               {"replace", replace, "replaced", "replaced"},
                               {"folders", make_folders, "made", NULL},
                               {"tidy", tidy, "run", NULL},
                               {"new log", write_log, "new.jsonl", NULL},
                               {"old log", write_log, "old.jsonl", NULL},
                               {"save", save, "saved.safetensors", "saved.safetensors"},
                               {"load", load, "saved.safetensors", NULL},
                               {"tensors of a checkpoint", read_tensors, "saved.safetensors", NULL},
                               {"json", read_json, "words.txt", NULL},
                               {"saver", saver, "run", NULL}};

static const char *path_of(const scenario *s)
{
    return strchr(s->path, '/') ? s->path : in_folder(s->path);
}

static int descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* Runs it with what is planned. True: the plan came to pass. */
static bool attempt(const scenario *s, books *b, const char *how, bool harmless)
{
    static char before[1 << 15], after[1 << 15], fresh[1 << 15];
    const gs_alloc alloc = books_hook(b);
    const char *path = path_of(s);
    gs_error error = {0};
    const fault_call call = fault.call;
    const unsigned at = fault.at;
    const int code = fault.error, open_before = descriptors();
    fault.call = FAULT_NONE;
    const size_t n = s->kept ? slurp(before, sizeof before, path) : 0;
    fault_plan(call, at, code);
    const gs_status status = s->run(path, &alloc, &error);
    const bool struck = b->fail_at ? b->calls >= b->fail_at : fault_struck();
    fault_plan(FAULT_NONE, 0, 0);
    CHECK_MSG(status == GS_OK || error.text[0], "%s, %s: status %d without a message", s->name, how,
              (int)status);
    CHECK_MSG(!harmless || status == GS_OK, "%s, %s: %s", s->name, how, error.text);
    const bool writes = call == FAULT_WRITE || call == FAULT_SYNC || call == FAULT_RENAME;
    CHECK_MSG(!(s->kept && writes && struck) || harmless || status != GS_OK, "%s, %s: untold",
              s->name, how);
    CHECK_MSG(b->blocks == 0 && !b->wrong, "%s, %s: %zu blocks left", s->name, how, b->blocks);
    CHECK_MSG(descriptors() == open_before, "%s, %s: a descriptor is left", s->name, how);
    if (s->kept && status != GS_OK) {
        const size_t m = slurp(after, sizeof after, path);
        const bool old = m == n && memcmp(before, after, n) == 0;
        books none = {0};
        const gs_alloc plain = books_hook(&none);
        s->run(path, &plain, &error);
        const size_t k = slurp(fresh, sizeof fresh, path);
        CHECK_MSG(old || (m == k && memcmp(after, fresh, k) == 0), "%s, %s: half a file", s->name,
                  how);
    }
    return struck;
}

static void prepare(void)
{
    static bool done;
    if (done)
        return;
    done = true;
    write_files();
    for (size_t i = 0; i < GSI_COUNT(scenarios); i++) { /* each works, and its outputs are there */
        books b = {0};
        attempt(&scenarios[i], &b, "without a fault", true);
    }
}

static void test_allocations(void)
{
    unsigned faults = 0;
    prepare();
    for (size_t i = 0; i < GSI_COUNT(scenarios); i++)
        for (size_t n = 1, struck = 1; struck; n++) {
            books b = {.fail_at = n};
            struck = attempt(&scenarios[i], &b, "an allocation", false);
            faults += struck > 0;
        }
    printf("%u allocations failed\n", faults);
    CHECK(faults > 300);
}

/* Memory fails once, comes back, and is gone for good some allocations later. */
static void check_memory_gone(const scenario *s, unsigned *faults)
{
    for (size_t once = 0, struck = 1; struck; once++)
        for (size_t from = once + 1;; from++) {
            books b = {.fail_at = once, .fail_from = from};
            attempt(s, &b, "memory", false);
            struck = b.calls >= once;
            if (b.calls < from)
                break;
            ++*faults;
        }
}

static void test_memory_gone(void)
{
    const scenario array = {"array", read_tensors, "array.npz", NULL};
    unsigned faults = 0;
    prepare();
    for (size_t i = 0; i < GSI_COUNT(scenarios); i++)
        if (scenarios[i].run == read_tensors || scenarios[i].run == read_json ||
            scenarios[i].run == read_image)
            check_memory_gone(&scenarios[i], &faults);
    for (size_t n = 1; n < 1000; n += 64) {
        write_array("array.npz", n);
        check_memory_gone(&array, &faults);
    }
    CHECK(faults > 300);
}

static void test_system_calls(void)
{
    static const struct {
        int error;
        const char *name;
    } errors[] = {{EIO, "EIO"}, {ENOSPC, "ENOSPC"}, {EINTR, "EINTR"}, {0, "short"}};
    unsigned faults = 0;
    prepare();
    for (size_t i = 0; i < GSI_COUNT(scenarios); i++)
        for (int call = 0; call < FAULT_NONE; call++)
            for (size_t e = 0; e < GSI_COUNT(errors); e++) {
                const bool counts = call == FAULT_READ || call == FAULT_WRITE;
                const bool waits =
                    counts || call == FAULT_OPEN || call == FAULT_SYNC || call == FAULT_LOCK;
                if ((errors[e].error == 0 && !counts) || (errors[e].error == EINTR && !waits))
                    continue; /* no such call has that */
                for (unsigned n = 1, struck = 1; struck; n++) {
                    books b = {0};
                    char how[64];
                    snprintf(how, sizeof how, "call %d number %u, %s", call, n, errors[e].name);
                    fault_plan((fault_call)call, n, errors[e].error);
                    struck = attempt(&scenarios[i], &b, how,
                                     errors[e].error == EINTR || errors[e].error == 0);
                    faults += struck;
                }
            }
    printf("%u system calls failed\n", faults);
    CHECK(faults > 500);
    empty_folder();
}

/* A file takes its place when it is on the disk, and counts when its name is. */
static void test_order(void)
{
    static const struct {
        fault_call call;
        unsigned at; /* the first fsync is the file's, the second its folder's */
        const char *left;
    } cases[] = {{FAULT_WRITE, 1, "old text\n"},
                 {FAULT_SYNC, 1, "old text\n"},
                 {FAULT_RENAME, 1, "old text\n"},
                 {FAULT_SYNC, 2, "new text\n"}};
    for (size_t i = 0; i < GSI_COUNT(cases); i++) {
        char text[32] = "";
        gs_error error = {0};
        write_text("ordered", "old text\n");
        const char *path = in_folder("ordered");
        fault_plan(cases[i].call, cases[i].at, EIO);
        const gs_status status = replace(path, NULL, &error);
        const bool struck = fault_struck();
        fault_plan(FAULT_NONE, 0, 0);
        CHECK_MSG(struck && status == GS_EIO, "case %zu: %s", i, error.text);
        slurp(text, sizeof text - 1, path);
        CHECK_MSG(strcmp(text, cases[i].left) == 0, "case %zu leaves %s", i, text);
    }
    empty_folder();
}

/* No text of a folder is left out because the system could not say what it is. */
static void test_folder_errors(void)
{
    unsigned told = 0;
    make_folder("texts");
    write_text("texts/a.txt", "one file of a folder, and what is in it\n");
    write_text("texts/b.txt", "another file, and what is in it\n");
    for (unsigned n = 1, struck = 1; struck; n++) {
        books b = {0};
        gs_error error = {0};
        const gs_alloc alloc = books_hook(&b);
        fault_plan(FAULT_STAT, n, EIO);
        const gs_status status = walk(in_folder("texts"), &alloc, &error);
        struck = (unsigned)fault_struck();
        fault_plan(FAULT_NONE, 0, 0);
        CHECK_MSG(status == (struck ? GS_EIO : GS_OK), "call %u: %s", n, error.text);
        told += struck;
    }
    CHECK(told == 5); /* the folder, and each file as a link and as what it leads to */
    empty_folder();
}

/* Sets of several files: none is left out because the system could not say whether it is there. */
static void test_sets(void)
{
    static uint8_t records[2 * 3073];
    static const char *const sets[] = {"cifar", "train-images", "x_train.npy", "train.bin"};
    static const char *const images[] = {"train-images", "val-images"};
    static const char *const labels[] = {"train-labels", "val-labels"};
    static const char *const arrays[] = {"x_train.npy", "x_val.npy", "y_train.npy", "y_val.npy"};
    static const uint8_t pixels[16 + 2 * 4] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 9};
    static const uint8_t classes[8 + 2] = {0, 0, 8, 1, 0, 0, 0, 2, 0, 1};
    records[3073] = 1;
    make_folder("cifar");
    write_file("cifar/data_batch_1.bin", records, sizeof records);
    write_file("cifar/data_batch_2.bin", records, sizeof records);
    write_file("cifar/test_batch.bin", records, sizeof records);
    write_text("cifar/batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n");
    for (size_t i = 0; i < 2; i++) {
        write_file(images[i], pixels, sizeof pixels);
        write_file(labels[i], classes, sizeof classes);
    }
    for (size_t i = 0; i < GSI_COUNT(arrays); i++) {
        bytes b = {0};
        npy(&b, 1,
            i < 2 ? "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2, 2), }"
                  : "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }",
            i < 2 ? 8 : 2);
        b.data[b.n - 1] = 1;
        write_file(arrays[i], b.data, b.n);
    }
    write_file("train.bin", records, 4000);
    write_file("val.bin", records, 4000);
    for (size_t i = 0; i < GSI_COUNT(sets); i++) {
        gs_data_info whole = {0};
        for (unsigned n = 0, struck = 1; struck; n++) { /* 0: no fault */
            gs_data *data = NULL;
            gs_error error = {0};
            const gs_data_config config = {.size = sizeof config, .name = in_folder(sets[i])};
            fault_plan(n > 0 ? FAULT_STAT : FAULT_NONE, n, EIO);
            const gs_status status = gs_data_open(&data, &config, NULL, &error);
            struck = n == 0 || fault_struck();
            fault_plan(FAULT_NONE, 0, 0);
            if (status == GS_OK) {
                const gs_data_info *info = gs_data_get_info(data);
                whole = n == 0 ? *info : whole;
                CHECK_MSG(memcmp(info->items, whole.items, sizeof whole.items) == 0 &&
                              info->classes == whole.classes,
                          "%s, call %u: another set", sets[i], n);
            }
            CHECK_MSG(n > 0 || status == GS_OK, "%s: %s", sets[i], error.text);
            gs_data_close(data);
        }
    }
    empty_folder();
}

static size_t resized; /* bytes that the file has then */

static void resize_batch(void)
{
    static uint8_t records[5 * 3073];
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, in_folder("cifar/data_batch_1.bin"),
                                O_WRONLY | O_TRUNC | O_CLOEXEC, 0);
    CHECK(write(fd, records, resized) == (ssize_t)resized);
    close(fd);
}

/* A file that somebody writes to while it is read: memory is for the images that it had. */
static void test_size_changes(void)
{
    static uint8_t records[2 * 3073];
    static const size_t sizes[] = {3073, 5 * 3073};
    unsigned told = 0;
    records[3073] = 1;
    make_folder("cifar");
    write_file("cifar/test_batch.bin", records, sizeof records);
    for (size_t i = 0; i < GSI_COUNT(sizes); i++)
        for (unsigned n = 1, struck = 1; struck; n++) {
            gs_data *data = NULL;
            gs_error error = {0};
            const gs_data_config config = {.size = sizeof config, .name = in_folder("cifar")};
            write_file("cifar/data_batch_1.bin", records, sizeof records);
            resized = sizes[i];
            fault_plan(FAULT_OPEN, n, EINTR); /* which is tried again */
            fault.then = resize_batch;
            const gs_status status = gs_data_open(&data, &config, NULL, &error);
            struck = (unsigned)fault_struck();
            fault_plan(FAULT_NONE, 0, 0);
            const uint64_t items = data ? gs_data_get_info(data)->items[GS_SPLIT_TRAIN] : 2;
            CHECK_MSG(status == GS_OK ? items == 2 || items == resized / 3073
                                      : strstr(error.text, "its size changed") != NULL,
                      "open %u: %llu items: %s", n, (unsigned long long)items, error.text);
            told += status == GS_EIO;
            gs_data_close(data);
        }
    CHECK(told == GSI_COUNT(sizes));
    empty_folder();
}

static void remove_batch(void) { unlink(in_folder("cifar/data_batch_1.bin")); }

/* A file that somebody removes after the set was taken for what it is. */
static void test_files_gone(void)
{
    static uint8_t records[2 * 3073];
    unsigned told = 0;
    records[3073] = 1;
    make_folder("cifar");
    write_file("cifar/test_batch.bin", records, sizeof records);
    for (unsigned n = 1, struck = 1; struck; n++) {
        gs_data *data = NULL;
        gs_error error = {0};
        const gs_data_config config = {.size = sizeof config, .name = in_folder("cifar")};
        write_file("cifar/data_batch_1.bin", records, sizeof records);
        fault_plan(FAULT_STAT, n, ENOENT);
        fault.then = remove_batch;
        const gs_status status = gs_data_open(&data, &config, NULL, &error);
        struck = (unsigned)fault_struck();
        fault_plan(FAULT_NONE, 0, 0);
        CHECK_MSG((status == GS_OK) == (data != NULL), "stat %u: %s", n, error.text);
        told += strstr(error.text, "cifar: its files are gone") != NULL;
        gs_data_close(data);
    }
    CHECK(told > 0);
    empty_folder();
}

TESTS({"allocations", test_allocations}, {"memory_gone", test_memory_gone},
      {"system_calls", test_system_calls}, {"order", test_order},
      {"folder_errors", test_folder_errors}, {"sets", test_sets},
      {"size_changes", test_size_changes}, {"files_gone", test_files_gone})
