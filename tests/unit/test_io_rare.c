/* What happens rarely: a disk that fills in the middle of a line, file systems that cannot sync,
 * folders that cannot be listed, a temporary file that another process takes for a left-over, a
 * host without a name, files that are called by their names alone. */
#include "faults.h"

#include "gradscale/io.h"
#include "io/append.h"
#include "io/idx.h"
#include "io/lines.h"
#include "io/tfevents.h"
#include "io/write.h"

#include "data_files.h" /* its names are short: behind those of the library */
#include "io_files.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>

/* ---- writers ---- */

static void test_sync(void)
{
    static const struct {
        int error;
        bool fine;
    } errors[] = {{EINVAL, true}, {EROFS, true}, {EINTR, true}, {EIO, false}, {ENOSPC, false}};
    gs_error error = {0};
    for (size_t i = 0; i < GSI_COUNT(errors); i++) {
        gsi_append log;
        gsi_replace r;
        struct stat st;
        CHECK(gsi_append_open(&log, in_folder("log"), &error) == GS_OK);
        fault_plan(FAULT_SYNC, 1, errors[i].error);
        const gs_status status = gsi_append_sync(&log, &error);
        CHECK_MSG((status == GS_OK) == errors[i].fine, "%d: %s", errors[i].error, error.text);
        CHECK((log.fd >= 0) == errors[i].fine);
        gsi_append_close(&log);

        /* the file is on the disk; its folder has nothing to bring there, or it fails */
        CHECK(gsi_replace_begin(&r, in_folder("file"), &error) == GS_OK);
        CHECK(gsi_replace_write(&r, "text", 4, &error) == GS_OK);
        fault_plan(FAULT_SYNC, 2, errors[i].error);
        const gs_status end = gsi_replace_end(&r, &error);
        const bool fine = errors[i].fine && errors[i].error != EROFS;
        CHECK_MSG((end == GS_OK) == fine && fault_struck(), "%d: %s", errors[i].error, error.text);
        CHECK(fine || strstr(error.text, "its folder cannot be brought to the disk"));
        CHECK(stat(in_folder("file"), &st) == 0 && st.st_size == 4);
        fault_plan(FAULT_NONE, 0, 0);
        unlink(in_folder("file"));
    }
    empty_folder();
}

/* Of the second line 4 bytes are written, then there is no more room. */
static void check_full_disk(fault_call call, const char *words, off_t left)
{
    struct rlimit before, small;
    gsi_append log;
    gs_error error = {0};
    struct stat st;
    CHECK(gsi_append_open(&log, in_folder("full"), &error) == GS_OK);
    CHECK(gsi_append_write(&log, "whole\n", 6, &error) == GS_OK);
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 10;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    fault_plan(call, 1, EIO);
    const gs_status status = gsi_append_write(&log, "too long\n", 9, &error);
    fault_plan(FAULT_NONE, 0, 0);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_DFL);
    CHECK_MSG(status == GS_EIO && strstr(error.text, words) && log.fd < 0, "%s", error.text);
    CHECK_MSG(stat(in_folder("full"), &st) == 0 && st.st_size == left, "%d", (int)st.st_size);
    unlink(in_folder("full"));
}

static void test_full_disk(void)
{
    check_full_disk(FAULT_NONE, "writing failed", 6);
    check_full_disk(FAULT_STAT, "writing failed", 10);
    check_full_disk(FAULT_TRUNCATE, "a part of a line was written", 10);
}

/* Nobody reads, and nothing of a line can be taken back. */
static void test_full_pipe(void)
{
    static char text[1 << 18];
    gsi_append log;
    gs_error error = {0};
    CHECK(mkfifo(in_folder("pipe"), 0600) == 0);
    const int reader = open(in_folder("pipe"), O_RDONLY | O_NONBLOCK);
    CHECK(reader >= 0 && gsi_append_open(&log, in_folder("pipe"), &error) == GS_OK);
    CHECK(fcntl(log.fd, F_SETFL, O_NONBLOCK) == 0);
    CHECK(gsi_append_cut(&log, 3, &error) == GS_OK); /* it has no length */
    CHECK(gsi_append_write(&log, text, sizeof text, &error) == GS_EIO && log.fd < 0);
    CHECK_MSG(strstr(error.text, "writing failed: "), "%s", error.text);
    close(reader);
    empty_folder();
}

