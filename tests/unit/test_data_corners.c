/* Every kind of data set when memory ends, a system call fails or a path has no room left: refused
 * with a word, or opened as it is, never as something else. And descriptions that lie. */
#include "faults.h"
#include "array_files.h"
#include "image_files.h"
#include "memory.h"

#include "train/data.h"

#include <math.h>

static gs_error error;
static char tokenizer[20000]; /* of 300 tokens */

/* ---- one set of each kind ---- */

enum { NAMED = 1, LIKE = 2, UNLABELLED = 4, TOKENIZER = 8 };

static const struct set {
    const char *name; /* in the folder; NAMED: as it is */
    unsigned flags;
    const char *like; /* what it is to be like: another set */
} sets[] = {
    {"idx", 0, NULL},
    {"idx", LIKE, "idx"},
    {"idx", LIKE | UNLABELLED, "idx"},
    {"npy", 0, NULL},
    {"npy", LIKE | UNLABELLED, "npy"},
    {"npy/x_train.npy", LIKE | UNLABELLED, "npy"},
    {"set.npz", 0, NULL},
    {"set.npz", LIKE | UNLABELLED, "set.npz"},
    {"wide.npy", 0, NULL},
    {"set.csv", 0, NULL},
    {"many.csv", 0, NULL},
    {"set.csv", LIKE, "set.csv"},
    {"rows.csv", LIKE | UNLABELLED, "set.csv"},
    {"cifar", 0, NULL},
    {"cifar", LIKE | UNLABELLED, "cifar"},
    {"classes", 0, NULL},
    {"classes", LIKE, "classes"},
    {"classes/a/0.png", LIKE | UNLABELLED, "classes"},
    {"seg", 0, NULL},
    {"seg", LIKE, "seg"},
    {"seg/images", LIKE | UNLABELLED, "seg"},
    {"shards", 0, NULL},
    {"shards", TOKENIZER, NULL},
    {"shards", LIKE, "shards"},
    {"text", 0, NULL},
    {"text", TOKENIZER, NULL},
    {"text/a.txt", LIKE, "text"},
    {"self", NAMED, NULL},
    {"shapes", NAMED, NULL},
};

static void write_pngs(void)
{
    uint8_t pixels[4 * 4 * 3], mask[16] = {1, 0, 255};
    char name[32];
    for (int i = 0; i < 6; i++) {
        for (size_t k = 0; k < sizeof pixels; k++)
            pixels[k] = (uint8_t)(40 * i + 3 * (int)k);
        snprintf(name, sizeof name, "classes/%c/%d.png", 'a' + i % 3, i / 3);
        write_png(name, 4, 4, PNG_COLOR_TYPE_RGB, pixels);
        snprintf(name, sizeof name, "seg/images/%d.png", i);
        write_png(name, 4, 4, PNG_COLOR_TYPE_RGB, pixels);
        snprintf(name, sizeof name, "seg/masks/%d.png", i);
        write_png(name, 4, 4, PNG_COLOR_TYPE_GRAY, mask);
    }
}

static void write_arrays(void)
{
    static zip z;
    static const char *const parts[] = {"train", "test"};
    uint8_t content[512], x[6 * 4], y[6] = {0, 1, 2, 0, 1, 2};
    char name[32];
    z = (zip){.n = 0};
    for (size_t i = 0; i < sizeof x; i++)
        x[i] = (uint8_t)(i * i);
    for (int k = 0; k < 4; k++) {
        const size_t n = k % 2 ? npy(content, "|u1", "(6,)", y, sizeof y)
                               : npy(content, "|u1", "(6, 2, 2)", x, sizeof x);
        snprintf(name, sizeof name, "npy/%c_%s.npy", k % 2 ? 'y' : 'x', parts[k / 2]);
        write_file(name, content, n);
        zip_add(&z, name + 4, content, n);
    }
    zip_write(&z, "set.npz");
}

/* Rows and names that are too long for the first block of an arena. */
static void write_large(void)
{
    enum { WIDTH = 9000, ROWS = 1500, NAMES = 10 };
    static uint8_t content[2 * WIDTH + 200], x[2 * WIDTH] = {1, 2, 3};
    static char text[NAMES * (WIDTH + 1) + 1];
    write_file("wide.npy", content, npy(content, "|u1", "(2, 9000)", x, sizeof x));
    write_file("wide-y.npy", content, npy(content, "|u1", "(2,)", (const uint8_t[]){0, 1}, 2));
    char *to = text;
    for (int i = 0; i < ROWS; i++)
        to += sprintf(to, "%d,a class that is called %d\n", i, i);
    write_text("many.csv", text);
    for (int i = 0; i < NAMES; i++) {
        memset(text + i * (WIDTH + 1), 'a' + i, WIDTH);
        text[(i + 1) * (WIDTH + 1) - 1] = '\n';
    }
    text[NAMES * (WIDTH + 1)] = 0;
    write_text("cifar/batches.meta.txt", text);
}

