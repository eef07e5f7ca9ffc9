/* Training with several ranks, which are threads here: sums to the last bit, ZeRO-1 against the
 * unsharded run, uneven batches, overflows, errors and divergence. Over MPI: suite_mpi.sh. */
#include "memory.h"
#include "ranks.h"
#include "test.h"

#include "gradscale/checkpoint.h"
#include "gradscale/train.h"

#include <math.h>
#include <stdbool.h>
#include <unistd.h>

/* ---- sums ---- */

typedef struct sums {
    size_t count, bucket;
    gs_dtype wire;
    int sharded, early; /* early: elements become ready from the end, a few at a time */
    float *out[RANKS_MOST];
    uint64_t sent[RANKS_MOST];
    gs_piece *pieces[RANKS_MOST];
    size_t buckets;
    gs_status status[RANKS_MOST];
} sums;

static float value_of(int rank, size_t i)
{
    const uint32_t bits = gs_random_u32((uint64_t)rank + 77, i);
    return ((float)(bits >> 8) * 0x1p-23f - 1) * (float)(1 << bits % 8);
}

static void sum_rank(const gs_comm *comm, void *arg)
{
    sums *s = arg;
    gs_context *ctx;
    gs_reducer *r;
    const gs_config one = {.size = sizeof one, .threads = 1};
    const gs_reducer_config config = {.size = sizeof config, s->bucket, s->wire, s->sharded};
    float *data = malloc((s->count + 1) * sizeof *data);
    gs_context_create(&ctx, &one, NULL);
    const gs_status made = gs_reducer_create(&r, ctx, comm, data, s->count, &config);
    CHECK(made == GS_OK);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < s->count; i++)
            data[i] = value_of(comm->rank, i);
        gs_reducer_begin(r);
        for (size_t end = s->count, step = 1; s->early && end > 0; end -= step, step += 7) {
            step = step < end ? step : end;
            gs_reducer_ready(r, end - step, step);
        }
        gs_reducer_poll(r);
        s->status[comm->rank] = gs_reducer_end(r);
    }
    const size_t buckets = gs_reducer_buckets(r);
    if (comm->rank == 0)
        s->buckets = buckets;
    s->pieces[comm->rank] = malloc((buckets + 1) * sizeof(gs_piece));
    for (size_t b = 0; b < buckets; b++)
        s->pieces[comm->rank][b] = gs_reducer_piece(r, b, comm->rank);
    s->sent[comm->rank] = gs_reducer_sent(r) / 2;
    s->out[comm->rank] = data;
    gs_reducer_free(r);
    gs_context_free(ctx);
}

static float to_wire(float x, gs_dtype wire)
{
    return wire == GS_F16    ? gs_f16_to_f32(gs_f32_to_f16(x))
           : wire == GS_BF16 ? gs_bf16_to_f32(gs_f32_to_bf16(x))
                             : x;
}

static float sum_of(int size, size_t i, gs_dtype wire)
{
    float sum = to_wire(value_of(0, i), wire);
    for (int r = 1; r < size; r++)
        sum += to_wire(value_of(r, i), wire);
    return to_wire(sum, wire);
}

static void check_sums(int size, sums s)
{
    ranks_run(size, sum_rank, &s);
    size_t owned = 0;
    uint64_t sent = 0;
    for (int r = 0; r < size; r++) {
        CHECK(s.status[r] == GS_OK);
        sent += s.sent[r];
        for (size_t b = 0; b < s.buckets; b++) {
            const gs_piece p = s.pieces[r][b];
            owned += p.count;
            for (size_t i = p.first; i < p.first + p.count; i++)
                CHECK_MSG(s.out[r][i] == sum_of(size, i, s.wire), "rank %d of %d, %zu", r, size, i);
        }
        for (size_t i = 0; !s.sharded && i < s.count; i++)
            CHECK_MSG(s.out[r][i] == sum_of(size, i, s.wire), "rank %d of %d, %zu", r, size, i);
    }
    CHECK(owned == s.count);
    /* Everything goes to its owner once and, gathered, to all the others once. */
    const uint64_t one_way = s.count * (s.wire == GS_F32 ? 4 : 2) * (uint64_t)(size - 1);
    CHECK(sent == (s.sharded ? one_way : 2 * one_way));
    for (int r = 0; r < size; r++) {
        free(s.out[r]);
        free(s.pieces[r]);
    }
}

