/* How many CPUs this process may use. What binds a process (sched_setaffinity, a cpuset) is in
 * its affinity mask. What a container may use in time is a quota of its cgroup: the kernel
 * stops all threads of the group when they have used it up, so more threads than the quota has
 * CPUs wait for each other. */
#if !defined(_GNU_SOURCE) && defined(__linux__)
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#if !defined(_DARWIN_C_SOURCE) && defined(__APPLE__)
#define _DARWIN_C_SOURCE /* _SC_NPROCESSORS_ONLN */
#endif
#if !defined(__BSD_VISIBLE) && defined(__FreeBSD__)
#define __BSD_VISIBLE 1 /* the same */
#endif
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(_WIN32)
#include <pthread.h>
#else
#include <unistd.h>
#endif
#if defined(__linux__)
#include <sched.h>
#endif

static size_t online_cpus(void)
{
#if defined(_WIN32)
    const int n = pthread_num_processors_np(); /* those of the process's affinity mask */
#elif defined(_SC_NPROCESSORS_ONLN)
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
#else
    const long n = 1;
#endif
    return n > 0 ? (size_t)n : 1;
}

/* 0: nothing tells it. */
static size_t bound_cpus(void)
{
    size_t count = 0;
#if defined(__linux__)
    unsigned long mask[1024]; /* a kernel refuses fewer bits than it may have CPUs: 8192 today */
    memset(mask, 0, sizeof mask);
    if (sched_getaffinity(0, sizeof mask, (cpu_set_t *)(void *)mask) == 0)
        for (size_t i = 0; i < GSI_COUNT(mask); i++)
            count += (size_t)__builtin_popcountl(mask[i]);
#endif
    return count;
}

/* ---- quotas ---- */

enum { PATH = 4096 }; /* and lines: what is longer is passed over */

/* A line without its end. One that does not fit is passed over. */
static bool next_line(char line[PATH], FILE *file)
{
    while (fgets(line, PATH, file)) {
        const size_t length = strlen(line);
        if (length > 0 && line[length - 1] == '\n') {
            line[length - 1] = 0;
            return true;
        }
        int c = fgetc(file);
        if (c == EOF)
            return true;
        while (c != EOF && c != '\n')
            c = fgetc(file);
    }
    return false;
}

static FILE *open_below(const char *root, const char *path)
{
    char whole[2 * PATH];
    const int length = snprintf(whole, sizeof whole, "%s%s", root, path);
    return length > 0 && (size_t)length < sizeof whole ? fopen(whole, "re") : NULL;
}

/* The first two numbers of a file, as far as there are any; how many there are. "max" is none. */
static int read_numbers(double out[2], const char *root, const char *folder, const char *name)
{
    char path[2 * PATH], line[PATH];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = open_below(root, path);
    int count = 0;
    if (file && next_line(line, file)) {
        char *at = line;
        for (char *end; count < 2; at = end) {
            const double number = strtod(at, &end);
            if (end == at || (*end && *end != ' '))
                break;
            out[count++] = number;
        }
    }
    if (file)
        fclose(file);
    return count;
}

/* What a group allows itself, in CPUs; 0: all. */
static double own_quota(const char *root, const char *folder, bool v2)
{
    double both[2] = {0, 100000}; /* microseconds: time to run in each period */
    if (v2) {
        if (read_numbers(both, root, folder, "cpu.max") < 1)
            return 0;
    } else {
        double period[2];
        if (read_numbers(both, root, folder, "cpu.cfs_quota_us") < 1)
            return 0;
        if (read_numbers(period, root, folder, "cpu.cfs_period_us") < 1)
            return 0;
        both[1] = period[0];
    }
    /* Written so that a NaN, too, is no quota. */
    return both[0] > 0 && both[1] > 0 && both[0] / both[1] < 1e6 ? both[0] / both[1] : 0;
}

/* The smallest quota from a group up to the root of its tree. */
static double least_quota(const char *root, char folder[PATH], size_t top, bool v2)
{
    double least = 0;
    for (;;) {
        const double quota = own_quota(root, folder, v2);
        if (quota > 0 && (least <= 0 || quota < least))
            least = quota;
        char *slash = strrchr(folder + top, '/');
        if (!slash)
            return least;
        *slash = 0;
    }
}