static void write_sets(void)
{
    static const char *const folders[] = {
        "idx",    "npy",  "cifar", "classes",    "classes/a", "seg",     "classes/b",   "classes/c",
        "shards", "text", "src",   "seg/images", "seg/masks", "src/src", "src/include", "src/cli"};
    static uint8_t records[3][3073];
    bytes *packed = calloc(1, sizeof *packed);
    empty_folder();
    for (size_t i = 0; i < GSI_COUNT(folders); i++)
        make_folder(folders[i]);
    write_images("idx/train-images-idx3-ubyte", "idx/train-labels-idx1-ubyte", 5);
    write_images("idx/t10k-images-idx3-ubyte", "idx/t10k-labels-idx1-ubyte", 3);
    gz(packed, &file);
    write_file("idx/t10k-labels-idx1-ubyte.gz", packed->data, packed->n);
    unlink(in_folder("idx/t10k-labels-idx1-ubyte"));
    free(packed);
    write_arrays();
    write_text("set.csv", "a,b,label\n1,2,cat\n2,1,dog\n3,4,cat\n1,1,\"a cow\"\n");
    write_text("rows.csv", "1,2\n3,4\n");
    for (int i = 0; i < 3; i++)
        memset(records[i], i, sizeof records[i]);
    write_file("cifar/data_batch_1.bin", records, sizeof records);
    write_file("cifar/test_batch.bin", records, sizeof records[0]);
    write_large();
    write_pngs();
    write_tokens("shards/a.bin", 700, 3);
    write_tokens("shards/b.bin", 600, 100);
    write_tokens("shards/val.bin", 600, 50);
    char text[900];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "the cat sat "[i % 12];
    write_file("text/a.txt", text, sizeof text);
    write_file("text/b.txt", text, 300);
    write_file("src/src/a.c", text, 600);
    gs_tokenizer *t = NULL;
    const gs_tokenizer_config config = {.size = sizeof config, .tokens = 300};
    const gs_text from = {text, sizeof text};
    CHECK(gs_tokenizer_train(&t, &config, &from, 1, NULL, &error) == GS_OK);
    CHECK(gs_tokenizer_text(tokenizer, sizeof tokenizer, NULL, t, GS_TOKENIZER_JSON, &error) ==
          GS_OK);
    gs_tokenizer_free(t);
}

/* The text that gs_data_describe has for a set of the folder. */
static const char *description(const char *name)
{
    static char text[120000];
    gs_data *data = opened(&(gs_data_config){.size = sizeof(gs_data_config),
                                             .name = in_folder(name),
                                             .time = 128,
                                             .tokenizer = strcmp(name, "text") ? NULL : tokenizer});
    text[0] = 0;
    if (data)
        CHECK(gs_data_describe(text, sizeof text, NULL, data, &error) == GS_OK);
    gs_data_close(data);
    return text;
}

static gs_data_config config_of(const struct set *s)
{
    return (gs_data_config){.size = sizeof(gs_data_config),
                            .name = s->flags & NAMED ? s->name : in_folder(s->name),
                            .labels = strcmp(s->name, "wide.npy") ? NULL : in_folder("wide-y.npy"),
                            .time = 128,
                            .root = in_folder("src"),
                            .like = s->flags & LIKE ? description(s->like) : NULL,
                            .tokenizer = s->flags & TOKENIZER ? tokenizer : NULL,
                            .unlabelled = !!(s->flags & UNLABELLED)};
}

/* All that a caller sees of a set: its description, its sizes and its first item. */
typedef struct seen {
    char text[120000];
    uint64_t items[GS_SPLIT_COUNT];
    float x[9000];
    int32_t ids[256], targets[1024];
} seen;

