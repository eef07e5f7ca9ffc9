/* The program's options and tables, kind by kind; its messages, word for word. */
#include "cli/core/man.c"
#include "cli/core/options.c"
#include "cli/core/print.c"
#include "cli/core/table.c"

#include "test.h"

/* ---- what is printed ---- */

static char said[8192]; /* by the last call, on the stream that was caught */
static int saved;
static FILE *caught, *into;

static void catch_from(FILE *stream)
{
    fflush(stream);
    caught = stream;
    into = tmpfile();
    saved = dup(fileno(stream));
    dup2(fileno(into), fileno(stream));
}

static void let_go(void)
{
    fflush(caught);
    dup2(saved, fileno(caught));
    close(saved);
    rewind(into);
    said[fread(said, 1, sizeof said - 1, into)] = 0;
    fclose(into);
}

/* ---- a command with everything ---- */

static struct {
    bool flag;
    const char *string;
    uint64_t number;
    double real;
    size_t size;
    int choice;
    cli_list list;
    double rate; /* in a section */
} got;

static char operands[256]; /* joined */

static int parse(const char *line)
{
    static char words[4096];
    char *argv[256];
    int argc = 0;
    snprintf(words, sizeof words, "%s", line);
    for (char *w = words; *w && argc < 256;) { /* words end with a space; '' is an empty one */
        argv[argc++] = w;
        w += strcspn(w, " ");
        if (*w)
            *w++ = 0;
        if (strcmp(argv[argc - 1], "''") == 0)
            argv[argc - 1][0] = 0;
    }
    memset(&got, 0, sizeof got);
    got.real = 0.5;
    got.size = 3 << 20;
    const cli_option section[] = {
        {"rate", "R", "of learning", CLI_DOUBLE(&got.rate), .min = 1, .max = HUGE_VAL}, {0}};
    const cli_option options[] = {
        {"flag", NULL, "a flag", CLI_FLAG(&got.flag)},
        {"string", "TEXT", "a string", CLI_STRING(&got.string)},
        {"number", "N", "a number", CLI_UNSIGNED(&got.number), .min = 1, .max = 100},
        {"real", "X", "a real number", CLI_DOUBLE(&got.real)},
        {"size", "SIZE", "bytes", CLI_SIZE(&got.size), .max = 1 << 30},
        {"choice", "one|two|three", "one of three", CLI_CHOICE(&got.choice)},
        {"set", "KEY=VALUE", "may be given several times", CLI_LIST(&got.list)},
        {"learning", NULL, NULL, CLI_SECTION(section)},
        {0}};
    const cli_spec spec = {.name = "gradscale try",
                           .operands = "FILE...",
                           .about = "Tries.\n\nTwice.",
                           .options = options,
                           .min_operands = 1,
                           .max_operands = 3};
    catch_from(stderr);
    const int code = cli_parse(&spec, &argc, argv);
    let_go();
    operands[0] = 0;
    for (int i = 0; code == CLI_GO && i < argc; i++) {
        strcat(operands, argv[i]);
        strcat(operands, ";");
    }
    return code;
}

static void test_values(void)
{
    CHECK(parse("f") == CLI_GO && !got.flag && !got.string && got.real == 0.5 && got.choice == 0);
    CHECK(parse("--flag f") == CLI_GO && got.flag);
    CHECK(parse("f --flag --flag") == CLI_GO && got.flag);
    CHECK(parse("--string a=b f") == CLI_GO && strcmp(got.string, "a=b") == 0);
    CHECK(parse("--string=--flag f") == CLI_GO && strcmp(got.string, "--flag") == 0 && !got.flag);
    CHECK(parse("--string - f") == CLI_GO && strcmp(got.string, "-") == 0);
    CHECK(parse("--string -x f") == CLI_GO && strcmp(got.string, "-x") == 0);
    CHECK(parse("--number 100 f") == CLI_GO && got.number == 100);
    CHECK(parse("--number=007 f") == CLI_GO && got.number == 7);
    CHECK(parse("--number=7 --number=8 f") == CLI_GO && got.number == 8);
    CHECK(parse("--real -1.5e-3 f") == CLI_GO && got.real == -1.5e-3);
    CHECK(parse("--real 0x1p16 f") == CLI_GO && got.real == 65536);
    CHECK(parse("--real 1e-999 f") == CLI_GO && got.real == 0);
    CHECK(parse("--size 1G f") == CLI_GO && got.size == (size_t)1 << 30);
    CHECK(parse("--size 64k f") == CLI_GO && got.size == 64 << 10);
    CHECK(parse("--size 0 f") == CLI_GO && got.size == 0);
    CHECK(parse("--choice three f") == CLI_GO && got.choice == 2);
    CHECK(parse("--choice one f") == CLI_GO && got.choice == 0);
    CHECK(parse("--set a=1 --set=b=2 f") == CLI_GO && got.list.count == 2 &&
          strcmp(got.list.items[0], "a=1") == 0 && strcmp(got.list.items[1], "b=2") == 0);
    CHECK(parse("--rate 1e300 f") == CLI_GO && got.rate == 1e300);
    CHECK(said[0] == 0);
}

