/* Numbers in files have a point, whatever the decimal point of the locale is, and whatever the
 * rounding mode. Machines that test have few locales: this one is made by hand, of stand-ins for
 * localeconv, snprintf and strtod. */
#include "data_files.h"

#include "io/json.h"
#include "io/line.h"
#include "scaler/scaler.h"

#include <fenv.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>

static char decimal[8] = ".";

struct lconv *localeconv(void)
{
    static struct lconv here;
    here.decimal_point = decimal;
    return &here;
}

static void replace(char *out, size_t room, const char *from, const char *point, const char *by)
{
    size_t n = 0;
    while (*from && n + strlen(by) < room)
        if (strncmp(from, point, strlen(point)) == 0) {
            memcpy(out + n, by, strlen(by));
            n += strlen(by);
            from += strlen(point);
        } else {
            out[n++] = *from++;
        }
    out[n] = 0;
}

int snprintf(char *out, size_t room, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0 || n >= (int)sizeof text)
        abort();
    replace(out, room, text, ".", strpbrk(format, "gfe") ? decimal : ".");
    return (int)strlen(out);
}

double strtod(const char *text, char **end)
{
    char copy[2048], foreign[2048];
    int used = 0;
    double x = 0;
    if (strlen(text) >= sizeof copy)
        abort();
    strcpy(foreign, text);
    if (strcmp(decimal, ".") != 0 && strchr(foreign, '.'))
        *strchr(foreign, '.') = 0; /* no number goes on there */
    replace(copy, sizeof copy, foreign, decimal, ".");
    sscanf(copy, "%lf%n", &x, &used);
    if (end) { /* the same place in the text: a point is longer or shorter there */
        const char *point = strchr(copy, '.');
        const size_t more = point && point < copy + used ? strlen(decimal) - 1 : 0;
        *end = (char *)(uintptr_t)text + used + more;
    }
    return x;
}

static const char *const points[] = {".", ",", "\xD9\xAB"};

static const struct {
    double x;
    const char *text, *rough;
} numbers[] = {{0, "0", "0"},
               {0.5, "0.5", "0.5"},
               {-3, "-3", "-3"},
               {1e-7, "1e-07", "1e-07"},
               {0.1, "0.1", "0.1"},
               {2.5e300, "2.5e+300", "2.5e+300"},
               {1.0 / 3, "0.3333333333333333", "0.333333"},
               {-123456.789, "-123456.789", "-123457"}};

/* The text of a number in a line; it stays until the next. */
static const char *line_of(double x, bool rough)
{
    static char text[128];
    gsi_heap heap;
    size_t used;
    gsi_heap_init(&heap, NULL);
    gsi_line line = {.heap = &heap};
    gsi_put_real(&line, x, rough, "null");
    CHECK(gsi_line_copy(&line, text, sizeof text, &used) == GS_OK && heap.bytes == 0);
    return text;
}

static double json_of(const char *text)
{
    gsi_heap heap;
    gsi_arena arena;
    const gsi_node *root;
    const char *wrong;
    gsi_heap_init(&heap, NULL);
    gsi_arena_init(&arena, &heap);
    gsi_json j = gsi_json_of(text, strlen(text));
    CHECK_MSG(gsi_json_tree(&root, &j, &arena, &wrong) == GS_OK, "%s", text);
    const double x = root ? root->number : (double)NAN;
    gsi_arena_free(&arena);
    return x;
}

static void test_points(void)
{
    for (size_t p = 0; p < GSI_COUNT(points); p++)
        for (size_t i = 0; i < GSI_COUNT(numbers); i++) {
            double x = 0;
            strcpy(decimal, points[p]);
            CHECK_MSG(strcmp(line_of(numbers[i].x, false), numbers[i].text) == 0, "%zu: %s", p,
                      line_of(numbers[i].x, false));
            CHECK_MSG(strcmp(line_of(numbers[i].x, true), numbers[i].rough) == 0, "%zu: %s", p,
                      line_of(numbers[i].x, true));
            CHECK_MSG(json_of(numbers[i].text) == numbers[i].x, "%s", numbers[i].text);
            CHECK_MSG(gsi_read_double(&x, numbers[i].text) && x == numbers[i].x, "%s",
                      numbers[i].text);
            CHECK(!gsi_read_double(&x, "0,5") && !gsi_read_double(&x, "1.5.5"));
            strcpy(decimal, ".");
        }
    CHECK(strcmp(line_of((double)INFINITY, false), "null") == 0);
}

/* The locale's own point is none, and comes as a separator of fields, where it is a comma. */
static void test_csv(void)
{
    static const struct {
        const char *text;
        double first;
    } tables[] = {{"0.5,2e1,0\n-.25,1,1\n", 0.5}, {"0.5;2.0;0\n-0.25;1;1\n", 0.5}};
    static const char *const others[] = {"1;1;0\n1;1,5;1\n", "1;1;0\n1;1.5.5;1\n",
                                         "1;1;0\n1\xD9\xAB\x35;2;1\n"};
    empty_folder();
    for (size_t p = 0; p < GSI_COUNT(points); p++) {
        for (size_t i = 0; i < GSI_COUNT(tables); i++) {
            float x[2] = {0};
            int32_t class = -1;
            write_text("a.csv", tables[i].text);
            strcpy(decimal, points[p]);
            gs_data *data = opened(&(gs_data_config){
                .size = sizeof(gs_data_config), .name = in_folder("a.csv"), .raw = 1});
            CHECK_MSG(data && gs_data_get_info(data)->width == 2, "'%s': %s", decimal,
                      tables[i].text);
            for (int split = 0; data && split < 2; split++) {
                CHECK(gs_data_read(x, NULL, &class, data, (gs_split)split, 0, NULL) == GS_OK);
                CHECK(class == 0 ? x[0] == 0.5f && x[1] > 1.5f : x[0] == -0.25f && x[1] == 1);
            }
            gs_data_close(data);
            strcpy(decimal, ".");
        }
        for (size_t i = 0; i < GSI_COUNT(others); i++) {
            gs_data *data;
            gs_error error;
            write_text("a.csv", others[i]);
            strcpy(decimal, points[p]);
            CHECK_MSG(gs_data_open(&data,
                                   &(gs_data_config){.size = sizeof(gs_data_config),
                                                     .name = in_folder("a.csv")},
                                   NULL, &error) == GS_EFORMAT,
                      "'%s': %s", decimal, others[i]);
            strcpy(decimal, ".");
        }
    }
    CHECK(remove(in_folder("a.csv")) == 0 && rmdir(folder) == 0);
}

/* 17 digits are rounded away from the number and back to its neighbour: the line ends all the same,
 * and what it says is one of the two. */
static void test_rounding(void)
{
    static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    int others = 0;
    for (size_t m = 0; m < GSI_COUNT(modes); m++)
        for (int i = 1; i < 1000; i++) {
            const double x = (double)i / 997;
            char text[128];
            CHECK(fesetround(modes[m]) == 0);
            strcpy(text, line_of(x, false));
            CHECK(fesetround(FE_TONEAREST) == 0);
            const double back = strtod(text, NULL);
            CHECK_MSG(fabs(back - x) <= x * 0x1p-51 && strlen(text) < 25, "%s", text);
            others += back != x;
        }
    CHECK(others < 3000);
}

TESTS({"points", test_points}, {"csv", test_csv}, {"rounding", test_rounding})