static void look(seen *to, gs_data *data)
{
    memset(to, 0, sizeof *to);
    CHECK(gs_data_describe(to->text, sizeof to->text, NULL, data, &error) == GS_OK);
    memcpy(to->items, gs_data_get_info(data)->items, sizeof to->items);
    const gs_status status =
        gs_data_read(to->x, to->ids, to->targets, data, GS_SPLIT_TRAIN, 0, &error);
    CHECK_MSG(status == GS_OK, "%s", error.text);
}

static seen reference, now;

/* ---- memory ---- */

/* Allocation k fails, or k and all after it: said so, nothing leaks, and what is opened
 * nevertheless is what it would have been. */
static void check_memory(const struct set *s, bool for_good)
{
    const gs_data_config config = config_of(s);
    size_t failures = 0;
    gs_data *data = opened(&config);
    if (!data)
        return;
    look(&reference, data);
    gs_data_close(data);
    for (size_t k = 1;; k++) {
        books b = {0};
        const gs_alloc alloc = books_hook(&b);
        *(for_good ? &b.fail_from : &b.fail_at) = k;
        error = (gs_error){0};
        const gs_status status = gs_data_open(&data, &config, &alloc, &error);
        CHECK_MSG(status == GS_OK || (status == GS_ENOMEM && strstr(error.text, "memory")),
                  "%s, allocation %zu: %s %s", s->name, k, gs_status_name(status), error.text);
        const bool struck = b.calls >= k;
        b.fail_at = b.fail_from = 0;
        failures += status != GS_OK;
        if (status == GS_OK) {
            look(&now, data);
            CHECK_MSG(memcmp(&reference, &now, sizeof now) == 0, "%s, allocation %zu", s->name, k);
        }
        gs_data_close(data);
        CHECK(b.blocks == 0 && b.bytes == 0 && !b.wrong);
        if (!struck)
            break;
    }
    CHECK_MSG(failures >= 2, "%s: only %zu allocations failed", s->name, failures);
}

static void test_memory(void)
{
    write_sets();
    for (size_t i = 0; i < GSI_COUNT(sets); i++)
        for (int for_good = 0; for_good < 2; for_good++)
            check_memory(&sets[i], for_good);
}

/* ---- system calls ---- */

/* The n-th call of a kind fails: an error, or the same set. A file that a failed stat hides is as
 * one that is not there: of those only that nothing worse happens. */
static void test_calls(void)
{
    static const struct {
        fault_call call;
        int why;
    } faults[] = {{FAULT_OPEN, EIO},     {FAULT_READ, EIO},     {FAULT_FOLDER, EIO},
                  {FAULT_FOLDER, EINTR}, {FAULT_LIST, ENOTDIR}, {FAULT_STAT, EIO},
                  {FAULT_STAT, ENOENT}};
    write_sets();
    for (size_t i = 0; i < GSI_COUNT(sets); i++) {
        const gs_data_config config = config_of(&sets[i]);
        gs_data *data = opened(&config);
        if (!data)
            continue;
        look(&reference, data);
        gs_data_close(data);
        for (size_t c = 0; c < GSI_COUNT(faults); c++)
            for (unsigned n = 1; n < 1000; n++) {
                error = (gs_error){0};
                fault_plan(faults[c].call, n, faults[c].why);
                const gs_status status = gs_data_open(&data, &config, NULL, &error);
                const bool struck = fault_struck();
                fault_plan(FAULT_NONE, 0, 0);
                CHECK((status == GS_OK) == (data != NULL) && status == error.status);
                if (status == GS_OK && faults[c].call != FAULT_STAT) {
                    look(&now, data);
                    CHECK_MSG(memcmp(&reference, &now, sizeof now) == 0, "%s: call %d, no. %u",
                              sets[i].name, (int)faults[c].call, n);
                }
                gs_data_close(data);
                if (!struck)
                    break;
            }
    }
}

/* ---- paths ---- */

/* folder/name/././. of n bytes or one less, which the system takes below 4096. */
static const char *long_path(const char *name, size_t n)
{
    static char path[5000];
    strcpy(path, in_folder(name));
    while (strlen(path) + 2 <= n)
        strcat(path, "/.");
    return path;
}

