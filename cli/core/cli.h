/* cli.h: what all subcommands share: options, errors, tables, progress, the context.
 *
 * A subcommand is a table of options and a function:
 *
 *     int cmd_presets(int argc, char **argv)
 *     {
 *         bool json = false;
 *         uint64_t steps = 1000;
 *         const cli_option options[] = {
 *             {"json", NULL, "print JSON", CLI_FLAG(&json)},
 *             {"steps", "N", "steps to take", CLI_UNSIGNED(&steps), .min = 1, .max = 1e9},
 *             {0}};
 *         const cli_spec spec = {.name = "gradscale presets", .operands = "[NAME...]",
 *                                .about = "Shows the presets.", .options = options,
 *                                .max_operands = CLI_ANY};
 *         const int code = cli_parse(&spec, &argc, argv);
 *         if (code != CLI_GO)
 *             return code;                       --help was asked for, or the usage is bad
 *         ... argv[0..argc) are the operands ...
 *         return CLI_DONE;
 *     }
 *
 * What the destinations hold before cli_parse are the defaults, and --help shows them.
 */
#ifndef CLI_H
#define CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "gradscale/scaler.h"

#if defined(__GNUC__)
#define CLI_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define CLI_PRINTF(text, first)
#endif

/* Exit codes. CLI_GO is none: it says go on. */
enum { CLI_GO = -1, CLI_DONE = 0, CLI_FAILED = 1, CLI_BAD = 2 };

/* ---- options ---- */

/* An option that may be given several times. */
enum { CLI_LIST_MAX = 64 };
typedef struct cli_list {
    size_t count;
    const char *items[CLI_LIST_MAX];
} cli_list;

typedef struct cli_option cli_option;

typedef enum cli_kind {
    CLI_KIND_FLAG,
    CLI_KIND_STRING,
    CLI_KIND_UNSIGNED,
    CLI_KIND_DOUBLE,
    CLI_KIND_SIZE,
    CLI_KIND_CHOICE,
    CLI_KIND_LIST,
    CLI_KIND_SECTION,
    CLI_KIND_COUNT
} cli_kind;

/* Kind and destination of a row, so that the compiler checks the one against the other. */
#define CLI_FLAG(p)     .kind = CLI_KIND_FLAG, .to.flag = (p)       /* bool: true when given */
#define CLI_STRING(p)   .kind = CLI_KIND_STRING, .to.string = (p)   /* const char *, not empty */
#define CLI_UNSIGNED(p) .kind = CLI_KIND_UNSIGNED, .to.u64 = (p)    /* uint64_t: 1000, 1e3 */
#define CLI_DOUBLE(p)   .kind = CLI_KIND_DOUBLE, .to.real = (p)     /* double, finite; or 0x1p16 */
#define CLI_SIZE(p)     .kind = CLI_KIND_SIZE, .to.size = (p)       /* size_t, bytes: 64K, 1G */
#define CLI_CHOICE(p)   .kind = CLI_KIND_CHOICE, .to.choice = (p)   /* int: which one it is */
#define CLI_LIST(p)     .kind = CLI_KIND_LIST, .to.list = (p)       /* each use adds an item */
#define CLI_SECTION(p)  .kind = CLI_KIND_SECTION, .to.section = (p) /* more rows and a heading */

/* A table ends with {0}. In a section `name` is its heading. */
struct cli_option {
    const char *name;  /* without the dashes */
    const char *value; /* its placeholder in --help; of a choice, its names: "fp32|fp16" */
    const char *help;
    cli_kind kind;
    union {
        bool *flag;
        const char **string;
        uint64_t *u64;
        double *real;
        size_t *size;
        int *choice;
        cli_list *list;
        const cli_option *section;
    } to;
    double min, max;   /* of numbers, both legal; both 0: no limits */
    bool now;          /* about this run of the program: not a key of config files */
    char letter;       /* -q for --quiet; 0: none */
    const char *alias; /* another name that is taken; NULL: none */
};

/* Of a number that was not given: UINT64_MAX, or NaN. --help shows no default then. */
#define CLI_AUTO UINT64_MAX

typedef struct cli_command {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} cli_command;

#define CLI_ANY UINT32_MAX

typedef struct cli_spec {
    const char *name;     /* "gradscale info" */
    const char *operands; /* "FILE..."; NULL: none */
    const char *about;    /* for --help: a sentence or more; lines are broken to fit */
    const cli_option *options;
    uint32_t min_operands, max_operands;
    const cli_command *commands; /* if it has subcommands: parsing stops at the first operand */
} cli_spec;

/* Every command has --help; --help=man prints it as a man page, --help=words as what completion
 * needs: a line "--name<tab>VALUE<tab>help" per option, commands first.
 *
 * Sets the destinations and leaves the operands in argv[0..*argc). Options and operands mix freely;
 * "--" ends the options. Returns CLI_GO; or CLI_DONE after --help, CLI_BAD after an error. */
