/* Ranks whose network or memory fails at every place in turn. One thread is enough: the other ranks
 * are mirrors of this one, and say what it says. */
#include "memory.h"
#include "test.h"

#include "gradscale/infer.h"
#include "gradscale/train.h"

#include <math.h>
#include <stdbool.h>
#include <unistd.h>

/* ---- mirrors ---- */

typedef struct mirror {
    int rank, size;
    size_t calls, fail_at; /* this call of the transport fails: 1 is the first, 0 is none */
    bool silent;           /* and says nothing of why */
    uint64_t odd;          /* ranks that gather something else, as bits */
} mirror;

static gs_status count_call(mirror *m, gs_error *error)
{
    if (++m->calls != m->fail_at)
        return GS_OK;
    if (!m->silent) {
        error->status = GS_ERANK;
        strcpy(error->text, "the wire was cut");
    }
    return GS_ERANK;
}

static size_t start_of(size_t bytes, size_t block, int r)
{
    return (size_t)r * block < bytes ? (size_t)r * block : bytes;
}

static gs_status mirror_alltoall(void *user, void *to, const void *from, size_t bytes, size_t block,
                                 int *request, gs_error *error)
{
    mirror *m = user;
    const size_t first = start_of(bytes, block, m->rank);
    const size_t count = start_of(bytes, block, m->rank + 1) - first;
    for (int r = 0; count > 0 && r < m->size; r++)
        memcpy((char *)to + (size_t)r * count, (const char *)from + first, count);
    *request = 0;
    return count_call(m, error);
}

static gs_status mirror_allgather(void *user, void *data, size_t bytes, size_t block, int *request,
                                  gs_error *error)
{
    mirror *m = user;
    const size_t mine = start_of(bytes, block, m->rank);
    const size_t have = start_of(bytes, block, m->rank + 1) - mine;
    for (int r = 0; r < m->size; r++) {
        const size_t first = start_of(bytes, block, r);
        const size_t count = start_of(bytes, block, r + 1) - first;
        if (r != m->rank && count > 0)
            memcpy((char *)data + first, (char *)data + mine, count < have ? count : have);
        if (m->odd >> r & 1)
            ((char *)data)[first] ^= (char)(1 + r);
    }
    *request = 0;
    return count_call(m, error);
}

static gs_status mirror_done(void *user, int request, int wait, int *ended, gs_error *error)
{
    (void)request, (void)wait;
    *ended = 1;
    return count_call(user, error);
}

static gs_status mirror_bcast(void *user, void *data, size_t bytes, int root, gs_error *error)
{
    (void)data, (void)bytes, (void)root;
    return count_call(user, error);
}

static gs_comm comm_of(mirror *m)
{
    return (gs_comm){m,           m->rank,     m->size, mirror_alltoall, mirror_allgather,
                     mirror_done, mirror_bcast};
}

/* ---- a job ---- */

enum { SIDE = 8, CLASSES = 3, N = 4, CROWD = 2200 };

typedef struct job {
    bool crowd; /* a model of thousands of weights: passes over it need memory of their own */
    gs_mode mode;
    gs_dtype half;
    gs_ranks ranks;
    const char *scaler;
    bool load; /* weights of a file, after the steps */
} job;

typedef struct crowd_model {
    gs_model base;
    gs_store_entry entries[CROWD];
    gs_init inits[CROWD];
    char names[CROWD][8];
} crowd_model;

static gs_value *crowd_forward(void *model, gs_tape *t, const gs_batch *batch)
{
    static const float zeros[8];
    const gs_model *m = model;
    (void)batch;
    return gs_mse(t, gs_cast(t, gs_param(t, &m->weights[0]), GS_F32),
                  gs_input(t, GS_F32, 1, (const size_t[]){8}, zeros));
}

static gs_model *crowd_new(void)
{
    static crowd_model m;
    for (size_t i = 0; i < CROWD; i++) {
        snprintf(m.names[i], sizeof m.names[i], "w%zu", i);
        m.entries[i] = (gs_store_entry){m.names[i], i % 2 ? 2 : 1, i ? 3 : 8, 0};
        m.inits[i] = (gs_init){1, 0.1f};
    }
    m.base =
        (gs_model){.forward = crowd_forward, .n = CROWD, .entries = m.entries, .inits = m.inits};
    return &m.base;
}

static const char *temporary(void)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/gs_test_ranks_faults_%ld.safetensors", (long)getpid());
    return path;
}

