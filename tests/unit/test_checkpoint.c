/* Checkpoints: what is resumed is what was never stopped, to the last bit; what is damaged or of
 * another run is refused and changes nothing. */
#include "rewrite.h"

#include "gradscale/io.h"

static gs_error error;

/* ---- the same bits ---- */

/* Saves at every step, resumes at every step with other threads and from other weights, and ends
 * with the same file. */
static void check_resume(const how *h)
{
    enum { STEPS = 5 };
    char name[32];
    make_folder();
    job whole = job_new(h);
    CHECK(whole.status == GS_OK);
    gs_checkpoint about = {.model = "m", .config = "a = 1\nb = \"2\"\n", .best = 0.1, .items = 7};
    for (about.step = 0; about.step <= STEPS; about.step++) {
        snprintf(name, sizeof name, "%d", (int)about.step);
        const gs_status status = gs_checkpoint_save(in_folder(name), whole.trainer, &about, &error);
        CHECK_MSG(status == GS_OK, "%s", error.text);
        if (about.step < STEPS)
            job_step(&whole, about.step);
    }
    for (int from = 0; from < STEPS; from++) {
        how other = *h;
        other.threads = 1 + (unsigned)from % 3;
        other.seed = h->seed + 1;
        job j = job_new(&other);
        job_step(&j, 99); /* whatever it was before */
        snprintf(name, sizeof name, "%d", from);
        gs_checkpoint got = {.model = "m", .config = about.config};
        const gs_status status = gs_checkpoint_load(in_folder(name), j.trainer, &got, &error);
        CHECK_MSG(status == GS_OK, "%s", error.text);
        CHECK(got.step == (uint64_t)from && got.items == 7 && got.best == 0.1 && !got.waits);
        for (; got.step < STEPS; got.step++)
            job_step(&j, got.step);
        CHECK(gs_checkpoint_save(in_folder("end"), j.trainer, &got, &error) == GS_OK);
        snprintf(name, sizeof name, "%d", STEPS);
        CHECK_MSG(same_job(&whole, &j) && same_file(in_folder(name), in_folder("end")),
                  "model %d O%d %s %s %s %s %s, resumed after %d", (int)h->kind, (int)h->mode,
                  gs_dtype_format(h->half)->name, h->optim ? h->optim : "",
                  h->settings ? h->settings : "", h->scaler ? h->scaler : "",
                  h->rules ? h->rules : "", from);
        job_free(&j);
    }
    job_free(&whole);
    remove_folder();
}

static void test_resume(void)
{
    static const how runs[] = {
        {.kind = MLP, .mode = GS_O0, .optim = "sgd", .settings = "lr=1e-2"},
        {.kind = MLP, .mode = GS_O1, .half = GS_F16, .optim = "sgd", .settings = "momentum=0.9"},
        {.kind = MLP, .mode = GS_O3, .half = GS_F16, .settings = "rounding=kahan ema=0.9"},
        {.kind = MLP, .mode = GS_O3, .half = GS_BF16, .settings = "rounding=stochastic seed=3"},
        {.kind = CNN, .mode = GS_O2, .half = GS_F16, .settings = "ema=0.9 lr=1e-2 clip_norm=1"},
        {.kind = CNN, .mode = GS_O1, .half = GS_BF16, .optim = "adam", .scaler = "guard"},
        {.kind = RESNET, .mode = GS_O2, .half = GS_BF16, .optim = "lamb"},
        {.kind = GPT, .mode = GS_O0, .settings = "schedule=cosine warmup=2 total=5"},
        {.kind = GPT, .mode = GS_O2, .half = GS_F16, .settings = "moments=f16 lr=1e-2"},
        {.kind = GPT, .mode = GS_O2, .half = GS_BF16, .optim = "adam", .settings = "moments=bf16"},
        {.kind = GPT, .mode = GS_O1, .half = GS_F16, .optim = "adafactor", .settings = ""},
        {.kind = GPT,
         .mode = GS_O3,
         .half = GS_F16,
         .optim = "lamb",
         .settings = "rounding=kahan moments=f16"},
        /* steps that overflow, skipped or run again */
        {.kind = CNN, .mode = GS_O2, .half = GS_F16, .rules = "init=0x1p+30 interval=2"},
        {.kind = GPT,
         .mode = GS_O2,
         .half = GS_F16,
         .rules = "init=0x1p+34 interval=1 on_overflow=attribute"},
        {.kind = MLP, .mode = GS_O2, .half = GS_F16, .rules = "probe=yes on_overflow=retry:3"},
        {.kind = MLP, .mode = GS_O2, .half = GS_F16, .scaler = "headroom"},
        {.kind = CNN, .mode = GS_O1, .half = GS_F16, .scaler = "logmax"},
        {.kind = MLP, .mode = GS_O2, .half = GS_F16, .scaler = "histogram"},
        {.kind = GPT, .mode = GS_O2, .half = GS_F16, .scaler = "adaptive"},
        {.kind = MLP, .mode = GS_O2, .half = GS_F16, .scaler = "deepspeed"},
        {.kind = CNN, .mode = GS_O2, .half = GS_F16, .scaler = "none"},
    };
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++)
        check_resume(&runs[i]);
}

