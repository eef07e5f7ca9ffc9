/* Logs: every line as it is written, logs that go on, disks that are full, and TensorBoard's files
 * read back by a reader that shares nothing with the writer. */
#include "memory.h"
#include "test.h"

#include "gradscale/log.h"
#include "train/log.h"

#include <locale.h>
#include <math.h>
#include <signal.h>
#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files ---- */

static char folder[] = "/tmp/gradscale-log-XXXXXX";
static char paths[4][128];

static const char *path_of(int i, const char *name)
{
    snprintf(paths[i], sizeof paths[i], "%s/%s", folder, name);
    return paths[i];
}

static char content[1 << 20];
static size_t length;

static const char *read_back(const char *path)
{
    FILE *f = fopen(path, "rb");
    length = f ? fread(content, 1, sizeof content - 1, f) : 0;
    content[length] = 0;
    if (f)
        fclose(f);
    return content;
}

static void write_bytes(const char *path, const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
}

static void write_text(const char *path, const char *text)
{
    write_bytes(path, text, strlen(text));
}

static gs_logger *open_log(gs_logger_config config)
{
    gs_error error = {0};
    gs_logger *log = NULL;
    CHECK_MSG(gs_logger_open(&log, &config, NULL, &error) == GS_OK, "%s", error.text);
    return log;
}

static gs_log_step step_of(uint64_t n)
{
    return (gs_log_step){.step = n,
                         .loss = 1.25,
                         .scale = 65536,
                         .amax = 1.0 / 3,
                         .verdict = "apply",
                         .reason = "fine",
                         .grad_norm = (double)NAN,
                         .lr = 1e-3,
                         .underflow = (double)INFINITY,
                         .items_per_s = 1.0 / 3,
                         .seconds = 2e-300,
                         .items = INT64_MAX};
}

/* ---- lines ---- */

static const char row[] =
    "{\"step\":1,\"loss\":1.25,\"scale\":65536,\"found_inf\":false,\"amax\":0.3333333333333333,"
    "\"verdict\":\"apply\",\"reason\":\"fine\",\"reruns\":0,\"grad_norm\":null,\"lr\":0.001,"
    "\"underflow\":null,\"items_per_s\":0.333333,\"seconds\":2e-300,"
    "\"items\":9223372036854775807}\n";
static const char table[] =
    "step,loss,scale,found_inf,amax,verdict,reason,reruns,grad_norm,lr,underflow,items_per_s,"
    "seconds,items\n"
    "1,1.25,65536,false,0.3333333333333333,apply,fine,0,,0.001,,0.333333,2e-300,"
    "9223372036854775807\n";

static void test_steps(void)
{
    const gs_log_step step = step_of(1);
    gs_logger *log = open_log((gs_logger_config){.size = sizeof(gs_logger_config),
                                                 .json = path_of(0, "a.jsonl"),
                                                 .csv = path_of(1, "a.csv")});
    CHECK(gs_logger_fresh(log));
    CHECK(gs_logger_step(log, &step, NULL) == GS_OK);
    /* before it is closed: a kill would leave this */
    CHECK_MSG(strcmp(read_back(paths[0]), row) == 0, "%s", content);
    CHECK_MSG(strcmp(read_back(paths[1]), table) == 0, "%s", content);
    gs_logger_close(log);
    gs_logger_close(NULL);
}

static void test_locale(void)
{
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE.utf8", "ps_AF.UTF-8"};
    size_t i = 0;
    while (i < 4 && !setlocale(LC_NUMERIC, names[i]))
        i++; /* none is installed: the lines are still held to row */
    const gs_log_step step = step_of(1);
    gs_logger *log = open_log(
        (gs_logger_config){.size = sizeof(gs_logger_config), .json = path_of(0, "l.jsonl")});
    gs_logger_step(log, &step, NULL);
    gs_logger_close(log);
    setlocale(LC_NUMERIC, "C");
    CHECK_MSG(strcmp(read_back(paths[0]), row) == 0, "%s", content);
}

static void test_row(void)
{
    gs_train_row r = {.step = 6, .loss = 2, .scale = 1024, .amax = 0.5, .telemetry = 1};
    r.report = (gs_optim_report){
        .verdict = {.action = GS_APPLY, .reason = GS_REASON_FINE}, .norm = 3, .lr = 0.1};
    r.stored = (gs_stats){.elements = 1000, .zero = 200, .underflow = 100};
    gs_log_step s = gs_log_step_from(&r, 64, 0.5);
    CHECK(s.step == 7 && s.loss == 2 && s.scale == 1024 && s.grad_norm == 3 && s.lr == 0.1);
    CHECK(!s.found_inf && s.underflow == 0.125 && s.items_per_s == 128 && s.items == 64);
    CHECK(strcmp(s.verdict, "apply") == 0 && strcmp(s.reason, "fine") == 0);
    r.telemetry = 0;
    CHECK(isnan(gs_log_step_from(&r, 64, 0.5).underflow));
    r.reruns = 1;
    CHECK(gs_log_step_from(&r, 64, 0.5).found_inf);
    r.reruns = 0;
    r.report.norm = (double)INFINITY; /* as under `none`, which applies it all the same */
    CHECK(gs_log_step_from(&r, 64, 0.5).found_inf);
    r.report.norm = 1;
    r.stored.inf = 1;
    CHECK(gs_log_step_from(&r, 64, 0.5).found_inf);
}