static const gs_cnn_config cnn_sizes = {.size = sizeof cnn_sizes, SIDE, SIDE, 1, CLASSES, 4, 0};

static gs_batch batch_of(void)
{
    static float x[N * SIDE * SIDE];
    static const int32_t targets[N] = {0, 2, 1, -1};
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        x[i] = (float)gs_random_u32(3, i) * 0x1p-31f - 1;
    return (gs_batch){.n = N, .x = x, .targets = targets};
}

typedef struct bench {
    gs_context *ctx;
    gs_model *model;
    gs_trainer *trainer;
    gs_status status; /* of the first call that failed */
    gs_error error;   /* of a call that does not leave it in the context */
} bench;

static bench bench_new(const job *j, mirror *net, books *b)
{
    bench s = {0};
    const gs_comm comm = comm_of(net);
    gs_config config = {.size = sizeof config, .threads = 1};
    gs_trainer_config tc = {
        .size = sizeof tc,
        .optim.size = sizeof(gs_optim_config),
        .tape = {.size = sizeof(gs_tape_config), .mode = j->mode, .half = j->half},
        .comm = net->size > 1 ? &comm : NULL,
        .ranks = j->ranks,
        .seed = 42};
    if (b)
        config.alloc = books_hook(b);
    CHECK(gs_optim_config_init(&tc.optim, "adamw", NULL) == GS_OK);
    CHECK(gs_optim_config_set(&tc.optim, "lr=3e-3 clip_norm=1", NULL) == GS_OK);
    CHECK(gs_scaler_init(&tc.scaler, j->scaler, NULL) == GS_OK);
    s.status = gs_context_create(&s.ctx, &config, NULL);
    if (s.status == GS_OK && j->crowd)
        s.model = crowd_new();
    else if (s.status == GS_OK)
        s.status = gs_cnn_create(&s.model, s.ctx, &cnn_sizes);
    if (s.status == GS_OK)
        s.status = gs_trainer_create(&s.trainer, s.ctx, s.model, &tc);
    return s;
}

static void bench_free(bench *s)
{
    gs_trainer_free(s->trainer);
    gs_model_free(s->model);
    gs_context_free(s->ctx);
}

static gs_status step(bench *s, gs_train_row *row)
{
    const gs_batch batch = batch_of();
    return gs_trainer_step(s->trainer, &batch, 1, row);
}

/* Steps, weights of a file, copies, a comparison: until something fails. */
static bench run(const job *j, mirror *net, books *b)
{
    bench s = bench_new(j, net, b);
    for (int i = 0; s.status == GS_OK && i < (j->crowd ? 1 : 2); i++)
        s.status = step(&s, NULL);
    if (s.status == GS_OK && j->load)
        s.status = gs_trainer_load_weights(s.trainer, temporary(), &s.error);
    if (s.status == GS_OK)
        s.status = gs_trainer_sync(s.trainer);
    if (s.status == GS_OK)
        s.status = gs_trainer_compare(s.trainer);
    return s;
}

static void write_weights(void)
{
    gs_context *ctx;
    gs_model *m;
    gs_infer *f;
    const gs_infer_config config = {.size = sizeof config, .mode = GS_O0};
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    CHECK(gs_cnn_create(&m, ctx, &cnn_sizes) == GS_OK);
    CHECK(gs_infer_create(&f, ctx, m, &config) == GS_OK);
    CHECK(gs_infer_export(temporary(), f, NULL) == GS_OK);
    gs_infer_free(f);
    gs_model_free(m);
    gs_context_free(ctx);
}

static const job jobs[] = {
    {.mode = GS_O2, .half = GS_F16, .scaler = "pytorch", .load = true},
    {.mode = GS_O0, .ranks.zero = 1, .scaler = "histogram", .load = true},
    {.mode = GS_O1, .half = GS_BF16, .ranks = {.zero = 1, .bucket = 512}, .load = true},
    {.mode = GS_O2,
     .half = GS_F16,
     .ranks = {.zero = 1, .bucket = 512, .compare = 1},
     .load = true},
    {.mode = GS_O3, .half = GS_BF16, .ranks.wire = GS_F16, .scaler = "histogram", .load = true},
    {.crowd = true, .mode = GS_O2, .half = GS_F16, .scaler = "histogram"},
    {.crowd = true, .mode = GS_O2, .half = GS_F16, .ranks.zero = 1},
    {.crowd = true, .mode = GS_O1, .half = GS_F16, .ranks.zero = 1},
    {.crowd = true, .mode = GS_O3, .half = GS_F16}};