/* A model of one's own, whose statistics have no names, or names for some. */
static void test_states(void)
{
    static const gs_state_entry named[] = {{"running", 5}};
    make_folder();
    for (size_t n = 0; n < 2; n++) {
        job j = job_new(&(how){.kind = CNN, .mode = GS_O0});
        float before[6];
        j.model->state_entries = named;
        j.model->n_states = n;
        memcpy(before, j.model->state, sizeof before);
        before[1] = j.model->state[1] = 0.5f;
        CHECK(gs_checkpoint_save(in_folder("a"), j.trainer, NULL, &error) == GS_OK);
        memset(j.model->state, 0, j.model->states * sizeof(float));
        CHECK(gs_checkpoint_load(in_folder("a"), j.trainer, NULL, &error) == GS_OK);
        CHECK(memcmp(before, j.model->state, sizeof before) == 0);
        gs_source *s;
        CHECK(gs_source_open(&s, in_folder("a"), NULL, &error) == GS_OK);
        uint64_t rest = 0;
        for (size_t i = 0; i < gs_source_count(s); i++)
            if (strcmp(gs_source_entry(s, i)->name, "state") == 0)
                rest = gs_source_entry(s, i)->count;
        CHECK(rest == j.model->states - 5 * n);
        gs_source_close(s);
        job_free(&j);
    }
    remove_folder();
}

/* ---- the file ---- */

/* As published, and in any pieces. */
static void test_hash(void)
{
    CHECK(hash_of("", 0) == 0xEF46DB3751D8E999);
    CHECK(hash_of("a", 1) == 0xD24EC4F1A98C6E5B);
    CHECK(hash_of("abc", 3) == 0x44BC2CF5AD770999);
    CHECK(hash_of("Nobody inspects the spammish repetition", 39) == 0xFBCEA83C8A378BF1);
    unsigned char data[200];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)gs_random_u32(1, i);
    for (size_t n = 0; n <= sizeof data; n++)
        for (size_t cut = 0; cut <= n; cut++) {
            gsi_hash hash;
            gsi_hash_init(&hash);
            gsi_hash_add(&hash, data, cut);
            gsi_hash_add(&hash, data + cut, n - cut);
            CHECK(gsi_hash_end(&hash) == hash_of(data, n));
        }
}

/* Names as PyTorch's, data aligned, the same bytes every time, nothing left behind; and what a
 * reader of another make says. */