static json_t *line_of(const char *path, size_t n)
{
    const char *text = read_back(path);
    while (n-- > 0)
        text = strchr(text, '\n') + 1;
    json_error_t why;
    json_t *root = json_loadb(text, strcspn(text, "\n"), JSON_REJECT_DUPLICATES, &why);
    CHECK_MSG(root, "%s: %.200s", why.text, text);
    return root;
}

static const char *string_of(json_t *root, const char *key)
{
    const char *text = json_string_value(json_object_get(root, key));
    return text ? text : "";
}

/* What test_events wrote, as the reader sees it. */
static void read_events_back(const char *path)
{
    gs_log_file *file;
    gs_log_line l;
    int more;
    CHECK(gs_log_open(&file, path, NULL, NULL) == GS_OK);
    CHECK(gs_log_next(&l, &more, file, NULL) == GS_OK && more && l.kind == GS_LOG_RUN);
    CHECK(strcmp(l.u.run.version, gs_version()) == 0 && strcmp(l.u.run.model, "mlp") == 0);
    CHECK(!l.u.run.data && l.u.run.parameters == 7 && l.u.run.config.n == 2);
    CHECK(strcmp(l.u.run.config.at[0].key, "data") == 0 && l.u.run.config.at[0].value);
    CHECK(l.u.run.machine.n == 2 && l.u.run.machine.at[1].number == 2);
    CHECK(!l.u.run.machine.at[1].value && l.u.run.memory.at[0].number == 0x1p40 + 1);

    CHECK(gs_log_next(&l, &more, file, NULL) == GS_OK && l.kind == GS_LOG_VALID);
    CHECK(l.u.valid.step == 5 && l.u.valid.loss == 0.25 && isnan(l.u.valid.accuracy));
    CHECK(l.u.valid.best == 1);

    CHECK(gs_log_next(&l, &more, file, NULL) == GS_OK && l.kind == GS_LOG_LAYERS);
    const gs_log_layer *layer = l.u.layers.layers.at;
    CHECK(l.u.layers.step == 5 && l.u.layers.layers.n == 2);
    CHECK(strcmp(layer->name, "conv") == 0 && layer->elements == 10 && layer->underflow == 0.5);
    CHECK(layer->subnormal == 0.25 && layer->inf == 0 && layer->amax == 2);

    CHECK(gs_log_next(&l, &more, file, NULL) == GS_OK && l.kind == GS_LOG_EXPONENTS);
    const gs_log_histogram *h = l.u.exponents.layers.at;
    CHECK(strcmp(l.u.exponents.half, "f16") == 0 && l.u.exponents.scale == 1024);
    CHECK(l.u.exponents.layers.n == 2 && h->first == -2 && h->counts.n == 3 && h[1].counts.n == 0);
    CHECK(h->counts.at[0] == 5 && h->counts.at[2] == 7 && h->zero == 3 && h->bad == 2);

    CHECK(gs_log_next(&l, &more, file, NULL) == GS_OK && l.kind == GS_LOG_CHECKPOINT);
    CHECK(strcmp(l.u.checkpoint.path, "run/step-5") == 0 && l.u.checkpoint.seconds == 0.125);

    CHECK(gs_log_next(&l, &more, file, NULL) == GS_OK && l.kind == GS_LOG_END);
    CHECK(l.u.end.applied == 8 && l.u.end.phases.n == 2 && l.u.end.phases.at[1].number == 0.5);

    CHECK(gs_log_next(&l, &more, file, NULL) == GS_OK && l.kind == GS_LOG_STEP && l.number == 7);
    const gs_log_step *s = &l.u.step, want = step_of(10);
    CHECK(s->step == 10 && s->loss == want.loss && s->scale == want.scale && s->found_inf == 0);
    CHECK(s->amax == want.amax && strcmp(s->verdict, "apply") == 0 && s->reruns == 0);
    CHECK(isnan(s->grad_norm) && s->lr == want.lr && isnan(s->underflow));
    CHECK(s->seconds == want.seconds && strcmp(s->reason, "fine") == 0);
    CHECK(gs_log_next(&l, &more, file, NULL) == GS_OK && !more);
    gs_log_close(file);
}

