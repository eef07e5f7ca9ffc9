/* The saver when system calls fail, memory ends, no thread starts, and files go while it looks. */
#include "faults.h"
#include "job.h"
#include "no_threads.h"

static gs_error error;
static const how tiny = {.kind = TINY, .mode = GS_O2, .half = GS_F16, .threads = 1};
static const gs_checkpoint first = {.best = (double)NAN, .step = 1};

static gs_saver *saver_new(size_t keep, const gs_alloc *alloc)
{
    gs_saver *saver = NULL;
    CHECK_MSG(gs_saver_create(&saver, job_folder, keep, alloc, &error) == GS_OK, "%s", error.text);
    return saver;
}

static bool there(const char *name) { return access(in_folder(name), F_OK) == 0; }

/* folder/./. of n bytes or one less. */
static const char *long_folder(size_t n)
{
    static char path[5000];
    strcpy(path, job_folder);
    while (strlen(path) + 2 <= n)
        strcat(path, "/.");
    return path;
}

static void test_arguments(void)
{
    char path[200];
    make_folder();
    job j = job_new(&tiny);
    gs_saver *saver = saver_new(1, NULL), *other = NULL;
    CHECK(gs_saver_save(saver, NULL, &first, 0, &error) == GS_ENULL);
    CHECK(gs_saver_save(saver, j.trainer, NULL, 0, &error) == GS_ENULL);
    CHECK(gs_saver_save(NULL, j.trainer, &first, 0, &error) == GS_ENULL);
    CHECK(gs_saver_retry(NULL, &error) == GS_ENULL);
    CHECK(gs_saver_retry(saver, &error) == GS_ESTATE);
    CHECK(gs_saver_newest(NULL, 10, job_folder, &error) == GS_ENULL);
    CHECK(gs_saver_newest(path, sizeof path, NULL, &error) == GS_ENULL);
    CHECK(gs_saver_create(NULL, job_folder, 1, NULL, &error) == GS_ENULL);
    gs_saver_free(saver);
    /* a folder that is there, and no room for the name of a file in it */
    for (size_t n = 4040; n < 4096; n++) {
        const gs_status status = gs_saver_create(&other, long_folder(n), 1, NULL, &error);
        CHECK_MSG(status == GS_OK || (status == GS_ESIZE && !other), "%zu: %s", n, error.text);
        CHECK(status == GS_OK || n > 4045);
        CHECK(status != GS_OK || n < 4070);
        if (other)
            CHECK(gs_saver_save(other, j.trainer, &first, GS_SAVE_BEST, &error) == GS_OK);
        if (other)
            CHECK_MSG(gs_saver_wait(other, &error) == GS_OK, "%s", error.text);
        gs_saver_free(other);
    }
    char room[5000];
    CHECK(there("step-00000001.safetensors"));
    CHECK(gs_saver_newest(room, sizeof room, long_folder(4090), &error) == GS_ESIZE);
    CHECK(gs_saver_newest(room, sizeof room, long_folder(4060), &error) == GS_OK);
    job_free(&j);
    remove_folder();
}

/* Without a thread nothing is held: neither memory nor the folder. */
static void test_no_thread(void)
{
    make_folder();
    books b = {0};
    const gs_alloc hook = books_hook(&b);
    gs_saver *saver = NULL;
    if (no_threads(1)) {
        CHECK(gs_saver_create(&saver, job_folder, 1, &hook, &error) == GS_ETHREAD && !saver);
        CHECK(b.blocks == 0 && !b.wrong);
    } else {
        test_skip_part("a saver without a thread", "threads start with stacks of any size");
    }
    no_threads(0);
    gs_saver_free(saver_new(1, &hook));
    CHECK(b.blocks == 0);
    remove_folder();
}

/* A write that fails: told by the next call, whichever that is, and done again. */
static void test_write_fails(void)
{
    make_folder();
    job j = job_new(&tiny);
    gs_saver *saver = saver_new(2, NULL);
    for (int k = 0; k < 2; k++) {
        fault_plan(FAULT_WRITE, 1, EIO);
        CHECK(gs_saver_save(saver, j.trainer, &first, GS_SAVE_BEST, &error) == GS_OK);
        CHECK((k ? gs_saver_save(saver, j.trainer, &first, 0, &error)
                 : gs_saver_wait(saver, &error)) == GS_EIO);
        CHECK(fault_struck() && !there("step-00000001.safetensors"));
        fault_plan(FAULT_NONE, 0, 0);
        CHECK(gs_saver_retry(saver, &error) == GS_OK);
        CHECK(gs_saver_wait(saver, &error) == GS_OK);
        CHECK(there("step-00000001.safetensors") && there("best.safetensors"));
        CHECK(gs_saver_retry(saver, &error) == GS_ESTATE);
        unlink(in_folder("step-00000001.safetensors"));
        unlink(in_folder("best.safetensors"));
    }
    gs_saver_free(saver);
    /* without the memory for a copy there is nothing to be done again with */
    size_t uncopied = 0;
    for (size_t k = 1; k < 100; k++) {
        books b = {.fail_from = k};
        const gs_alloc hook = books_hook(&b);
        saver = NULL;
        gs_status status = gs_saver_create(&saver, job_folder, 1, &hook, &error);
        if (status == GS_OK) {
            fault_plan(FAULT_WRITE, 1, EIO);
            status = gs_saver_save(saver, j.trainer, &first, 0, &error);
            const gs_status later = gs_saver_wait(saver, &error);
            fault_plan(FAULT_NONE, 0, 0);
            if (status == GS_EIO) {
                uncopied++;
                CHECK(later == GS_OK && gs_saver_retry(saver, &error) == GS_ESTATE);
            }
            CHECK(status == GS_EIO || status == GS_ENOMEM || later == GS_EIO);
        }
        const size_t calls = b.calls;
        gs_saver_free(saver);
        CHECK(b.blocks == 0 && !b.wrong);
        if (calls < k)
            break;
    }
    CHECK(uncopied > 0);
    job_free(&j);
    remove_folder();
}