static void test_operands(void)
{
    CHECK(parse("a") == CLI_GO && strcmp(operands, "a;") == 0);
    CHECK(parse("a --flag - --number 3 c") == CLI_GO && strcmp(operands, "a;-;c;") == 0);
    CHECK(parse("a -- --flag --") == CLI_GO && strcmp(operands, "a;--flag;--;") == 0 && !got.flag);
    CHECK(parse("''") == CLI_GO && strcmp(operands, ";") == 0);
}

static void test_refused(void)
{
    static const struct {
        const char *line, *message;
    } rows[] = {
        {"", "an argument is missing (FILE...): gradscale try --help shows the usage"},
        {"--flag", "an argument is missing (FILE...): gradscale try --help shows the usage"},
        {"a b c d", "'d' is one argument too many: gradscale try --help shows the usage"},
        {"--flag=1 f", "--flag takes no value"},
        {"--string", "--string needs a value (TEXT)"},
        {"--string '' f", "--string needs a value (TEXT), not an empty one"},
        {"--string= f", "--string needs a value (TEXT), not an empty one"},
        {"--string --flag",
         "--string needs a value (TEXT); write --string=VALUE if it is '--flag'"},
        {"--string -- f", "--string needs a value (TEXT); write --string=VALUE if it is '--'"},
        {"--number 0 f", "--number must be from 1 to 100, not 0"},
        {"--number 101 f", "--number must be from 1 to 100, not 101"},
        {"--number -1 f", "--number needs a whole number from 1 to 100, not '-1'"},
        {"--real 1e309 f", "--real needs a finite number, not '1e309'"},
        {"--real 1.5x f", "--real needs a finite number, not '1.5x'"},
        {"--size 1Q f", "--size needs a size such as 4096, 64K, 32M or 1G, not '1Q'"},
        {"--size K f", "--size needs a size such as 4096, 64K, 32M or 1G, not 'K'"},
        {"--size 1KB f", "--size needs a size such as 4096, 64K, 32M or 1G, not '1KB'"},
        {"--size -1 f", "--size needs a size such as 4096, 64K, 32M or 1G, not '-1'"},
        {"--size 2G f", "--size must be from 0 to 1073741824, not 2G"},
        {"--choice four f", "--choice is one of one|two|three, not 'four'"},
        {"--choice tw f", "--choice is one of one|two|three, not 'tw': did you mean two?"},
        {"--rate 0.5 f", "--rate must be at least 1, not 0.5"},
        {"--rat 1 f", "unknown option --rat, did you mean --rate?"},
        {"--lerning 1 f", "unknown option --lerning: gradscale try --help lists them"},
        {"--=1 f", "unknown option --: gradscale try --help lists them"},
        {"-f f", "unknown option -f: options are written --name"},
        {"-1 f", "unknown option -1: options are written --name"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char whole[512];
        snprintf(whole, sizeof whole, "gradscale: %s\n", rows[i].message);
        CHECK_MSG(parse(rows[i].line) == CLI_BAD && strcmp(said, whole) == 0, "'%s' says %s",
                  rows[i].line, said);
    }
    char line[4096] = "f";
    for (int i = 0; i < CLI_LIST_MAX; i++)
        strcat(line, " --set k=v");
    CHECK(parse(line) == CLI_GO && got.list.count == CLI_LIST_MAX);
    strcat(line, " --set k=v");
    CHECK(parse(line) == CLI_BAD &&
          strcmp(said, "gradscale: --set is given more than 64 times\n") == 0);
}

static void test_untouched_after_an_error(void)
{
    CHECK(parse("--real x f") == CLI_BAD && got.real == 0.5);
    CHECK(parse("--size 2G f") == CLI_BAD && got.size == 3 << 20);
    CHECK(parse("--choice x f") == CLI_BAD && got.choice == 0);
    CHECK(parse("--number 101 f") == CLI_BAD && got.number == 0);
}

static void test_help(void)
{
    catch_from(stdout);
    FILE *const out = into;
    const int fd = saved;
    const int code = parse("--real 2 --help --nonsense");
    caught = stdout;
    into = out;
    saved = fd;
    let_go();
    CHECK(code == CLI_DONE);
    CHECK_MSG(strcmp(said, "usage: gradscale try [options] FILE...\n"
                           "\n"
                           "Tries.\n"
                           "\n"
                           "Twice.\n"
                           "\n"
                           "options:\n"
                           "  -h, --help              show this text\n"
                           "  --flag                  a flag\n"
                           "  --string TEXT           a string\n"
                           "  --number N              a number (default 0)\n"
                           "  --real X                a real number (default 2)\n"
                           "  --size SIZE             bytes (default 3M)\n"
                           "  --choice one|two|three  one of three (default one)\n"
                           "  --set KEY=VALUE         may be given several times\n"
                           "\n"
                           "learning:\n"
                           "  --rate R                of learning (default 0)\n") == 0,
              "%s", said);
}

static void test_sizes(void)
{
    char text[32];
    size_t size = 1;
    static const struct {
        size_t size;
        const char *text;
    } rows[] = {{0, "0"},
                {1, "1"},
                {1023, "1023"},
                {1024, "1K"},
                {1536, "1536"},
                {1 << 20, "1M"},
                {3 << 29, "1536M"},
                {(size_t)5 << 40, "5T"},
                {(size_t)1 << 53, "8192T"},
                {SIZE_MAX, "18446744073709551615"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CHECK_MSG(strcmp(cli_size_text(text, rows[i].size), rows[i].text) == 0, "%s", text);
        CHECK(cli_read_size(&size, rows[i].text) && size == rows[i].size);
    }
    CHECK(cli_read_size(&size, "16777215T") && size == SIZE_MAX - ((size_t)1 << 40) + 1);
    CHECK(!cli_read_size(&size, "16777216T"));
    CHECK(!cli_read_size(&size, "18446744073709551616"));
    CHECK(!cli_read_size(&size, "000000000000000000000000000000001"));
    CHECK(!cli_read_size(&size, ""));
}

static void test_items(void)
{
    char item[4];
    const char *list = "a,bc,def";
    CHECK(cli_next_item(&list, item, sizeof item) == 1 && strcmp(item, "a") == 0);
    CHECK(cli_next_item(&list, item, sizeof item) == 1 && strcmp(item, "bc") == 0);
    CHECK(cli_next_item(&list, item, sizeof item) == 1 && strcmp(item, "def") == 0);
    CHECK(cli_next_item(&list, item, sizeof item) == 0);
    static const char *const bad[] = {"", ",", ",a", "abcd"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        list = bad[i];
        CHECK(cli_next_item(&list, item, sizeof item) == -1);
    }
    list = "a,";
    CHECK(cli_next_item(&list, item, sizeof item) == 1);
    CHECK(cli_next_item(&list, item, sizeof item) == -1);
}

static void test_nearest(void)
{
    static const char *const names[] = {"threads", "precision", "seed", "set", "accumulate"};
    static const struct {
        const char *wrong, *nearest;
    } rows[] = {{"thread", "threads"},
                {"htreads", "threads"},
                {"presicion", "precision"},
                {"sede", "seed"},
                {"sets", "set"},
                {"seet", "seed"},
                {"acc", "accumulate"},
                {"x", NULL},
                {"", NULL},
                {"completely", NULL},
                {"tset", "set"},
                {"ThReAdS", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *found = cli_nearest(rows[i].wrong, names, sizeof names / sizeof names[0]);
        CHECK_MSG(found == rows[i].nearest ||
                      (found && rows[i].nearest && strcmp(found, rows[i].nearest) == 0),
                  "%s: %s", rows[i].wrong, found ? found : "none");
    }
    CHECK(distance("", "") == 0 && distance("abc", "") == 3 && distance("ab", "ba") == 1 &&
          distance("kitten", "sitting") == 3);
}

static void test_table(void)
{
    cli_table *t = cli_table_new((const char *const[]){"<name", ">n", "<note", NULL});
    static const char *const cells[] = {"a", "1", "", "gr\303\266\303\237e", "12345", "x\ny"};
    for (size_t i = 0; i < 6; i++) {
        if (i == 3)
            cli_table_line(t);
        cli_table_cell(t, "%s", cells[i]);
    }
    catch_from(stdout);
    cli_table_print(t, stdout);
    let_go();
    CHECK_MSG(strcmp(said, "name       n  note\n"
                           "a          1\n"
                           "\n"
                           "gr\303\266\303\237e  12345  x?y\n") == 0,
              "%s", said);
}

static void test_status(void)
{
    const gs_error error = {GS_EFORMAT, "x.npy is cut off"};
    catch_from(stderr);
    CHECK(cli_fail_status(GS_EFORMAT, &error) == CLI_BAD);
    CHECK(cli_fail_status(GS_ENOMEM, NULL) == CLI_FAILED);
    CHECK(cli_fail_status(GS_EIO, &(gs_error){0}) == CLI_FAILED);
    let_go();
    CHECK_MSG(strcmp(said, "gradscale: x.npy is cut off\n"
                           "gradscale: out of memory\n"
                           "gradscale: reading or writing failed\n") == 0,
              "%s", said);
}

TESTS({"values", test_values}, {"operands", test_operands}, {"refused", test_refused},
      {"untouched_after_an_error", test_untouched_after_an_error}, {"help", test_help},
      {"sizes", test_sizes}, {"items", test_items}, {"nearest", test_nearest},
      {"table", test_table}, {"status", test_status})