int cli_parse(const cli_spec *spec, int *argc, char **argv);

/* The texts of --help=man and --help=words (man.c). */
void cli_print_man(const cli_spec *spec, const cli_option *help);
void cli_print_words(const cli_spec *spec, const cli_option *help);
/* What --help says of a row: its help, default and alias. */
void cli_row_text(char *buffer, size_t size, const cli_option *row);

/* Runs the subcommand argv[0] of spec->commands with what follows it. */
int cli_run(const cli_spec *spec, int argc, char **argv);

/* The same rows as keys of a file of lines `key = value`; '#' begins a remark. Lists take a line an
 * item. read: CLI_GO, or the exit code after an error that names the line; what a string points to
 * stays allocated. write: every row that has a value and is not `now`. */
int cli_config_read(const cli_option *rows, const char *path, const char *option);
int cli_config_read_text(const cli_option *rows, const char *text, const char *name);
void cli_config_write(FILE *to, const cli_option *rows);
/* Calls back for each line that is written. */
typedef void cli_pair_fn(void *user, const char *key, const char *value);
void cli_config_each(const cli_option *rows, cli_pair_fn *each, void *user);

/* One row by its name. `where` begins the error messages: "F:3: ". */
int cli_set(const cli_option *rows, const char *name, const char *text, const char *where);
/* Its value as text that reads back to it; false: it has none. Not of lists. */
bool cli_value_text(char *text, size_t size, const cli_option *row);

/* The whole of text as a number. False: it is none, or does not fit. */
bool cli_read_unsigned(uint64_t *out, const char *text);
bool cli_read_double(double *out, const char *text);
bool cli_read_size(size_t *out, const char *text);

/* The position of text in "this|that", or -1. */
int cli_read_choice(const char *choices, const char *text);

/* Walks a list "a,b,c": puts the next item into item[size] and moves *list behind it. Returns 1,
 * 0 at the end of the list, -1 if an item is empty or does not fit. */
int cli_next_item(const char **list, char *item, size_t size);

/* The name among names[n] that the user may have meant by `wrong`, or NULL. */
const char *cli_nearest(const char *wrong, const char *const *names, size_t n);

/* CLI_BAD after the error message of a scaler that there is not, with the one that may be meant. */
int cli_fail_scaler(const char *option, const char *name, const gs_error *error);
/* The same of what --set was refused with: keys of this scaler, and of optimizers if it takes both.
 */
int cli_fail_set(const gs_scaler *scaler, bool optim, const gs_error *error);

/* ---- the machine ---- */

/* What every command that computes lets the user choose. All zero: all threads, best kernels. */
typedef struct cli_machine {
    uint64_t threads; /* 0: one per CPU */
    int cpu;          /* index in CLI_CPUS */
} cli_machine;

#define X(id, name) "|" name
static const char CLI_CPUS[] = "auto|ref" GS_CPUS(X);
#undef X

#define CLI_MACHINE_ROWS(m)                                                                       \
    {"threads", "N", "threads to use; 0: one per CPU", CLI_UNSIGNED(&(m)->threads), .max = 1024}, \
    {                                                                                             \
        "cpu", CLI_CPUS, "the highest instruction set to use", CLI_CHOICE(&(m)->cpu)              \
    }

/* CLI_GO, or the exit code after an error. */
int cli_context(gs_context **out, const cli_machine *machine);

const char *cli_kernels(unsigned cpu);       /* gs_cpu flags: the highest; "ref" if there is none */
unsigned cli_cpus(void);                     /* that are online */
const char *cli_cpu_model(char buffer[128]); /* "unknown" where nothing tells it */
double cli_load(void);          /* tasks that ran, over the last minute; NaN if unknown */
double cli_memory_free(void);   /* bytes one may still use; infinite if unknown */
double cli_memory_peak(void);   /* bytes of this process's largest resident set; NaN if unknown */
const char *cli_compiler(void); /* that built the program */

/* ---- errors ---- */

/* Prints "gradscale: ...": one error message without a full stop, that names the option or file.
 * On a terminal it is broken between words. */
int cli_fail(const char *format, ...) CLI_PRINTF(1, 2);   /* bad usage or input: CLI_BAD */
int cli_failed(const char *format, ...) CLI_PRINTF(1, 2); /* the job failed: CLI_FAILED */
void cli_warn(const char *format, ...) CLI_PRINTF(1, 2);

/* From now on error messages are kept, not printed; the newest, "" if there is none. */
void cli_hold(bool hold);
const char *cli_held(void);

/* The error message of a library call that failed; the code fits its status. error may be NULL. */
int cli_fail_status(gs_status status, const gs_error *error);
/* The same of a file or an option of the user's, which is named first unless it is "": whatever is
 * wrong with it, the input is bad; but memory that ends is not its fault. */