static void test_events(void)
{
    gs_logger *log = open_log(
        (gs_logger_config){.size = sizeof(gs_logger_config), .json = path_of(0, "e.jsonl")});
    const gs_log_pair config[] = {{"data", "a \"b\"\\\n\x01", 0},
                                  {"name", "\xff\xfe caf\xc3\xa9", 0}};
    const gs_log_pair machine[] = {{"cpu", "x", 0}, {"threads", NULL, 2}};
    const gs_log_pair memory[] = {{"weights", NULL, 0x1p40 + 1}};
    const gs_log_run run = {.name = "caf\xc3\xa9",
                            .model = "mlp",
                            .data = NULL,
                            .parameters = 7,
                            .config = {config, 2},
                            .machine = {machine, 2},
                            .memory = {memory, 1}};
    gs_exponents x = {.zero = 3, .inf = 1, .nan = 1};
    x.all[GS_BINADE_OF_ONE - 2] = 5;
    x.all[GS_BINADE_OF_ONE] = 7;
    static const gs_exponents none;
    const gs_layer layers[] = {
        {"conv", {.elements = 10, .zero = 2, .underflow = 4, .subnormal = 2, .amax = 2}, &x},
        {"empty", {.elements = 0}, &none},
        {"not asked", {.elements = 4, .zero = 4}, NULL}};
    const gs_log_pair phases[] = {{"forward", NULL, 1}, {"data", NULL, 0.5}};
    const gs_log_end end = {9, 2, 0.5, (double)NAN, 8, 1, 0, "done", {phases, 2}};
    CHECK(gs_logger_run(log, &run, NULL) == GS_OK && !gs_logger_fresh(log));
    CHECK(gs_logger_valid(log, 5, 0.25, (double)NAN, 1, NULL) == GS_OK);
    CHECK(gs_logger_layers(log, 5, layers, 3, NULL) == GS_OK);
    CHECK(gs_logger_exponents(log, 5, GS_F16, 1024, layers, 3, NULL) == GS_OK);
    CHECK(gs_logger_checkpoint(log, 5, "run/step-5", 0.125, NULL) == GS_OK);
    CHECK(gs_logger_end(log, &end, NULL) == GS_OK);
    const gs_log_step step = step_of(10);
    CHECK(gs_logger_step(log, &step, NULL) == GS_OK);
    gs_logger_close(log);

    json_t *j = line_of(paths[0], 0);
    CHECK(strcmp(string_of(j, "event"), "run") == 0 && json_is_null(json_object_get(j, "data")));
    json_t *c = json_object_get(j, "config");
    CHECK(strcmp(string_of(c, "data"), config[0].value) == 0);
    CHECK(strcmp(string_of(j, "name"), "caf\xc3\xa9") == 0);
    CHECK(strstr(string_of(c, "name"), "caf") != NULL);
    char *text = json_dumps(json_object_get(j, "memory"), JSON_COMPACT);
    CHECK_MSG(strcmp(text, "{\"weights\":1099511627777}") == 0, "%s", text);
    free(text);
    json_decref(j);
    static const char *const lines[] = {
        "{\"event\":\"valid\",\"step\":5,\"loss\":0.25,\"accuracy\":null,\"best\":true}\n",
        "{\"event\":\"layers\",\"step\":5,\"layers\":[{\"name\":\"conv\",\"elements\":10,"
        "\"flushed\":0.5,\"subnormal\":0.25,\"inf\":0,\"amax\":2},{\"name\":\"not asked\","
        "\"elements\":4,\"flushed\":0,\"subnormal\":0,\"inf\":0,\"amax\":0}]}\n",
        "{\"event\":\"exponents\",\"step\":5,\"half\":\"f16\",\"scale\":1024,\"layers\":["
        "{\"name\":\"conv\",\"first\":-2,\"counts\":[5,0,7],\"zero\":3,\"bad\":2},"
        "{\"name\":\"empty\",\"first\":127,\"counts\":[],\"zero\":0,\"bad\":0}]}\n",
        "{\"event\":\"checkpoint\",\"step\":5,\"path\":\"run/step-5\",\"seconds\":0.125}\n",
        "{\"event\":\"end\",\"step\":9,\"seconds\":2,\"loss\":0.5,\"accuracy\":null,\"applied\":8,"
        "\"skipped\":1,\"retried\":0,\"status\":\"done\",\"phases\":{\"forward\":1,\"data\":0.5}}"
        "\n"};
    const char *at = strchr(read_back(paths[0]), '\n') + 1;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        CHECK_MSG(strncmp(at, lines[i], strlen(lines[i])) == 0, "%.300s", at);
        at = strchr(at, '\n') + 1;
    }

    read_events_back(paths[0]);
}

/* ---- reading ---- */

typedef struct log_case {
    const char *text;
    gs_status status;
    const char *words; /* of the error message */
} log_case;