static void test_format(void)
{
    static const char *const names[] = {"conv1.weight",         "bn1.running_mean",
                                        "bn3.running_var",      "fc.bias",
                                        "optimizer.m.bn1.bias", "optimizer.ema.fc.weight"};
    make_folder();
    job j = job_new(
        &(how){.kind = CNN, .mode = GS_O2, .half = GS_F16, .settings = "ema=0.5 moments=f16"});
    const gs_checkpoint about = {
        .step = 3, .config = "quotes \" \\ and\ttabs\n\xC3\xBC", .best = (double)NAN};
    job_step(&j, 0);
    CHECK(gs_checkpoint_save(in_folder("a.safetensors"), j.trainer, &about, &error) == GS_OK);
    CHECK(gs_checkpoint_save(in_folder("b.safetensors"), j.trainer, &about, &error) == GS_OK);
    CHECK(same_file(in_folder("a.safetensors"), in_folder("b.safetensors")));
    gs_source *s;
    CHECK(gs_source_open(&s, in_folder("a.safetensors"), NULL, &error) == GS_OK);
    CHECK(gs_source_entry(s, 0)->offset % 64 == 0);
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        bool found = false;
        for (size_t i = 0; i < gs_source_count(s); i++) {
            const gs_entry *e = gs_source_entry(s, i);
            found |= strcmp(e->name, names[k]) == 0;
            CHECK(e->dtype == GS_DTYPE_COUNT || e->offset % gs_dtype_format(e->dtype)->bytes == 0);
        }
        CHECK_MSG(found, "%s is missing", names[k]);
    }
    CHECK(strcmp(gs_source_metadata(s, "config"), about.config) == 0);
    CHECK(strcmp(gs_source_metadata(s, "format"), "pt") == 0 && !gs_source_metadata(s, "nothing"));
    gs_source_close(s);

    gs_checkpoint_text text;
    CHECK(gs_checkpoint_peek(&text, in_folder("a.safetensors"), &error) == GS_OK);
    CHECK(strcmp(text.about.config, about.config) == 0 && text.about.step == 3);
    CHECK(isnan(text.about.best) && text.about.model[0] == 0);
    CHECK(strcmp(text.precision, "O2 f16") == 0);
    CHECK(strcmp(text.optimizer, "adamw moments=f16 ema seed=0") == 0);
    CHECK(gs_checkpoint_verify(in_folder("a.safetensors"), &error) == GS_OK);

    static const struct {
        const char *name, *needs, *by;
    } readers[] = {{"layout", "pass", "a reader in Python"},
                   {"library", "import safetensors.numpy", "Python's library safetensors"}};
    for (size_t k = 0; k < sizeof readers / sizeof readers[0]; k++) {
        char command[300];
        snprintf(command, sizeof command, "python3 -c '%s' 2>/dev/null", readers[k].needs);
        if (system(command) != 0) {
            test_skip_part(readers[k].by, "it is not installed");
            continue;
        }
        snprintf(command, sizeof command, "python3 tests/support/read_safetensors.py %s %s",
                 readers[k].name, in_folder("a.safetensors"));
        CHECK(system(command) == 0);
    }
    job_free(&j);
    remove_folder();
}

/* ---- damage ---- */

