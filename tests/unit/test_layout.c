/* Weights in files of other makes: every type that is read, shapes that are refused, and the order
 * of elements, for models that no library has. */
#include "faults.h"
#include "memory.h"
#include "test.h"

#include "train/layout.h"

static gs_error error;
static char path[] = "/tmp/gradscale-layout-XXXXXX";

typedef struct part {
    const char *name, *type, *shape;
    size_t count;
    float first;
} part;

static size_t item_of(const char *type)
{
    return strcmp(type, "F64") == 0 || strcmp(type, "I64") == 0 ? 8
           : strcmp(type, "F16") == 0                           ? 2
                                                                : 4;
}

/* A file of n tensors, whose elements count up from their first as f16, f32 or f64. */
static void write_parts(const part *parts, size_t n)
{
    char header[1000] = "{";
    size_t length = 1, end = 0;
    for (size_t i = 0; i < n; i++) {
        const part *p = &parts[i];
        const size_t begin = end;
        end += p->count * item_of(p->type);
        length +=
            (size_t)snprintf(header + length, sizeof header - length,
                             "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                             i ? "," : "", p->name, p->type, p->shape, begin, end);
    }
    header[length++] = '}';
    const uint64_t header_length = length;
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(&header_length, 8, 1, f) == 1 && fwrite(header, length, 1, f) == 1);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < parts[i].count; k++) {
            const float single = parts[i].first + (float)k;
            const double twice = (double)single;
            const uint16_t half = (uint16_t)gs_f32_to_f16(single);
            const size_t item = item_of(parts[i].type);
            CHECK(fwrite(item == 8   ? (const void *)&twice
                         : item == 2 ? (const void *)&half
                                     : (const void *)&single,
                         item, 1, f) == 1);
        }
    fclose(f);
}

static void write_tensor(const char *name, const char *type, const char *shape, size_t count)
{
    write_parts(&(part){name, type, shape, count, 0}, 1);
}

typedef struct example {
    const char *name, *type, *shape; /* of the file */
    size_t rows, cols;               /* of the model's weight "w" */
    gs_layout layout;
    gs_status status;
    const char *words;
    float second; /* element 1 of what is read */
} example;

static const example examples[] = {
    {"w", "F32", "[2,3]", 2, 3, {0}, GS_OK, "", 1},
    {"w", "F64", "[2,3]", 2, 3, {0}, GS_OK, "", 1},
    {"w", "F16", "[2,3]", 2, 3, {0}, GS_OK, "", 1},
    {"w", "I64", "[2,3]", 2, 3, {0}, GS_EDTYPE, "its tensor w is of type I64", 0},
    {"v", "F32", "[2,3]", 2, 3, {0}, GS_ENAME, "has no tensor w", 0},
    {"w", "F32", "[3,2]", 2, 3, {0}, GS_ESIZE, "is [3 2], and the model's [2 3]", 0},
    {"w", "F32", "[6]", 2, 3, {0}, GS_ESIZE, "is [6], and the model's [2 3]", 0},
    {"w", "F32", "[6]", 1, 6, {0}, GS_OK, "", 1},
    {"w", "F32", "[1,2,3]", 2, 3, {.rank = 3}, GS_OK, "", 1},
    {"w", "F32", "[2,3]", 2, 3, {.rank = 3}, GS_ESIZE, "and the model's [1 2 3]", 0},
    {"w", "F32", "[1,2,1,3]", 1, 6, {.kh = 1, .kw = 3, .rank = 4}, GS_OK, "", 3},
    {"w", "F32", "[3,2]", 2, 3, {.transposed = 1}, GS_OK, "", 2},
    {"w", "F32", "[2,3]", 2, 3, {.transposed = 1}, GS_OK, "", 1}, /* nn.Linear has it so */
    {"w", "F32", "[2,2]", 2, 2, {.transposed = 1}, GS_OK, "", 2}, /* a square says nothing */
};

static gs_status read_it(const example *e, bool with_layouts, float out[6], gs_context *ctx,
                         fault_call call)
{
    const gs_store_entry entry = {.name = "w", .rows = e->rows, .cols = e->cols};
    const gs_model model = {.n = 1, .entries = &entry, .layouts = with_layouts ? &e->layout : NULL};
    gsi_weights_file f;
    gs_status status = gsi_weights_open(&f, path, &model, ctx, &error);
    if (status != GS_OK)
        return status;
    fault_plan(call, 1, EIO);
    status = gsi_weights_read(out, &f, 0, &error);
    fault_plan(FAULT_NONE, 0, 0);
    gsi_weights_close(&f);
    return status;
}