/* A line that is refused costs only itself. */
static void test_refused_lines(void)
{
    static const log_case cases[] = {
        {"not json", GS_EFORMAT, ":1: not JSON: "},
        {"[1]", GS_EFORMAT, ":2: not a JSON object"},
        {"{\"event\":7}", GS_EFORMAT, ":3: event is not a string"},
        {"{\"step\":1,\"step\":2}", GS_EFORMAT, ":4: not JSON: duplicate object key"},
        {"{\"name\":\"a\x7f\"}", GS_EFORMAT, ":5: byte 0x7f in it"},
        {"{\"step\":1}", GS_OK, ""}};
    char text[512] = "";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        strcat(strcat(text, cases[i].text), "\n");
    write_text(path_of(0, "refused.jsonl"), text);
    gs_log_file *file;
    gs_log_line line;
    gs_error error = {0};
    int more;
    CHECK(gs_log_open(&file, paths[0], NULL, NULL) == GS_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_MSG(gs_log_next(&line, &more, file, &error) == cases[i].status, "%s", cases[i].text);
        CHECK(more && line.number == i + 1 && line.is_whole);
        CHECK_MSG(strstr(error.text, cases[i].words), "%s", error.text);
    }
    CHECK(line.u.step.step == 1);
    CHECK(gs_log_next(&line, &more, file, &error) == GS_OK && !more);
    CHECK(gs_log_file_bytes(file) == strlen(text));
    gs_log_close(file);
    gs_log_close(NULL);
}

/* Lines of others: what is missing or of another type is not there. */
static void test_foreign_lines(void)
{
    write_text(path_of(0, "foreign.jsonl"),
               "{\"amax\": NaN, \"loss\": -Infinity, \"verdict\": \"NaN\", \"found_inf\": 2}\n"
               "\n{\"amax\": -1, \"scale\": \"inf\", \"step\": 1.5, \"verdict\": 7}\r\n"
               "{\"event\": \"newer\", \"step\": 3}\n"
               "{\"event\": \"layers\", \"step\": 1, \"layers\": [7, {\"name\": \"a\"}]}\n"
               "{\"event\": \"layers\"}");
    gs_log_file *file;
    gs_log_line line;
    gs_error error;
    const gs_log_step *s = &line.u.step;
    int more;
    CHECK(gs_log_open(&file, paths[0], NULL, NULL) == GS_OK);
    CHECK(gs_log_next(&line, &more, file, NULL) == GS_OK && more && line.kind == GS_LOG_STEP);
    CHECK(isnan(s->amax) && isnan(s->loss) && strcmp(s->verdict, "NaN") == 0 && s->found_inf == 1);
    CHECK(s->step == GS_LOG_NONE && isnan(s->scale) && !s->reason);
    CHECK(gs_log_has(file, "amax", NULL) == GS_OK && gs_log_has(file, "lr", NULL) == GS_ENAME);

    CHECK(gs_log_next(&line, &more, file, NULL) == GS_OK && line.number == 3);
    CHECK(isnan(s->amax) && isnan(s->scale) && s->step == GS_LOG_NONE && !s->verdict);
    CHECK(s->found_inf == -1);
    CHECK(gs_log_has(file, "scale", &error) == GS_OK);
    CHECK(gs_log_has(file, "amax", &error) == GS_EFORMAT);
    CHECK_MSG(strstr(error.text, ":3: amax is neither a number >= 0 nor null"), "%s", error.text);
    CHECK(gs_log_has(file, "step", &error) == GS_EFORMAT);
    CHECK_MSG(strstr(error.text, ":3: step is not an integer >= 0"), "%s", error.text);

    CHECK(gs_log_next(&line, &more, file, NULL) == GS_OK && line.kind == GS_LOG_OTHER);
    CHECK(gs_log_has(file, "step", NULL) == GS_OK);
    CHECK(gs_log_next(&line, &more, file, NULL) == GS_OK && line.kind == GS_LOG_LAYERS);
    CHECK(line.u.layers.layers.n == 2 && !line.u.layers.layers.at[0].name);
    CHECK(strcmp(line.u.layers.layers.at[1].name, "a") == 0);
    CHECK(isnan(line.u.layers.layers.at[1].underflow) && line.is_whole);
    CHECK(gs_log_next(&line, &more, file, NULL) == GS_OK && !line.u.layers.layers.at);
    CHECK(!line.is_whole);
    gs_log_close(file);
}

/* The reader runs out of memory at every allocation. */
static void test_reader_memory(void)
{
    write_text(path_of(0, "no_memory.jsonl"),
               "{\"found_inf\": 1}\n{\"amax\": NaN}\n"
               "{\"event\": \"end\", \"phases\": {\"forward\": 1}}\n");
    size_t k = 1;
    for (;; k++) {
        books b = {.fail_from = k}; /* the arena tries twice */
        const gs_alloc hook = books_hook(&b);
        gs_error error = {0};
        gs_log_file *file;
        gs_log_line line;
        int more = 1;
        gs_status status = gs_log_open(&file, paths[0], &hook, &error);
        while (status == GS_OK && more)
            status = gs_log_next(&line, &more, file, &error);
        gs_log_close(file);
        CHECK(b.blocks == 0 && b.bytes == 0 && !b.wrong);
        CHECK(status == (b.calls < k ? GS_OK : GS_ENOMEM));
        CHECK(status == GS_OK || strstr(error.text, "out of memory"));
        if (b.calls < k || k > 1000)
            break;
    }
    CHECK_MSG(k > 5, "%zu", k);
}

/* ---- the schema ---- */

