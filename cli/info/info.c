/* gradscale info: what a run on this machine would use. Schema: doc/json-info.md. */
#include "cli/core/cli.h"
#include "cli/core/commands.h"
#include "cli/core/json.h"

#include <inttypes.h>
#include <string.h>

typedef struct facts {
    char model[128];
    unsigned cpus, usable, detected, used, threads;
    const char *limit; /* what makes usable what it is */
} facts;

static void json_flags(json_writer *j, const char *key, unsigned cpu)
{
    put_array(j, key);
    for (unsigned i = 0; i < GS_CPU_COUNT; i++)
        if (cpu & 1u << i)
            put_string(j, NULL, gs_cpu_name(1u << i));
    put_end(j);
}

static void print_json(const facts *f)
{
    json_writer j;
    put_begin(&j, stdout, true);
    put_object(&j, NULL);
    put_string(&j, "version", gs_version());
    put_string(&j, "compiler", cli_compiler());
    put_object(&j, "cpu");
    put_string(&j, "model", f->model);
    put_u64(&j, "online", f->cpus);
    put_u64(&j, "usable", f->usable);
    put_string(&j, "limit", f->limit);
    json_flags(&j, "detected", f->detected);
    json_flags(&j, "used", f->used);
    put_end(&j);
    put_string(&j, "kernels", cli_kernels(f->used));
    put_u64(&j, "threads", f->threads);
    put_array(&j, "formats");
    for (int d = 0; d < GS_DTYPE_COUNT; d++) {
        const gs_format *format = gs_dtype_format((gs_dtype)d);
        char code[32];
        snprintf(code, sizeof code, "0x%" PRIx64, format->max_code);
        put_object(&j, NULL);
        put_string(&j, "name", format->name);
        put_u64(&j, "bits", 8 * format->bytes);
        put_i64(&j, "exponent_bits", format->exponent_bits);
        put_i64(&j, "mantissa_bits", format->mantissa_bits);
        put_string(&j, "max_code", code);
        put_double(&j, "max", format->max);
        put_double(&j, "min_normal", format->min_normal);
        put_double(&j, "min_subnormal", format->min_subnormal);
        put_double(&j, "epsilon", format->epsilon);
        put_end(&j);
    }
    put_end(&j);
    put_end(&j);
}

static void print_flags(const char *label, unsigned cpu)
{
    printf("%-9s", label);
    for (unsigned i = 0; i < GS_CPU_COUNT; i++)
        if (cpu & 1u << i)
            printf(" %s", gs_cpu_name(1u << i));
    printf("%s\n", cpu ? "" : " none");
}

/* "online" is the machine itself: no limit. */
static const char *limit_text(const char *limit)
{
    return strcmp(limit, "affinity") == 0 ? "limited by the affinity mask"
           : strcmp(limit, "quota") == 0  ? "limited by a cgroup quota"
                                          : "no limit";
}

static void print_text(const facts *f)
{
    printf("gradscale %s, %s\n", gs_version(), cli_compiler());
    printf("%-9s %s, %u online, %u usable (%s)\n", "cpu", f->model, f->cpus, f->usable,
           limit_text(f->limit));
    print_flags("detected", f->detected);
    printf("%-9s %s\n", "kernels", cli_kernels(f->used));
    printf("%-9s %u\n\n", "threads", f->threads);

    cli_table *t =
        cli_table_new((const char *const[]){"<format", ">bits", ">exponent", ">mantissa", ">max",
                                            ">min normal", ">min subnormal", ">epsilon", NULL});
    for (int d = 0; d < GS_DTYPE_COUNT; d++) {
        const gs_format *format = gs_dtype_format((gs_dtype)d);
        cli_table_cell(t, "%s", format->name);
        cli_table_cell(t, "%zu", 8 * format->bytes);
        cli_table_cell(t, "%d", format->exponent_bits);
        cli_table_cell(t, "%d", format->mantissa_bits);
        cli_table_cell(t, "%.6g", format->max);
        cli_table_cell(t, "%.6g", format->min_normal);
        cli_table_cell(t, "%.6g", format->min_subnormal);
        cli_table_cell(t, "%.6g", format->epsilon);
    }
    cli_table_print(t, stdout);
}

int cmd_info(int argc, char **argv)
{
    bool json = false;
    cli_machine machine = {0};
    const cli_option options[] = {
        CLI_MACHINE_ROWS(&machine),
        {"json", NULL, "print JSON; its schema is in doc/json-info.md", CLI_FLAG(&json)},
        {0}};
    const cli_spec spec = {
        .name = "gradscale info",
        .about = "Shows what a run on this machine would use: the instruction sets the CPU has, "
                 "the kernels and threads in use, and the number formats with their limits.",
        .options = options};
    int code = cli_parse(&spec, &argc, argv);
    if (code != CLI_GO)
        return code;

    gs_context *ctx;
    code = cli_context(&ctx, &machine);
    if (code != CLI_GO)
        return code;
    facts f = {.cpus = cli_cpus(),
               .detected = gs_cpu_detect(),
               .used = gs_context_cpu(ctx),
               .threads = gs_context_threads(ctx)};
    gs_context_free(ctx);
    f.usable = gs_cpus_usable(&f.limit);
    cli_cpu_model(f.model);
    (json ? print_json : print_text)(&f);
    return CLI_DONE;
}