/* The last bytes of room in a path, one by one: a set that opens is the same, names apart. */
static void test_long_paths(void)
{
    static const char *const names[] = {"idx", "npy", "cifar", "classes", "seg", "shards", "text"};
    write_sets();
    for (size_t i = 0; i < GSI_COUNT(names); i++) {
        size_t opened_ones = 0, refused_ones = 0;
        gs_data *data = opened(&(gs_data_config){
            .size = sizeof(gs_data_config), .name = in_folder(names[i]), .time = 128});
        look(&reference, data);
        gs_data_close(data);
        for (size_t n = 4050; n < 4100; n++) {
            const gs_data_config config = {
                .size = sizeof config, .name = long_path(names[i], n), .time = 128};
            error = (gs_error){0};
            const gs_status status = gs_data_open(&data, &config, NULL, &error);
            CHECK((status == GS_OK) == (data != NULL) && status == error.status);
            if (data) {
                look(&now, data);
                CHECK_MSG(memcmp(&reference, &now, sizeof now) == 0, "%s, %zu bytes", names[i], n);
            }
            gs_data_close(data);
            opened_ones += status == GS_OK;
            refused_ones += status != GS_OK;
        }
        CHECK_MSG(opened_ones > 10 && refused_ones > 4, "%s: %zu and %zu", names[i], opened_ones,
                  refused_ones);
    }
    const gs_data_config self = {
        .size = sizeof self, .name = "self", .root = long_path("src", 4094), .time = 128};
    gs_data *data;
    CHECK(gs_data_open(&data, &self, NULL, &error) == GS_ESIZE && strstr(error.text, "too long"));
}

/* Names without a slash, from the folder itself. */
static void test_here(void)
{
    static const char *const names[] = {"x_train.npy", "a.bin", "a.txt", "train-images-idx3-ubyte"};
    static const char *const folders[] = {"npy", "shards", "text", "idx"};
    char back[1000];
    write_sets();
    CHECK(getcwd(back, sizeof back));
    for (size_t i = 0; i < GSI_COUNT(names); i++) {
        CHECK(chdir(in_folder(folders[i])) == 0);
        gs_data *data = opened(
            &(gs_data_config){.size = sizeof(gs_data_config), .name = names[i], .time = 128});
        CHECK(data && gs_data_get_info(data)->items[GS_SPLIT_VALID] > 0);
        gs_data_close(data);
    }
    CHECK(chdir(back) == 0);
}

/* ---- settings ---- */

static void refused(gs_data_config config, gs_status expected, const char *words)
{
    gs_data *data;
    config.size = sizeof config;
    error = (gs_error){0};
    const gs_status status = gs_data_open(&data, &config, NULL, &error);
    CHECK_MSG(status == expected && !data, "%s, not %s: %s", gs_status_name(status),
              gs_status_name(expected), error.text);
    CHECK_MSG(strstr(error.text, words) != NULL, "'%s' is not in: %s", words, error.text);
    gs_data_close(data);
}