/* The tables of doc/log.md are those of the schema, in this order. */
static void test_document(void)
{
    static const int order[] = {
        GS_LOG_STEP,   GS_LOG_RUN,       GS_LOG_RESUME,     GS_LOG_VALID,      GS_LOG_LAYERS,
        GSI_LOG_LAYER, GS_LOG_EXPONENTS, GSI_LOG_HISTOGRAM, GS_LOG_CHECKPOINT, GS_LOG_END};
    static char want[1 << 16];
    size_t n = 0;
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        const gsi_log_schema *s = &gsi_log_schemas[order[i]];
        n += (size_t)sprintf(want + n, "| member | type | meaning |\n|---|---|---|\n");
        for (size_t k = 0; k < s->n; k++)
            n += (size_t)sprintf(want + n, "| `%s` | %s | %s |\n", s->members[k].key,
                                 gsi_log_json_types[s->members[k].type], s->members[k].meaning);
    }
    const char *at = want;
    read_back("doc/log.md");
    for (const char *line = content; *line; line = strchr(line, '\n') + 1) {
        const size_t size = strcspn(line, "\n") + 1;
        if (*line != '|')
            continue;
        CHECK_MSG(strncmp(line, at, size) == 0, "doc/log.md has\n%.*sthe schema\n%.*s", (int)size,
                  line, (int)strcspn(at, "\n") + 1, at);
        at += strcspn(at, "\n") + 1;
        at -= at > want + n;
    }
    CHECK_MSG(*at == 0, "doc/log.md does not have\n%s", at);
    for (int kind = 0; kind < GS_LOG_KIND_COUNT; kind++) { /* every event has its chapter */
        char heading[64];
        snprintf(heading, sizeof heading, "\n### `%s`", gsi_log_events[kind]);
        CHECK_MSG(kind == GS_LOG_STEP || strstr(content, heading), "%s", heading);
    }
}

/* ---- going on ---- */

static void test_resume(void)
{
    gs_logger_config config = {
        .size = sizeof config, .json = path_of(0, "r.jsonl"), .csv = path_of(1, "r.csv")};
    gs_logger *log = open_log(config);
    for (uint64_t n = 1; n <= 4; n++) {
        const gs_log_step step = step_of(n);
        gs_logger_step(log, &step, NULL);
    }
    gs_logger_close(log);
    FILE *f = fopen(paths[0], "a"); /* killed in the middle of a write, if that could be */
    fputs("{\"step\":5,\"lo", f);
    fclose(f);
    f = fopen(paths[1], "a");
    fputs("5,1.2", f);
    fclose(f);

    config.resume = 1;
    config.step = 2;
    config.from = "run/step-2";
    log = open_log(config);
    CHECK(!gs_logger_fresh(log));
    const gs_log_step step = step_of(3);
    gs_logger_step(log, &step, NULL);
    gs_logger_close(log);
    json_t *j = line_of(paths[0], 4);
    CHECK(strcmp(string_of(j, "event"), "resume") == 0 &&
          strcmp(string_of(j, "from"), "run/step-2") == 0 &&
          json_integer_value(json_object_get(j, "step")) == 2);
    json_decref(j);
    json_decref(line_of(paths[0], 5));
    read_back(paths[1]);
    size_t lines = 0;
    for (const char *c = content; *c; c++)
        lines += *c == '\n';
    CHECK_MSG(lines == 4 && strstr(content, "\n3,1.25"), "%s", content); /* header, 1, 2, 3 */

    /* files of others are not cut */
    gs_error error;
    char wide[2000]; /* a line longer than any of ours */
    memset(wide, 'x', sizeof wide);
    wide[sizeof wide - 1] = 0;
    const char *const others[] = {"dear diary\n",
                                  "{\"name\": \"a\"}",
                                  "step,loss,other\n",
                                  "step,loss,other",
                                  wide,
                                  "\ndear diary\n",
                                  "{\n}\n"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        write_text(path_of(0, "notes.txt"), others[i]);
        config =
            (gs_logger_config){.size = sizeof(gs_logger_config), .json = paths[0], .resume = 1};
        CHECK(gs_logger_open(&log, &config, NULL, &error) == GS_EFORMAT && !log);
        CHECK(strstr(error.text, "notes.txt: this is no log to go on with"));
        config = (gs_logger_config){.size = sizeof(gs_logger_config), .csv = paths[0], .resume = 1};
        CHECK(gs_logger_open(&log, &config, NULL, &error) == GS_EFORMAT);
        CHECK(strcmp(read_back(paths[0]), others[i]) == 0);
    }

    /* nor those that begin with zeros */
    static const char images[][8] = {"\0\0\0\1", "\0\0\0\n", "\0\n\0\n", "{\0\0\0\0\1"};
    for (size_t i = 0; i < sizeof images / sizeof images[0]; i++) {
        write_bytes(path_of(0, "image"), images[i], sizeof images[i]);
        config =
            (gs_logger_config){.size = sizeof(gs_logger_config), .json = paths[0], .resume = 1};
        CHECK_MSG(gs_logger_open(&log, &config, NULL, &error) == GS_EFORMAT, "%zu", i);
        config = (gs_logger_config){.size = sizeof(gs_logger_config), .csv = paths[0], .resume = 1};
        CHECK_MSG(gs_logger_open(&log, &config, NULL, &error) == GS_EFORMAT, "%zu", i);
        read_back(paths[0]);
        CHECK(length == sizeof images[i] && memcmp(content, images[i], length) == 0);
    }

    /* ours, cut in its first line, with zeros for what did not come to the disk */
    for (size_t zeros = 0; zeros <= 3; zeros += 3) {
        write_bytes(path_of(0, "r.jsonl"), "{\"ev\0\0\0", 4 + zeros);
        write_bytes(path_of(1, "r.csv"), "step,lo\0\0\0", 7 + zeros);
        log = open_log((gs_logger_config){
            .size = sizeof(gs_logger_config), .json = paths[0], .csv = paths[1], .resume = 1});
        CHECK(gs_logger_fresh(log));
        gs_logger_close(log);
        CHECK(strncmp(read_back(paths[1]), "step,loss,scale,", 16) == 0);
    }

    /* nor those that another run is writing */
    log = open_log(
        (gs_logger_config){.size = sizeof(gs_logger_config), .json = path_of(0, "w.jsonl")});
    gs_logger_step(log, &step, NULL);
    read_back(paths[0]);
    for (int again = 0; again <= 1; again++) {
        gs_logger *second;
        config =
            (gs_logger_config){.size = sizeof(gs_logger_config), .json = paths[0], .resume = again};
        CHECK(gs_logger_open(&second, &config, NULL, &error) == GS_ESTATE);
        CHECK(strstr(error.text, "w.jsonl: another run is writing to it"));
    }
    gs_logger_close(log);
    const size_t before = length;
    read_back(paths[0]);
    CHECK(length == before);

    /* a pipe keeps nothing, and is not waited for */
    CHECK(mkfifo(path_of(0, "pipe"), 0600) == 0);
    const int reader = open(paths[0], O_RDWR);
    alarm(60);
    log = open_log((gs_logger_config){.size = sizeof(gs_logger_config),
                                      .json = paths[0],
                                      .csv = paths[0],
                                      .resume = 1,
                                      .step = 9});
    alarm(0);
    CHECK(reader >= 0 && gs_logger_fresh(log));
    gs_logger_close(log);
    close(reader);

    /* nor is what cannot be read cut */
    write_text(path_of(0, "secret"), "dear diary\n");
    CHECK(chmod(paths[0], 0200) == 0);
    config = (gs_logger_config){.size = sizeof(gs_logger_config), .json = paths[0], .resume = 1};
    CHECK(gs_logger_open(&log, &config, NULL, &error) == (geteuid() ? GS_EIO : GS_EFORMAT));
    if (geteuid() == 0)
        test_skip_part("a log without the right to read", "root may read all");
    CHECK(chmod(paths[0], 0600) == 0 && strcmp(read_back(paths[0]), "dear diary\n") == 0);

    /* nothing there to go on with */
    config = (gs_logger_config){
        .size = sizeof(gs_logger_config), .json = path_of(0, "new.jsonl"), .resume = 1, .step = 9};
    log = open_log(config);
    CHECK(gs_logger_fresh(log));
    gs_logger_close(log);
}

