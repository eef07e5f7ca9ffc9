/* Checkpoints that lie about their tensors and texts, of ranks whose messages end, and of models at
 * the edges of what a file says of them. */
#include "ranks.h"
#include "rewrite.h"

#include "engine/engine.h"
#include "train/checkpoint.h"

#include <inttypes.h>

static gs_error error;
static const how plain = {
    .kind = TINY, .mode = GS_O0, .optim = "sgd", .settings = "lr=1e-2 momentum=0.9"};

/* ---- lies ---- */

static void write_tensors(const char *path, const char *header, size_t bytes)
{
    char out[2000] = {0};
    const uint64_t n = strlen(header);
    memcpy(out, &n, sizeof n);
    memcpy(out + 8, header, n);
    write_bytes(path, out, 8 + n + bytes);
}

/* Files of the format that are no checkpoints. */
static void test_kinds(void)
{
#define META "\"__metadata__\":{\"gradscale_checkpoint\":\"1\"}"
#define SUM  "\"gradscale.xxh64\":"
    static const struct {
        const char *header;
        size_t bytes;
    } files[] = {
        {"{" META "}", 0},
        {"{" META ",\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}", 8},
        {"{" META "," SUM "{\"dtype\":\"I8\",\"shape\":[8],\"data_offsets\":[0,8]}}", 8},
        {"{" META "," SUM "{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4},
        {"{" SUM "{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}", 8},
    };
#undef META
#undef SUM
    make_folder();
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        write_tensors(in_folder("a"), files[i].header, files[i].bytes);
        CHECK_MSG(gs_checkpoint_verify(in_folder("a"), &error) == GS_EFORMAT &&
                      strstr(error.text, "is no checkpoint of gradscale"),
                  "%zu: %s", i, error.text);
    }
    remove_folder();
}