static void test_settings(void)
{
    write_sets();
    const char *text = in_folder("text/a.txt"), *classes = in_folder("classes");
    gs_data *data;
    CHECK(gs_data_open(NULL, &(gs_data_config){.size = sizeof(gs_data_config)}, NULL, NULL) ==
          GS_ENULL);
    CHECK(gs_data_open(&data, NULL, NULL, NULL) == GS_ENULL);
    refused((gs_data_config){.name = NULL}, GS_ENULL, "no name");
    refused((gs_data_config){.name = ""}, GS_ENULL, "no name");
    refused((gs_data_config){.name = classes, .height = 20000}, GS_ERANGE, "at most 16384 a side");
    refused((gs_data_config){.name = classes, .width = 20000}, GS_ERANGE, "at most 16384 a side");
    refused((gs_data_config){.name = text, .width = 8}, GS_ERANGE, "keeps its size");
    refused((gs_data_config){.name = text, .height = 8}, GS_ERANGE, "keeps its size");
    refused((gs_data_config){.name = text, .labels = text}, GS_ERANGE, "no use for labels");
    refused((gs_data_config){.name = text, .unlabelled = 1}, GS_ERANGE, "is not a file or folder");
    refused((gs_data_config){.name = classes, .unlabelled = 1}, GS_ERANGE, "not a file or folder");
    refused((gs_data_config){.name = text, .unlabelled = 1, .like = description("idx")}, GS_ERANGE,
            "is not a file or folder");
    refused((gs_data_config){.name = classes, .tokenizer = tokenizer}, GS_ERANGE,
            "no use for a tokenizer");
    refused((gs_data_config){.name = text, .tokenizer = "{}"}, GS_EFORMAT, "");
    refused((gs_data_config){.name = text, .time = 900}, GS_ESIZE, "has 900 bytes of text");
    refused((gs_data_config){.name = text, .time = 900, .tokenizer = tokenizer}, GS_ESIZE,
            "tokens of text");
    refused((gs_data_config){.name = in_folder("shards/a.bin"), .time = 3000}, GS_ESIZE,
            "too short for one item");

    /* labels that are named, for the two kinds that take them; and a single image */
    data = opened(&(gs_data_config){.size = sizeof(gs_data_config),
                                    .name = in_folder("npy/x_train.npy"),
                                    .labels = in_folder("npy/y_test.npy")});
    CHECK(data && gs_data_get_info(data)->items[0] == 5 && gs_data_get_info(data)->items[1] == 1);
    gs_data_close(data);
    data = opened(&(gs_data_config){.size = sizeof(gs_data_config),
                                    .name = in_folder("idx/train-images-idx3-ubyte"),
                                    .labels = in_folder("idx/train-labels-idx1-ubyte")});
    CHECK(data && gs_data_get_info(data)->items[0] == 4);
    char name[8] = "same";
    gs_data_item_name(name, 0, data, GS_SPLIT_TRAIN, 0);
    CHECK(strcmp(name, "same") == 0);
    gs_data_close(data);
    write_images("one-images", "one-labels", 1);
    idx(&file, 0x08, SHAPE(1), 1);
    write_file("one-labels", file.data, file.n);
    data = opened(&(gs_data_config){
        .size = sizeof(gs_data_config), .name = in_folder("one-images"), .valid = 0.9});
    CHECK(data && gs_data_get_info(data)->items[0] == 1 && gs_data_get_info(data)->items[1] == 0);
    gs_data_close(data);

    /* an item that is not there has its number for a name; arrays that are missing are seen */
    data = opened_path("classes");
    gs_data_item_name(name, sizeof name, data, GS_SPLIT_TRAIN, 999);
    CHECK(strcmp(name, "999") == 0);
    gs_data_item_name(name, sizeof name, data, GS_SPLIT_COUNT, 0);
    CHECK(strcmp(name, "0") == 0);
    gs_data_close(data);
    int32_t targets[1];
    data = opened_path("text/a.txt");
    CHECK(gs_data_read(NULL, NULL, targets, data, GS_SPLIT_TRAIN, 0, NULL) == GS_ENULL);
    CHECK(gs_data_read(NULL, NULL, targets, NULL, GS_SPLIT_TRAIN, 0, NULL) == GS_ENULL);
    gs_data_close(data);
}

/* ---- text and tokenizers ---- */

/* `from` for `to`, all of them. */
static void replace_all(char *out, const char *text, const char *from, const char *to)
{
    for (const char *at; (at = strstr(text, from)); text = at + strlen(from))
        out += sprintf(out, "%.*s%s", (int)(at - text), text, to);
    strcpy(out, text);
}

