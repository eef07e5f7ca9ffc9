/* gradscale replay: traces of loss scalers, logs of runs, and made-up ones.
 * Schema: doc/json-replay.md. */
#include "cli/replay/replay.h"
#include "cli/core/commands.h"
#include "cli/core/json.h"
#include "cli/logs/logs.h"

#include "gradscale/log.h"
#include "gradscale/trace.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- traces ---- */

static int replay_traces(char **paths, int n, bool emit)
{
    uint64_t traces = 0, steps = 0, wrong = 0;
    gs_error error;
    for (int i = 0; i < n; i++) {
        gs_trace_file *file;
        gs_status status = gs_trace_open(&file, paths[i], NULL, &error);
        const gs_trace *trace = NULL;
        while (status == GS_OK && (status = gs_trace_next(&trace, file, &error)) == GS_OK &&
               trace) {
            int same = 1;
            if (emit) {
                if (traces > 0)
                    putchar('\n');
                if (gs_trace_write(stdout, trace, NULL) != GS_OK)
                    break; /* cli_end says so */
            } else if ((status = gs_trace_compare(&same, trace, &error)) == GS_OK && !same) {
                cli_clean(error.text);
                printf("%s\n", error.text);
                wrong++;
            }
            traces++;
            steps += trace->steps;
        }
        gs_trace_close(file);
        if (status == GS_ENOMEM)
            return cli_fail_status(status, &error);
        if (status != GS_OK)
            return cli_fail("%s%s", error.text,
                            strstr(error.text, " outside a trace") ? ": of a log ask with --policy"
                                                                   : "");
    }
    if (!emit)
        printf("%" PRIu64 " trace%s, %" PRIu64 " step%s: %" PRIu64 " differ\n", traces,
               cli_s(traces), steps, cli_s(steps), wrong);
    return wrong ? CLI_FAILED : CLI_DONE;
}

/* ---- logs ---- */

enum { POLICIES_MAX = 64, NAME = 64 };

typedef struct policy_run {
    char name[NAME];
    gs_scaler scaler;
    uint64_t steps, skipped, at_floor, at_ceiling;
    double sum, log2_sum;
} policy_run;

/* A finite amax tells for every scale whether the step overflows; unless it did so at a scale
 * where this amax does not explain it: then something else was not finite. */
static bool overflows(const gs_log_step *row, double scale)
{
    const double max = gs_dtype_format(GS_F16)->max;
    if (isnan(row->amax))
        return row->found_inf != 0;
    return row->amax * scale > max || (row->found_inf == 1 && row->amax * row->scale <= max);
}

static void run_row(policy_run *p, const gs_log_step *row)
{
    const gs_health health = gs_scaler_health(&p->scaler);
    gs_step step;
    gs_step_begin(&step, &p->scaler);
    const bool found = overflows(row, step.scale);
    if (found || isnan(row->amax))
        gs_step_flag(&step, found);
    else
        gs_step_amax(&step, row->amax * step.scale);
    p->steps++;
    p->sum += step.scale;
    p->log2_sum += log2(step.scale);
    p->at_floor += health == GS_AT_FLOOR;
    p->at_ceiling += health == GS_AT_CEILING;
    p->skipped += gs_step_end(&step, &p->scaler).action != GS_APPLY;
}