static void test_sums(void)
{
    static const size_t counts[] = {0, 1, 31, 33, 1000, 4097};
    for (int size = 1; size <= 7; size += size < 4 ? 1 : 3)
        for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++)
            for (int wire = GS_F32; wire <= GS_BF16; wire++)
                for (int flags = 0; flags < 4; flags++)
                    check_sums(size, (sums){.count = counts[k],
                                            .bucket = k % 2 ? 160 : 1000,
                                            .wire = (gs_dtype)wire,
                                            .sharded = flags & 1,
                                            .early = flags & 2});
}

/* ---- numbers ---- */

static void number_rank(const gs_comm *comm, void *arg)
{
    gs_context *ctx;
    const gs_config one = {.size = sizeof one, .threads = 1};
    gs_context_create(&ctx, &one, NULL);
    double x[3] = {comm->rank, -comm->rank, comm->rank == 1 ? (double)NAN : 1}, y[2] = {0.1, 1e17};
    (void)arg;
    CHECK(gs_comm_max(comm, ctx, x, 3) == GS_OK && x[0] == comm->size - 1 && x[1] == 0);
    CHECK(comm->size == 1 || isnan(x[2]));
    y[1] = comm->rank == 0 ? 1e17 : 1; /* in another order the ones would count */
    CHECK(gs_comm_sum(comm, ctx, y, 2) == GS_OK && y[1] == 1e17);
    int what = comm->rank + 40;
    gs_error error;
    CHECK(comm->bcast(comm->user, &what, sizeof what, comm->size - 1, &error) == GS_OK &&
          what == comm->size + 39);
    gs_context_free(ctx);
}

static void test_numbers(void)
{
    const gs_comm single = gs_comm_single();
    number_rank(&single, NULL);
    for (int size = 1; size <= 4; size++)
        ranks_run(size, number_rank, NULL);
    float x = 3;
    gs_error error = {0};
    CHECK(single.bcast(single.user, &x, 4, 0, &error) == GS_OK && x == 3);
    CHECK(single.bcast(single.user, &x, 4, 1, &error) == GS_ERANGE && error.status == GS_ERANGE);
}

/* ---- training ---- */

enum { SIDE = 8, CLASSES = 3, WORDS = 17, TIME = 10, STEPS = 5, MOST_ITEMS = 8 };

typedef struct team {
    /* the job */
    bool cnn;
    gs_mode mode;
    gs_dtype half;
    const char *optim, *set, *rules;
    gs_ranks ranks;
    size_t items[RANKS_MOST]; /* of each rank, in every step */
    size_t micro;             /* of which a micro-batch has at most so many; 0: all */
    /* what goes wrong: at step 2, on this rank; 0: nothing */
    enum { NOTHING, OVERFLOW, BAD_ID, TAMPERED, CUT } what;
    int where;
    const char *save, *load; /* after step 3; before the first of those that are left */
    /* what came of it */
    gs_status status[RANKS_MOST];
    gs_error error[RANKS_MOST];
    gs_train_row rows[RANKS_MOST][STEPS];
    uint64_t hash[RANKS_MOST];
    float *weights[RANKS_MOST]; /* those that the model reads, as f32 */
    size_t count;
    double scale[RANKS_MOST];
} team;

typedef struct batch {
    int32_t ids[MOST_ITEMS * TIME], targets[MOST_ITEMS * TIME];
    float x[MOST_ITEMS * SIDE * SIDE];
} batch;

/* Items [first, first + n) of a step: the same whoever has them. */
static void fill(batch *b, bool cnn, unsigned step, size_t first, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint64_t item = step * 100 + first + i;
        for (size_t p = 0; cnn && p < SIDE * SIDE; p++)
            b->x[i * SIDE * SIDE + p] =
                (float)gs_random_u32(5, item * SIDE * SIDE + p) * 0x1p-31f - 1;
        if (cnn)
            b->targets[i] = (int32_t)(gs_random_u32(6, item) % CLASSES);
        for (size_t k = 0; !cnn && k < TIME; k++) {
            b->ids[i * TIME + k] = (int32_t)(gs_random_u32(7, item * TIME + k) % WORDS);
            b->targets[i * TIME + k] = (b->ids[i * TIME + k] * 5 + 3) % WORDS;
        }
    }
}