static void test_damage(void)
{
    make_folder();
    const how h = {.kind = TINY, .mode = GS_O0, .optim = "sgd", .settings = "lr=1e-2"};
    job j = job_new(&h), untouched = job_new(&h);
    const char *path = in_folder("small");
    CHECK(gs_checkpoint_save(path, j.trainer, &(gs_checkpoint){.model = "m"}, &error) == GS_OK);
    job_step(&j, 0); /* so that a load would be seen */
    job_step(&untouched, 0);
    const content file = read_bytes(path);
    gs_checkpoint about = {.step = 77};
    for (size_t n = 0; n < file.n; n++) {
        write_bytes(path, file.data, n);
        CHECK_MSG(gs_checkpoint_load(path, j.trainer, &about, &error) != GS_OK, "cut to %zu", n);
        CHECK(gs_checkpoint_verify(path, &error) != GS_OK && strstr(error.text, "small"));
    }
    const int fd = open(path, O_WRONLY | O_TRUNC);
    CHECK(write(fd, file.data, file.n) == (ssize_t)file.n);
    CHECK(gs_checkpoint_verify(path, &error) == GS_OK);
    size_t unnamed = 0;
    for (size_t i = 0; i < file.n; i++)
        for (int bit = 0; bit < 8; bit++) {
            const unsigned char wrong = file.data[i] ^ (unsigned char)(1 << bit);
            CHECK(pwrite(fd, &wrong, 1, (off_t)i) == 1);
            error = (gs_error){0};
            CHECK_MSG(gs_checkpoint_load(path, j.trainer, &about, &error) != GS_OK,
                      "bit %d of byte %zu of %zu", bit, i, file.n);
            unnamed += !strstr(error.text, "small");
            CHECK(pwrite(fd, &file.data[i], 1, (off_t)i) == 1);
        }
    CHECK(unnamed == 0);
    CHECK(same_job(&j, &untouched) && about.step == 77);
    CHECK(pwrite(fd, "", 1, (off_t)file.n) == 1); /* a byte too many */
    CHECK(gs_checkpoint_load(path, j.trainer, &about, &error) != GS_OK);
    CHECK(ftruncate(fd, (off_t)file.n) == 0);
    CHECK(gs_checkpoint_load(path, j.trainer, &about, &error) == GS_OK && about.step == 0);
    CHECK(!same_job(&j, &untouched));
    close(fd);
    free(file.data);
    job_free(&j);
    job_free(&untouched);
    remove_folder();
}

/* ---- of another run ---- */

/* Saves a run of `theirs`, loads it into one of `ours`: refused, with an error message that has
 * both words, and nothing has changed. */
static void check_refused(const how *theirs, const how *ours, const char *word, const char *other)
{
    job a = job_new(theirs), b = job_new(ours), untouched = job_new(ours);
    CHECK(gs_checkpoint_save(in_folder("a"), a.trainer, NULL, &error) == GS_OK);
    const gs_status status = gs_checkpoint_load(in_folder("a"), b.trainer, NULL, &error);
    CHECK_MSG(status != GS_OK && status != GS_ECHECKSUM && strstr(error.text, word) &&
                  strstr(error.text, other) && strstr(error.text, "/a: "),
              "%s, where %s and %s are missing", error.text, word, other);
    CHECK(same_job(&b, &untouched));
    job_free(&a);
    job_free(&b);
    job_free(&untouched);
}

