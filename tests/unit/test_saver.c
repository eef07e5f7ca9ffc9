/* A folder of checkpoints written while training goes on: what is kept and found, and that full
 * disks, missing rights, ended memory and kill -9 lose nothing that was there. */
#include "job.h"

#include "io/write.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

static gs_error error;
static const how tiny = {.kind = TINY, .mode = GS_O2, .half = GS_F16, .threads = 2};

static gs_saver *saver_new(size_t keep)
{
    gs_saver *saver = NULL;
    CHECK_MSG(gs_saver_create(&saver, job_folder, keep, NULL, &error) == GS_OK, "%s", error.text);
    return saver;
}

/* The names in the folder, in order. */
static const char *listing(void)
{
    static char text[2000];
    struct dirent **list;
    const int n = scandir(job_folder, &list, NULL, alphasort);
    text[0] = 0;
    for (int i = 0; i < n; i++) {
        if (list[i]->d_name[0] != '.') {
            strcat(text, list[i]->d_name);
            strcat(text, " ");
        }
        free(list[i]);
    }
    free(list);
    return text;
}

/* Steps `from`..`to` of a run, each saved; with 3 as the best. */
static void save_steps(job *j, gs_saver *saver, uint64_t from, uint64_t to)
{
    gs_checkpoint about = {.best = (double)NAN};
    for (about.step = from; about.step <= to; about.step++) {
        job_step(j, about.step);
        const gs_status status =
            gs_saver_save(saver, j->trainer, &about, about.step == 3 ? GS_SAVE_BEST : 0, &error);
        CHECK_MSG(status == GS_OK, "%s", error.text);
    }
    CHECK_MSG(gs_saver_wait(saver, &error) == GS_OK, "%s", error.text);
}

/* What the thread wrote is what gs_checkpoint_save writes, of the moment of the call. */
static void test_copy(void)
{
    make_folder();
    for (int kind = MLP; kind <= GPT; kind++) {
        job j =
            job_new(&(how){.kind = (model_kind)kind, .mode = GS_O2, .half = GS_F16, .threads = 3});
        gs_saver *saver = saver_new(0);
        for (gs_checkpoint about = {.best = 2, .config = "c"}; about.step < 4; about.step++) {
            CHECK(gs_checkpoint_save(in_folder("now"), j.trainer, &about, &error) == GS_OK);
            CHECK(gs_saver_save(saver, j.trainer, &about, 0, &error) == GS_OK);
            job_step(&j, about.step); /* while it is being written */
            job_step(&j, about.step);
            CHECK(gs_saver_wait(saver, &error) == GS_OK);
            char name[64];
            snprintf(name, sizeof name, "step-0000000%d.safetensors", (int)about.step);
            CHECK(same_file(in_folder("now"), in_folder(name)));
        }
        const gs_saver_times times = gs_saver_get_times(saver);
        struct stat st;
        CHECK(stat(in_folder("now"), &st) == 0 && times.bytes == (uint64_t)st.st_size);
        CHECK(times.wrote > 0 && times.copied > 0);
        gs_saver_free(saver);
        job_free(&j);
    }
    remove_folder();
}

/* ---- what stays ---- */