static size_t split(gs_batch *out, const batch *b, bool cnn, size_t n, size_t micro)
{
    size_t k = 0;
    for (size_t at = 0; at < n; at += out[k++].n) {
        const size_t count = micro && n - at > micro ? micro : n - at;
        out[k] = (gs_batch){.n = count,
                            .time = cnn ? 0 : TIME,
                            .x = b->x + at * SIDE * SIDE,
                            .ids = b->ids + at * TIME,
                            .targets = b->targets + at * (cnn ? 1 : TIME)};
    }
    return k;
}

static uint64_t hash_bytes(uint64_t h, const void *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const unsigned char *)data)[i]) * 0x100000001B3u;
    return h;
}

static float read_at(const gs_weight *w, size_t i)
{
    return w->dtype == GS_F32   ? ((const float *)w->data)[i]
           : w->dtype == GS_F16 ? gs_f16_to_f32(((const uint16_t *)w->data)[i])
                                : gs_bf16_to_f32(((const uint16_t *)w->data)[i]);
}

/* What the model reads: vectors as they are, matrices in half where there is a half. */
static void look(team *t, int rank, const gs_model *m)
{
    uint64_t h = 0xCBF29CE484222325u;
    size_t count = 0;
    for (size_t k = 0; k < m->n; k++)
        count += m->weights[k].rows * m->weights[k].cols;
    if (rank == 0)
        t->count = count;
    float *to = t->weights[rank] = malloc(count * sizeof *to);
    for (size_t k = 0; k < m->n; k++) {
        const gs_weight *w = &m->weights[k];
        const gs_weight half = {.data = w->copy, .dtype = w->copy_dtype};
        const gs_weight *from = t->mode == GS_O2 && w->rows > 1 && w->copy ? &half : w;
        for (size_t i = 0; i < w->rows * w->cols; i++)
            *to++ = read_at(from, i);
    }
    h = hash_bytes(h, t->weights[rank], count * sizeof(float));
    t->hash[rank] = hash_bytes(h, m->state, m->states * sizeof(float));
}

static void train_rank(const gs_comm *comm, void *arg)
{
    team *t = arg;
    const int me = comm->rank;
    gs_context *ctx;
    gs_model *m;
    gs_trainer *trainer = NULL;
    const gs_config one = {.size = sizeof one, .threads = 1};
    const gs_gpt_config gpt = {.size = sizeof gpt, WORDS, TIME, 2, 2, 24, 0};
    const gs_cnn_config cnn = {.size = sizeof cnn, SIDE, SIDE, 1, CLASSES, 4, 0};
    gs_trainer_config config = {
        .size = sizeof config,
        .optim.size = sizeof(gs_optim_config),
        .tape = {.size = sizeof(gs_tape_config), .mode = t->mode, .half = t->half, .telemetry = 1},
        .comm = comm,
        .ranks = t->ranks,
        .seed = 42};
    CHECK(gs_optim_config_init(&config.optim, t->optim ? t->optim : "adamw", NULL) == GS_OK);
    CHECK(gs_optim_config_set(&config.optim, t->set ? t->set : "lr=3e-3 clip_norm=1", NULL) ==
          GS_OK);
    CHECK(gs_scaler_init(&config.scaler, t->rules ? t->rules : "pytorch", NULL) == GS_OK);
    CHECK(gs_context_create(&ctx, &one, NULL) == GS_OK);
    CHECK((t->cnn ? gs_cnn_create(&m, ctx, &cnn) : gs_gpt_create(&m, ctx, &gpt)) == GS_OK);
    gs_status status = gs_trainer_create(&trainer, ctx, m, &config);
    static _Thread_local batch data;
    gs_batch micro[MOST_ITEMS];
    gs_checkpoint about = {.step = 3, .best = (double)NAN};
    if (status == GS_OK && t->load)
        status = gs_checkpoint_load(t->load, trainer, &about, &t->error[me]);
    for (unsigned step = t->load ? 3 : 0; status == GS_OK && step < STEPS; step++) {
        size_t first = 0;
        for (int r = 0; r < me; r++)
            first += t->items[r];
        fill(&data, t->cnn, step, first, t->items[me]);
        const bool now = step == 2 && t->where == me;
        if (now && t->what == OVERFLOW)
            data.x[0] = 3e38f;
        if (now && t->what == BAD_ID)
            data.ids[3] = WORDS + 5;
        if (now && t->what == TAMPERED)
            CHECK(gs_scaler_set(gs_trainer_scaler(trainer), "interval=9", NULL) == GS_OK);
        if (now && t->what == CUT)
            ranks_break(comm);
        const size_t n = split(micro, &data, t->cnn, t->items[me], t->micro);
        status = gs_trainer_step(trainer, micro, n, &t->rows[me][step]);
        if (status == GS_OK && t->save && step == 2 && (me == 0 || t->ranks.zero))
            status = gs_checkpoint_save(me == 0 ? t->save : NULL, trainer, &about, &t->error[me]);
    }
    t->status[me] = status;
    if (t->error[me].status == GS_OK)
        t->error[me] = *gs_context_error(ctx);
    if (trainer) {
        t->scale[me] = gs_scaler_scale(gs_trainer_scaler(trainer));
        look(t, me, m);
    }
    gs_trainer_free(trainer);
    gs_model_free(m);
    gs_context_free(ctx);
}

