/* Logs at their edges: values of every kind and of none, lists that memory ends in, two files that
 * fail at once, and a clock beyond all calendars. */
#include "memory.h"
#include "test.h"

#include "train/log.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <time.h>
#include <unistd.h>

static gs_error error;
static char folder[] = "/tmp/gradscale-log-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static const char *read_back(const char *path)
{
    static char content[1 << 16];
    FILE *f = fopen(path, "rb");
    const size_t n = f ? fread(content, 1, sizeof content - 1, f) : 0;
    content[n] = 0;
    if (f)
        fclose(f);
    return content;
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "wb");
    CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

/* This program's clock: 0 is the real one. */
static time_t clock_says;

time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const time_t t = clock_says ? clock_says : now.tv_sec;
    if (out)
        *out = t;
    return t;
}

/* ---- writing ---- */

static gs_logger *open_log(gs_logger_config config)
{
    gs_logger *log = NULL;
    config.size = sizeof config;
    CHECK_MSG(gs_logger_open(&log, &config, NULL, &error) == GS_OK, "%s", error.text);
    return log;
}

static void test_numbers(void)
{
    static const gs_log_pair pairs[] = {{"a", NULL, -1},          {"b", NULL, 0x1p53},
                                        {"c", NULL, 0.5},         {"d", NULL, 7},
                                        {"e", NULL, (double)NAN}, {"f", "text", 0}};
    const gs_log_end end = {.status = "done", .phases = {pairs, sizeof pairs / sizeof pairs[0]}};
    gs_logger *log = open_log((gs_logger_config){.json = path_of("a.jsonl")});
    CHECK(gs_logger_end(log, &end, &error) == GS_OK);
    gs_logger_close(log);
    const char *text = read_back(path_of("a.jsonl"));
    CHECK_MSG(strstr(text, "\"phases\":{\"a\":-1,\"b\":9.0072e+15,\"c\":0.5,\"d\":7,"
                           "\"e\":null,\"f\":\"text\"}}"),
              "%s", text);
    /* a step that took no time has no speed; one without telemetry, or without values, no share */
    gs_train_row row = {.telemetry = 1};
    CHECK(isnan(gs_log_step_from(&row, 5, 0).items_per_s));
    CHECK(gs_log_step_from(&row, 5, 2).items_per_s == 2.5);
    CHECK(isnan(gs_log_step_from(&row, 5, 2).underflow));
    row.stored.elements = 8;
    row.stored.underflow = 2;
    CHECK(gs_log_step_from(&row, 5, 2).underflow == 0.25);
    row.telemetry = 0;
    CHECK(isnan(gs_log_step_from(&row, 5, 2).underflow));
    CHECK(!gs_log_step_from(&row, 5, 2).found_inf);
    row.stored.nan = 1;
    CHECK(gs_log_step_from(&row, 5, 2).found_inf);
}

/* Of two files that fail the first is told. */
static void test_both(void)
{
    gs_logger *log;
    gs_logger_config config = {
        .size = sizeof config, .json = path_of("both.jsonl"), .tensorboard = NULL};
    log = open_log(config);
    CHECK(log != NULL);
    const int full = open("/dev/full", O_WRONLY);
    CHECK(full >= 0);
    log->csv = log->json; /* two that are gone */
    strcpy(log->csv.path, "the other");
    log->csv.fd = dup(full);
    dup2(full, log->json.fd);
    const gs_log_step step = {.step = 1, .verdict = "apply", .reason = "fine"};
    CHECK(gs_logger_step(log, &step, &error) == GS_EIO);
    CHECK_MSG(strstr(error.text, "both.jsonl"), "%s", error.text);
    CHECK(gs_logger_lost(log) == (GS_LOGGER_JSON | GS_LOGGER_CSV));
    gs_logger_close(log);
    close(full);
}