static void test_keep(void)
{
    char path[200];
    make_folder();
    CHECK(gs_saver_newest(path, sizeof path, job_folder, &error) == GS_ENAME);
    CHECK(gs_saver_newest(path, sizeof path, in_folder("nothing"), &error) == GS_EIO);
    job j = job_new(&tiny);
    gs_saver *saver = saver_new(2);
    save_steps(&j, saver, 1, 5);
    CHECK_MSG(strcmp(listing(), "best.safetensors step-00000004.safetensors "
                                "step-00000005.safetensors ") == 0,
              "%s", listing());
    gs_checkpoint about = {0};
    CHECK(gs_checkpoint_load(in_folder("best.safetensors"), j.trainer, &about, &error) == GS_OK);
    CHECK(about.step == 3);

    /* a better one takes the place of the best; a run that went back removes nothing ahead of it */
    save_steps(&j, saver, 3, 3);
    CHECK(gs_saver_newest(path, sizeof path, job_folder, &error) == GS_OK);
    CHECK(strcmp(path, in_folder("step-00000005.safetensors")) == 0 && error.status == GS_OK);
    save_steps(&j, saver, 6, 6);
    CHECK_MSG(strcmp(listing(), "best.safetensors step-00000005.safetensors "
                                "step-00000006.safetensors ") == 0,
              "%s", listing());
    CHECK(gs_saver_newest(path, 10, job_folder, &error) == GS_ESIZE);
    gs_saver_free(saver);

    /* keep 0: all */
    saver = saver_new(0);
    save_steps(&j, saver, 7, 12);
    CHECK(strstr(listing(), "step-00000005") && strstr(listing(), "step-00000012"));
    gs_saver_free(saver);
    job_free(&j);
    remove_folder();
}

static void damage(const char *name)
{
    const int fd = open(in_folder(name), O_WRONLY);
    CHECK(fd >= 0 && pwrite(fd, "?", 1, 5000) == 1);
    close(fd);
}

static void test_newest(void)
{
    char path[200];
    make_folder();
    job j = job_new(&tiny);
    gs_saver *saver = saver_new(0);
    save_steps(&j, saver, 98, 101);
    gs_saver_free(saver);
    /* names that only look like one */
    write_bytes(in_folder("step-999.safetensors"), "", 0);
    write_bytes(in_folder("step-00000999.safetensors.old"), "", 0);
    write_bytes(in_folder("step-99999999999999999999999.safetensors"), "", 0);
    CHECK(gs_saver_newest(path, sizeof path, job_folder, &error) == GS_OK);
    CHECK(strcmp(path, in_folder("step-00000101.safetensors")) == 0 && error.status == GS_OK);
    /* a link to nothing looks like one that a run has just removed, but stays */
    CHECK(symlink("nothing", in_folder("step-00000102.safetensors")) == 0);
    CHECK(gs_saver_newest(path, sizeof path, job_folder, &error) == GS_OK);
    CHECK(strcmp(path, in_folder("step-00000101.safetensors")) == 0 && error.status == GS_EIO);
    CHECK(unlink(in_folder("step-00000102.safetensors")) == 0);
    damage("step-00000101.safetensors");
    CHECK(truncate(in_folder("step-00000100.safetensors"), 3000) == 0);
    CHECK(gs_saver_newest(path, sizeof path, job_folder, &error) == GS_OK);
    CHECK(strcmp(path, in_folder("step-00000099.safetensors")) == 0);
    CHECK_MSG(error.status == GS_ECHECKSUM && strstr(error.text, "step-00000101.safetensors") &&
                  strstr(error.text, "an older one is taken"),
              "%s", error.text);
    damage("step-00000099.safetensors");
    damage("step-00000098.safetensors");
    CHECK(gs_saver_newest(path, sizeof path, job_folder, &error) == GS_ECHECKSUM);
    CHECK_MSG(strstr(error.text, "none of its 4"), "%s", error.text);
    write_bytes(in_folder("step-00000000.safetensors"), "x", 1);
    CHECK(gs_saver_newest(path, sizeof path, job_folder, NULL) == GS_ECHECKSUM);
    job_free(&j);
    remove_folder();
}

