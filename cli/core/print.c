/* What people see: errors, styles, the progress bar. */
#include "cli/core/cli.h"
#include "cli/core/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- lines ---- */

size_t cli_terminal_width(FILE *to)
{
    struct winsize size;
    if (!isatty(fileno(to)))
        return SIZE_MAX;
    return ioctl(fileno(to), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/* Characters, not bytes: continuation bytes of UTF-8 take no room. */
static size_t width_of_bytes(const char *s, size_t bytes)
{
    size_t n = 0;
    for (; bytes-- > 0; s++)
        n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

size_t cli_text_width(const char *s) { return width_of_bytes(s, strlen(s)); }

/* Lines of `width` characters; a word that is longer has one for itself. */
static void wrap(FILE *to, const char *text, size_t at, size_t indent, size_t width)
{
    size_t column = at;
    for (bool first = true; *text; first = false) {
        text += strspn(text, " ");
        const size_t bytes = strcspn(text, " \n"), n = width_of_bytes(text, bytes);
        if (!first && column > indent && column + 1 + n > width) {
            fprintf(to, "\n%*s", (int)indent, "");
            column = indent;
        } else if (!first && column > indent) {
            fputc(' ', to);
            column++;
        }
        fprintf(to, "%.*s", (int)bytes, text);
        column += n;
        text += bytes;
        for (; *text == '\n'; text++) {
            fprintf(to, "\n%*s", text[1] == '\n' ? 0 : (int)indent, "");
            column = indent;
        }
    }
    fputc('\n', to);
}

void cli_wrap(const char *text, int at, int indent)
{
    wrap(stdout, text, (size_t)at, (size_t)indent, CLI_WIDTH);
}

/* ---- errors ---- */

void cli_clean(char *text)
{
    char *to = text;
    while (*text) {
        const int length = utf8_length(text);
        if (length == 0 || utf8_is_control(utf8_code(text, length))) {
            *to++ = '?';
            text += length ? length : 1;
        } else {
            memmove(to, text, (size_t)length);
            to += length;
            text += length;
        }
    }
    *to = 0;
}

void cli_print(const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = cli_resize(NULL, (size_t)(n > 0 ? n : 0) + 1);
    *text = 0;
    vsnprintf(text, (size_t)(n > 0 ? n : 0) + 1, format, again);
    va_end(again);
    const bool ends = n > 0 && text[n - 1] == '\n';
    if (ends)
        text[n - 1] = 0;
    cli_clean(text);
    printf("%s%s", text, ends ? "\n" : "");
    free(text);
}

static int stdout_errno; /* of the first write that failed, where it is known */

bool cli_flush(void)
{
    errno = 0;
    if (fflush(stdout) != 0 && stdout_errno == 0)
        stdout_errno = errno;
    return !ferror(stdout);
}

/* Behind "gradscale: ", which the lines that follow stand under. In a file it is one line, for
 * those who search for it; spaces in it stay as they are. */
static void wrap_error(const char *text)
{
    const size_t width = cli_terminal_width(stderr), indent = 11;
    if (indent + cli_text_width(text) < width)
        fprintf(stderr, "%s\n", text);
    else
        wrap(stderr, text, indent, indent, width - 1);
}

static bool holding;
static char held[1024];

void cli_hold(bool hold) { holding = hold; }
const char *cli_held(void) { return held; }

static void say(const char *format, va_list args)
{
    char text[1024];
    vsnprintf(text, sizeof text, format, args);
    cli_clean(text);
    if (holding) {
        memcpy(held, text, sizeof held);
        return;
    }
    cli_progress_end();
    cli_flush(); /* keeps the order where both go to one terminal */
    fprintf(stderr, "%sgradscale:%s ", cli_style_of(stderr, CLI_RED),
            cli_style_of(stderr, CLI_PLAIN));
    wrap_error(text);
}

int cli_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
    return CLI_BAD;
}

int cli_failed(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
    return CLI_FAILED;
}

void cli_warn(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
}

int cli_fail_status(gs_status status, const gs_error *error)
{
    const char *text = error && error->text[0] ? error->text : gs_status_meaning(status);
    const bool failed =
        status == GS_ENOMEM || status == GS_EIO || status == GS_ETHREAD || status == GS_ERANK;
    return failed ? cli_failed("%s", text) : cli_fail("%s", text);
}

int cli_fail_input(const char *name, gs_status status, const gs_error *error)
{
    const char *text = error->text[0] ? error->text : gs_status_meaning(status);
    return (status == GS_ENOMEM ? cli_failed : cli_fail)("%.120s%s%s", name, *name ? ": " : "",
                                                         text);
}

/* A program started with a standard stream closed must not get it as the descriptor of a file it
 * opens. The stand-ins are opened the wrong way round, so that using one is an error. */
void cli_begin(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is a write error like any other */
}

int cli_end(int code)
{
    cli_progress_end();
    const bool flushed = cli_flush();
    errno = 0;
    const bool closed = fclose(stdout) == 0; /* some file systems tell only now */
    if (flushed && closed)
        return code;
    const int reason = stdout_errno ? stdout_errno : errno;
    if (reason != EPIPE) /* who closes a pipe has read enough, as head does */
        fprintf(stderr, "gradscale: writing to standard output failed%s%s\n", reason ? ": " : "",
                reason ? strerror(reason) : "");
    return code == CLI_DONE ? CLI_FAILED : code;
}

void *cli_resize(void *block, size_t size)
{
    void *const p = realloc(block, size ? size : 1);
    if (!p)
        exit(cli_end(cli_failed("out of memory: %zu bytes are asked for", size)));
    return p;
}

/* ---- styles ---- */

static bool is_fancy(FILE *to)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return !(no && *no) && term && strcmp(term, "dumb") != 0 && isatty(fileno(to));
}

const char *cli_style_of(FILE *to, cli_style style)
{
    static const char *const codes[] = {
        [CLI_PLAIN] = "\033[0m", [CLI_BOLD] = "\033[1m",   [CLI_DIM] = "\033[2m",
        [CLI_RED] = "\033[31m",  [CLI_GREEN] = "\033[32m", [CLI_YELLOW] = "\033[33m",
    };
    return is_fancy(to) ? codes[style] : "";
}

/* ---- files ---- */

const char *cli_bytes_text(char text[48], uint64_t bytes)
{
    const double b = (double)bytes;
    const int unit = b < 1e6 ? 0 : b < 1e9 ? 1 : 2;
    if (bytes < 100)
        snprintf(text, 48, "%llu byte%s", (unsigned long long)bytes, cli_s(bytes));
    else
        snprintf(text, 48, "%.1f %s", b / (const double[]){1e3, 1e6, 1e9}[unit],
                 (const char *const[]){"kB", "MB", "GB"}[unit]);
    return text;
}

void cli_show_saved(const char *path)
{
    struct stat about;
    char size[48];
    if (stat(path, &about) == 0 && S_ISREG(about.st_mode))
        cli_print("saved      %s, %s\n", path, cli_bytes_text(size, (uint64_t)about.st_size));
    else
        cli_print("saved      %s\n", path);
}

/* ---- progress ---- */

static struct {
    bool is_off; /* for good */
    bool shown;
    double done, total;    /* of the last call */
    double from;           /* what was done when it began, by others or before another bar */
    double started, drawn; /* seconds */
} bar;

static int progress_width(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void cli_progress_off(void) { bar.is_off = true; }

bool cli_has_progress(void)
{
    const char *term = getenv("TERM");
    return !bar.is_off && isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
}

void cli_progress(double done, double total, const char *format, ...)
{
    static const double interval = 0.1; /* s: what the eye can follow */
    if (!cli_has_progress())
        return;
    const double t = gs_clock();
    if (total != bar.total || done < bar.done) { /* of something else */
        bar.started = t;
        bar.from = done;
    }
    bar.total = total;
    bar.done = done;
    if (bar.shown && t - bar.drawn < interval && done < total)
        return;
    bar.drawn = t;
    bar.shown = true;

    const double part = total > 0 ? fmin(fmax(done / total, 0), 1) : 0;
    char text[512], left[48] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    cli_clean(text);
    if (done > bar.from && part < 1 && t - bar.started > 1) {
        const double pace = (t - bar.started) / (done - bar.from);
        const double seconds = fmin(pace * (total - done), 359999);
        const int s = (int)seconds;
        if (s >= 3600)
            snprintf(left, sizeof left, "  %d:%02d:%02d left", s / 3600, s / 60 % 60, s % 60);
        else
            snprintf(left, sizeof left, "  %d:%02d left", s / 60, s % 60);
    }
    char whole[640];
    const int columns = progress_width(), length = columns < 100 ? 10 : 20;
    const int filled = (int)(part * length);
    const int room = columns - 1 - (length + 9) - (int)strlen(left); /* the text is what is cut */
    static const char hashes[] = "####################", dots[] = "....................";
    snprintf(whole, sizeof whole, "[%.*s%.*s] %3d%%  %.*s%s", filled, hashes, length - filled, dots,
             (int)(100 * part), room > 0 ? room : 0, text, left);
    fprintf(stderr, "\r%.*s\033[K", columns - 1, whole);
    fflush(stderr);
}

void cli_progress_end(void)
{
    if (bar.shown)
        fputs("\r\033[K", stderr);
    bar.shown = false;
}