static void test_text(void)
{
    static char other[sizeof tokenizer], spaced[sizeof tokenizer];
    int32_t ids[8], targets[8];
    gs_data *data;
    write_sets();
    /* a tokenizer without <|endoftext|>, of which a short text has more tokens than bytes: a 0 ends
     * each file */
    replace_all(other, tokenizer, "\"id\":264,\"content\":\"<|endoftext|>\"",
                "\"id\":91,\"content\":\"|\"");
    replace_all(spaced, other, ",\"<|endoftext|>\":264", "");
    CHECK(!strstr(spaced, "endoftext"));
    replace_all(other, spaced, "\"add_prefix_space\":false", "\"add_prefix_space\":true");
    CHECK(strcmp(other, spaced) != 0);
    make_folder("short");
    write_text("short/a.txt", "q|q|q|q|q|q");
    data = opened(&(gs_data_config){
        .size = sizeof(gs_data_config), .name = in_folder("short"), .time = 8, .tokenizer = other});
    CHECK(data && gs_data_get_info(data)->items[0] + gs_data_get_info(data)->items[1] == 2);
    CHECK(gs_data_read(NULL, ids, targets, data, GS_SPLIT_TRAIN, 0, &error) == GS_OK);
    CHECK(ids[0] == ids[3] && ids[1] == ids[4] && ids[2] == ids[5] && ids[2] == 91);
    gs_data_close(data);
    CHECK(rename(in_folder("short/a.txt"), in_folder("short.txt")) == 0);
    data = opened(&(gs_data_config){.size = sizeof(gs_data_config),
                                    .name = in_folder("short.txt"),
                                    .time = 8,
                                    .tokenizer = other});
    gs_data_close(data);
    /* without a place for the message */
    const gs_data_config config = {
        .size = sizeof config, .name = in_folder("text"), .time = 64, .tokenizer = tokenizer};
    for (size_t k = 1;; k++) {
        books b = {.fail_from = k};
        const gs_alloc alloc = books_hook(&b);
        const gs_status status = gs_data_open(&data, &config, &alloc, NULL);
        CHECK(status == GS_OK || status == GS_ENOMEM);
        gs_data_close(data);
        CHECK(b.blocks == 0);
        if (status == GS_OK)
            break;
    }
    /* a packed text that ends too soon, behind what is looked at first; one of 2 GB */
    bytes *plain = calloc(1, sizeof *plain), *packed = calloc(1, sizeof *packed);
    for (uint64_t i = 0; i < 40000; i++)
        add(plain, &"abcdefgh"[gs_random_u32(3, i) % 8], 1);
    gz(packed, plain);
    write_file("cut.gz", packed->data, packed->n - 1000);
    CHECK(packed->n > 12000);
    refused((gs_data_config){.name = in_folder("cut.gz")}, GS_EFORMAT, "cut.gz");
    write_file("large.txt", plain->data, plain->n);
    if (truncate(in_folder("large.txt"), ((off_t)1 << 31) + 1) == 0)
        refused((gs_data_config){.name = in_folder("large.txt")}, GS_ESIZE, "longer than the");
    unlink(in_folder("large.txt"));
    free(plain);
    free(packed);
    /* more of a tokenizer than a checkpoint holds */
    enum { MANY = 4000, LENGTH = 5000 };
    char *huge = malloc((size_t)MANY * (LENGTH + 100) + sizeof tokenizer), *to = huge;
    const char *at = strstr(tokenizer, "\"added_tokens\":[") + strlen("\"added_tokens\":[");
    to += sprintf(to, "%.*s", (int)(at - tokenizer), tokenizer);
    for (int i = 0; i < MANY; i++) {
        to += sprintf(to, "{\"id\":%d,\"content\":\"%d", 265 + i, i);
        memset(to, 'x', LENGTH);
        to += LENGTH;
        to += sprintf(to, "\"},");
    }
    strcpy(to, at);
    refused((gs_data_config){.name = in_folder("text"), .tokenizer = huge}, GS_ESIZE,
            "a model holds at most");
    free(huge);
}

/* ---- descriptions ---- */