/* What a killed process left is removed; what another is writing is not, nor what is no one's. */
static void test_temporaries(void)
{
    make_folder();
    job j = job_new(&tiny);
    char theirs[160];
    strcpy(theirs, in_folder("step-00000002.safetensors.77-0.tmp"));
    write_bytes(in_folder("step-00000001.safetensors.77-0.tmp"), "half", 4);
    write_bytes(in_folder("best.safetensors.1-12.tmp"), "half", 4);
    write_bytes(theirs, "half", 4);
    write_bytes(in_folder("notes.tmp"), "mine", 4);
    write_bytes(in_folder("a.safetensors.tmp"), "mine", 4);
    const int fd = open(theirs, O_RDONLY);
    CHECK(flock(fd, LOCK_EX) == 0);
    gs_saver *saver = saver_new(2);
    CHECK_MSG(strcmp(listing(), "a.safetensors.tmp notes.tmp "
                                "step-00000002.safetensors.77-0.tmp ") == 0,
              "%s", listing());
    close(fd);
    save_steps(&j, saver, 2, 2); /* its own temporaries go with every save */
    CHECK_MSG(strcmp(listing(), "a.safetensors.tmp notes.tmp step-00000002.safetensors ") == 0,
              "%s", listing());
    gs_saver_free(saver);
    job_free(&j);
    remove_folder();
}

/* ---- what can go wrong ---- */

static void test_create(void)
{
    gs_saver *saver = NULL;
    char path[5000];
    make_folder();
    write_bytes(in_folder("file"), "x", 1);
    CHECK(gs_saver_create(&saver, in_folder("file"), 1, NULL, &error) == GS_EIO && !saver);
    CHECK_MSG(strstr(error.text, "file: is not a folder"), "%s", error.text);
    CHECK(gs_saver_create(&saver, in_folder("file/below"), 1, NULL, &error) == GS_EIO);
    CHECK(gs_saver_create(&saver, "", 1, NULL, &error) == GS_ESIZE);
    CHECK(gs_saver_create(&saver, NULL, 1, NULL, &error) == GS_ENULL);
    memset(path, 'p', sizeof path);
    path[sizeof path - 1] = 0;
    CHECK(gs_saver_create(&saver, path, 1, NULL, &error) == GS_ESIZE);
    CHECK(gs_saver_create(&saver, in_folder("a/b//c/"), 1, NULL, &error) == GS_OK);
    CHECK(access(in_folder("a/b/c"), F_OK) == 0);
    gs_saver_free(saver);
    gs_saver_free(NULL);
    CHECK(gs_saver_wait(NULL, &error) == GS_ENULL);
    remove_folder();
}

/* A folder has one saver at a time, wherever the other one is; it is free when that one ends. */
static void test_lock(void)
{
    make_folder();
    gs_saver *first = saver_new(1), *second = NULL;
    write_bytes(in_folder("step-00000001.safetensors.1-0.tmp"), "x", 1);
    CHECK(gs_saver_create(&second, job_folder, 1, NULL, &error) == GS_ESTATE && !second);
    CHECK_MSG(strstr(error.text, job_folder) && strstr(error.text, "another"), "%s", error.text);
    CHECK(strstr(listing(), ".tmp")); /* not even what nobody holds is touched */
    gs_saver_free(first);
    const pid_t child = fork();
    if (child == 0) { /* holds it until it is killed */
        first = NULL;
        if (gs_saver_create(&first, job_folder, 1, NULL, &error) == GS_OK)
            pause();
        _exit(1);
    }
    for (int tries = 0; strstr(listing(), ".tmp") && tries < 1000; tries++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    CHECK(gs_saver_create(&second, job_folder, 1, NULL, &error) == GS_ESTATE);
    kill(child, SIGKILL);
    CHECK(waitpid(child, NULL, 0) == child);
    gs_saver_free(saver_new(1));
    remove_folder();
}

/* Runs body in a child of its own, which ends with the number of its failed checks. */
static void in_child(void (*body)(void))
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        body();
        _exit(test_failures > 100 ? 100 : test_failures);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with %x", status);
}

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = bytes;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