static void test_examples(void)
{
    static const gs_layout none;
    gs_context *ctx;
    CHECK(gs_context_create(&ctx, &(gs_config){.size = sizeof(gs_config), .threads = 1}, NULL) ==
          GS_OK);
    for (size_t i = 0; i < GSI_COUNT(examples); i++) {
        const example *e = &examples[i];
        const bool laid_out = memcmp(&e->layout, &none, sizeof none) != 0;
        for (int with = laid_out; with < 2; with++) {
            float out[6] = {0};
            error = (gs_error){0};
            write_tensor(e->name, e->type, e->shape, e->rows * e->cols);
            const gs_status status = read_it(e, with, out, ctx, FAULT_NONE);
            CHECK_MSG(status == e->status && strstr(error.text, e->words), "%zu: %s", i,
                      error.text);
            if (status != GS_OK)
                continue;
            CHECK_MSG(out[1] == e->second, "%zu: %g", i, (double)out[1]);
            double sum = 0;
            for (int k = 0; k < 6; k++)
                sum += (double)out[k];
            CHECK(sum == (e->rows * e->cols == 6 ? 15 : 6)); /* each once */
            CHECK(read_it(e, with, out, ctx, FAULT_READ) == GS_EIO && error.text[0]);
        }
    }
    gs_context_free(ctx);
}

static void test_memory(void)
{
    static const char *const types[] = {"F32", "F64"};
    for (size_t t = 0; t < 2; t++) {
        size_t failures = 0;
        write_tensor("w", types[t], "[2,3]", 6);
        for (size_t k = 1;; k++) {
            books b = {0};
            gs_context *ctx;
            float out[6];
            const gs_config config = {.size = sizeof config, .alloc = books_hook(&b), .threads = 1};
            CHECK(gs_context_create(&ctx, &config, NULL) == GS_OK);
            const size_t blocks = b.blocks, calls = b.calls;
            b.fail_from = calls + k;
            const gs_status status = read_it(&examples[t], true, out, ctx, FAULT_NONE);
            const bool struck = b.calls >= calls + k;
            b.fail_from = 0;
            CHECK(status == (struck ? GS_ENOMEM : GS_OK) && b.blocks == blocks);
            CHECK(!struck || strstr(error.text, "memory"));
            gs_context_free(ctx);
            CHECK(b.blocks == 0 && !b.wrong);
            failures += struck;
            if (!struck)
                break;
        }
        CHECK_MSG(failures >= 2 + t, "only %zu", failures);
    }
}

/* Statistics: there, of another size, and not there; a range may be missing. */
static void test_states(void)
{
    static const gs_state_entry entries[] = {{"mean", 3}, {"mean", 4}, {"none", 3}, {"range", 1}};
    static const gs_status expected[] = {GS_OK, GS_ESIZE, GS_ENAME, GS_OK};
    const gs_model model = {.state_entries = entries, .n_states = 4, .n_ranges = 1};
    gs_context *ctx;
    gsi_weights_file f;
    CHECK(gs_context_create(&ctx, &(gs_config){.size = sizeof(gs_config), .threads = 1}, NULL) ==
          GS_OK);
    write_tensor("mean", "F32", "[3]", 3);
    CHECK(gsi_weights_open(&f, path, &model, ctx, &error) == GS_OK);
    for (size_t i = 0; i < 4; i++) {
        float out[4] = {7, 7, 7, 7};
        CHECK(gsi_weights_read_state(out, &f, i, &error) == expected[i]);
        CHECK(out[0] == (expected[i] == GS_OK ? 0 : 7) && out[1] == (i == 0 ? 1 : 7));
    }
    gsi_weights_close(&f);
    gs_context_free(ctx);
}

/* ---- what a file has beyond the model ---- */

enum { MOST = 3 };