/* One text of the header for another: what the load says of it, and that nothing has changed. */
static void test_lies(void)
{
    static const struct {
        const char *from, *to;
        gs_status status;
        const char *words;
    } lies[] = {
        {"\"F32\",\"shape\":[3,64]", "\"I32\",\"shape\":[3,64]", GS_ESIZE,
         "is another type [3 64], and here f32 [3 64]"},
        {"\"shape\":[3,64]", "\"shape\":[64,3]", GS_ESIZE, "is f32 [64 3], and here f32 [3 64]"},
        {"\"shape\":[3,64]", "\"shape\":[3,8,8]", GS_ESIZE, "is f32 of rank 3, and here"},
        {"\"shape\":[3]", "\"shape\":[1,3]", GS_ESIZE, "is f32 [1 3], and here f32 [3]"},
        {"\"precision\":\"O0 f32\"", "\"precision\":\"\"", GS_EDTYPE, "nothing in the file, O0"},
        {"\"optimizer\":\"sgd", "\"optimiser\":\"sgd", GS_EFORMAT, "does not say its optimizer"},
        {"\"optimizer_exponent_m\":\"0\"", "\"optimizer_exponent_m\":\"1e10\"", GS_EFORMAT,
         "exponent_m is not a number"},
        {"\"optimizer_exponent_m\":\"0\"", "\"optimizer_exponent_m\":\"-1e10\"", GS_EFORMAT,
         "exponent_m is not a number"},
        {"\"optimizer_exponent_m\":\"0\"", "\"optimizer_exponent_m\":\"nan\"", GS_EFORMAT,
         "exponent_m is not a number"},
        {"\"scaler\":", "\"scalar\":", GS_EFORMAT, "its scaler: "},
    };
    make_folder();
    job j = job_new(&plain), untouched = job_new(&plain);
    job_step(&j, 0);
    job_step(&untouched, 0);
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        CHECK(gs_checkpoint_save(in_folder("a"), j.trainer, NULL, &error) == GS_OK);
        rewrite(in_folder("a"), lies[i].from, lies[i].to);
        const gs_status status = gs_checkpoint_load(in_folder("a"), j.trainer, NULL, &error);
        CHECK_MSG(status == lies[i].status && strstr(error.text, lies[i].words), "%s: %s %s",
                  lies[i].to, gs_status_name(status), error.text);
    }
    /* names exchanged: all are there, in another order */
    CHECK(gs_checkpoint_save(in_folder("a"), j.trainer, NULL, &error) == GS_OK);
    rewrite(in_folder("a"), "\"layers.0.weight\"", "\"?\"");
    rewrite(in_folder("a"), "\"optimizer.m.layers.0.weight\"", "\"layers.0.weight\"");
    rewrite(in_folder("a"), "\"?\"", "\"optimizer.m.layers.0.weight\"");
    CHECK(gs_checkpoint_load(in_folder("a"), j.trainer, NULL, &error) == GS_EFORMAT);
    CHECK_MSG(strstr(error.text, "its tensors are not in order"), "%s", error.text);
    /* models by their line, of which one has nothing to say; damage without a place for it */
    gs_checkpoint about = {.model = "mlp"};
    CHECK(gs_checkpoint_save(in_folder("a"), j.trainer, &about, &error) == GS_OK);
    about.model = "";
    CHECK(gs_checkpoint_load(in_folder("a"), j.trainer, &about, &error) == GS_ENAME);
    CHECK_MSG(strstr(error.text, "mlp in the file, nothing here"), "%s", error.text);
    const content bytes = read_bytes(in_folder("a"));
    bytes.data[bytes.n - 20] ^= 1;
    write_bytes(in_folder("a"), bytes.data, bytes.n);
    free(bytes.data);
    CHECK(gs_checkpoint_load(in_folder("a"), j.trainer, &about, NULL) == GS_ECHECKSUM);
    CHECK(same_job(&j, &untouched));
    CHECK(gs_checkpoint_save(in_folder("a"), NULL, &about, &error) == GS_ENULL);
    CHECK(gs_checkpoint_load(in_folder("a"), NULL, &about, &error) == GS_ENULL);
    job_free(&j);
    job_free(&untouched);
    remove_folder();
}

/* What a look at a file refuses. */
static void test_peek(void)
{
    static gs_checkpoint_text text;
    char line[GS_CHECKPOINT_LINE + 20], to[GS_CHECKPOINT_LINE + 40];
    make_folder();
    job j = job_new(&plain);
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = 0;
    gs_checkpoint about = {.model = line};
    CHECK(gs_checkpoint_save(in_folder("a"), j.trainer, &about, &error) == GS_ESIZE);
    CHECK_MSG(strstr(error.text, "the model of a checkpoint is longer than"), "%s", error.text);
    about.model = "m";
    snprintf(to, sizeof to, "\"model\":\"%s\"", line);
    const struct {
        const char *from, *to;
        gs_status status;
        const char *words;
    } lies[] = {{"\"model\":\"m\"", to, GS_ESIZE, "its model is too long"},
                {"\"model\":", "\"modal\":", GS_EFORMAT, "does not say its model"},
                {"\"step\":\"0\"", "\"step\":\"x\"", GS_EFORMAT, "its step is not a number"}};
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        CHECK(gs_checkpoint_save(in_folder("a"), j.trainer, &about, &error) == GS_OK);
        rewrite(in_folder("a"), lies[i].from, lies[i].to);
        CHECK_MSG(gs_checkpoint_peek(&text, in_folder("a"), &error) == lies[i].status &&
                      strstr(error.text, lies[i].words),
                  "%s", error.text);
    }
    job_free(&j);
    remove_folder();
}

/* ---- models and trainers ---- */