/* The disk is full at every length: said at the next call, and what was there is there. */
static void fill_disk(void)
{
    job j = job_new(&tiny);
    gs_saver *saver = saver_new(1);
    gs_checkpoint about = {.best = (double)NAN, .step = 1};
    CHECK(gs_saver_save(saver, j.trainer, &about, 0, &error) == GS_OK);
    CHECK(gs_saver_wait(saver, &error) == GS_OK);
    struct stat st;
    CHECK(stat(in_folder("step-00000001.safetensors"), &st) == 0);
    const content before = read_bytes(in_folder("step-00000001.safetensors"));
    signal(SIGXFSZ, SIG_IGN); /* for the saving without a thread */
    about.step = 2;
    for (off_t size = 0; size < st.st_size; size += size < 100 ? 1 : 97) {
        limit_files((rlim_t)size);
        CHECK(gs_saver_save(saver, j.trainer, &about, GS_SAVE_BEST, &error) == GS_OK);
        CHECK(gs_saver_save(saver, j.trainer, &about, 0, &error) == GS_EIO);
        CHECK_MSG(strstr(error.text, "step-00000002.safetensors: writing failed"), "%s",
                  error.text);
        CHECK(gs_saver_wait(saver, &error) == GS_OK); /* told once, and that one was not saved */
        CHECK(gs_checkpoint_save(in_folder("step-00000001.safetensors"), j.trainer, &about,
                                 &error) == GS_EIO);
        CHECK_MSG(strcmp(listing(), "step-00000001.safetensors ") == 0, "%s", listing());
    }
    const content after = read_bytes(in_folder("step-00000001.safetensors"));
    CHECK(before.n == after.n && memcmp(before.data, after.data, after.n) == 0);
    limit_files(RLIM_INFINITY);
    CHECK(gs_saver_save(saver, j.trainer, &about, 0, &error) == GS_OK);
    CHECK(gs_saver_wait(saver, &error) == GS_OK);
    CHECK(strcmp(listing(), "step-00000002.safetensors ") == 0);
    free(before.data);
    free(after.data);
    gs_saver_free(saver);
    job_free(&j);
}

/* What failed is written again as it was, though training has gone on; only then it counts. */
static void save_again(void)
{
    job j = job_new(&tiny);
    gs_saver *saver = saver_new(0);
    gs_checkpoint about = {.best = 1, .step = 7, .best_step = 7};
    signal(SIGXFSZ, SIG_IGN);
    CHECK(gs_saver_retry(NULL, &error) == GS_ENULL);
    CHECK(gs_saver_retry(saver, &error) == GS_ESTATE); /* nothing has failed */
    CHECK(gs_checkpoint_save(in_folder("want"), j.trainer, &about, &error) == GS_OK);
    limit_files(100);
    CHECK(gs_saver_save(saver, j.trainer, &about, GS_SAVE_BEST, &error) == GS_OK);
    job_step(&j, 7);
    CHECK(gs_saver_wait(saver, &error) == GS_EIO);
    gs_saver_state state = gs_saver_get_state(saver);
    CHECK(!state.busy && !state.failed && state.files == 0 && state.best == 0);
    CHECK(gs_saver_retry(saver, &error) == GS_OK); /* in vain */
    while (gs_saver_get_state(saver).busy)
        continue;
    state = gs_saver_get_state(saver);
    CHECK(state.failed && state.files == 0);
    limit_files(RLIM_INFINITY);
    CHECK(gs_saver_retry(saver, &error) == GS_OK);
    CHECK(gs_saver_wait(saver, &error) == GS_OK);
    state = gs_saver_get_state(saver);
    CHECK(!state.failed && state.files == 1 && state.step == 7 && state.best == 7);
    CHECK(same_file(in_folder("want"), in_folder("step-00000007.safetensors")));
    CHECK(same_file(in_folder("want"), in_folder("best.safetensors")));
    CHECK(gs_saver_retry(saver, &error) == GS_ESTATE);
    gs_saver_free(saver);
    job_free(&j);
}

static void test_again(void)
{
    make_folder();
    in_child(save_again);
    remove_folder();
}