/* The first name is taken from it before it is locked; the second is kept. */
static void test_stolen_temporary(void)
{
    gsi_replace r;
    gs_error error = {0};
    char content[8];
    for (unsigned times = 1; times <= 2; times++) {
        fault_plan(FAULT_STAT, times, 0); /* the first stat is that of the file itself */
        CHECK(gsi_replace_begin(&r, in_folder("file"), &error) == GS_OK);
        fault_plan(FAULT_NONE, 0, 0);
        CHECK_MSG(strstr(r.temporary, times == 2 ? "-1.tmp" : "-0.tmp"), "%s", r.temporary);
        CHECK(gsi_replace_write(&r, "text", 4, &error) == GS_OK);
        CHECK_MSG(gsi_replace_end(&r, &error) == GS_OK, "%s", error.text);
        const int fd = open(in_folder("file"), O_RDONLY);
        CHECK(read(fd, content, sizeof content) == 4 && memcmp(content, "text", 4) == 0);
        close(fd);
    }
    empty_folder();
}

/* Nor is one left behind that cannot be looked at. */
static void test_unseen_temporary(void)
{
    gsi_replace r;
    gs_error error = {0};
    fault_plan(FAULT_STAT, 2, EIO);
    CHECK(gsi_replace_begin(&r, in_folder("file"), &error) == GS_OK && fault_struck());
    fault_plan(FAULT_NONE, 0, 0);
    CHECK(gsi_replace_write(&r, "text", 4, &error) == GS_OK);
    CHECK_MSG(gsi_replace_end(&r, &error) == GS_OK, "%s", error.text);
    CHECK(unlink(in_folder("file")) == 0);
    CHECK_MSG(rmdir(folder) == 0 && mkdir(folder, 0700) == 0, "%s", strerror(errno));
}

/* A new file gets the old one's permissions, or is none; its owner only where that may be. */
static void test_permissions(void)
{
    static const struct {
        fault_call call;
        unsigned at;
        int why;
        bool fine;
    } cases[] = {{FAULT_OWNER, 1, EPERM, true},
                 {FAULT_MODE, 1, EPERM, false},
                 {FAULT_STAT, 3, EIO, false}}; /* of the old file, to lock the new one, of that */
    gs_error error = {0};
    struct stat st;
    for (size_t i = 0; i < GSI_COUNT(cases); i++) {
        gsi_replace r;
        write_text("file", "old");
        CHECK(chmod(in_folder("file"), 0640) == 0);
        fault_plan(cases[i].call, cases[i].at, cases[i].why);
        const gs_status status = gsi_replace_begin(&r, in_folder("file"), &error);
        CHECK_MSG(fault_struck() && status == (cases[i].fine ? GS_OK : GS_EIO), "%zu", i);
        fault_plan(FAULT_NONE, 0, 0);
        CHECK_MSG(cases[i].fine || strstr(error.text, "its permissions cannot be kept"), "%s",
                  error.text);
        if (cases[i].fine)
            CHECK(gsi_replace_write(&r, "newer", 5, &error) == GS_OK &&
                  gsi_replace_end(&r, &error) == GS_OK);
        CHECK(stat(in_folder("file"), &st) == 0 && (st.st_mode & 07777) == 0640);
        CHECK(st.st_size == (cases[i].fine ? 5 : 3));
        empty_folder();
    }
    /* what is no file has none to keep */
    gsi_replace r;
    CHECK(mkfifo(in_folder("pipe"), 0600) == 0);
    fault_plan(FAULT_OWNER, 1, EPERM);
    CHECK(gsi_replace_begin(&r, in_folder("pipe"), &error) == GS_OK && !fault_struck());
    fault_plan(FAULT_NONE, 0, 0);
    CHECK(gsi_replace_end(&r, &error) == GS_OK);
    CHECK(stat(in_folder("pipe"), &st) == 0 && S_ISREG(st.st_mode));
    empty_folder();
}