static void test_descriptions(void)
{
#define IMAGES "{\"task\":\"classes\",\"height\":1,\"width\":2,\"channels\":1,\"classes\":2"
#define TOKENS "{\"task\":\"tokens\",\"time\":4,\"classes\":300"
    static const struct {
        const char *text, *words;
    } lies[] = {
        {"", "the data are not described"},
        {"[]", "is no JSON"},
        {"{", "is no JSON"},
        {"{}", "legal task"},
        {"{\"task\":1}", "legal task"},
        {"{\"task\":\"dances\"}", "legal task"},
        {"{\"task\":\"classes\"}", "number of classes"},
        {"{\"task\":\"classes\",\"classes\":\"2\"}", "number of classes"},
        {"{\"task\":\"classes\",\"classes\":1}", "number of classes"},
        {"{\"task\":\"classes\",\"classes\":2.5}", "number of classes"},
        {"{\"task\":\"classes\",\"classes\":16777217}", "number of classes"},
        {"{\"task\":\"classes\",\"classes\":2}", "size of an image"},
        {"{\"task\":\"pixels\",\"classes\":2,\"height\":2}", "size of an image"},
        {"{\"task\":\"pixels\",\"classes\":2,\"height\":2,\"width\":2}", "size of an image"},
        {"{\"task\":\"tokens\",\"classes\":2}", "time"},
        {IMAGES ",\"mean\":1}", "mean and inverse_std"},
        {IMAGES ",\"mean\":[1,2]}", "mean and inverse_std"},
        {IMAGES ",\"mean\":[null]}", "mean and inverse_std"},
        {IMAGES ",\"mean\":[\"1\"],\"inverse_std\":[1]}", "mean and inverse_std"},
        {IMAGES ",\"mean\":[1]}", "mean and inverse_std"},
        {IMAGES ",\"mean\":[1],\"inverse_std\":[1e999]}", "is no JSON"},
        {IMAGES ",\"labels\":1}", "list of labels"},
        {IMAGES ",\"labels\":[\"a\"]}", "list of labels"},
        {IMAGES ",\"labels\":[\"a\",2]}", "list of labels"},
        {IMAGES ",\"labels\":[\"a\",\"b\\u0000c\"]}", "is no JSON"},
        {TOKENS ",\"tokenizer\":1}", "legal tokenizer"},
    };
    gs_data_info *info;
    for (size_t i = 0; i < GSI_COUNT(lies); i++) {
        const gs_status status = gs_data_info_read(&info, lies[i].text, NULL, &error);
        CHECK_MSG(status == GS_EFORMAT && !info && strstr(error.text, lies[i].words), "%s: %s",
                  lies[i].text, error.text);
    }
    CHECK(gs_data_info_read(NULL, "", NULL, NULL) == GS_ENULL);
    CHECK(gs_data_info_read(&info, NULL, NULL, NULL) == GS_ENULL);
    gs_data_info_free(NULL);

    /* all that there can be, as memory ends: many labels, so that their list has a block */
    static char long_text[1 << 17];
    size_t most = 0,
           used = (size_t)sprintf(long_text, "{\"task\":\"classes\",\"height\":1,\"width\":2,"
                                             "\"channels\":1,\"classes\":9000,\"mean\":[0.5],"
                                             "\"inverse_std\":[2],\"labels\":[\"0\"");
    for (int i = 1; i < 9000; i++)
        used += (size_t)sprintf(long_text + used, ",\"%d\"", i);
    strcpy(long_text + used, "]}");
    static const char *const good[] = {
        IMAGES ",\"mean\":[1.5],\"inverse_std\":[2],\"labels\":[\"a\",\"b\"]}",
        TOKENS ",\"tokenizer\":\"bytes\"}", long_text};
    for (size_t i = 0; i < GSI_COUNT(good); i++)
        for (size_t k = 1;; k++) {
            books b = {.fail_from = k};
            const gs_alloc alloc = books_hook(&b);
            const gs_status status = gs_data_info_read(&info, good[i], &alloc, &error);
            CHECK_MSG(status == GS_OK || status == GS_ENOMEM, "%zu, %zu: %s", i, k, error.text);
            gs_data_info_free(info);
            CHECK(b.blocks == 0 && !b.wrong);
            most = status == GS_OK && b.most > most ? b.most : most;
            if (status == GS_OK)
                break;
        }
    /* what it was read into came from the hook, too: its end is told as what it is */
    CHECK_MSG(most > 32 * used, "%zu bytes of the hook for a text of %zu", most, used);

    /* of a set: nowhere to put it, and too little room */
    write_sets();
    gs_data *data = opened_path("idx");
    char text[1000];
    size_t n = 0;
    CHECK(gs_data_describe(text, sizeof text, &n, NULL, NULL) == GS_ENULL);
    CHECK(gs_data_describe(NULL, 10, &n, data, NULL) == GS_ENULL);
    CHECK(gs_data_describe(NULL, 0, &n, data, &error) == GS_ESIZE && n > 50);
    CHECK(gs_data_describe(text, n, NULL, data, &error) == GS_ESIZE);
    CHECK(gs_data_describe(text, n + 1, NULL, data, &error) == GS_OK && strlen(text) == n);
    gs_data_close(data);
#undef IMAGES
#undef TOKENS
}