static void test_full(void)
{
    make_folder();
    in_child(fill_disk);
    remove_folder();
}

/* As somebody who may not write there. */
static void without_rights(void)
{
    job j = job_new(&tiny);
    gs_saver *saver = NULL;
    char path[200];
    gs_checkpoint about = {.best = (double)NAN, .step = 9};
    if (getuid() == 0)
        CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    CHECK(gs_saver_create(&saver, job_folder, 1, NULL, &error) == GS_EIO);
    CHECK_MSG(strstr(error.text, strerror(EACCES)), "%s", error.text);
    CHECK(gs_saver_create(&saver, in_folder("new"), 1, NULL, &error) == GS_EIO);
    CHECK(gs_checkpoint_save(in_folder("a"), j.trainer, &about, &error) == GS_EIO);
    CHECK_MSG(strstr(error.text, strerror(EACCES)), "%s", error.text);
    CHECK(gs_checkpoint_load(in_folder("step-00000001.safetensors"), j.trainer, NULL, &error) ==
          GS_EIO);
    CHECK(gs_saver_newest(path, sizeof path, job_folder, &error) == GS_ECHECKSUM);
    CHECK_MSG(strstr(error.text, strerror(EACCES)), "%s", error.text);
    job_free(&j);
}

static void test_rights(void)
{
    make_folder();
    job j = job_new(&tiny);
    gs_saver *saver = saver_new(1);
    save_steps(&j, saver, 1, 1);
    gs_saver_free(saver);
    job_free(&j);
    CHECK(chmod(in_folder("step-00000001.safetensors"), 0) == 0 && chmod(job_folder, 0555) == 0);
    in_child(without_rights);
    CHECK(chmod(job_folder, 0755) == 0);
    remove_folder();
}

/* Every allocation of the saver's fails once. Without memory to copy, the caller writes. */
static void test_memory(void)
{
    make_folder();
    job j = job_new(&tiny);
    const gs_checkpoint about = {.best = (double)NAN, .step = 1};
    int failures = 0;
    for (size_t k = 1; k < 100; k++) {
        books b = {.fail_from = k};
        const gs_alloc hook = books_hook(&b);
        gs_saver *saver = NULL;
        gs_status status = gs_saver_create(&saver, job_folder, 1, &hook, &error);
        CHECK((status == GS_OK) == (saver != NULL));
        if (saver)
            status = gs_saver_save(saver, j.trainer, &about, 0, &error);
        if (saver)
            CHECK(gs_saver_wait(saver, &error) == GS_OK);
        gs_saver_free(saver);
        CHECK(b.blocks == 0 && !b.wrong);
        CHECK(status == GS_OK || status == GS_ENOMEM);
        CHECK((status == GS_OK) == (access(in_folder("step-00000001.safetensors"), F_OK) == 0));
        unlink(in_folder("step-00000001.safetensors"));
        failures += status != GS_OK;
        if (b.calls < k)
            break;
    }
    CHECK_MSG(failures >= 4, "only %d allocations failed", failures);
    job_free(&j);
    remove_folder();
}

/* ---- kill -9 ---- */

enum { RUN = 150 };

/* The run: resume, say so, train, save every step; as a user's program does. */
static void run_to_the_end(int say)
{
    char path[200];
    job j = job_new(&tiny);
    gs_saver *saver;
    gs_checkpoint about = {.best = (double)NAN};
    if (gs_saver_create(&saver, job_folder, 2, NULL, &error) != GS_OK)
        _exit(1);
    if (gs_saver_newest(path, sizeof path, job_folder, &error) == GS_OK &&
        gs_checkpoint_load(path, j.trainer, &about, &error) != GS_OK)
        _exit(2);
    if (write(say, "", 1) != 1)
        _exit(5);
    while (about.step < RUN) {
        job_step(&j, about.step);
        about.step++;
        if (gs_saver_save(saver, j.trainer, &about, about.step % 5 == 0 ? GS_SAVE_BEST : 0,
                          &error) != GS_OK)
            _exit(3);
    }
    _exit(gs_saver_wait(saver, &error) == GS_OK && test_failures == 0 ? 0 : 4);
}