static void team_free(team *t)
{
    for (int r = 0; r < RANKS_MOST; r++)
        free(t->weights[r]);
}

/* Runs it; every rank must end alike. */
static team *run(int size, team t)
{
    team *out = malloc(sizeof *out);
    *out = t;
    ranks_run(size, train_rank, out);
    for (int r = 0; r < size; r++) {
        CHECK_MSG(out->status[r] == GS_OK || t.what != NOTHING, "%s", out->error[r].text);
        if (out->status[r] == GS_OK)
            CHECK_MSG(out->hash[r] == out->hash[0] && out->scale[r] == out->scale[0],
                      "rank %d differs", r);
    }
    return out;
}

static void done(team *t)
{
    team_free(t);
    free(t);
}

static bool same_rows(const team *a, const team *b)
{
    bool same = true;
    for (int i = 0; i < STEPS; i++) {
        const gs_train_row *x = &a->rows[0][i], *y = &b->rows[0][i];
        same &= x->loss == y->loss && x->scale == y->scale && x->amax == y->amax &&
                x->report.norm == y->report.norm && x->report.lr == y->report.lr &&
                x->stored.underflow == y->stored.underflow;
    }
    return same;
}

static void test_same_bits(void)
{
    for (int size = 2; size <= 4; size += 2)
        for (int cnn = 0; cnn < 2; cnn++) {
            const team job = {.cnn = cnn,
                              .mode = GS_O2,
                              .half = GS_F16,
                              .ranks.bucket = 512,
                              .micro = cnn ? 1 : 0,
                              .items = {2, 2, 2, 2}};
            team *a = run(size, job), *b = run(size, job);
            CHECK(a->hash[0] == b->hash[0] && same_rows(a, b));
            done(a);
            done(b);
        }
}

static void test_zero(void)
{
    static const char *const sets[] = {"lr=3e-3 clip_norm=1", "lr=1e-3 ema=0.9 weight_decay=0.1"};
    for (int size = 2; size <= 4; size++)
        for (int mode = GS_O0; mode < GS_MODE_COUNT; mode++)
            for (int k = 0; k < 4; k++) {
                team job = {.cnn = k & 1,
                            .mode = (gs_mode)mode,
                            .half = k & 2 ? GS_BF16 : GS_F16,
                            .optim = ((const char *const[]){"adamw", "sgd", "adam", "adamw"})[k],
                            .set = sets[k / 2],
                            .ranks = {.wire = k == 3 ? GS_F16 : GS_F32, .bucket = 512},
                            .items = {2, 2, 2, 2}};
                team *plain = run(size, job);
                job.ranks.zero = 1;
                team *zero = run(size, job);
                CHECK_MSG(plain->hash[0] == zero->hash[0] && same_rows(plain, zero),
                          "%d ranks, O%d, %d", size, mode, k);
                /* gradients stay where they are summed, weights go around: half the width in O2 */
                const uint64_t sent = zero->rows[0][1].sent, all = plain->rows[0][1].sent;
                CHECK_MSG(mode != GS_O2 || k == 3 || sent < all * 7 / 8, "%llu of %llu",
                          (unsigned long long)sent, (unsigned long long)all);
                done(plain);
                done(zero);
            }
}