/* How gsi_weights_check_rest finds a file of `parts` for a model of weights that are [2, 3]. */
static gs_status check_rest(const char *const names[MOST], const part *parts, size_t n,
                            gs_context *ctx, fault_call call, unsigned at)
{
    gs_store_entry entries[MOST];
    gs_model model = {.entries = entries};
    gsi_weights_file f;
    for (; model.n < MOST && names[model.n]; model.n++)
        entries[model.n] = (gs_store_entry){.name = names[model.n], .rows = 2, .cols = 3};
    error = (gs_error){0};
    write_parts(parts, n);
    CHECK(gsi_weights_open(&f, path, &model, ctx, &error) == GS_OK);
    fault_plan(call, at, EIO);
    const gs_status status = gsi_weights_check_rest(&f, &error);
    fault_plan(FAULT_NONE, 0, 0);
    gsi_weights_close(&f);
    return status;
}

#define WORDS "attention attention attention attention attention attention "

static void test_rest(void)
{
    static const struct {
        const char *model[MOST], *file[MOST];
        const char *refused; /* the tensor that the model does not have; NULL: fine */
    } cases[] = {
        {{"w"}, {"w"}, NULL},
        {{"h.0.a.weight"}, {"h.0.a.weight"}, NULL},
        /* one more layer, stage or bias */
        {{"h.0.a.weight"}, {"h.0.a.weight", "h.1.a.weight"}, "h.1.a.weight"},
        {{"h.0.a.weight", "h.1.a.weight"}, {"h.0.a.weight", "h.1.a.weight"}, NULL},
        {{"h.0.a.2.b"}, {"h.0.a.3.b"}, "h.0.a.3.b"},
        {{"h.0.a.2.b"}, {"h.1.a.2.b"}, "h.1.a.2.b"},
        {{"a.weight"}, {"a.weight", "a.bias"}, "a.bias"},
        {{"a.weight", "a.bias"}, {"a.weight", "a.bias"}, NULL},
        {{"an_old.weights"}, {"an_old.weights", "an_old.bias"}, NULL},
        /* of a name too long to have a neighbour, the rest is looked at */
        {{"a.0." WORDS WORDS WORDS WORDS WORDS ".weight"}, {"w"}, NULL},
        {{"a.0." WORDS WORDS WORDS WORDS WORDS ".weight"}, {"a.0.gate.weight"}, "a.0.gate.weight"},
        /* one more weight in a block, and what is none */
        {{"h.0.a.weight"}, {"h.0.gate.weight"}, "h.0.gate.weight"},
        {{"transformer.h.0.a.weight"}, {"h.0.gate.weight"}, "h.0.gate.weight"},
        {{"transformer.h.0.a.weight"}, {"h.0.a.weight"}, NULL},
        {{"transformer.h.0.a.weight"}, {"h.0.a.masked", "g.0.a.weight", "h.a.weight"}, NULL},
        {{"a.weight0"}, {"a.weight"}, NULL},
        {{"0.weight"}, {"7.weight"}, NULL},
        {{"model.layers.weight"}, {"layers.0.weight"}, NULL},
        /* positions that are learned, where the model turns */
        {{"transformer.wte.weight"}, {"wte.weight", "wpe.weight"}, "transformer.wpe.weight"},
        {{"transformer.wte.weight", "transformer.wpe.weight"}, {"wte.weight", "wpe.weight"}, NULL},
    };
    gs_context *ctx;
    CHECK(gs_context_create(&ctx, &(gs_config){.size = sizeof(gs_config), .threads = 1}, NULL) ==
          GS_OK);
    for (size_t i = 0; i < GSI_COUNT(cases); i++) {
        part parts[MOST];
        size_t n = 0;
        char words[200] = "";
        for (; n < MOST && cases[i].file[n]; n++)
            parts[n] = (part){cases[i].file[n], "F32", "[2,3]", 6, 0};
        if (cases[i].refused)
            snprintf(words, sizeof words, "has a tensor %s, which the model", cases[i].refused);
        const gs_status status = check_rest(cases[i].model, parts, n, ctx, FAULT_NONE, 0);
        CHECK_MSG(status == (cases[i].refused ? GS_ENAME : GS_OK) && strstr(error.text, words),
                  "%zu: %s", i, error.text);
    }
    gs_context_free(ctx);
}

