/* Which kind a log is, and what the readers of kinds share. */
#include "cli/logs/logs.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { START = 4 << 20 }; /* bytes that are looked at: banners of trainers are long */

static const logs_kind *const kinds[] = {&logs_trainer_state, &logs_csv,       &logs_megatron,
                                         &logs_fairseq,       &logs_deepspeed, &logs_apex};

/* Its first bytes as text, or NULL: no regular file, or nothing in it. */
static char *start_of(const char *path)
{
    struct stat about;
    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode))
        return NULL;
    FILE *f = cli_read_begin(path);
    if (!f)
        return NULL;
    const size_t room = about.st_size < START ? (size_t)about.st_size : START;
    char *start = cli_resize(NULL, room + 1);
    const size_t n = fread(start, 1, room, f);
    fclose(f);
    start[n] = 0;
    if (n == 0 || strlen(start) != n) { /* text has no 0 */
        free(start);
        return NULL;
    }
    return start;
}

/* A line of ours, or of any log of the form {"step": ...}. */
static bool is_native(const char *start)
{
    start += strspn(start, " \t\r\n");
    const char *end = strchr(start, '\n');
    const char *step = strstr(start, "\"step\""), *event = strstr(start, "\"event\"");
    return *start == '{' && ((step && (!end || step < end)) || (event && (!end || event < end)));
}

const logs_kind *logs_find(const char *path)
{
    char *start = start_of(path);
    const logs_kind *found = NULL;
    for (size_t i = 0; start && !found && i < sizeof kinds / sizeof kinds[0]; i++)
        if ((kinds[i] == &logs_trainer_state || !is_native(start)) && kinds[i]->fits(start))
            found = kinds[i];
    free(start);
    return found;
}

int logs_read(const logs_kind *kind, const char *path, logs_fn *each, void *user, logs_about *about)
{
    *about = (logs_about){.kind = kind->name};
    logs_reader r = {.file = cli_read_begin(path),
                     .each = each,
                     .user = user,
                     .about = about,
                     .scale = (double)NAN,
                     .loss = (double)NAN};
    if (!r.file)
        return cli_fail("%.120s: cannot be opened: %s", path, strerror(errno));
    r.line = cli_resize(NULL, LOGS_LINE);
    const int code = kind->read(&r, path);
    const bool failed = ferror(r.file) != 0;
    fclose(r.file);
    free(r.line);
    return code == CLI_GO && failed ? cli_fail("%.120s: cannot be read", path) : code;
}

int logs_refuse_pickle(const char *path, const char *instead)
{
    unsigned char start[256] = {0};
    struct stat about;
    const bool is_file = stat(path, &about) == 0 && S_ISREG(about.st_mode); /* a pipe would wait */
    FILE *f = is_file ? cli_read_begin(path) : NULL;
    const size_t n = f ? fread(start, 1, sizeof start, f) : 0;
    if (f)
        fclose(f);
    bool is = n > 2 && start[0] == 0x80 && start[1] >= 2 && start[1] <= 5; /* pickle, protocol */
    for (size_t i = 0; n > 4 && memcmp(start, "PK\3\4", 4) == 0 && i + 8 < n; i++)
        is |= memcmp(start + i, "data.pkl", 8) == 0;
    return is ? cli_fail("%.120s: is a file of torch.save, which only Python can read: %s", path,
                         instead)
              : CLI_GO;
}

/* ---- for the kinds ---- */

bool logs_next(logs_reader *r)
{
    if (!fgets(r->line, LOGS_LINE, r->file))
        return false;
    size_t n = strlen(r->line);
    if (n > 0 && r->line[n - 1] != '\n')
        for (int c; (c = getc(r->file)) != EOF && c != '\n';)
            ;
    while (n > 0 && (r->line[n - 1] == '\n' || r->line[n - 1] == '\r'))
        r->line[--n] = 0;
    r->about->lines++;
    return true;
}

gs_log_step logs_new_step(const logs_reader *r, uint64_t step)
{
    const double no = (double)NAN;
    return (gs_log_step){.step = step,
                         .loss = r->loss,
                         .scale = r->scale,
                         .found_inf = -1,
                         .amax = no,
                         .reruns = GS_LOG_NONE,
                         .grad_norm = no,
                         .lr = no,
                         .underflow = no,
                         .items_per_s = no,
                         .seconds = no,
                         .items = GS_LOG_NONE};
}

void logs_tell(logs_reader *r, const gs_log_step *step)
{
    const gs_log_line line = {
        .number = r->about->lines, .is_whole = 1, .kind = GS_LOG_STEP, .u.step = *step};
    r->step = step->step;
    r->skipped += step->found_inf == 1;
    r->each(r->user, &line);
}

void logs_tell_steps(logs_reader *r, uint64_t n, bool skipped)
{
    const uint64_t most = LOGS_GAP + LOGS_PER_LINE * r->about->lines;
    const uint64_t left = most > r->implied ? most - r->implied : 0;
    n = n < left ? n : left;
    r->implied += n;
    for (uint64_t i = 0; i < n; i++) {
        gs_log_step step = logs_new_step(r, r->step + 1);
        step.found_inf = skipped;
        step.verdict = skipped ? "skip" : "apply";
        logs_tell(r, &step);
    }
}

void logs_tell_valid(logs_reader *r, uint64_t step, double loss, double accuracy)
{
    const gs_log_line line = {.number = r->about->lines,
                              .is_whole = 1,
                              .kind = GS_LOG_VALID,
                              .u.valid = {.step = step, .loss = loss, .accuracy = accuracy}};
    r->each(r->user, &line);
}

double logs_number(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    char *end;
    if (!at)
        return (double)NAN;
    at += strlen(key);
    const double x = strtod(at, &end);
    return end > at ? x : (double)NAN;
}

json_t *logs_json(const char *text)
{
    static const char *const words[] = {"-Infinity", "Infinity", "-NaN", "NaN"};
    char *plain = cli_resize(NULL, 2 * strlen(text) + 1), *to = plain;
    bool in_string = false;
    while (*text) {
        size_t w = 0;
        while (!in_string && w < 4 && strncmp(text, words[w], strlen(words[w])) != 0)
            w++;
        if (!in_string && w < 4) {
            to = (char *)memcpy(to, "null", 4) + 4;
            text += strlen(words[w]);
            continue;
        }
        if (in_string && *text == '\\' && text[1])
            *to++ = *text++;
        else if (*text == '"')
            in_string = !in_string;
        *to++ = *text++;
    }
    *to = 0;
    json_t *root = json_loads(plain, JSON_DECODE_INT_AS_REAL, NULL);
    free(plain);
    return root;
}

double logs_member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    double x;
    if (json_is_string(value))
        return cli_read_double(&x, json_string_value(value)) ? x : (double)NAN;
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

bool logs_infer(double *last, gs_log_step *step)
{
    const double before = *last;
    if (step->scale > 0)
        *last = step->scale;
    if (step->found_inf >= 0 || step->verdict || !(step->scale > 0))
        return step->found_inf >= 0 || step->verdict;
    step->found_inf = step->scale < before;
    return true;
}