static void test_zero_refuses(void)
{
    static const struct {
        const char *optim, *set;
        gs_mode mode;
    } bad[] = {{"lamb", "lr=1e-3", GS_O2},
               {"adafactor", "lr=1e-3", GS_O2},
               {"adamw", "moments=bf16", GS_O2},
               {"adamw", "rounding=stochastic", GS_O3}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        team *t = run(2, (team){.mode = bad[i].mode,
                                .half = GS_BF16,
                                .optim = bad[i].optim,
                                .set = bad[i].set,
                                .ranks.zero = 1,
                                .items = {1, 1},
                                .what = CUT,
                                .where = -1});
        CHECK(t->status[0] == GS_ERANGE && t->status[1] == GS_ERANGE);
        CHECK(strstr(t->error[0].text, "zero needs"));
        done(t);
    }
}

static double distance(const team *a, const team *b)
{
    double most = 0;
    for (size_t i = 0; i < a->count; i++)
        most = fmax(most, fabs((double)a->weights[0][i] - (double)b->weights[0][i]));
    return most;
}

/* However items are shared out, they count the same; a rank may have none. */
static void test_items(void)
{
    static const size_t ways[][4] = {{4, 4}, {2, 2, 2, 2}, {5, 3}, {8, 0}, {0, 8}, {1, 0, 4, 3}};
    const team alone = {.mode = GS_O0, .optim = "sgd", .set = "lr=0.5", .items = {8}};
    team *one = run(1, alone);
    for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++) {
        team job = alone;
        memcpy(job.items, ways[k], sizeof ways[k]);
        job.micro = k % 2 ? 2 : 0;
        team *many = run(ways[k][2] || ways[k][3] ? 4 : 2, job);
        CHECK_MSG(distance(one, many) < 2e-6, "way %zu: %g", k, distance(one, many));
        for (int i = 0; i < STEPS; i++) {
            CHECK(fabs(one->rows[0][i].loss - many->rows[0][i].loss) < 2e-6);
            CHECK(one->rows[0][i].scale == many->rows[0][i].scale && many->rows[0][i].items == 8);
        }
        done(many);
    }
    done(one);
    team *none = run(2, (team){.mode = GS_O0, .what = CUT, .where = -1});
    CHECK(none->status[0] == GS_ESIZE && strstr(none->error[0].text, "empty on all ranks"));
    done(none);
}

/* ---- checkpoints ---- */

static bool same_files(const char *a, const char *b)
{
    FILE *x = fopen(a, "rb"), *y = fopen(b, "rb");
    int p = 0, q = 0;
    while (x && y && p == q && p != EOF) {
        p = getc(x);
        q = getc(y);
    }
    const bool same = x && y && p == q;
    if (x)
        fclose(x);
    if (y)
        fclose(y);
    return same;
}

/* A file knows nothing of ranks: it is the same with ZeRO-1 and without, and goes on in any number
 * of them. */