static void test_refused(void)
{
    static const how mlp = {.kind = MLP, .mode = GS_O2, .half = GS_F16};
    make_folder();
    how other = mlp;
    check_refused(&(how){.kind = TINY, .mode = GS_O2, .half = GS_F16}, &mlp, "layers.0", "20");
    check_refused(&(how){.kind = CNN, .mode = GS_O2, .half = GS_F16}, &mlp, "tensor", "which");
    check_refused(&mlp, &(how){.kind = GPT, .mode = GS_O2, .half = GS_F16}, "tensor", "which");
    other.optim = "lamb";
    check_refused(&other, &mlp, "lamb", "adamw");
    other.optim = "sgd";
    check_refused(&mlp, &other, "adamw", "sgd");
    other = mlp;
    other.settings = "moments=bf16";
    check_refused(&other, &mlp, "moments=bf16", "optimizer");
    other.settings = "ema=0.9";
    check_refused(&mlp, &other, "ema", "optimizer");
    other = mlp;
    other.half = GS_BF16;
    check_refused(&other, &mlp, "bf16", "f16");
    other.mode = GS_O3;
    check_refused(&other, &mlp, "O3 bf16", "O2 f16");

    job j = job_new(&mlp);
    gs_checkpoint about = {.model = "mlp layers=2 width=20"};
    CHECK(gs_checkpoint_save(in_folder("a"), j.trainer, &about, &error) == GS_OK);
    about.model = "mlp layers=3 width=20";
    CHECK(gs_checkpoint_load(in_folder("a"), j.trainer, &about, &error) == GS_ENAME);
    CHECK_MSG(strstr(error.text, "layers=2 width=20 in the file, layers=3"), "%s", error.text);

    /* what a later version writes: more texts are fine, another number is not */
    about.model = NULL;
    rewrite(in_folder("a"), "{\"format\":\"pt\"", "{\"new\":\"x\",\"format\":\"pt\"");
    CHECK_MSG(gs_checkpoint_load(in_folder("a"), j.trainer, &about, &error) == GS_OK, "%s",
              error.text);
    rewrite(in_folder("a"), "\"gradscale_checkpoint\":\"1\"", "\"gradscale_checkpoint\":\"2\"");
    CHECK(gs_checkpoint_load(in_folder("a"), j.trainer, &about, &error) == GS_EVERSION);
    CHECK_MSG(strstr(error.text, "version 2"), "%s", error.text);
    gs_checkpoint_text text;
    CHECK(gs_checkpoint_peek(&text, in_folder("a"), &error) == GS_EVERSION);
    rewrite(in_folder("a"), "\"gradscale_checkpoint\":\"2\"", "\"gradscale_checkpoint\":\"1\"");

    /* texts that are none: with a right checksum, so that only their reader can see it */
    static const char *const lies[][2] = {{"\"step\":\"0\"", "\"step\":\"-1\""},
                                          {"\"step\":\"-1\"", "\"step\":\"18446744073709551616\""},
                                          {"\"step\":\"18446744073709551616\"", "\"step\":\"\""},
                                          {"\"step\":\"\"", "\"stop\":\"0\""},
                                          {"\"stop\":\"0\"", "\"step\":\"0\""}};
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        rewrite(in_folder("a"), lies[i][0], lies[i][1]);
        const gs_status status = gs_checkpoint_load(in_folder("a"), j.trainer, &about, &error);
        CHECK_MSG((status == GS_OK) == (i == 4), "%s: %s", lies[i][1], error.text);
    }
    static const char *const absurd[][2] = {
        {"\"optimizer_applied\":\"0\"", "\"optimizer_applied\":\"18446744073709551615\""},
        {"\"optimizer_exponent_m\":\"0\"", "\"optimizer_exponent_m\":\"61\""},
        {"\"optimizer_exponent_m\":\"0\"", "\"optimizer_exponent_m\":\"0.5\""},
        {"\"optimizer_bound_v\":\"0x0p+0\"", "\"optimizer_bound_v\":\"nan\""},
        {"gradscale scaler 1", "gradscale scaler 7"},
    };
    for (size_t i = 0; i < sizeof absurd / sizeof absurd[0]; i++) {
        rewrite(in_folder("a"), absurd[i][0], absurd[i][1]);
        CHECK_MSG(gs_checkpoint_load(in_folder("a"), j.trainer, &about, &error) != GS_OK, "%s",
                  absurd[i][1]);
        rewrite(in_folder("a"), absurd[i][1], absurd[i][0]);
    }
    CHECK(gs_checkpoint_load(in_folder("a"), j.trainer, &about, &error) == GS_OK);
    job_free(&j);
    remove_folder();
}