enum { JOBS = sizeof jobs / sizeof jobs[0] };

/* Whatever call of the network fails, the call of the library that made it says so. */
static void test_network(void)
{
    write_weights();
    for (int j = 0; j < JOBS; j++)
        for (int rank = jobs[j].crowd; rank < 2; rank++) {
            size_t k = 1;
            for (bool more = true; more && !test_failures; k++) {
                mirror net = {.rank = rank, .size = 3, .fail_at = k, .silent = k % 2};
                bench s = run(&jobs[j], &net, NULL);
                const char *text = (s.error.status ? &s.error : gs_context_error(s.ctx))->text;
                more = net.calls >= k;
                CHECK_MSG(s.status == (more ? GS_ERANK : GS_OK), "job %d, call %zu: %s", j, k,
                          text);
                CHECK_MSG(!more || strstr(text, k % 2 ? "network of 3 ranks" : "wire was cut"),
                          "job %d, call %zu: %s", j, k, text);
                bench_free(&s);
            }
            CHECK_MSG(k > 15, "only %zu calls", k);
        }
    unlink(temporary());
}

/* Allocation `at` fails, and all from `from` on. Returns whether none is left that could fail. */
static bool check_memory(const job *j, int size, size_t at, size_t from, gs_status *status)
{
    books b = {.fail_at = at, .fail_from = from};
    mirror net = {.size = size};
    bench s = run(j, &net, &b);
    const size_t last = from ? from : at;
    *status = s.status;
    bench_free(&s);
    CHECK_MSG(*status == GS_OK || (b.calls >= at && *status == GS_ENOMEM),
              "job %d, %d ranks, allocation %zu, from %zu: %s", (int)(j - jobs), size, at, from,
              gs_status_name(*status));
    CHECK_MSG(b.blocks == 0 && !b.wrong, "job %d, %d ranks, allocation %zu, from %zu: %zu are left",
              (int)(j - jobs), size, at, from, b.blocks);
    return b.calls < last || test_failures;
}

/* Whatever allocation fails: no memory, and nothing is left over. One that can be done without is
 * followed by the end of all memory, here or there. */
static void test_memory(void)
{
    write_weights();
    for (int j = 0; j < JOBS; j++)
        for (int size = 1; size <= 2; size++) {
            if (jobs[j].crowd && size != 1 + jobs[j].ranks.zero)
                continue; /* it takes long */
            size_t failed = 0;
            gs_status status, unread;
            for (size_t k = 1; !check_memory(&jobs[j], size, k, 0, &status); k++) {
                failed += status != GS_OK;
                for (size_t from = k + 1; jobs[j].crowd && status == GS_OK; from++)
                    if (check_memory(&jobs[j], size, k, from, &unread))
                        break;
            }
            CHECK_MSG(failed > 10, "only %zu allocations failed", failed);
        }
    unlink(temporary());
}

/* A rank with a batch that is refused makes the calls of the others; each of them may fail, too. */
static void test_refused(void)
{
    const gs_batch empty = {.n = 0};
    for (size_t k = 0, more = 1; more && !test_failures; k++) {
        mirror net = {.size = 2};
        bench s = bench_new(&jobs[0], &net, NULL);
        const size_t before = net.calls;
        net.fail_at = k ? before + k : 0;
        const gs_status status = gs_trainer_step(s.trainer, &empty, 1, NULL);
        more = k == 0 || net.calls >= net.fail_at;
        CHECK_MSG(status == (k && more ? GS_ERANK : GS_ESIZE), "call %zu: %s", k,
                  gs_context_error(s.ctx)->text);
        CHECK(strstr(gs_context_error(s.ctx)->text,
                     k && more ? "wire was cut" : "micro-batch 0 is empty"));
        CHECK(more || k > 5);
        bench_free(&s);
    }
}

/* Who wants no message gets none, and the status of the rank that has it. */
static void test_unread(void)
{
    mirror net = {.size = 2};
    bench s = bench_new(&jobs[0], &net, NULL);
    const size_t before = net.calls;
    CHECK(s.status == GS_OK);
    CHECK(gs_trainer_load_weights(s.trainer, "/nowhere.safetensors", NULL) == GS_EIO);
    CHECK(net.calls > before); /* the others were told */
    bench_free(&s);
}

/* ---- who differs ---- */