/* Statistics that one has and the other has not; entries that are empty or announce too much. */
static void test_states(void)
{
    static const gs_state_entry odd[] = {{"none", 0}, {"some", 5}, {"all", SIZE_MAX}};
    make_folder();
    job j = job_new(&(how){.kind = CNN, .mode = GS_O0, .optim = "sgd"});
    const size_t states = j.model->states;
    j.model->n_states = 0;
    CHECK(gs_checkpoint_save(in_folder("with"), j.trainer, NULL, &error) == GS_OK);
    j.model->states = 0;
    CHECK(gs_checkpoint_save(in_folder("without"), j.trainer, NULL, &error) == GS_OK);
    CHECK(gs_checkpoint_load(in_folder("with"), j.trainer, NULL, &error) == GS_ENAME);
    CHECK_MSG(strstr(error.text, "has a tensor state, which this trainer has not"), "%s",
              error.text);
    j.model->states = states;
    CHECK(gs_checkpoint_load(in_folder("without"), j.trainer, NULL, &error) == GS_ENAME);
    CHECK_MSG(strstr(error.text, "has no tensor state, which this trainer has"), "%s", error.text);
    j.model->state_entries = odd;
    j.model->n_states = 3;
    CHECK(gs_checkpoint_save(in_folder("odd"), j.trainer, NULL, &error) == GS_OK);
    const float before = j.model->state[states - 1] = 0.75f;
    CHECK(gs_checkpoint_save(in_folder("odd"), j.trainer, NULL, &error) == GS_OK);
    j.model->state[states - 1] = 0;
    CHECK(gs_checkpoint_load(in_folder("odd"), j.trainer, NULL, &error) == GS_OK);
    CHECK(j.model->state[states - 1] == before);
    job_free(&j);
    remove_folder();
}