/* Without a JSON log its lines are nobody's; a time that no calendar has is empty. */
static void test_run(void)
{
    const gs_log_run run = {.name = "n", .model = "m", .data = "d"};
    gs_logger *log = open_log((gs_logger_config){.csv = path_of("r.csv")});
    CHECK(gs_logger_run(log, &run, &error) == GS_OK);
    CHECK(gs_logger_layers(log, 1, NULL, 0, &error) == GS_OK);
    CHECK(gs_logger_exponents(log, 1, GS_F16, 1, NULL, 0, &error) == GS_OK);
    gs_logger_close(log);
    for (int k = 0; k < 2; k++) {
        log = open_log((gs_logger_config){.json = path_of("r.jsonl")});
        clock_says = k ? (time_t)INT64_MAX : 0;
        CHECK(gs_logger_run(log, &run, &error) == GS_OK);
        clock_says = 0;
        gs_logger_close(log);
        const char *text = read_back(path_of("r.jsonl"));
        CHECK_MSG((strstr(text, "\"time\":\"\"") != NULL) == k, "%s", text);
    }
}

/* A CSV that begins with another line than a log's is none to go on with, and stays as it is. */
static void test_other_headers(void)
{
    char header[2000], texts[3][2000] = {"\n1,2,3\n", "a,b,c"};
    gs_logger *log = open_log((gs_logger_config){.csv = path_of("e.csv")});
    gs_logger_close(log);
    snprintf(header, sizeof header, "%s", read_back(path_of("e.csv")));
    CHECK(strlen(header) > 10);
    strcpy(texts[2], header);
    texts[2][5] ^= 1; /* as long as it should be */
    for (int k = 0; k < 3; k++) {
        write_text(path_of("e.csv"), texts[k]);
        const gs_logger_config config = {
            .size = sizeof config, .csv = path_of("e.csv"), .resume = 1, .step = 9};
        CHECK(gs_logger_open(&log, &config, NULL, &error) == GS_EFORMAT && !log);
        CHECK_MSG(strstr(error.text, "this is no CSV log to go on with"), "%s", error.text);
        CHECK(strcmp(read_back(path_of("e.csv")), texts[k]) == 0);
    }
}

/* A damaged number of a step costs no row that follows, and rows that will be written again go. */
static void test_damaged_rows(void)
{
    static const struct {
        const char *rows, *kept;
    } cases[] = {
        {"1,a\n2,b\n3,c\n4,d\n", "1,a\n2,b\n3,c\n"},
        {"1,a\n92,b\n3,c\n4,d\n5,e\n", "1,a\n92,b\n3,c\n"}, /* too late */
        {"91,a\n92,b\n3,c\n4,d\n", "91,a\n92,b\n3,c\n"},
        {"1,a\nx,b\n3,c\n4,d\n", "1,a\nx,b\n3,c\n"},           /* none */
        {"1,a\n2,b\n3,c\n4,d\n1,e\n6,f\n", "1,a\n2,b\n3,c\n"}, /* of one that goes */
        {"1,a\n2,b\n3,c\n4,d\n3,e\n", "1,a\n2,b\n3,c\n"},
        {"1,a\n2,b\n3,c\n4,d\n3", "1,a\n2,b\n3,c\n"}, /* cut off: of 30, perhaps */
        {"1,a\n2,b\n4,d\n3", "1,a\n2,b\n"},
        {"4,d\n5,e\n", ""},
    };
    char header[1000], text[2000];
    gs_logger *log = open_log((gs_logger_config){.csv = path_of("d.csv")});
    gs_logger_close(log);
    snprintf(header, sizeof header, "%s", read_back(path_of("d.csv")));
    for (size_t k = 0; k < GSI_COUNT(cases); k++) {
        snprintf(text, sizeof text, "%s%s", header, cases[k].rows);
        write_text(path_of("d.csv"), text);
        log = open_log((gs_logger_config){.csv = path_of("d.csv"), .resume = 1, .step = 3});
        gs_logger_close(log);
        const char *kept = read_back(path_of("d.csv"));
        CHECK_MSG(strncmp(kept, header, strlen(header)) == 0 &&
                      strcmp(kept + strlen(header), cases[k].kept) == 0,
                  "%zu: %s", k, kept);
    }
}

/* ---- reading ---- */