static uint64_t file_hash(const char *path)
{
    gsi_hash hash;
    const content file = read_bytes(path);
    gsi_hash_init(&hash);
    gsi_hash_add(&hash, file.data, file.n);
    free(file.data);
    return gsi_hash_end(&hash);
}

/* Killed at any moment there is a checkpoint, never older than the last time, and it has the bits
 * of the run that was never killed. */
static void test_kill(void)
{
    const int kills = test_long() ? 2000 : 200;
    uint64_t expected[RUN + 1], seen = 0;
    int ends = 0, killed = 0, half = 0;
    char path[200];
    make_folder();
    job j = job_new(&tiny);
    gs_checkpoint about = {.best = (double)NAN};
    const double start = gs_clock();
    while (about.step < RUN) {
        job_step(&j, about.step);
        about.step++;
        CHECK(gs_checkpoint_save(in_folder("x"), j.trainer, &about, &error) == GS_OK);
        expected[about.step] = file_hash(in_folder("x"));
    }
    const double eight_steps = (gs_clock() - start) / RUN * 8;
    job_free(&j);
    CHECK(unlink(in_folder("x")) == 0);
    for (unsigned i = 0; (killed < kills || ends == 0) && test_failures == 0; i++) {
        int said[2];
        CHECK(pipe(said) == 0);
        fflush(NULL);
        const pid_t child = fork();
        if (child == 0)
            run_to_the_end(said[1]);
        const double wait = fmin(gs_random_u32(5, i) * 0x1p-32 * eight_steps, 0.9);
        const struct timespec nap = {0, (long)(wait * 1e9)};
        close(said[1]);
        CHECK(read(said[0], path, 1) == 1);
        close(said[0]);
        nanosleep(&nap, NULL);
        kill(child, SIGKILL);
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK_MSG(WIFSIGNALED(status) || WEXITSTATUS(status) == 0, "exit %d", WEXITSTATUS(status));
        killed += WIFSIGNALED(status) != 0;
        half += strstr(listing(), ".tmp") != NULL;
        const gs_status newest = gs_saver_newest(path, sizeof path, job_folder, &error);
        if (newest != GS_OK) {
            CHECK_MSG(newest == GS_ENAME && seen == 0, "nothing after step %d: %s", (int)seen,
                      error.text);
            continue;
        }
        gs_checkpoint_text text;
        CHECK_MSG(error.status == GS_OK, "%s", error.text); /* none was damaged */
        CHECK(gs_checkpoint_peek(&text, path, &error) == GS_OK);
        CHECK_MSG(text.about.step >= seen, "%d after %d", (int)text.about.step, (int)seen);
        seen = text.about.step;
        CHECK_MSG(file_hash(path) == expected[seen], "other bits at step %d", (int)seen);
        if (access(in_folder("best.safetensors"), F_OK) == 0)
            CHECK(gs_checkpoint_verify(in_folder("best.safetensors"), &error) == GS_OK);
        if (seen == RUN) { /* from the beginning */
            ends++;
            seen = 0;
            remove_folder();
            make_folder();
        }
    }
    printf("killed %d times, of which %d left a file half-written; %d runs ended\n", killed, half,
           ends);
    CHECK(killed >= kills && ends > 0);
    remove_folder();
}

TESTS({"copy", test_copy}, {"again", test_again}, {"keep", test_keep}, {"newest", test_newest},
      {"temporaries", test_temporaries}, {"create", test_create}, {"lock", test_lock},
      {"full", test_full}, {"rights", test_rights}, {"memory", test_memory}, {"kill", test_kill})