/* The precision as a line, for each way to train. */
static void test_precision(void)
{
    static const struct {
        gs_tape_config tape;
        const char *text;
    } cases[] = {
        {{.mode = GS_O0, .wgrad_f32 = 1}, "O0 f32"},
        {{.mode = GS_O2, .half = GS_F16}, "O2 f16"},
        {{.mode = GS_O2, .half = GS_BF16, .wgrad_f32 = 1}, "O2 bf16 wgrad=f32"},
        {{.mode = GS_O1, .half = GS_F16, .quantize = GS_QUANTIZE_QAT},
         "O1 f16 quantize=int8 ranges=ema"},
        {{.quantize = GS_QUANTIZE_QAT, .range_rule = GS_RANGE_PERCENTILE, .percentile = 99},
         "O0 f32 quantize=int8 ranges=percentile:99"},
        {{.quantize = GS_QUANTIZE_PTQ, .range_rule = GS_RANGE_MAX},
         "O0 f32 quantize=ptq ranges=max"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[GS_CHECKPOINT_LINE];
        job j = job_new(&plain);
        gs_tape_config *config = &j.trainer->tape->config;
        const gs_tape_config kept = *config;
        *config = cases[i].tape;
        gsi_precision_text(text, j.trainer);
        *config = kept;
        CHECK_MSG(strcmp(text, cases[i].text) == 0, "%s", text);
        job_free(&j);
    }
    /* a scaler that is none cannot be saved */
    make_folder();
    job j = job_new(&plain);
    memset(&j.trainer->scaler, 0xFF, sizeof j.trainer->scaler);
    CHECK(gs_checkpoint_save(in_folder("a"), j.trainer, NULL, &error) != GS_OK);
    CHECK_MSG(strstr(error.text, "the scaler cannot be saved"), "%s", error.text);
    CHECK(access(in_folder("a"), F_OK) != 0);
    job_free(&j);
    remove_folder();
}

/* Adafactor's means over rows and columns, of a weight that is large enough to have them. */
static void test_factors(void)
{
    enum { WIDE = 130, DEEP = 140 };
    static float x[2 * WIDE];
    static const int32_t targets[2] = {0, 2};
    const gs_batch batch = {.n = 2, .x = x, .targets = targets};
    const gs_config config = {.size = sizeof config, .threads = 1};
    const gs_mlp_config mlp = {.size = sizeof mlp, (const size_t[]){WIDE, DEEP, CLASSES}, 3};
    gs_trainer_config tc = {.size = sizeof tc,
                            .optim.size = sizeof(gs_optim_config),
                            .tape = {.size = sizeof(gs_tape_config)}};
    job jobs[2] = {{.kind = MLP}, {.kind = MLP}};
    make_folder();
    CHECK(gs_optim_config_init(&tc.optim, "adafactor", &error) == GS_OK);
    CHECK(gs_scaler_init(&tc.scaler, NULL, &error) == GS_OK);
    for (uint64_t i = 0; i < 2 * WIDE; i++)
        x[i] = (float)gs_random_u32(3, i) * 0x1p-31f - 1;
    for (int k = 0; k < 2; k++) {
        CHECK(gs_context_create(&jobs[k].ctx, &config, NULL) == GS_OK);
        CHECK(gs_mlp_create(&jobs[k].model, jobs[k].ctx, &mlp) == GS_OK);
        CHECK(gs_trainer_create(&jobs[k].trainer, jobs[k].ctx, jobs[k].model, &tc) == GS_OK);
    }
    CHECK(gs_trainer_step(jobs[0].trainer, &batch, 1, NULL) == GS_OK);
    CHECK(gs_checkpoint_save(in_folder("a"), jobs[0].trainer, NULL, &error) == GS_OK);
    CHECK(!same_job(&jobs[0], &jobs[1]));
    CHECK_MSG(gs_checkpoint_load(in_folder("a"), jobs[1].trainer, NULL, &error) == GS_OK, "%s",
              error.text);
    CHECK(same_job(&jobs[0], &jobs[1]));
    for (int k = 0; k < 2; k++)
        CHECK(gs_trainer_step(jobs[k].trainer, &batch, 1, NULL) == GS_OK);
    CHECK(same_job(&jobs[0], &jobs[1]));
    gs_source *s;
    CHECK(gs_source_open(&s, in_folder("a"), NULL, &error) == GS_OK);
    int factors = 0;
    for (size_t i = 0; i < gs_source_count(s); i++) {
        const gs_entry *e = gs_source_entry(s, i);
        const bool row = strstr(e->name, ".row.") != NULL, col = strstr(e->name, ".col.") != NULL;
        factors += row || col;
        CHECK(!(row || col) || (e->rank == 1 && e->shape[0] == (row ? DEEP : WIDE)));
    }
    CHECK(factors == 2);
    gs_source_close(s);
    job_free(&jobs[0]);
    job_free(&jobs[1]);
    remove_folder();
}

static void check_memory(size_t layers)
{
    books b = {0};
    job j = {.kind = GPT};
    const gs_config config = {.size = sizeof config, .threads = 1, .alloc = books_hook(&b)};
    const gs_gpt_config gpt = {.size = sizeof gpt, WORDS, 8, layers, 2, 8, 0};
    gs_trainer_config tc = {.size = sizeof tc,
                            .optim.size = sizeof(gs_optim_config),
                            .tape = {.size = sizeof(gs_tape_config)}};
    CHECK(gs_optim_config_init(&tc.optim, "adamw", &error) == GS_OK);
    CHECK(gs_scaler_init(&tc.scaler, NULL, &error) == GS_OK);
    CHECK(gs_context_create(&j.ctx, &config, NULL) == GS_OK);
    CHECK(gs_gpt_create(&j.model, j.ctx, &gpt) == GS_OK);
    CHECK(gs_trainer_create(&j.trainer, j.ctx, j.model, &tc) == GS_OK);
    size_t failures = 0;
    for (size_t k = 1; k < 100; k++) {
        const size_t blocks = b.blocks, calls = b.calls;
        b.fail_from = calls + k;
        const gs_status status = gs_checkpoint_save(in_folder("a"), j.trainer, NULL, &error);
        const bool struck = b.calls >= calls + k;
        b.fail_from = 0;
        CHECK(status == (struck ? GS_ENOMEM : GS_OK) && b.blocks == blocks && !b.wrong);
        failures += struck;
        if (!struck)
            break;
    }
    CHECK_MSG(failures >= 2, "only %zu allocations failed", failures);
    job_free(&j);
}

/* Lists of so many tensors that they end a block, or that each part of them has one of its own. */
static void test_memory(void)
{
    make_folder();
    for (size_t layers = 2; layers < 30; layers += layers < 9 ? 1 : 10)
        check_memory(layers);
    remove_folder();
}

/* ---- ranks ---- */

enum { RANKS = 3 };

typedef enum { SAVE, LOAD, LOAD_OTHERS } deed;

/* All ranks do it, with the state sharded; rank 0 runs out of memory at allocation `memory`, or the
 * network ends at its message `message`. */
typedef struct team {
    deed deed;
    size_t memory;
    int message;
    char paths[RANKS][100];
    gs_status status[RANKS];
    gs_error error[RANKS];
    bool struck;
    pthread_barrier_t ready;
} team;

/* A network that ends at a message. */
typedef struct wire {
    gs_comm inner;
    int left; /* 0: it does not end */
    bool cut;
} wire;

static void count(wire *w)
{
    if (w->left > 0 && --w->left == 0) {
        w->cut = true;
        ranks_break(&w->inner);
    }
}

static gs_status wire_alltoall(void *user, void *to, const void *from, size_t bytes, size_t block,
                               int *request, gs_error *why)
{
    wire *w = user;
    count(w);
    return w->inner.alltoall(w->inner.user, to, from, bytes, block, request, why);
}

static gs_status wire_allgather(void *user, void *data, size_t bytes, size_t block, int *request,
                                gs_error *why)
{
    wire *w = user;
    count(w);
    return w->inner.allgather(w->inner.user, data, bytes, block, request, why);
}

static gs_status wire_done(void *user, int request, int wait, int *ended, gs_error *why)
{
    wire *w = user;
    return w->inner.done(w->inner.user, request, wait, ended, why);
}

static gs_status wire_bcast(void *user, void *data, size_t bytes, int root, gs_error *why)
{
    wire *w = user;
    count(w);
    return w->inner.bcast(w->inner.user, data, bytes, root, why);
}

static void act(const gs_comm *comm, void *arg)
{
    team *t = arg;
    const int me = comm->rank;
    wire w = {.inner = *comm};
    const gs_comm wired = {&w,        comm->rank, comm->size, wire_alltoall, wire_allgather,
                           wire_done, wire_bcast};
    books b = {0};
    gs_context *ctx;
    gs_model *model;
    gs_trainer *trainer = NULL;
    const gs_config one = {.size = sizeof one, .threads = 1, .alloc = books_hook(&b)};
    const gs_mlp_config mlp = {.size = sizeof mlp, (const size_t[]){SIDE * SIDE, 20, CLASSES}, 3};
    gs_trainer_config config = {
        .size = sizeof config,
        .optim.size = sizeof(gs_optim_config),
        .tape = {.size = sizeof(gs_tape_config), .mode = GS_O2, .half = GS_F16},
        .comm = &wired,
        .ranks = {.zero = 1, .bucket = 512},
        .seed = 42};
    CHECK(gs_optim_config_init(&config.optim, "adamw", NULL) == GS_OK);
    CHECK(gs_scaler_init(&config.scaler, NULL, NULL) == GS_OK);
    CHECK(gs_context_create(&ctx, &one, NULL) == GS_OK);
    CHECK(gs_mlp_create(&model, ctx, &mlp) == GS_OK);
    gs_status status = gs_trainer_create(&trainer, ctx, model, &config);
    CHECK(status == GS_OK);
    pthread_barrier_wait(&t->ready); /* no message of that is under way any more */
    const size_t blocks = b.blocks, calls = b.calls;
    if (me == 0 && t->memory)
        b.fail_from = calls + t->memory;
    if (me == 0)
        w.left = t->message;
    status =
        t->deed == SAVE
            ? gs_checkpoint_save(me == 0 ? t->paths[0] : NULL, trainer, NULL, &t->error[me])
            : gs_checkpoint_load(t->paths[t->deed == LOAD ? 0 : me], trainer, NULL, &t->error[me]);
    b.fail_from = 0;
    w.left = 0;
    t->status[me] = status;
    if (t->deed == LOAD && status != GS_OK && strstr(t->error[me].text, t->paths[0]))
        CHECK(gs_optim_get_state(gs_trainer_optim(trainer)).applied == 0); /* nothing has changed */
    if (me == 0)
        t->struck = t->memory ? b.calls >= calls + t->memory : w.cut;
    CHECK(b.blocks == blocks && !b.wrong);
    gs_trainer_free(trainer);
    gs_model_free(model);
    gs_context_free(ctx);
    CHECK(b.blocks == 0);
}

/* Path i: after i + 1 steps. */
static void save_stepped(const team *t)
{
    for (int i = 0; i < RANKS; i++) {
        job j = job_new(&(how){.kind = MLP, .mode = GS_O2, .half = GS_F16, .settings = "lr=1e-3"});
        for (int k = 0; k <= i; k++)
            job_step(&j, (uint64_t)k);
        CHECK(gs_checkpoint_save(t->paths[i], j.trainer, NULL, &error) == GS_OK);
        job_free(&j);
    }
}

static void test_ranks(void)
{
    static team t;
    make_folder();
    pthread_barrier_init(&t.ready, NULL, RANKS);
    for (int i = 0; i < RANKS; i++)
        snprintf(t.paths[i], sizeof t.paths[i], "%s",
                 in_folder((const char[]){(char)('a' + i), 0}));
    ranks_run(RANKS, act, &t);
    for (int r = 0; r < RANKS; r++)
        CHECK_MSG(t.status[r] == GS_OK, "%s", t.error[r].text);
    for (int what = SAVE; what <= LOAD; what++) {
        if (what == LOAD)
            save_stepped(&t);
        for (int cut = 0; cut < 2; cut++)
            for (size_t k = 1; k < 100; k++) {
                t.deed = (deed)what;
                t.memory = cut ? 0 : k;
                t.message = cut ? (int)k : 0;
                memset(t.status, 0, sizeof t.status);
                memset(t.error, 0, sizeof t.error);
                ranks_run(RANKS, act, &t);
                if (!t.struck) {
                    CHECK(t.status[0] == GS_OK && t.status[1] == GS_OK && k > 1);
                    break;
                }
                /* a rank that had its message before the wire was cut need not know */
                CHECK_MSG(t.status[0] == (cut ? GS_ERANK : GS_ENOMEM), "%d %d %zu: %s", what, cut,
                          k, t.error[0].text);
                CHECK_MSG(t.error[0].text[0], "%d %d %zu: no message", what, cut, k);
                if (!cut && what == LOAD)
                    CHECK(t.status[1] == GS_ENOMEM && t.status[2] == GS_ENOMEM);
                CHECK(k < 99);
            }
    }
    /* each finds a file of its own, of other weights */
    t.deed = LOAD_OTHERS;
    t.memory = 0;
    t.message = 0;
    ranks_run(RANKS, act, &t);
    for (int r = 0; r < RANKS; r++)
        CHECK_MSG(t.status[r] == GS_ERANK && strstr(t.error[r].text, "from rank 0 in weights"),
                  "%s", t.error[r].text);
    pthread_barrier_destroy(&t.ready);
    remove_folder();
}

TESTS({"kinds", test_kinds}, {"lies", test_lies}, {"peek", test_peek}, {"states", test_states},
      {"precision", test_precision}, {"factors", test_factors}, {"memory", test_memory},
      {"ranks", test_ranks})