/* Files that are no checkpoints, and places where none can be. */
static void test_paths(void)
{
    make_folder();
    job j = job_new(&(how){.kind = TINY, .mode = GS_O0});
    gs_checkpoint_text text;
    const gs_checkpoint about = {.best = (double)NAN};
    write_bytes(in_folder("empty"), "", 0);
    const char *const none[] = {"tests/data/grads.safetensors", "tests/data/f4.npy",
                                in_folder("empty"), job_folder, in_folder("nothing")};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        CHECK(gs_checkpoint_load(none[i], j.trainer, NULL, &error) != GS_OK);
        CHECK_MSG(strstr(error.text, none[i]), "%s", error.text);
        CHECK(gs_checkpoint_peek(&text, none[i], &error) != GS_OK);
        CHECK(gs_checkpoint_verify(none[i], &error) != GS_OK);
    }
    CHECK(gs_checkpoint_save(job_folder, j.trainer, &about, &error) == GS_EIO);
    CHECK_MSG(strstr(error.text, "folder"), "%s", error.text);
    CHECK(gs_checkpoint_save(in_folder("no/where"), j.trainer, &about, &error) == GS_EIO);
    CHECK_MSG(strstr(error.text, "no/where: cannot be written"), "%s", error.text);
    CHECK(gs_checkpoint_save(in_folder("slash/"), j.trainer, &about, &error) == GS_EIO);
    CHECK(gs_checkpoint_save("", j.trainer, &about, &error) == GS_EIO);
    CHECK(gs_checkpoint_save(NULL, j.trainer, &about, &error) == GS_ENULL);
    CHECK(gs_checkpoint_load(NULL, j.trainer, NULL, &error) == GS_ENULL);
    CHECK(gs_checkpoint_peek(NULL, in_folder("nothing"), &error) == GS_ENULL);

    char config[GS_CHECKPOINT_CONFIG + 1], path[6000];
    memset(config, 'x', sizeof config);
    config[sizeof config - 1] = 0;
    gs_checkpoint large = {.config = config};
    CHECK(gs_checkpoint_save(in_folder("a"), j.trainer, &large, &error) == GS_ESIZE);
    config[sizeof config - 2] = 0;
    CHECK(gs_checkpoint_save(in_folder("a"), j.trainer, &large, &error) == GS_OK);
    CHECK(gs_checkpoint_peek(&text, in_folder("a"), &error) == GS_OK);
    CHECK(strlen(text.config) == GS_CHECKPOINT_CONFIG - 1);
    large = (gs_checkpoint){.config = "\xFF"};
    CHECK(gs_checkpoint_save(in_folder("a"), j.trainer, &large, &error) == GS_EFORMAT);
    memset(path, 'p', sizeof path);
    path[sizeof path - 1] = 0;
    CHECK(gs_checkpoint_save(path, j.trainer, &about, &error) == GS_ESIZE);
    path[300] = 0;
    CHECK(gs_checkpoint_save(path, j.trainer, &about, &error) == GS_EIO);
    job_free(&j);
    remove_folder();
}

/* ---- memory ---- */

/* Every allocation fails once: nothing leaks, nothing changes, the next try works. */
static void test_memory(void)
{
    make_folder();
    books b = {0};
    const how h = {.kind = MLP, .mode = GS_O2, .half = GS_F16, .books = &b};
    how plain = h;
    plain.books = NULL;
    job j = job_new(&h), untouched = job_new(&plain);
    const gs_checkpoint about = {.best = (double)NAN};
    CHECK(gs_checkpoint_save(in_folder("a"), j.trainer, &about, &error) == GS_OK);
    job_step(&j, 0);
    job_step(&untouched, 0);
    for (int loading = 0; loading < 2; loading++) {
        size_t failures = 0;
        for (size_t k = 1; k < 1000; k++) {
            const size_t blocks = b.blocks;
            b.fail_from = b.calls + k; /* arenas try twice */
            const gs_status status =
                loading ? gs_checkpoint_load(in_folder("a"), j.trainer, NULL, &error)
                        : gs_checkpoint_save(in_folder("b"), j.trainer, &about, &error);
            b.fail_from = 0;
            CHECK(b.blocks == blocks && !b.wrong);
            CHECK(status == GS_OK || status == GS_ENOMEM);
            if (status == GS_OK)
                break;
            failures++;
            CHECK(same_job(&j, &untouched));
            CHECK(loading || access(in_folder("b"), F_OK) != 0);
        }
        CHECK_MSG(failures >= 3, "only %zu allocations failed", failures);
    }
    CHECK(!same_job(&j, &untouched));
    job_free(&j);
    job_free(&untouched);
    CHECK(b.blocks == 0);
    remove_folder();
}

TESTS({"hash", test_hash}, {"format", test_format}, {"states", test_states},
      {"resume", test_resume}, {"damage", test_damage}, {"refused", test_refused},
      {"paths", test_paths}, {"memory", test_memory})