/* A byte that is damaged costs its line, and not all that follow. */
static void test_damaged(void)
{
    gs_logger_config config = {
        .size = sizeof config, .json = path_of(0, "z.jsonl"), .csv = path_of(1, "z.csv")};
    static char before[2][1 << 14];
    size_t lengths[2];
    gs_logger *log = open_log(config);
    for (uint64_t n = 1; n <= 8; n++) {
        const gs_log_step step = step_of(n);
        gs_logger_step(log, &step, NULL);
    }
    gs_logger_close(log);
    for (int i = 0; i < 2; i++) {
        read_back(paths[i]);
        memcpy(before[i], content, length);
        before[i][length / 2] = 0;
        lengths[i] = length;
        memset(before[i] + length, 0, 100); /* what a power loss may leave of the next line */
        write_bytes(paths[i], before[i], length + 100);
    }
    config.resume = 1;
    config.step = 8;
    gs_logger_close(open_log(config));
    for (int i = 0; i < 2; i++) {
        read_back(paths[i]);
        CHECK_MSG(length >= lengths[i] && memcmp(content, before[i], lengths[i]) == 0,
                  "%s: %zu bytes of %zu", paths[i], length, lengths[i]);
        CHECK(i == 0 ? content[lengths[i]] == '{' : length == lengths[i]);
    }
}

/* ---- disks ---- */