static void test_checkpoints(void)
{
    char folder[] = "/tmp/gradscale-ranks-XXXXXX", paths[2][64];
    CHECK(mkdtemp(folder) != NULL);
    for (int i = 0; i < 2; i++)
        snprintf(paths[i], sizeof paths[i], "%s/%d.safetensors", folder, i);
    for (int mode = GS_O0; mode < GS_MODE_COUNT; mode++) {
        team job = {.cnn = mode % 2,
                    .mode = (gs_mode)mode,
                    .half = GS_BF16,
                    .set = "lr=1e-3 ema=0.9 rounding=kahan",
                    .ranks.bucket = 512,
                    .items = {2, 2, 2},
                    .save = paths[0]};
        team *plain = run(3, job);
        job.ranks.zero = 1;
        job.save = paths[1];
        team *zero = run(3, job);
        CHECK_MSG(same_files(paths[0], paths[1]), "O%d", mode);
        job.save = NULL;
        job.load = paths[0];
        team *on = run(3, job);
        CHECK_MSG(on->hash[0] == plain->hash[0] && on->hash[0] == zero->hash[0], "O%d", mode);
        job.ranks.zero = 0;
        team *two = run(2, job);
        CHECK(two->status[0] == GS_OK && two->status[1] == GS_OK);
        done(plain);
        done(zero);
        done(on);
        done(two);
    }
    team *none = run(2, (team){.mode = GS_O0, .items = {1, 1}, .load = "/nowhere", .what = CUT});
    CHECK(none->status[0] == GS_EIO && none->status[1] == GS_EIO);
    done(none);
    for (int i = 0; i < 2; i++)
        remove(paths[i]);
    remove(folder);
}

static void test_compression(void)
{
    const team job = {.mode = GS_O2, .half = GS_F16, .set = "lr=1e-3", .items = {4, 4}};
    team half = job, brain = job;
    half.ranks.wire = GS_F16;
    brain.ranks.wire = GS_BF16;
    team *full = run(2, job), *a = run(2, half), *b = run(2, brain);
    CHECK(full->rows[0][0].sent == 2 * a->rows[0][0].sent);
    CHECK(full->rows[0][0].sent == 2 * b->rows[0][0].sent);
    CHECK(a->hash[0] != full->hash[0] && distance(full, a) < 2e-3 && distance(full, b) < 8e-3);
    CHECK(fabs(full->rows[0][STEPS - 1].loss - a->rows[0][STEPS - 1].loss) < 1e-3);
    done(full);
    done(a);
    done(b);

    /* f32 gradients that f16 has no number for: found where they are summed. */
    team big = {.mode = GS_O0, .rules = "static:1e8", .items = {4, 4}};
    team *fine = run(2, big);
    big.ranks.wire = GS_F16;
    team *over = run(2, big);
    CHECK(fine->rows[0][0].report.verdict.action == GS_APPLY);
    CHECK(over->rows[0][0].report.verdict.action == GS_SKIP &&
          over->rows[1][0].report.verdict.reason == GS_REASON_INF);
    done(fine);
    done(over);
}

static void test_overflow(void)
{
    for (int zero = 0; zero < 2; zero++)
        for (int where = 0; where < 3; where++) {
            team *t = run(3, (team){.cnn = true,
                                    .mode = GS_O2,
                                    .half = GS_F16,
                                    .ranks = {.zero = zero, .compare = 1},
                                    .items = {2, 2, 2},
                                    .what = OVERFLOW,
                                    .where = where});
            for (int r = 0; r < 3; r++) {
                CHECK_MSG(t->status[r] == GS_OK, "%s", t->error[r].text);
                CHECK(t->rows[r][1].report.verdict.action == GS_APPLY);
                CHECK(t->rows[r][2].report.verdict.action == GS_SKIP);
                CHECK(t->rows[r][2].report.verdict.reason == t->rows[0][2].report.verdict.reason);
                CHECK(t->rows[r][3].scale == t->rows[0][3].scale);
                CHECK(t->rows[r][4].report.verdict.action == GS_APPLY);
            }
            done(t);
        }
}

static void test_errors(void)
{
    for (int zero = 0; zero < 2; zero++) {
        team *t = run(3, (team){.mode = GS_O2,
                                .half = GS_F16,
                                .ranks.zero = zero,
                                .items = {1, 1, 1},
                                .what = BAD_ID,
                                .where = 1});
        for (int r = 0; r < 3; r++) {
            CHECK(t->status[r] == GS_ERANGE && strstr(t->error[r].text, "id 3 is 22, of 17"));
            CHECK((strstr(t->error[r].text, "rank 1 could not run the step") != NULL) == (r != 1));
            CHECK(t->hash[r] == t->hash[0]);
        }
        done(t);
    }
}