/* A head beside an embedding that is the model's head as well. */
static void test_heads(void)
{
    static const char embedding[] = "model.embed_tokens.weight", head[] = "lm_head.weight";
    static const char *const tied[MOST] = {embedding}, *const apart[MOST] = {embedding, head};
    const part parts[] = {{embedding, "F32", "[2,3]", 6, 0}, {head, "F64", "[2,3]", 6, 0}};
    const part other[] = {parts[0], {head, "F32", "[2,3]", 6, 1}};
    const part large[] = {parts[0], {head, "F32", "[3,3]", 9, 0}};
    books b = {0};
    gs_context *ctx;
    const gs_config config = {.size = sizeof config, .alloc = books_hook(&b), .threads = 1};
    CHECK(gs_context_create(&ctx, &config, NULL) == GS_OK);
    const size_t blocks = b.blocks;
    CHECK(check_rest(tied, parts, 1, ctx, FAULT_NONE, 0) == GS_OK);
    size_t before = b.calls;
    CHECK(check_rest(tied, parts, 2, ctx, FAULT_NONE, 0) == GS_OK);
    const size_t calls = b.calls - before;
    CHECK(check_rest(apart, other, 2, ctx, FAULT_NONE, 0) == GS_OK);
    CHECK(check_rest(tied, other, 2, ctx, FAULT_NONE, 0) == GS_ENAME);
    CHECK_MSG(strstr(error.text, "lm_head.weight is not model.embed_tokens.weight"), "%s",
              error.text);
    CHECK(check_rest(tied, large, 2, ctx, FAULT_NONE, 0) == GS_ESIZE);
    CHECK_MSG(strstr(error.text, "is [3 3], and the model's [2 3]"), "%s", error.text);
    for (unsigned at = 1; at <= 2; at++) /* of the head, of the embedding */
        CHECK(check_rest(tied, parts, 2, ctx, FAULT_READ, at) == GS_EIO && error.text[0]);
    CHECK(check_rest(tied, parts, 2, ctx, FAULT_READ, 3) == GS_OK);
    for (size_t k = 0; k < 2; k++) { /* the last: for f64; before it: for both */
        before = b.calls;
        b.fail_at = before + calls - k;
        CHECK(check_rest(tied, parts, 2, ctx, FAULT_NONE, 0) == GS_ENOMEM);
        CHECK_MSG(strstr(error.text, "memory"), "%s", error.text);
    }
    CHECK(b.blocks == blocks && !b.wrong);
    gs_context_free(ctx);
    CHECK(b.blocks == 0);
}

/* As they are written for others: shapes of every rank, and back again the same elements. */
static void test_out(void)
{
    static const struct {
        size_t rows, cols;
        gs_layout layout;
        int rank;
        size_t shape[4];
        float second;
    } cases[] = {{2, 3, {0}, 2, {2, 3}, 1},
                 {1, 6, {0}, 1, {6}, 1},
                 {2, 3, {.rank = 3}, 3, {1, 2, 3}, 1},
                 {1, 6, {.kh = 1, .kw = 3, .rank = 4}, 4, {1, 2, 1, 3}, 2},
                 {2, 3, {.transposed = 1}, 2, {3, 2}, 3}};
    static const float in[6] = {0, 1, 2, 3, 4, 5};
    for (size_t i = 0; i < GSI_COUNT(cases); i++) {
        const gs_store_entry entry = {.name = "w", .rows = cases[i].rows, .cols = cases[i].cols};
        const gs_model model = {.n = 1, .entries = &entry, .layouts = &cases[i].layout};
        size_t shape[4] = {0};
        float out[6];
        CHECK(gsi_layout_shape(shape, &model, 0) == cases[i].rank);
        for (int d = 0; d < cases[i].rank; d++)
            CHECK_MSG(shape[d] == cases[i].shape[d], "%zu: %zu", i, shape[d]);
        gsi_layout_out(out, in, &model, 0);
        CHECK_MSG(out[1] == cases[i].second, "%zu: %g", i, (double)out[1]);
    }
}

static void test_begin(void)
{
    const int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
}

static void test_clean_up(void) { CHECK(unlink(path) == 0); }

TESTS({"begin", test_begin}, {"examples", test_examples}, {"memory", test_memory},
      {"states", test_states}, {"rest", test_rest}, {"heads", test_heads}, {"out", test_out},
      {"clean up", test_clean_up})