static void test_full(void)
{
    gs_error error = {0};
    gs_logger *log = NULL;
    const gs_logger_config nowhere = {.size = sizeof nowhere, .json = "/nonexistent/a.jsonl"};
    CHECK(gs_logger_open(&log, &nowhere, NULL, &error) == GS_EIO && !log);
    CHECK(strcmp(error.text, "/nonexistent/a.jsonl: No such file or directory") == 0);
    CHECK(gs_logger_open(NULL, &nowhere, NULL, NULL) == GS_ENULL);

    const gs_log_step step = step_of(1);
    log = open_log((gs_logger_config){
        .size = sizeof(gs_logger_config), .json = "/dev/full", .csv = path_of(1, "f.csv")});
    CHECK(gs_logger_lost(log) == 0);
    CHECK(gs_logger_step(log, &step, &error) == GS_EIO);
    CHECK(gs_logger_lost(log) == GS_LOGGER_JSON);
    CHECK(strcmp(error.text, "/dev/full: writing failed: No space left on device") == 0);
    CHECK(gs_logger_step(log, &step, NULL) == GS_OK); /* given up, and the other goes on */
    gs_logger_close(log);
    read_back(paths[1]);
    CHECK(length == strlen(table) + strlen(strchr(table, '\n') + 1));

    /* room for a row and a half: the half is taken back */
    struct rlimit old, small;
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = sizeof row + sizeof row / 2;
    signal(SIGXFSZ, SIG_IGN);
    log = open_log(
        (gs_logger_config){.size = sizeof(gs_logger_config), .json = path_of(0, "h.jsonl")});
    setrlimit(RLIMIT_FSIZE, &small);
    CHECK(gs_logger_step(log, &step, NULL) == GS_OK && gs_logger_lost(log) == 0);
    CHECK(gs_logger_step(log, &step, NULL) == GS_EIO && gs_logger_lost(log) == GS_LOGGER_JSON);
    setrlimit(RLIMIT_FSIZE, &old);
    gs_logger_close(log);
    CHECK_MSG(strcmp(read_back(paths[0]), row) == 0, "%s", content);
}

static void test_memory(void)
{
    const gs_log_step step = step_of(1);
    gs_logger_config config = {.size = sizeof config,
                               .json = path_of(0, "m.jsonl"),
                               .csv = path_of(1, "m.csv"),
                               .tensorboard = path_of(2, "m")};
    for (size_t k = 1; k < 200; k++) {
        books b = {.fail_at = k};
        const gs_alloc hook = books_hook(&b);
        gs_logger *log;
        gs_status status = gs_logger_open(&log, &config, &hook, NULL);
        if (status == GS_OK)
            status = gs_logger_step(log, &step, NULL);
        const size_t calls = b.calls;
        gs_logger_close(log);
        CHECK(!b.wrong && b.blocks == 0);
        if (calls < k) {
            CHECK(status == GS_OK && k > 1);
            if (config.resume)
                break;
            config.resume = 1; /* the same with files that are there */
            k = 0;
            continue;
        }
        CHECK(status == GS_ENOMEM);
    }
    config.resume = 0;
    books b = {0}; /* steady: no line asks for more */
    const gs_alloc hook = books_hook(&b);
    gs_logger *log;
    CHECK(gs_logger_open(&log, &config, &hook, NULL) == GS_OK);
    gs_logger_step(log, &step, NULL);
    const size_t calls = b.calls;
    for (int i = 0; i < 100; i++)
        gs_logger_step(log, &step, NULL);
    CHECK(b.calls == calls);
    gs_logger_close(log);
}

/* ---- TensorBoard ---- */

static uint32_t crc_table[256]; /* of CRC-32C, a byte at a time: the writer goes by bits */

static uint32_t masked_crc(const unsigned char *p, size_t n)
{
    uint32_t crc = 0xFFFFFFFF;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t x = i;
        for (int k = 0; k < 8; k++)
            x = x & 1 ? x >> 1 ^ 0x82F63B78 : x >> 1;
        crc_table[i] = x;
    }
    while (n-- > 0)
        crc = crc >> 8 ^ crc_table[(crc ^ *p++) & 0xFF];
    crc ^= 0xFFFFFFFF;
    return ((crc >> 15) | (crc << 17)) + 0xA282EAD8;
}

