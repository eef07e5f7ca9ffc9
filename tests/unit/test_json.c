/* The program's JSON writer. */
#include "cli/core/json.c"

#include "gradscale/base.h"
#include "test.h"

static char text[4096]; /* what the last writer wrote */

static FILE *open_text(void) { return tmpfile(); }

static const char *close_text(FILE *f)
{
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return text;
}

static const char *string(const char *value)
{
    json_writer j;
    FILE *f = open_text();
    put_begin(&j, f, false);
    put_string(&j, NULL, value);
    return close_text(f);
}

static const char *number(double value)
{
    json_writer j;
    FILE *f = open_text();
    put_begin(&j, f, false);
    put_double(&j, NULL, value);
    return close_text(f);
}

static void test_layout(void)
{
    json_writer j;
    for (int pretty = 0; pretty < 2; pretty++) {
        FILE *f = open_text();
        put_begin(&j, f, pretty);
        put_object(&j, NULL);
        put_array(&j, "empty");
        put_end(&j);
        put_object(&j, "none");
        put_end(&j);
        put_array(&j, "list");
        put_u64(&j, NULL, UINT64_MAX);
        put_i64(&j, NULL, INT64_MIN);
        put_object(&j, NULL);
        put_bool(&j, "yes", true);
        put_bool(&j, "no", false);
        put_end(&j);
        put_end(&j);
        put_null(&j, "nothing");
        put_string(&j, "missing", NULL);
        put_end(&j);
        close_text(f);
        CHECK_MSG(strcmp(text, pretty ? "{\n"
                                        "  \"empty\": [],\n"
                                        "  \"none\": {},\n"
                                        "  \"list\": [\n"
                                        "    18446744073709551615,\n"
                                        "    -9223372036854775808,\n"
                                        "    {\n"
                                        "      \"yes\": true,\n"
                                        "      \"no\": false\n"
                                        "    }\n"
                                        "  ],\n"
                                        "  \"nothing\": null,\n"
                                        "  \"missing\": null\n"
                                        "}\n"
                                      : "{\"empty\": [], \"none\": {}, \"list\": "
                                        "[18446744073709551615, -9223372036854775808, "
                                        "{\"yes\": true, \"no\": false}], \"nothing\": null, "
                                        "\"missing\": null}\n") == 0,
                  "%s", text);
    }
}

static void test_lines(void)
{
    json_writer j;
    FILE *f = open_text();
    put_begin(&j, f, false);
    for (unsigned i = 0; i < 2; i++) {
        put_object(&j, NULL);
        put_u64(&j, "step", i);
        put_end(&j);
    }
    CHECK(strcmp(close_text(f), "{\"step\": 0}\n{\"step\": 1}\n") == 0);
}

static void test_depth(void)
{
    json_writer j;
    FILE *f = open_text();
    put_begin(&j, f, false);
    for (int i = 0; i < 63; i++)
        put_array(&j, NULL);
    for (int i = 0; i < 63; i++)
        put_end(&j);
    close_text(f);
    CHECK(strlen(text) == 2 * 63 + 1 && text[62] == '[' && text[63] == ']');
}

static void test_strings(void)
{
    static const struct {
        const char *in, *out;
    } rows[] = {
        {"", "\"\""},
        {"a\"b\\c/", "\"a\\\"b\\\\c/\""},
        {"\n\t\x01\x1f\x7f", "\"\\u000a\\u0009\\u0001\\u001f\\u007f\""},
        {"\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80", "\"\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80\""},
        {"\xEF\xBF\xBF\xF4\x8F\xBF\xBF", "\"\\uffff\xF4\x8F\xBF\xBF\""},
        {"\xC2\x9B"
         "31m \xE2\x80\xAE",
         "\"\\u009b31m \\u202e\""},                               /* controls beyond ASCII */
        {"\x80", "\"\\ufffd\""},                                  /* no lead */
        {"\xC3", "\"\\ufffd\""},                                  /* cut off */
        {"\xE2\x82", "\"\\ufffd\\ufffd\""},                       /* cut off */
        {"\xF0\x9F\x98", "\"\\ufffd\\ufffd\\ufffd\""},            /* cut off */
        {"\xE2\x82x", "\"\\ufffd\\ufffdx\""},                     /* interrupted */
        {"\xC0\x80", "\"\\ufffd\\ufffd\""},                       /* overlong NUL */
        {"\xC1\xBF", "\"\\ufffd\\ufffd\""},                       /* overlong */
        {"\xE0\x9F\xBF", "\"\\ufffd\\ufffd\\ufffd\""},            /* overlong */
        {"\xF0\x8F\xBF\xBF", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""}, /* overlong */
        {"\xED\xA0\x80", "\"\\ufffd\\ufffd\\ufffd\""},            /* a surrogate */
        {"\xF4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""}, /* above U+10FFFF */
        {"\xFF\xFE", "\"\\ufffd\\ufffd\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        string(rows[i].in);
        text[strcspn(text, "\n")] = 0;
        CHECK_MSG(strcmp(text, rows[i].out) == 0, "row %zu: %s", i, text);
    }
}

static void test_doubles(void)
{
    CHECK(strcmp(number(0.1), "0.1\n") == 0);
    CHECK(strcmp(number(65504), "65504\n") == 0);
    CHECK(strcmp(number(-0.0), "-0\n") == 0);
    CHECK(strcmp(number(1.0 / 3), "0.3333333333333333\n") == 0);
    CHECK(strcmp(number(HUGE_VAL), "null\n") == 0);
    CHECK(strcmp(number(-HUGE_VAL), "null\n") == 0);
    CHECK(strcmp(number((double)NAN), "null\n") == 0);
    for (uint64_t i = 0; i < 20000; i++) { /* any bits */
        const uint64_t bits = (uint64_t)gs_random_u32(1, 2 * i) << 32 | gs_random_u32(1, 2 * i + 1);
        double value;
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value))
            continue;
        const double back = strtod(number(value), NULL);
        CHECK_MSG(memcmp(&back, &value, sizeof value) == 0, "%a: %s", value, text);
    }
}

TESTS({"layout", test_layout}, {"lines", test_lines}, {"depth", test_depth},
      {"strings", test_strings}, {"doubles", test_doubles})