/* Names that are almost those of left-overs stay. */
static void test_names_of_others(void)
{
    static const char *const kept[] = {".5-3.tmp",
                                       "5-3.tmp",
                                       "a.5-3.tmp",
                                       "my-own-long-notes.5-3.tmp",
                                       "a.x-3.tmp",
                                       "a.safetensors.5-.tmp",
                                       ".tmp",
                                       "a.safetensors.5-3.tmpx",
                                       "a.safetensors",
                                       ".safetensors.5-3.tmp",
                                       "a.safetensors.5_3.tmp",
                                       "a.safetensors-5-3.tmp"};
    struct stat st;
    write_text("a.safetensors.5-3.tmp", "x");
    for (size_t i = 0; i < GSI_COUNT(kept); i++)
        write_text(kept[i], "x");
    gsi_remove_temporaries(folder, NULL);
    for (size_t i = 0; i < GSI_COUNT(kept); i++)
        CHECK_MSG(stat(in_folder(kept[i]), &st) == 0, "%s", kept[i]);
    CHECK(stat(in_folder("a.safetensors.5-3.tmp"), &st) != 0);
    empty_folder();
}

static int host_code;
static const char *host_name;
int gethostname(char *name, size_t room)
{
    snprintf(name, room, "%s", host_name);
    return host_code;
}

static void test_hosts(void)
{
    static const struct {
        int code;
        const char *name, *part;
    } hosts[] = {{0, "box", ".box."}, {0, "", ".localhost."}, {-1, "half a na", ".localhost."}};
    for (size_t i = 0; i < GSI_COUNT(hosts); i++) {
        gsi_append log;
        gs_error error = {0};
        host_code = hosts[i].code;
        host_name = hosts[i].name;
        CHECK(gsi_tfevents_open(&log, in_folder("events"), &error) == GS_OK);
        CHECK_MSG(strstr(log.path, hosts[i].part), "%s", log.path);
        gsi_append_close(&log);
    }
    empty_folder();
}

/* ---- readers ---- */

static void test_nothing(void)
{
    static const int nothing[] = {ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG};
    static const int unknown[] = {EPERM, EIO, ENOMEM, EACCES, ESTALE, EOVERFLOW, ETIMEDOUT};
    for (size_t i = 0; i < GSI_COUNT(nothing) + GSI_COUNT(unknown); i++) {
        const bool may_be = i >= GSI_COUNT(nothing);
        const int why = may_be ? unknown[i - GSI_COUNT(nothing)] : nothing[i];
        CHECK_MSG(gsi_is_nothing(why) == !may_be, "%s", strerror(why));
        fault_plan(FAULT_STAT, 1, why);
        CHECK_MSG(gsi_may_be_there("/nowhere") == may_be, "%s", strerror(why));
    }
    fault_plan(FAULT_NONE, 0, 0);
}