int cli_fail_input(const char *name, gs_status status, const gs_error *error);

/* The first and the last call of main. cli_end flushes stdout, and if that or an earlier write
 * failed, says so and turns CLI_DONE into CLI_FAILED. */
void cli_begin(void);
int cli_end(int code);

/* For commands that print as they go: false if stdout is broken, and going on is no use. cli_end
 * will say so. */
bool cli_flush(void);

/* Like realloc, but a program without memory ends here, with an error message and CLI_FAILED. */
void *cli_resize(void *block, size_t size);

/* ---- files ---- */

/* Writes the bytes to path as a whole or not at all; what is no file is written to as it is.
 * Returns 0, or errno; *opened is false where nothing could be begun. A file that is there is
 * replaced and keeps its permissions. */
int cli_write_file(const char *path, const void *bytes, size_t n, bool *opened);
/* The same of a name in a folder that others may have made: a link, which would lead out of it, or
 * a pipe is replaced by the file. */
int cli_write_here(const char *path, const void *bytes, size_t n, bool *opened);
/* As cli_write_file: CLI_GO, or the exit code after an error message. */
int cli_save(const char *path, const void *bytes, size_t n);

/* open that a signal does not end; a new file: 0666. */
int cli_open(const char *path, int flags);

/* A stream out of a file, whose reads no signal ends either. NULL: errno says why. */
FILE *cli_read_begin(const char *path);

/* A stream into memory, and its end: the text is the caller's, with a 0 behind it. A program
 * without memory ends there, as in cli_resize. */
FILE *cli_text_begin(char **text, size_t *length);
void cli_text_end(FILE *to);

/* ---- text ---- */

/* printf of one line to stdout, with texts that come from files or users: cli_clean. */
void cli_print(const char *format, ...) CLI_PRINTF(1, 2);

/* An escape sequence, or "" where colour is not wanted: no terminal, NO_COLOR, TERM=dumb. */
typedef enum cli_style { CLI_PLAIN, CLI_BOLD, CLI_DIM, CLI_RED, CLI_GREEN, CLI_YELLOW } cli_style;
const char *cli_style_of(FILE *to, cli_style style);

/* Controls (of terminals, of the direction of text) in names from files or users must not reach a
 * terminal: they become '?', as does what is not UTF-8. */
void cli_clean(char *text);

/* "%llu step%s": the ending of a word that n of something are. */
static inline const char *cli_s(uint64_t n) { return n == 1 ? "" : "s"; }

/* 1048576 -> "1M", 1536 -> "1536": what cli_read_size reads. */
const char *cli_size_text(char buffer[32], size_t bytes);

/* 420.2 kB, 4.1 GB */
const char *cli_bytes_text(char text[48], uint64_t bytes);

/* "saved      m.onnx, 137.9 kB" */
void cli_show_saved(const char *path);

/* Prints text to stdout in lines of CLI_WIDTH characters; the first begins at column `at`, where
 * the caller has left it, the others at `indent`. */
enum { CLI_WIDTH = 79 };
void cli_wrap(const char *text, int at, int indent);

size_t cli_terminal_width(FILE *to);  /* SIZE_MAX of a file */
size_t cli_text_width(const char *s); /* characters, not bytes */

/* A table with aligned columns. titles end with NULL; each begins with '<' or '>', its side. One
 * that is wider than the terminal (or COLUMNS) is printed in parts, each with the first column, or
 * with the `keys` columns that tell the rows apart.
 *
 *     cli_table *t = cli_table_new((const char *const[]){"<format", ">bits", NULL});
 *     cli_table_cell(t, "%s", "f16"); cli_table_cell(t, "%d", 16);
 *     cli_table_print(t, stdout);                                         and frees it
 */
typedef struct cli_table cli_table;
cli_table *cli_table_new(const char *const *titles);
void cli_table_cell(cli_table *table, const char *format, ...) CLI_PRINTF(2, 3);
void cli_table_line(cli_table *table); /* an empty line, between groups of rows */
void cli_table_keys(cli_table *table, size_t keys);
void cli_table_print(cli_table *table, FILE *to);
/* In 80 columns where there is no terminal. */
void cli_table_print_narrow(cli_table *table, FILE *to);

/* A line with a bar, the text and the time left; on stderr, only if that is a terminal which can
 * rewrite a line, a few times per second. There is one such line; errors and cli_progress_end clear
 * it, and the next call goes on with it: it begins anew with another total, or with less done. */
bool cli_has_progress(void);
void cli_progress_off(void); /* --quiet */
void cli_progress(double done, double total, const char *format, ...) CLI_PRINTF(3, 4);
void cli_progress_end(void);

#endif
