/* test.h: a suite is a program with a table of tests.
 *
 *     static void test_halves(void) { CHECK(gs_f32_to_f16(1) == 0x3C00); }
 *     TESTS({"halves", test_halves})
 *
 * CHECK goes on after a failure, so that a run shows all of them; no build removes it. SKIP("why")
 * ends a test that cannot run here; test_skip_part("what", "why") names a part of one. The program
 * prints a line for each failed check and each skip, ends with "N passed, N failed[, N skipped]"
 * and exits 1 if any failed. With arguments it runs only the tests named. GS_LONG=1 in the
 * environment asks for all there is: test_long() is true. */
#ifndef TEST_H
#define TEST_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct test_case {
    const char *name;
    void (*run)(void);
} test_case;

static int test_failures;     /* of the test that runs */
static const char *test_name; /* its name; NULL: it is skipped */
static int test_skips;        /* of all tests */

#define CHECK(condition) ((condition) ? (void)0 : (void)test_failed(__FILE__, __LINE__, #condition))

/* The same with what the reader needs to see. */
#define CHECK_MSG(condition, ...)                                \
    ((condition) || !test_failed(__FILE__, __LINE__, #condition) \
         ? (void)0                                               \
         : (void)(fprintf(stderr, "    " __VA_ARGS__), fputc('\n', stderr)))

/* Enough of one failing test is enough: false when it has been. */
static inline int test_failed(const char *file, int line, const char *what)
{
    if (++test_failures > 10)
        return 0;
    fprintf(stderr, "  %s:%d: failed: %s\n", file, line, what);
    return 1;
}

static inline void test_skip_part(const char *what, const char *why)
{
    test_skips++;
    fprintf(stderr, "SKIPPED %s: %s\n", what, why);
}

#define SKIP(why)                       \
    do {                                \
        test_skip_part(test_name, why); \
        test_name = NULL;               \
        return;                         \
    } while (0)

static inline int test_long(void)
{
    const char *value = getenv("GS_LONG");
    return value && strcmp(value, "0") != 0 && *value;
}

/* The closing line, and the exit status. */
static inline int test_end(int passed, int failed)
{
    printf("%d passed, %d failed", passed, failed);
    if (test_skips)
        printf(", %d skipped", test_skips);
    putchar('\n');
    return failed || passed + test_skips == 0;
}

static inline int test_main(int argc, char **argv, const test_case *cases, size_t n)
{
    int passed = 0, failed = 0;
    for (int a = 1; a < argc; a++) {
        size_t i = 0;
        while (i < n && strcmp(argv[a], cases[i].name) != 0)
            i++;
        if (i == n) {
            fprintf(stderr, "FAILED %s: there is no such test\n", argv[a]);
            failed++;
        }
    }
    for (size_t i = 0; i < n; i++) {
        int wanted = argc < 2;
        for (int a = 1; a < argc; a++)
            wanted |= strcmp(argv[a], cases[i].name) == 0;
        if (!wanted)
            continue;
        test_failures = 0;
        test_name = cases[i].name;
        cases[i].run();
        if (test_failures)
            fprintf(stderr, "FAILED %s (%d checks)\n", cases[i].name, test_failures);
        passed += !test_failures && test_name;
        failed += !!test_failures;
    }
    return test_end(passed, failed);
}

#define TESTS(...)                                                           \
    int main(int argc, char **argv)                                          \
    {                                                                        \
        static const test_case cases[] = {__VA_ARGS__};                      \
        return test_main(argc, argv, cases, sizeof cases / sizeof cases[0]); \
    }

#endif