static bool has_word(const char *list, const char *word)
{
    const size_t length = strlen(word);
    for (; *list; list += strcspn(list, ","), list += *list == ',')
        if (strncmp(list, word, length) == 0 && (list[length] == ',' || !list[length]))
            return true;
    return false;
}

/* The path of this process in a tree of groups: a line "number:controllers:path", where version
 * 2 has no controllers. */
static bool find_group(char group[PATH], const char *root, bool v2)
{
    FILE *file = open_below(root, "/proc/self/cgroup");
    bool found = false;
    char line[PATH];
    while (file && !found && next_line(line, file)) {
        char *controllers = strchr(line, ':'), *path;
        if (!controllers || !(path = strchr(++controllers, ':')))
            continue;
        *path++ = 0;
        found = *path == '/' && (v2 ? !*controllers : has_word(controllers, "cpu"));
        if (found)
            memcpy(group, path, strlen(path) + 1);
    }
    if (file)
        fclose(file);
    return found;
}

/* A space in a path is written \040. */
static void unescape(char *text)
{
    char *out = text;
    for (; *text; text++)
        if (text[0] == '\\' && text[1] >= '0' && text[1] < '4' && text[2] >= '0' && text[2] < '8' &&
            text[3] >= '0' && text[3] < '8') {
            *out++ = (char)((text[1] - '0') * 64 + (text[2] - '0') * 8 + text[3] - '0');
            text += 3;
        } else {
            *out++ = *text;
        }
    *out = 0;
}

/* The folder of a group under the mount of its tree, whose own root may be some group itself (in a
 * container): *top is where the part below the mount begins. */
static bool find_folder(char folder[PATH], size_t *top, const char *root, const char *group,
                        bool v2)
{
    FILE *file = open_below(root, "/proc/self/mountinfo");
    bool found = false;
    char line[PATH];
    while (file && !found && next_line(line, file)) {
        /* 36 35 0:30 ROOT FOLDER options optional... - TYPE source OPTIONS */
        char *dash = strstr(line, " - "), *field[2] = {NULL}, *at = line;
        if (!dash)
            continue;
        *dash = 0;
        dash += 3;
        for (int i = 0; i < 5 && at; i++) {
            if (i >= 3)
                field[i - 3] = at;
            at = strchr(at, ' ');
            if (at)
                *at++ = 0;
        }
        const char *options = strrchr(dash, ' ');
        if (!field[1] || !options ||
            (v2 ? strncmp(dash, "cgroup2 ", 8) != 0
                : strncmp(dash, "cgroup ", 7) != 0 || !has_word(options + 1, "cpu")))
            continue;
        unescape(field[0]);
        unescape(field[1]);
        const size_t shared = strcmp(field[0], "/") == 0 ? 0 : strlen(field[0]);
        const bool inside = strncmp(group, field[0], shared) == 0 &&
                            (group[shared] == '/' || !group[shared]) && !strstr(group, "/..");
        const char *below = inside && strcmp(group, "/") != 0 ? group + shared : "";
        const int length = snprintf(folder, PATH, "%s%s", field[1], below);
        *top = strlen(field[1]);
        found = length > 0 && length < PATH;
    }
    if (file)
        fclose(file);
    return found;
}

unsigned gsi_cgroup_cpus(const char *root)
{
    char group[PATH], folder[PATH];
    size_t top;
    double least = 0;
    for (int v2 = 0; v2 < 2; v2++) {
        if (!find_group(group, root, v2) || !find_folder(folder, &top, root, group, v2))
            continue;
        const double quota = least_quota(root, folder, top, v2);
        if (quota > 0 && (least <= 0 || quota < least))
            least = quota;
    }
    /* Down: with half a CPU more than threads nobody waits, with half a CPU less everybody does. */
    return least <= 0 ? 0 : least < 1 ? 1 : (unsigned)least;
}

unsigned gs_cpus_usable(const char **limit)
{
    const size_t bound = bound_cpus();
#if defined(__linux__)
    const unsigned quota = gsi_cgroup_cpus("");
#else
    const unsigned quota = 0;
#endif
    size_t count = online_cpus();
    const char *which = "online";
    if (bound > 0 && bound < count) {
        count = bound;
        which = "affinity";
    }
    if (quota > 0 && quota < count) {
        count = quota;
        which = "quota";
    }
    if (limit)
        *limit = which;
    return (unsigned)count;
}
