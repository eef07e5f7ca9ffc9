/* How many CPUs a process may use: its affinity mask, and quotas of cgroups in trees that are
 * made here. */
#include "test.h"

#include "base/base.h"
#include "gradscale/kernel.h"

#include <stdarg.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char root[64]; /* of a tree */

/* A file of the tree and the folders above it. */
static void put(const char *path, const char *text, size_t size)
{
    char whole[6000];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    for (char *slash = strchr(whole + strlen(root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(whole, 0700);
        *slash = '/';
    }
    FILE *file = fopen(whole, "wb");
    CHECK_MSG(file && fwrite(text, 1, size, file) == size, "%s", whole);
    if (file)
        fclose(file);
}

static void write_text(const char *path, const char *text) { put(path, text, strlen(text)); }

static void set_up(const char *cgroup, const char *mountinfo)
{
    snprintf(root, sizeof root, "/tmp/gs-cpus-XXXXXX");
    CHECK(mkdtemp(root) != NULL);
    write_text("/proc/self/cgroup", cgroup);
    write_text("/proc/self/mountinfo", mountinfo);
}

static void tear_down(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    CHECK(system(command) == 0);
}

#define V2 "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1                                                                       \
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"        \
    "33 31 0:30 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n" \
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"

static void test_v2(void)
{
    static const struct {
        const char *max;
        unsigned cpus;
    } rows[] = {
        {"max 100000\n", 0},
        {"100000 100000\n", 1},
        {"200000 100000\n", 2},
        {"200000 100000", 2},
        {"250000 100000\n", 2}, /* down */
        {"299999 100000\n", 2},
        {"10000 100000\n", 1}, /* at least one */
        {"1000 1000000\n", 1},
        {"400000\n", 4}, /* the usual period */
        {"3200000 100000\n", 32},
        /* nothing a kernel writes */
        {"", 0},
        {"\n", 0},
        {"0 100000\n", 0},
        {"-1 100000\n", 0},
        {"100000 0\n", 0},
        {"100000 -5\n", 0},
        {"abc def\n", 0},
        {"100000x 100000\n", 0},
        {"nan 100000\n", 0},
        {"inf 100000\n", 0},
        {"100000 nan\n", 0},
        {"100000 inf\n", 0},
        {"1e300 1e-300\n", 0},
        {"99999999999999999999999999 1\n", 0},
        {"maxmaxmax\n", 0},
        {"\xff\xfe\x01\n", 0},
    };
    for (size_t i = 0; i < GSI_COUNT(rows); i++) {
        set_up("0::/job\n", V2);
        write_text("/sys/fs/cgroup/job/cpu.max", rows[i].max);
        const unsigned got = gsi_cgroup_cpus(root);
        CHECK_MSG(got == rows[i].cpus, "row %zu, '%s': %u", i, rows[i].max, got);
        tear_down();
    }
}

static void test_ancestors(void)
{
    set_up("0::/a/b/c\n", V2);
    CHECK(gsi_cgroup_cpus(root) == 0); /* no files at all */
    write_text("/sys/fs/cgroup/a/cpu.max", "300000 100000\n");
    CHECK(gsi_cgroup_cpus(root) == 3);
    write_text("/sys/fs/cgroup/a/b/c/cpu.max", "500000 100000\n");
    CHECK(gsi_cgroup_cpus(root) == 3);
    write_text("/sys/fs/cgroup/a/b/cpu.max", "200000 100000\n");
    CHECK(gsi_cgroup_cpus(root) == 2);
    write_text("/sys/fs/cgroup/cpu.max", "100000 100000\n");
    CHECK(gsi_cgroup_cpus(root) == 1);
    tear_down();
    /* what lies above the mount, or beside the group, is not ours */
    set_up("0::/a\n", V2);
    write_text("/sys/fs/cgroup/b/cpu.max", "100000 100000\n");
    write_text("/sys/fs/cpu.max", "100000 100000\n");
    CHECK(gsi_cgroup_cpus(root) == 0);
    tear_down();
}

static void test_v1(void)
{
    set_up("3:cpuset:/other\n2:cpu,cpuacct:/job\n1:name=systemd:/\n0::/x\n", V1);
    write_text("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
    write_text("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
    CHECK(gsi_cgroup_cpus(root) == 0);
    write_text("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "350000\n");
    CHECK(gsi_cgroup_cpus(root) == 3);
    write_text("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "50000\n");
    CHECK(gsi_cgroup_cpus(root) == 7);
    write_text("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "0\n");
    CHECK(gsi_cgroup_cpus(root) == 0);
    tear_down();
}

/* In a container the mount's own root is the group, or there is a namespace and the group is "/".
 */
static void test_containers(void)
{
    set_up("4:cpu:/docker/abc\n",
           "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu ro master:9 - cgroup cgroup rw,cpu\n");
    write_text("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
    write_text("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    CHECK(gsi_cgroup_cpus(root) == 2);
    tear_down();
    set_up("0::/\n", V2);
    write_text("/sys/fs/cgroup/cpu.max", "500000 100000\n");
    CHECK(gsi_cgroup_cpus(root) == 5);
    tear_down();
    /* moved out of its namespace: the mount's root is all that is seen */
    set_up("0::/../../job\n", V2);
    write_text("/sys/fs/cgroup/cpu.max", "500000 100000\n");
    write_text("/sys/job/cpu.max", "100000 100000\n");
    CHECK(gsi_cgroup_cpus(root) == 5);
    tear_down();
    /* a name that only begins like the mount's root */
    set_up("0::/docker/abcdef\n", "29 23 0:26 /docker/abc /cg - cgroup2 cgroup2 rw\n");
    write_text("/cg/cpu.max", "500000 100000\n");
    write_text("/cgdef/cpu.max", "100000 100000\n");
    CHECK(gsi_cgroup_cpus(root) == 5);
    tear_down();
    /* a space in the path */
    set_up("0::/my job\n", "29 23 0:26 / /sys/my\\040groups rw - cgroup2 cgroup2 rw\n");
    write_text("/sys/my groups/my job/cpu.max", "600000 100000\n");
    CHECK(gsi_cgroup_cpus(root) == 6);
    tear_down();
}

static void test_hostile(void)
{
    static const char *const texts[] = {"",
                                        "\n",
                                        ":",
                                        "::",
                                        "0:",
                                        "0::",
                                        "0::x\n",
                                        ":::::\n",
                                        "0::/",
                                        "no colon\n",
                                        "0:cpu",
                                        "-",
                                        " - ",
                                        " - cgroup2 ",
                                        "a b c d e f - cgroup2 x y\n",
                                        "29 23 0:26 / /sys - cgroup2\n",
                                        "29 23 0:26 - cgroup2 cgroup2 rw\n",
                                        "\\",
                                        "29 23 0:26 \\ \\0 - cgroup2 cgroup2 rw\n",
                                        "29 23 0:26 / / rw - cgroup2 cgroup2 rw\n",
                                        "29     - cgroup2 cgroup2 rw\n"};
    set_up("", "");
    for (size_t i = 0; i < GSI_COUNT(texts); i++)
        for (size_t k = 0; k < GSI_COUNT(texts); k++) {
            write_text("/proc/self/cgroup", texts[i]);
            write_text("/proc/self/mountinfo", texts[k]);
            CHECK(gsi_cgroup_cpus(root) == 0);
        }
    tear_down();
    /* lines longer than any buffer, and what follows them */
    enum { LONG = 20000 };
    static char text[LONG + 100];
    for (int bytes = 4080; bytes < 4110; bytes++) {
        memset(text, 'x', (size_t)bytes);
        memcpy(text, "0::/", 4);
        strcpy(text + bytes, "\n0::/job\n");
        set_up(text, V2);
        write_text("/sys/fs/cgroup/job/cpu.max", "300000 100000\n");
        const unsigned cpus = gsi_cgroup_cpus(root);
        CHECK_MSG(cpus == 0 || cpus == 3, "%d bytes: %u", bytes, cpus); /* 0: the first line fits */
        tear_down();
    }
    memset(text, ' ', LONG);
    set_up(text, text);
    CHECK(gsi_cgroup_cpus(root) == 0);
    tear_down();
    set_up("0::/job\n", V2);
    put("/sys/fs/cgroup/job/cpu.max", text, LONG);
    CHECK(gsi_cgroup_cpus(root) == 0);
    put("/sys/fs/cgroup/job/cpu.max", "1\0002 3", 6);
    CHECK(gsi_cgroup_cpus(root) <= 1);
    tear_down();
    CHECK(gsi_cgroup_cpus("/nowhere") == 0);
    set_up("0::/job\n", V2); /* a folder where a file should be */
    write_text("/sys/fs/cgroup/job/cpu.max/x", "");
    CHECK(gsi_cgroup_cpus(root) == 0);
    tear_down();
}

static void test_this_machine(void)
{
    const char *limit = NULL;
    const unsigned cpus = gs_cpus_usable(&limit);
    CHECK(cpus >= 1 && cpus == gs_cpus_usable(NULL));
    CHECK(cpus <= (unsigned)sysconf(_SC_NPROCESSORS_ONLN));
    CHECK(limit &&
          (!strcmp(limit, "online") || !strcmp(limit, "affinity") || !strcmp(limit, "quota")));
    gs_context *ctx;
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    CHECK(gs_context_threads(ctx) == cpus);
    gs_context_free(ctx);
}

TESTS({"v2", test_v2}, {"ancestors", test_ancestors}, {"v1", test_v1},
      {"containers", test_containers}, {"hostile", test_hostile},
      {"this machine", test_this_machine})