static void test_folders(void)
{
    gsi_heap heap;
    gs_error error = {0};
    gsi_heap_init(&heap, NULL);
    gsi_paths paths = {.heap = &heap};
    write_text("a", "x");
    make_folder("deeper");
    write_text("deeper/b", "x");
    for (unsigned n = 1; n <= 2; n++) { /* of the folder, and of the one in it */
        fault_plan(FAULT_LIST, n, ENOTDIR);
        CHECK(gsi_paths_walk(&paths, folder, &error) == GS_EIO && fault_struck());
        CHECK_MSG(strstr(error.text, strerror(ENOTDIR)), "%s", error.text);
        gsi_paths_free(&paths);
    }
    fault_plan(FAULT_NONE, 0, 0);
    paths.n = GSI_FOLDER_FILES;
    CHECK(gsi_paths_walk(&paths, folder, &error) == GS_ESIZE);
    CHECK_MSG(strstr(error.text, "there are too many files"), "%s", error.text);
    CHECK(paths.n == GSI_FOLDER_FILES && !paths.list);
    paths.n = 0;
    CHECK(gsi_paths_walk(&paths, "", &error) == GS_EIO);
    write_text("empty", "");
    CHECK(symlink("nowhere", in_folder("link")) == 0 && mkfifo(in_folder("pipe"), 0600) == 0);
    for (int all = 0; all < 2; all++) { /* an empty file and the link are told, the pipe is none */
        paths.all = all;
        CHECK_MSG(gsi_paths_walk(&paths, folder, &error) == GS_OK && paths.n == (all ? 4 : 2),
                  "%zu", paths.n);
        gsi_paths_free(&paths);
    }
    CHECK(heap.bytes == 0);
    empty_folder();
}

/* A read error behind a line that is too long is not the end of the line. */
static void test_long_line(void)
{
    enum { PIECE = 1 << 16, READS = GSI_LINE_MAX / PIECE };
    static char text[GSI_LINE_MAX + 2 * PIECE];
    gs_error error = {0};
    bool more;
    memset(text, 'x', sizeof text);
    write_file("long", text, sizeof text);
    for (unsigned n = READS + 1; n <= READS + 3; n++) {
        gsi_lines lines;
        CHECK(gsi_lines_open(&lines, in_folder("long"), NULL, &error) == GS_OK);
        fault_plan(FAULT_READ, n, EIO);
        const gs_status first = gsi_lines_next(&lines, &more, &error);
        CHECK_MSG(first == (n == READS + 1 ? GS_EIO : GS_ESIZE), "%u: %s", n, error.text);
        CHECK(n == READS + 1 || gsi_lines_next(&lines, &more, &error) == GS_EIO);
        CHECK_MSG(strstr(error.text, "cannot be read"), "%u: %s", n, error.text);
        gsi_lines_close(&lines);
    }
    fault_plan(FAULT_NONE, 0, 0);
    empty_folder();
}

/* In their own folder, where a name is a path. */
static void test_bare_names(void)
{
    char home[4096];
    gsi_tokens t = {0};
    gs_source *s;
    gs_error error = {0};
    write_file("train.bin", "\1\0\2\0", 4);
    write_file("t", "\1\0\2\0", 4);
    CHECK(getcwd(home, sizeof home) && chdir(folder) == 0);
    CHECK_MSG(gsi_tokens_open(&t, "train.bin", &error) == GS_OK && t.count == 2, "%s", error.text);
    gsi_tokens_close(&t);
    fault_plan(FAULT_READ, 1, EIO); /* what it begins with cannot be known */
    CHECK(gsi_tokens_open(&t, "train.bin", &error) != GS_OK && fault_struck());
    fault_plan(FAULT_NONE, 0, 0);
    CHECK(gsi_tokens_open(&t, "t", &error) == GS_EFORMAT);
    CHECK(gs_source_open(&s, "t", NULL, &error) == GS_EFORMAT && !s);
    CHECK_MSG(strstr(error.text, "t: is not a .npy, .npz or .safetensors"), "%s", error.text);
    CHECK(chdir(home) == 0);
    empty_folder();
}

TESTS({"sync", test_sync}, {"full_disk", test_full_disk}, {"full_pipe", test_full_pipe},
      {"stolen_temporary", test_stolen_temporary}, {"unseen_temporary", test_unseen_temporary},
      {"permissions", test_permissions}, {"nothing", test_nothing},
      {"names_of_others", test_names_of_others}, {"hosts", test_hosts}, {"folders", test_folders},
      {"long_line", test_long_line}, {"bare_names", test_bare_names})