static void writes_fail(void) { fault_plan(FAULT_WRITE, 1, ENOSPC); }

/* No link to the best one, and no room for a second file: the first is there, and the save is told
 * as failed. */
static void test_best_fails(void)
{
    make_folder();
    job j = job_new(&tiny);
    gs_saver *saver = saver_new(1, NULL);
    fault_plan(FAULT_LINK, 1, EPERM);
    fault.then = writes_fail;
    CHECK(gs_saver_save(saver, j.trainer, &first, GS_SAVE_BEST, &error) == GS_OK);
    CHECK(gs_saver_wait(saver, &error) == GS_EIO);
    CHECK_MSG(strstr(error.text, "best.safetensors"), "%s", error.text);
    fault_plan(FAULT_NONE, 0, 0);
    CHECK(there("step-00000001.safetensors") && !there("best.safetensors"));
    CHECK(gs_saver_get_state(saver).files == 0);
    gs_saver_free(saver);
    job_free(&j);
    remove_folder();
}

/* Old files that cannot be removed, or not be listed, stay, and the new one is there. */
static void check_stays(fault_call call)
{
    make_folder();
    job j = job_new(&tiny);
    gs_saver *saver = saver_new(1, NULL);
    gs_checkpoint about = first;
    CHECK(gs_saver_save(saver, j.trainer, &about, 0, &error) == GS_OK);
    for (unsigned n = 1; n < 20; n++) {
        char name[64];
        CHECK(gs_saver_wait(saver, &error) == GS_OK);
        fault_plan(call, n, EIO);
        about.step++;
        CHECK(gs_saver_save(saver, j.trainer, &about, 0, &error) == GS_OK);
        CHECK(gs_saver_wait(saver, &error) == GS_OK);
        const bool struck = fault_struck();
        fault_plan(FAULT_NONE, 0, 0);
        snprintf(name, sizeof name, "step-%08d.safetensors", (int)about.step);
        CHECK(there(name));
        CHECK(struck || n > 1);
        if (!struck)
            break;
    }
    gs_saver_free(saver);
    job_free(&j);
    remove_folder();
}

static void test_old_stay(void)
{
    check_stays(FAULT_UNLINK);
    check_stays(FAULT_FOLDER);
}

/* ---- finding ---- */

static void remove_it(void) { unlinkat(AT_FDCWD, in_folder("step-00000005.safetensors"), 0); }

static void test_newest(void)
{
    char path[200];
    make_folder();
    job j = job_new(&tiny);
    gs_saver *saver = saver_new(1, NULL);
    CHECK(gs_saver_save(saver, j.trainer, &first, 0, &error) == GS_OK);
    CHECK(gs_saver_wait(saver, &error) == GS_OK);
    gs_saver_free(saver);
    job_free(&j);
    /* names that only begin like one, and a signal while the folder is opened */
    write_bytes(in_folder("step-!.safetensors"), "", 0);
    write_bytes(in_folder("step-x.safetensors"), "", 0);
    write_bytes(in_folder("step-"), "", 0);
    fault_plan(FAULT_FOLDER, 1, EINTR);
    CHECK(gs_saver_newest(path, sizeof path, job_folder, NULL) == GS_OK);
    CHECK(fault_struck() && strcmp(path, in_folder("step-00000001.safetensors")) == 0);
    fault_plan(FAULT_FOLDER, 1, EIO);
    CHECK(gs_saver_newest(path, sizeof path, job_folder, &error) == GS_EIO);
    /* a damaged one of which not even this can be said, whether it is there */
    write_bytes(in_folder("step-00000005.safetensors"), "x", 1);
    fault_plan(FAULT_ACCESS, 1, EIO);
    CHECK(gs_saver_newest(path, sizeof path, job_folder, &error) == GS_OK);
    CHECK(fault_struck() && strstr(error.text, "an older one is taken"));
    fault_plan(FAULT_NONE, 0, 0);
    /* the only one goes while it is looked at */
    unlink(in_folder("step-00000001.safetensors"));
    fault_plan(FAULT_ACCESS, 1, ENOENT);
    fault.then = remove_it;
    CHECK(gs_saver_newest(path, sizeof path, job_folder, &error) == GS_ESTATE);
    CHECK_MSG(strstr(error.text, "are being removed"), "%s", error.text);
    fault_plan(FAULT_NONE, 0, 0);
    CHECK(gs_saver_newest(path, sizeof path, job_folder, &error) == GS_ENAME);
    remove_folder();
}

TESTS({"arguments", test_arguments}, {"no thread", test_no_thread},
      {"write fails", test_write_fails}, {"old stay", test_old_stay},
      {"best fails", test_best_fails}, {"newest", test_newest})