static void test_names(void)
{
    static const struct {
        uint64_t odd;
        const char *says;
    } cases[] = {
        {0, NULL},
        {1 << 3, "after 0 steps rank 3 differs from rank 0 in weights or scaler"},
        {1 << 1 | 1 << 4, " ranks 1 and 4 differ from"},
        {1 << 1 | 1 << 4 | 1 << 19, " ranks 1, 4 and 19 differ from"},
        {0x3FFE, " ranks 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 13 differ from"},
        {0x7FFE, " ranks 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 2 others differ from"},
        {0xFFFFE, " ranks 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 7 others differ from"}};
    mirror net = {.size = 20};
    const job j = {.mode = GS_O0};
    bench s = bench_new(&j, &net, NULL);
    CHECK(s.status == GS_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        net.odd = cases[i].odd;
        const gs_status status = gs_trainer_compare(s.trainer);
        const char *text = gs_context_error(s.ctx)->text;
        CHECK(status == (cases[i].says ? GS_ERANK : GS_OK));
        CHECK_MSG(!cases[i].says || strstr(text, cases[i].says), "%s", text);
    }
    bench_free(&s);
    net.odd = 2; /* from the beginning on */
    s = bench_new(&j, &net, NULL);
    CHECK(s.status != GS_OK && !s.trainer);
    bench_free(&s);
}

/* ---- what they hold ---- */

static gs_held held_of(job j, int size)
{
    mirror net = {.size = size};
    bench s = bench_new(&j, &net, NULL);
    CHECK(s.status == GS_OK && step(&s, NULL) == GS_OK);
    const gs_held held = gs_trainer_held(s.trainer);
    bench_free(&s);
    return held;
}

static void test_held(void)
{
    const job plain = {.mode = GS_O2, .half = GS_F16};
    job zero = plain;
    zero.ranks.zero = 1;
    const gs_held one = held_of(plain, 1), four = held_of(plain, 4), shared = held_of(zero, 4);
    /* f32 and a half copy; a gradient; two moments */
    CHECK(one.weights * 2 == one.gradients * 3 && one.optimizer <= 2 * one.gradients);
    CHECK(four.weights == one.weights && four.optimizer == one.optimizer);
    CHECK(four.gradients > one.gradients); /* and the buckets that are sent */
    /* of halves all, of the rest a part */
    CHECK(shared.weights < one.weights * 2 / 3 && shared.weights > one.weights / 3);
    CHECK(shared.optimizer < one.optimizer / 2 && shared.optimizer > 0);

    /* a rank alone has nothing to share */
    const gs_held alone = held_of(zero, 1);
    CHECK(memcmp(&alone, &one, sizeof one) == 0);
    gs_train_row rows[2];
    for (int k = 0; k < 2; k++) {
        mirror net = {.size = 1};
        bench s = bench_new(k ? &zero : &plain, &net, NULL);
        CHECK(step(&s, NULL) == GS_OK && step(&s, &rows[k]) == GS_OK);
        bench_free(&s);
    }
    CHECK(rows[0].loss == rows[1].loss && rows[0].report.norm == rows[1].report.norm);
}

/* Running statistics too many for the ranks to gather. */
static void test_states(void)
{
    static float state[1];
    gs_context *ctx;
    gs_trainer *t;
    mirror net = {.size = 2};
    const gs_comm comm = comm_of(&net);
    const gs_store_entry entry = {"a", 1, 8, 0};
    const gs_init init = {1, 0};
    gs_model m = {.forward = crowd_forward,
                  .n = 1,
                  .entries = &entry,
                  .inits = &init,
                  .state = state,
                  .states = SIZE_MAX / 8};
    gs_trainer_config config = {.size = sizeof config,
                                .optim.size = sizeof(gs_optim_config),
                                .tape = {.size = sizeof(gs_tape_config), .mode = GS_O0},
                                .comm = &comm};
    CHECK(gs_optim_config_init(&config.optim, "sgd", NULL) == GS_OK);
    CHECK(gs_scaler_init(&config.scaler, NULL, NULL) == GS_OK);
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    CHECK(gs_trainer_create(&t, ctx, &m, &config) == GS_ENOMEM && !t);
    CHECK(strstr(gs_context_error(ctx)->text, "2 ranks"));
    m.states = SIZE_MAX / 2;
    config.comm = NULL;
    CHECK(gs_trainer_create(&t, ctx, &m, &config) == GS_ENOMEM && !t && !m.weights);
    CHECK(strstr(gs_context_error(ctx)->text, "running statistics"));
    gs_context_free(ctx);
}

TESTS({"network", test_network}, {"memory", test_memory}, {"refused", test_refused},
      {"unread", test_unread}, {"names", test_names}, {"held", test_held}, {"states", test_states})