/* A rank that has no memory for its trainer: nobody waits for it. Only of the first two blocks, the
 * trainer itself and the room to say so, it cannot tell. */
typedef struct shortage {
    books books;    /* of rank 1 */
    size_t fail_at; /* allocation of gs_trainer_create */
    gs_status status[2];
} shortage;

static void short_rank(const gs_comm *comm, void *arg)
{
    shortage *s = arg;
    gs_context *ctx;
    gs_model *m;
    gs_trainer *trainer;
    gs_config config = {.size = sizeof config, .threads = 1};
    gs_trainer_config tc = {.size = sizeof tc,
                            .optim.size = sizeof(gs_optim_config),
                            .tape = {.size = sizeof(gs_tape_config), .mode = GS_O2, .half = GS_F16},
                            .comm = comm,
                            .ranks.zero = 1,
                            .seed = 42};
    if (comm->rank == 1)
        config.alloc = books_hook(&s->books);
    gs_optim_config_init(&tc.optim, "adamw", NULL);
    gs_scaler_init(&tc.scaler, NULL, NULL);
    CHECK(gs_context_create(&ctx, &config, NULL) == GS_OK);
    CHECK(gs_gpt_create(
              &m, ctx, &(gs_gpt_config){.size = sizeof(gs_gpt_config), WORDS, TIME, 1, 2, 24, 0}) ==
          GS_OK);
    if (comm->rank == 1)
        s->books.fail_at = s->books.calls + s->fail_at;
    s->status[comm->rank] = gs_trainer_create(&trainer, ctx, m, &tc);
    const char *text = gs_context_error(ctx)->text;
    CHECK_MSG(s->status[comm->rank] == GS_OK || comm->rank == 1 ||
                  strstr(text, "rank 1 could not go on: no memory"),
              "%s", text);
    gs_trainer_free(trainer);
    gs_model_free(m);
    gs_context_free(ctx);
}

static void test_no_memory(void)
{
    shortage s = {.fail_at = 3};
    for (;; s.fail_at++) {
        ranks_run(2, short_rank, &s);
        CHECK(s.status[0] == s.status[1] && s.books.blocks == 0 && !s.books.wrong);
        if (s.status[0] == GS_OK || test_failures)
            break;
        CHECK(s.status[0] == GS_ENOMEM);
    }
    CHECK_MSG(s.fail_at > 10, "%zu", s.fail_at);
}

static void test_divergence(void)
{
    for (int zero = 0; zero < 2; zero++) {
        team *t = run(4, (team){.mode = zero ? GS_O1 : GS_O2,
                                .half = GS_F16,
                                .ranks = {.zero = zero, .compare = 4},
                                .items = {1, 1, 1, 1},
                                .what = TAMPERED,
                                .where = 2});
        for (int r = 0; r < 4; r++)
            CHECK_MSG(t->status[r] == GS_ERANK &&
                          strstr(t->error[r].text, "after 4 steps rank 2 differs"),
                      "%d: %s", (int)t->status[r], t->error[r].text);
        done(t);
    }
}

static void test_cut(void)
{
    for (int zero = 0; zero < 2; zero++) {
        team *t = run(3, (team){.mode = GS_O2,
                                .half = GS_F16,
                                .ranks = {.zero = zero, .bucket = 512},
                                .items = {1, 1, 1},
                                .what = CUT,
                                .where = 1});
        for (int r = 0; r < 3; r++)
            CHECK_MSG(t->status[r] == GS_ERANK && strstr(t->error[r].text, "wire was cut"), "%s",
                      t->error[r].text);
        done(t);
    }
}

TESTS({"sums", test_sums}, {"numbers", test_numbers}, {"same_bits", test_same_bits},
      {"zero", test_zero}, {"zero_refuses", test_zero_refuses}, {"items", test_items},
      {"checkpoints", test_checkpoints}, {"compression", test_compression},
      {"overflow", test_overflow}, {"errors", test_errors}, {"no_memory", test_no_memory},
      {"divergence", test_divergence}, {"cut", test_cut})