static void test_values(void)
{
    write_text(
        path_of("v.jsonl"),
        "{\"event\":\"end\",\"phases\":{\"a\":true,\"b\":false,\"c\":null,\"d\":\"x\","
        "\"e\":1.5,\"f\":[]}}\n"
        "{\"event\":\"exponents\",\"layers\":[{\"first\":0.5,\"counts\":[1,-1,0.5,\"x\",null,"
        "1e30,3]},{\"first\":-3,\"counts\":7},{\"first\":1e10},{\"first\":\"x\"},9]}\n");
    gs_log_file *file;
    gs_log_line line;
    int more;
    CHECK(gs_log_open(&file, path_of("v.jsonl"), NULL, &error) == GS_OK);
    CHECK(gs_log_next(&line, &more, file, &error) == GS_OK && line.kind == GS_LOG_END);
    const gs_log_pairs *p = &line.u.end.phases;
    static const char *const texts[] = {"true", "false", "", "x", NULL, ""};
    CHECK(p->n == 6);
    for (size_t i = 0; i < p->n; i++)
        CHECK(texts[i] ? p->at[i].value && strcmp(p->at[i].value, texts[i]) == 0
                       : !p->at[i].value && p->at[i].number == 1.5);
    CHECK(gs_log_next(&line, &more, file, &error) == GS_OK && line.kind == GS_LOG_EXPONENTS);
    const gs_log_histogram_list *h = &line.u.exponents.layers;
    static const int firsts[] = {INT_MIN, -3, INT_MIN, INT_MIN, INT_MIN};
    static const uint64_t counts[] = {1, 0, 0, 0, 0, 0, 3};
    CHECK(h->n == 5);
    for (size_t i = 0; i < h->n; i++)
        CHECK(h->at[i].first == firsts[i]);
    CHECK(h->at[0].counts.n == 7 && memcmp(h->at[0].counts.at, counts, sizeof counts) == 0);
    CHECK(gs_log_next(&line, &more, file, &error) == GS_OK && !more);
    gs_log_close(file);
}

/* A line with more values than a reader takes, and the one behind it. */
static void test_too_many(void)
{
    enum { VALUES = 1100000 };
    char *text = malloc(2 * (size_t)VALUES + 100), *to = text;
    to += sprintf(to, "{\"step\":[");
    for (int i = 0; i < VALUES; i++) {
        *to++ = '1';
        *to++ = ',';
    }
    strcpy(to, "1]}\n{\"step\":5}\n");
    write_text(path_of("m.jsonl"), text);
    free(text);
    gs_log_file *file;
    gs_log_line line;
    int more;
    CHECK(gs_log_open(&file, path_of("m.jsonl"), NULL, &error) == GS_OK);
    CHECK(gs_log_next(&line, &more, file, &error) == GS_ESIZE && more);
    CHECK_MSG(strstr(error.text, "more than 1048576 values"), "%s", error.text);
    CHECK(gs_log_next(&line, &more, file, &error) == GS_OK && line.u.step.step == 5);
    gs_log_close(file);
}

/* Lists of every length as memory ends: in the tree of the line, or in the list itself. */
static void test_memory(void)
{
    for (int n = 1; n < 3000; n += 1 + n / 32) {
        FILE *f = fopen(path_of("l.jsonl"), "w");
        fputs("{\"event\":\"exponents\",\"layers\":[{\"counts\":[1", f);
        for (int i = 1; i < n; i++)
            fputs(",1", f);
        fputs("]}]}\n", f);
        fclose(f);
        for (size_t k = 1;; k++) {
            books b = {.fail_from = k};
            const gs_alloc hook = books_hook(&b);
            gs_log_file *file;
            gs_log_line line;
            int more;
            gs_status status = gs_log_open(&file, path_of("l.jsonl"), &hook, &error);
            if (status == GS_OK)
                status = gs_log_next(&line, &more, file, &error);
            CHECK(status == (b.calls >= k ? GS_ENOMEM : GS_OK));
            if (status == GS_OK)
                CHECK(line.u.exponents.layers.at[0].counts.n == (size_t)n);
            gs_log_close(file);
            CHECK(b.blocks == 0 && !b.wrong);
            if (status == GS_OK)
                break;
        }
    }
}

static void test_begin(void) { CHECK(mkdtemp(folder) != NULL); }

static void test_clean_up(void)
{
    char command[100];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    CHECK(system(command) == 0);
}

TESTS({"begin", test_begin}, {"numbers", test_numbers}, {"both", test_both}, {"run", test_run},
      {"other headers", test_other_headers}, {"damaged rows", test_damaged_rows},
      {"values", test_values}, {"too many", test_too_many}, {"memory", test_memory},
      {"clean up", test_clean_up})