/* Those whose scale moves: all presets, then the policies that read an amax. */
static const char *all_policies(void)
{
    static char list[POLICIES_MAX * NAME];
    static const char others[] = "headroom,logmax,adaptive,histogram";
    size_t used = 0;
    for (size_t i = 0; gs_preset_name(i); i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s,", gs_preset_name(i));
    snprintf(list + used, sizeof list - used, "%s", others);
    return list;
}

static int make_policies(policy_run *runs, size_t *n, const char *list, const char *set)
{
    gs_error error;
    int next;
    *n = 0;
    for (;;) {
        policy_run *p = &runs[*n];
        if (*n == POLICIES_MAX)
            return cli_fail("--policy: more than %d policies", POLICIES_MAX);
        *p = (policy_run){0};
        next = cli_next_item(&list, p->name, sizeof p->name);
        if (next == 0)
            return CLI_GO;
        if (next < 0)
            return cli_fail("--policy: an item of the list is empty or too long");
        if (gs_scaler_init(&p->scaler, p->name, &error) != GS_OK)
            return cli_fail_scaler("--policy", p->name, &error);
        if (gs_scaler_set(&p->scaler, "stuck=none", &error) != GS_OK ||
            gs_scaler_set(&p->scaler, set, &error) != GS_OK)
            return cli_fail_set(&p->scaler, false, &error);
        if (p->scaler.rules.on_overflow != GS_ON_SKIP)
            return cli_fail("--set on_overflow: a batch of a log cannot be retried");
        ++*n;
    }
}

static void print_policies(const policy_run *runs, size_t n, bool json)
{
    static const char *const titles[] = {"<policy",     ">steps",      ">skipped",
                                         ">mean scale", ">mean log2",  ">final scale",
                                         ">at floor",   ">at ceiling", NULL};
    json_writer j;
    cli_table *t = NULL;
    if (json) {
        put_begin(&j, stdout, true);
        put_array(&j, NULL);
    } else {
        t = cli_table_new(titles);
    }
    for (size_t i = 0; i < n; i++) {
        const policy_run *p = &runs[i];
        const double steps = (double)p->steps, last = gs_scaler_scale(&p->scaler);
        if (json) {
            put_object(&j, NULL);
            put_string(&j, "policy", p->name);
            put_u64(&j, "steps", p->steps);
            put_u64(&j, "skipped", p->skipped);
            put_double(&j, "mean_scale", p->sum / steps);
            put_double(&j, "mean_log2_scale", p->log2_sum / steps);
            put_double(&j, "final_scale", last);
            put_u64(&j, "at_floor", p->at_floor);
            put_u64(&j, "at_ceiling", p->at_ceiling);
            put_end(&j);
            continue;
        }
        cli_table_cell(t, "%s", p->name);
        cli_table_cell(t, "%" PRIu64, p->steps);
        cli_table_cell(t, "%" PRIu64, p->skipped);
        cli_table_cell(t, "%.6g", p->sum / steps);
        cli_table_cell(t, "%.2f", p->log2_sum / steps);
        cli_table_cell(t, "%.6g", last);
        cli_table_cell(t, "%" PRIu64, p->at_floor);
        cli_table_cell(t, "%" PRIu64, p->at_ceiling);
    }
    if (json)
        put_end(&j);
    else
        cli_table_print(t, stdout);
}

/* ---- which one to use ---- */

/* Steps that are lost first, then the scale: the higher, the less underflows. Both only where they
 * differ by something; then the order of the list, in which the user names what they prefer. */
static const policy_run *pick_policy(const policy_run *runs, size_t n)
{
    uint64_t least = UINT64_MAX;
    double highest = -HUGE_VAL;
    const policy_run *best = NULL;
    for (size_t i = 0; i < n; i++)
        least = runs[i].skipped < least ? runs[i].skipped : least;
    const uint64_t few = least + runs[0].steps / 1000;
    for (size_t i = 0; i < n; i++)
        if (runs[i].skipped <= few)
            highest = fmax(highest, runs[i].log2_sum);
    for (size_t i = 0; i < n && !best; i++)
        if (runs[i].skipped <= few && runs[i].log2_sum >= highest - 0.5 * (double)runs[i].steps)
            best = &runs[i];
    return best;
}

typedef struct replayed {
    policy_run *runs;
    size_t n;
    uint64_t rows, with_amax, overflowed;
    double last_scale;
    uint64_t mute; /* line of a step that tells nothing; 0: there is none */
} replayed;

/* "Use X: ..." */
static void say_pick(char *text, size_t size, const replayed *r)
{
    const policy_run *best = pick_policy(r->runs, r->n), *pytorch = NULL;
    for (size_t i = 0; i < r->n; i++)
        if (strcmp(r->runs[i].name, "pytorch") == 0 && &r->runs[i] != best)
            pytorch = &r->runs[i];
    const double steps = (double)best->steps;
    if (r->with_amax == 0) {
        snprintf(text, size,
                 "The log has no amax, so every policy is given the run's own %" PRIu64
                 " overflow%s, whatever its scale: which of them skips least cannot be told from "
                 "it. Log the largest gradient of every step (amax) to find out.",
                 r->overflowed, cli_s(r->overflowed));
        return;
    }
    const int used = snprintf(
        text, size,
        "Use %s: it skips %" PRIu64 " of %" PRIu64
        " step%s (%.2g%%), and of the policies that skip "
        "about as few (within 0.1%% of the steps) its mean scale is the highest, 2^%.1f: the least "
        "underflows.",
        best->name, best->skipped, best->steps, cli_s(best->steps),
        100 * (double)best->skipped / steps, best->log2_sum / steps);
    if (pytorch && used > 0 && (size_t)used < size)
        snprintf(text + used, size - (size_t)used, " pytorch skips %" PRIu64 " at 2^%.1f.",
                 pytorch->skipped, pytorch->log2_sum / steps);
}

/* ---- steps ---- */

static void replay_step(replayed *r, const gs_log_step *step)
{
    r->rows++;
    r->with_amax += isnan(step->amax) ? 0 : 1;
    r->overflowed += step->found_inf == 1;
    /* Of a batch that was retried until it fitted, scale and amax are those that fitted: the flag
     * is an earlier try's, and says nothing of them. */
    gs_log_step last = *step;
    if (isfinite(last.amax) && last.verdict && strcmp(last.verdict, "apply") == 0 &&
        last.reruns != GS_LOG_NONE && last.reruns > 0)
        last.found_inf = 0;
    for (size_t k = 0; k < r->n; k++)
        run_row(&r->runs[k], &last);
}

/* A step of another framework's log. */
static void replay_foreign(void *user, const gs_log_line *line)
{
    replayed *r = user;
    if (line->kind != GS_LOG_STEP)
        return;
    gs_log_step step = line->u.step;
    const bool told = logs_infer(&r->last_scale, &step);
    if (!told && isnan(step.amax)) {
        r->mute = r->mute ? r->mute : line->number;
        return;
    }
    if (step.found_inf < 0 && step.verdict)
        step.found_inf = strcmp(step.verdict, "apply") != 0;
    replay_step(r, &step);
}

/* The next step that tells whether it overflowed: events are passed over, and a line that does not
 * say is refused. */
static gs_status next_step(gs_log_line *line, int *more, gs_log_file *file, const char *path,
                           double *last_scale, gs_error *error)
{
    gs_status status;
    do
        status = gs_log_next(line, more, file, error);
    while (status == GS_OK && *more && line->kind != GS_LOG_STEP);
    if (status != GS_OK || !*more)
        return status;
    if (gs_log_has(file, "found_inf", error) == GS_EFORMAT)
        return GS_EFORMAT;
    const gs_status has = gs_log_has(file, "amax", error);
    if (has != GS_ENAME)
        return has;
    if (logs_infer(last_scale, &line->u.step) && line->u.step.found_inf >= 0)
        return GS_OK;
    snprintf(error->text, sizeof error->text,
             "%.100s:%" PRIu64 ": it has none of found_inf, amax and scale", path, line->number);
    return has;
}

static int replay_log(replayed *r, const char *path)
{
    gs_error error;
    gs_log_file *file;
    gs_log_line line;
    logs_about about;
    int more = 1;
    const int code = logs_refuse_pickle(path, "log found_inf or the scale of every step instead");
    const logs_kind *kind = code == CLI_GO ? logs_find(path) : NULL;
    r->last_scale = (double)NAN;
    if (code != CLI_GO)
        return code;
    if (kind) {
        r->mute = 0;
        const int read = logs_read(kind, path, replay_foreign, r, &about);
        if (read == CLI_GO && r->mute > 0)
            return cli_fail("%.100s: read as %s: line %" PRIu64
                            " does not tell whether its step overflowed: there is no scale",
                            path, about.kind, r->mute);
        return read;
    }
    gs_status status = gs_log_open(&file, path, NULL, &error);
    while (status == GS_OK &&
           (status = next_step(&line, &more, file, path, &r->last_scale, &error)) == GS_OK && more)
        replay_step(r, &line.u.step);
    gs_log_close(file);
    if (status == GS_EFORMAT && r->rows == 0 && strstr(error.text, ":1: not JSON"))
        return cli_fail("%s; %s", error.text,
                        strcmp(path, "-") == 0
                            ? "other logs are read from files, not from standard input"
                            : "nor is it another log that gradscale replay --help names");
    return status == GS_OK ? CLI_GO : cli_fail_input("", status, &error);
}

static int replay_logs(char **paths, int n, const char *policies, const char *set, bool json)
{
    static policy_run runs[POLICIES_MAX];
    replayed r = {.runs = runs};
    char use[512];
    int code =
        make_policies(runs, &r.n, strcmp(policies, "all") == 0 ? all_policies() : policies, set);
    for (int i = 0; i < n && code == CLI_GO; i++)
        code = replay_log(&r, paths[i]);
    if (code != CLI_GO)
        return code;
    if (r.rows == 0)
        return cli_fail("%s: there is no step in it", paths[0]);
    print_policies(runs, r.n, json);
    if (r.n > 1 && !json) {
        say_pick(use, sizeof use, &r);
        putchar('\n');
        cli_wrap(use, 0, 0);
    }
    return CLI_DONE;
}

/* ---- the command ---- */

enum { SETTINGS = 1024 };

/* All --set in one list, so that they are checked together. */
static bool join(char text[SETTINGS], const cli_list *sets)
{
    text[0] = 0;
    for (size_t i = 0; i < sets->count; i++) {
        if (strlen(text) + strlen(sets->items[i]) + 2 > SETTINGS)
            return false;
        strcat(strcat(text, " "), sets->items[i]);
    }
    return true;
}

int cmd_replay(int argc, char **argv)
{
    bool emit = false, json = false, simulated = false;
    const char *policies = NULL;
    cli_list sets = {0};
    const simulation not_given = {.steps = 200000, .seeds = 20, .walk = 50000, .seed = 1};
    simulation sim = not_given;
    const cli_option simulation_rows[] = {
        {"steps", "N", "steps of each run with bad batches", CLI_UNSIGNED(&sim.steps), .min = 1,
         .max = 1e9},
        {"seeds", "N", "random walks", CLI_UNSIGNED(&sim.seeds), .min = 1, .max = 1000},
        {"walk", "N", "steps of each random walk", CLI_UNSIGNED(&sim.walk), .min = 1, .max = 1e9},
        {"seed", "N", "the first seed", CLI_UNSIGNED(&sim.seed)},
        {0}};
    const cli_option options[] = {
        {"emit", NULL, "write the traces again, with computed scale and error lines",
         CLI_FLAG(&emit)},
        {"policy", "A,B,...",
         "the files are logs: show what each of these presets or policies would have done, or all "
         "of "
         "them, and which to use",
         CLI_STRING(&policies)},
        {"set", "KEY=VALUE", "change a parameter of every policy; with --simulate, of headroom",
         CLI_LIST(&sets)},
        {"json", NULL, "print JSON; its schema is in doc/json-replay.md", CLI_FLAG(&json)},
        {"simulate", NULL, "no files: bad batches with skip and attribute; pytorch and headroom",
         CLI_FLAG(&simulated)},
        {"With --simulate", NULL, NULL, CLI_SECTION(simulation_rows)},
        {0}};
    const cli_spec spec = {
        .name = "gradscale replay",
        .operands = "FILE...",
        .about =
            "Runs traces of loss scalers. Without an option it compares what it computes with "
            "what was recorded, prints a line for each trace that differs and exits with 1 if "
            "any does. A FILE of - is standard input.\n\n"
            "With --policy the files are logs: JSON lines with found_inf, amax or scale, CSV, or "
            "what Megatron-LM, DeepSpeed, Apex, fairseq and Hugging Face leave. Where a log has "
            "a scale only, a step at which it fell counts as an overflow.",
        .options = options,
        .max_operands = CLI_ANY};
    const int code = cli_parse(&spec, &argc, argv);
    if (code != CLI_GO)
        return code;
    if (emit + simulated + (policies != NULL) > 1)
        return cli_fail("--emit, --policy and --simulate exclude one another");
    if (simulated && argc > 0)
        return cli_fail("--simulate takes no file, but '%s' was given", argv[0]);
    if (!simulated && argc == 0)
        return cli_fail("replay needs a FILE, or --simulate");
    if (!simulated && (sim.steps != not_given.steps || sim.seeds != not_given.seeds ||
                       sim.walk != not_given.walk || sim.seed != not_given.seed))
        return cli_fail("--steps, --seeds, --walk and --seed belong to --simulate");
    if (sets.count > 0 && !policies && !simulated)
        return cli_fail("--set belongs to --policy or --simulate");
    char set[SETTINGS];
    gs_scaler headroom;
    gs_error error;
    if (!join(set, &sets))
        return cli_fail("--set: the values are too long");
    gs_scaler_init(&headroom, "headroom", NULL);
    if (simulated && gs_scaler_set(&headroom, set, &error) != GS_OK)
        return cli_fail_set(&headroom, false, &error);
    sim.set = set;
    if (json && !policies && !simulated)
        return cli_fail("--json belongs to --policy or --simulate");
    if (simulated)
        simulate(&sim, json);
    else if (policies)
        return replay_logs(argv, argc, policies, set, json);
    else
        return replay_traces(argv, argc, emit);
    return CLI_DONE;
}