static uint32_t u32_at(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

typedef struct event {
    uint64_t step;
    double time;
    char version[32];
    int start;
    size_t n;
    struct {
        char tag[64];
        float value;
    } values[16];
} event;

static uint64_t varint(const unsigned char **p)
{
    uint64_t x = 0;
    for (int shift = 0;; shift += 7) {
        x |= (uint64_t)(**p & 0x7F) << shift;
        if (!(*(*p)++ & 0x80))
            return x;
    }
}

/* Fields of the messages, told apart by depth: 0 Event, 1 Summary, 2 Value, 3 SessionLog. */
static void decode(event *e, const unsigned char *p, size_t n, int depth)
{
    const unsigned char *const end = p + n;
    while (p < end) {
        const uint64_t key = varint(&p), field = key >> 3, wire = key & 7;
        if (wire == 0) {
            const uint64_t x = varint(&p);
            if (depth == 0 && field == 2)
                e->step = x;
            e->start |= depth == 3 && field == 1 && x == 1;
        } else if (wire == 1) {
            if (depth == 0 && field == 1)
                memcpy(&e->time, p, 8);
            p += 8;
        } else if (wire == 5) {
            if (depth == 2 && field == 2)
                memcpy(&e->values[e->n].value, p, 4);
            p += 4;
        } else {
            const size_t size = (size_t)varint(&p);
            CHECK(wire == 2 && p + size <= end);
            if (depth == 0 && field == 3)
                memcpy(e->version, p, size);
            else if (depth == 0 && field == 5)
                decode(e, p, size, 1);
            else if (depth == 0 && field == 7)
                decode(e, p, size, 3);
            else if (depth == 1 && field == 1) {
                decode(e, p, size, 2);
                e->n++;
            } else if (depth == 2 && field == 1)
                memcpy(e->values[e->n].tag, p, size);
            p += size;
        }
    }
    CHECK(p == end);
}

/* All events of the one file in the folder. */
static size_t read_events(event *list, size_t room, const char *where)
{
    char path[512] = "";
    DIR *d = opendir(where);
    int files = 0;
    for (const struct dirent *e; d && (e = readdir(d));)
        if (strncmp(e->d_name, "events.out.tfevents.", 20) == 0) {
            snprintf(path, sizeof path, "%s/%s", where, e->d_name);
            files++;
        }
    closedir(d);
    CHECK(files == 1);
    read_back(path);
    const unsigned char *p = (const unsigned char *)content, *const end = p + length;
    size_t n = 0;
    while (p < end && n < room) {
        CHECK(end - p >= 12);
        const size_t size = u32_at(p);
        CHECK(u32_at(p + 4) == 0 && u32_at(p + 8) == masked_crc(p, 8));
        const int whole = end - p >= (ptrdiff_t)(size + 16);
        CHECK(whole);
        if (!whole)
            return n;
        CHECK(u32_at(p + 12 + size) == masked_crc(p + 12, size));
        list[n] = (event){0};
        decode(&list[n++], p + 12, size, 0);
        p += size + 16;
    }
    CHECK(p == end);
    return n;
}

static void test_tensorboard(void)
{
    event list[8];
    CHECK(masked_crc((const unsigned char *)"123456789", 9) ==
          ((0xE3069283u >> 15 | 0xE3069283u << 17) + 0xA282EAD8)); /* its published check value */
    gs_logger *log = open_log((gs_logger_config){.size = sizeof(gs_logger_config),
                                                 .tensorboard = path_of(0, "b/deep/er")});
    gs_log_step step = step_of(1000000007);
    CHECK(gs_logger_step(log, &step, NULL) == GS_OK);
    CHECK(gs_logger_valid(log, 300, 0.25, 0.5, 1, NULL) == GS_OK);
    step.loss = step.scale = step.lr = step.items_per_s = (double)NAN; /* nothing left to say */
    CHECK(gs_logger_step(log, &step, NULL) == GS_OK);
    CHECK(gs_logger_valid(log, 301, 0.125, (double)NAN, 1, NULL) == GS_OK);
    gs_logger_close(log);
    CHECK(read_events(list, 8, paths[0]) == 4);
    CHECK(strcmp(list[0].version, "brain.Event:2") == 0 && list[0].time > 1.6e9);
    CHECK(list[1].step == 1000000007 && list[1].n == 4 && !list[1].start);
    static const struct {
        const char *tag;
        float value;
    } want[] = {{"loss", 1.25f}, {"scale", 65536}, {"lr", 1e-3f}, {"items_per_s", 1.0f / 3}};
    for (size_t i = 0; i < 4; i++)
        CHECK_MSG(strcmp(list[1].values[i].tag, want[i].tag) == 0 &&
                      list[1].values[i].value == want[i].value,
                  "%s %g", list[1].values[i].tag, (double)list[1].values[i].value);
    CHECK(list[2].step == 300 && list[2].n == 2 && list[2].values[0].value == 0.25f &&
          strcmp(list[2].values[1].tag, "valid/accuracy") == 0 && list[2].values[1].value == 0.5f);
    CHECK(list[3].step == 301 && list[3].n == 1);

    log = open_log((gs_logger_config){
        .size = sizeof(gs_logger_config), .tensorboard = path_of(0, "c"), .resume = 1, .step = 41});
    gs_logger_close(log);
    CHECK(read_events(list, 8, paths[0]) == 2 && list[1].start && list[1].step == 42);

    gs_error error;
    write_text(path_of(1, "file"), "");
    const gs_logger_config config = {.size = sizeof config, .tensorboard = paths[1]};
    CHECK(gs_logger_open(&log, &config, NULL, &error) == GS_EIO);
    CHECK_MSG(strstr(error.text, "/file: is not a folder"), "%s", error.text);
}

/* ---- the folder ---- */

static void test_begin(void) { CHECK(mkdtemp(folder) != NULL); }

static void test_clean_up(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
}

TESTS({"begin", test_begin}, {"steps", test_steps}, {"locale", test_locale}, {"row", test_row},
      {"events", test_events}, {"refused_lines", test_refused_lines},
      {"foreign_lines", test_foreign_lines}, {"reader_memory", test_reader_memory},
      {"document", test_document}, {"resume", test_resume}, {"damaged", test_damaged},
      {"full", test_full}, {"memory", test_memory}, {"tensorboard", test_tensorboard},
      {"clean_up", test_clean_up})