/* Data for a model that was trained on others. */
static void test_unlike(void)
{
#define IMAGE(h, w, c, n)                                                                          \
    "{\"task\":\"classes\",\"height\":" #h ",\"width\":" #w ",\"channels\":" #c ",\"classes\":" #n \
    "}"
    static const char tokens[] = "{\"task\":\"tokens\",\"time\":64,\"classes\":300}";
    static const char words[] = "{\"task\":\"tokens\",\"time\":64,\"classes\":300,"
                                "\"tokenizer\":\"bytes\"}";
    static const char features[] = "{\"task\":\"classes\",\"height\":1,\"width\":2,\"channels\":1,"
                                   "\"classes\":3,\"labels\":[\"0\",\"1\",\"2\"]}";
    static const struct {
        const char *name, *like;
        gs_status status;
        const char *words;
    } cases[] = {
        {"idx", tokens, GS_ESIZE, "has classes, and the model was trained on tokens"},
        {"idx", IMAGE(3, 3, 1, 5), GS_ESIZE, "images are 2 x 3 x 1"},
        {"idx", IMAGE(2, 2, 1, 5), GS_ESIZE, "images are 2 x 3 x 1"},
        {"idx", IMAGE(2, 3, 2, 5), GS_ESIZE, "images are 2 x 3 x 1"},
        {"idx", IMAGE(2, 3, 1, 4), GS_ERANGE, "has 5 classes, and the model knows 4"},
        {"numbers.csv", IMAGE(1, 3, 1, 2), GS_ESIZE, "rows are 1 x 2 x 1"},
        {"classes", tokens, GS_ESIZE, "has images, and the model was trained on tokens"},
        {"classes", IMAGE(1, 3, 1, 3), GS_ESIZE, "trained on rows of numbers"},
        {"classes", IMAGE(4, 4, 2, 3), GS_ESIZE, "1 or 3 channels, and the model's 2"},
        {"text", tokens, GS_ERANGE, "the model does not say how text becomes tokens"},
        {"seg", "{\"task\":\"pixels\",\"height\":4,\"width\":4,\"channels\":3,\"classes\":2}",
         GS_OK, ""},
        {"seg", IMAGE(4, 4, 3, 2), GS_ESIZE, "has pixels, and the model was trained on classes"},
        {"shards", words, GS_OK, ""},
        {"numbers.csv", features, GS_OK, ""},
        {"words.csv", IMAGE(1, 2, 1, 2), GS_ENAME, "its class cat is none of the model's"},
        {"two.csv", IMAGE(1, 2, 1, 2), GS_OK, ""},
        {"two.csv", IMAGE(1, 2, 1, 3), GS_ENAME, "names do not say which of the model's 3 numbers"},
        {"signs.csv", IMAGE(1, 2, 1, 3), GS_ENAME, "its class -1 is none of the model's"},
        {"long.csv", IMAGE(1, 2, 1, 3), GS_ENAME, "its class 0000000001 is none of the model's"},
        {"words.csv", features, GS_ENAME, "its class cat is none of the model's"},
    };
    write_sets();
    write_text("numbers.csv", "1,2,0\n3,4,1\n");
    write_text("words.csv", "1,2,cat\n3,4,1\n");
    write_text("two.csv", "1,2,cat\n3,4,dog\n");
    write_text("signs.csv", "1,2,-1\n3,4,1\n");
    write_text("long.csv", "1,2,x\n3,4,2\n5,6,0000000001\n");
    for (size_t i = 0; i < GSI_COUNT(cases); i++) {
        const gs_data_config config = {
            .size = sizeof config, .name = in_folder(cases[i].name), .like = cases[i].like};
        gs_data *data;
        error = (gs_error){0};
        const gs_status status = gs_data_open(&data, &config, NULL, &error);
        CHECK_MSG(status == cases[i].status && strstr(error.text, cases[i].words), "%s like %s: %s",
                  cases[i].name, cases[i].like, error.text);
        gs_data_close(data);
    }
    /* tokens that another tokenizer made: it is the text that is compared */
    char like[25000];
    for (int other = 0; other < 2; other++) {
        char *to = like;
        to += sprintf(to, "{\"task\":\"tokens\",\"time\":64,\"classes\":300,\"tokenizer\":\"%s",
                      other ? " " : "");
        for (const char *p = tokenizer; *p; p++) {
            if (*p == '"' || *p == '\\')
                *to++ = '\\';
            *to++ = *p;
        }
        strcpy(to, "\"}");
        if (other)
            refused((gs_data_config){.name = in_folder("text"), .like = like}, GS_ERANGE,
                    "its tokens are not those of the model");
    }
    gs_data *data;
    /* a vocabulary of one's own for token files */
    data = opened(&(gs_data_config){.size = sizeof(gs_data_config),
                                    .name = in_folder("shards"),
                                    .like = tokens,
                                    .vocabulary = 200});
    CHECK(data && gs_data_get_info(data)->classes == 300);
    gs_data_close(data);
    CHECK(gs_data_open(&data,
                       &(gs_data_config){.size = sizeof(gs_data_config), .name = "fashion-mnist"},
                       NULL, &error) == GS_OK ||
          strstr(error.text, "dataset-fashion-mnist"));
    gs_data_close(data);
#undef IMAGE
}

static void test_clean_up(void)
{
    char command[100];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    CHECK(system(command) == 0);
}

TESTS({"memory", test_memory}, {"calls", test_calls}, {"long paths", test_long_paths},
      {"here", test_here}, {"settings", test_settings}, {"text", test_text},
      {"descriptions", test_descriptions}, {"unlike", test_unlike}, {"clean up", test_clean_up})
