/* Reading PTX: text to instructions. Whatever is not known is an error. */
#include "ptx.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const unsigned char ptx_sizes[] = {0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 8, 8, 8, 8};

static const char *const types[] = {"",      "pred",   "b8",   "u8",  "s8",  "b16", "u16",
                                    "s16",   "f16",    "bf16", "b32", "u32", "s32", "f32",
                                    "f16x2", "bf16x2", "b64",  "u64", "s64", "f64"};
static const char *const ops[] = {"",
#define X(name) #name,
                                  PTX_OPS(X)
#undef X
};
static const char *const compares[] = {
#define X(name) #name,
    PTX_COMPARES(X)
#undef X
};

enum { WORD = 96, MOST_REGISTERS = 64, MOST_LABELS = 4096, MOST_SYMBOLS = 64 };

typedef struct named {
    char name[WORD];
    long first, count; /* registers: count 0 is a single one. Labels, symbols: first is where */
} named;

typedef struct reader {
    const char *p;
    int line, failed;
    char *error;
    ptx_module *module;
    ptx_kernel *kernel;
    named registers[MOST_REGISTERS], symbols[MOST_SYMBOLS], *labels, *jumps;
    int n_registers, n_symbols, n_labels, n_jumps;
    int scopes[16], depth;
    double version;
} reader;

static void fail(reader *r, const char *what, const char *word)
{
    if (!r->failed)
        snprintf(r->error, sizeof(ptx_error), "line %d: %s %.80s", r->line, what, word);
    r->failed = 1;
}

/* ---- words ---- */

static void skip_space(reader *r)
{
    for (;; r->p++) {
        if (*r->p == '\n')
            r->line++;
        else if (r->p[0] == '/' && r->p[1] == '/')
            while (r->p[1] && r->p[1] != '\n')
                r->p++;
        else if (!isspace((unsigned char)*r->p))
            return;
    }
}

static int accept(reader *r, const char *text)
{
    const size_t n = strlen(text);
    skip_space(r);
    if (r->failed || strncmp(r->p, text, n) != 0)
        return 0;
    r->p += n;
    return 1;
}

static void expect(reader *r, const char *text)
{
    if (!r->failed && !accept(r, text))
        fail(r, "expected", text);
}

static void read_word(reader *r, char word[WORD])
{
    size_t n = 0;
    skip_space(r);
    while (isalnum((unsigned char)*r->p) || (*r->p && strchr("._$%@!", *r->p))) {
        if (n + 1 < WORD)
            word[n++] = *r->p;
        r->p++;
    }
    word[n] = 0;
    if (n == 0)
        fail(r, "unexpected", (char[]){*r->p, 0});
}

static long read_number(reader *r)
{
    char *end;
    skip_space(r);
    const long x = strtol(r->p, &end, 0);
    if (end == r->p)
        fail(r, "no number at", r->p);
    r->p = end;
    return x;
}

static ptx_type type_of(const char *name)
{
    for (int i = 1; i <= PTX_F64; i++)
        if (strcmp(name, types[i]) == 0)
            return (ptx_type)i;
    return PTX_NONE;
}

/* ---- operands ---- */

static int find_register(const reader *r, const char *word)
{
    for (int i = r->n_registers - 1; i >= 0; i--) { /* the innermost scope first */
        const named *x = &r->registers[i];
        const size_t n = strlen(x->name);
        if (x->count == 0 && strcmp(word, x->name) == 0)
            return (int)x->first;
        if (x->count > 0 && strncmp(word, x->name, n) == 0 && isdigit((unsigned char)word[n])) {
            char *end;
            const long k = strtol(word + n, &end, 10);
            if (*end == 0 && k < x->count)
                return (int)(x->first + k);
        }
    }
    return -1;
}

static void read_immediate(reader *r, ptx_operand *o)
{
    char *end;
    const int hex =
        r->p[0] == '0' && (r->p[1] == 'f' || r->p[1] == 'F' || r->p[1] == 'd' || r->p[1] == 'D');
    o->reg = PTX_IMMEDIATE;
    if (hex)
        o->number = strtoull(r->p + 2, &end, 16);
    else
        o->number = *r->p == '-' ? (uint64_t)strtoll(r->p, &end, 0) : strtoull(r->p, &end, 0);
    r->p = end + (*end == 'U');
}

static void read_operand(reader *r, ptx_operand *o, int address)
{
    static const struct {
        const char *name;
        int reg;
    } specials[] = {{"%tid.x", PTX_TID},
                    {"%ctaid.x", PTX_CTAID},
                    {"%ntid.x", PTX_NTID},
                    {"%nctaid.x", PTX_NCTAID}};
    char word[WORD];
    *o = (ptx_operand){PTX_IMMEDIATE, 0};
    skip_space(r);
    if (*r->p == '-' || isdigit((unsigned char)*r->p)) {
        read_immediate(r, o);
        return;
    }
    read_word(r, word);
    for (size_t i = 0; i < sizeof specials / sizeof specials[0]; i++)
        if (strcmp(word, specials[i].name) == 0) {
            o->reg = specials[i].reg;
            return;
        }
    o->reg = find_register(r, word);
    if (o->reg < 0) {
        int found = 0;
        o->reg = PTX_IMMEDIATE;
        for (size_t i = 0; i < r->kernel->n_parameters; i++)
            if (strcmp(word, r->kernel->parameters[i].name) == 0)
                o->number = i, found = 1;
        for (int i = 0; i < r->n_symbols; i++)
            if (strcmp(word, r->symbols[i].name) == 0)
                o->number = (uint64_t)r->symbols[i].first, found = 1;
        if (!found)
            fail(r, "unknown operand", word);
    }
    skip_space(r);
    if (address && *r->p == '+') {
        r->p++;
        o->number += (uint64_t)read_number(r);
    }
}

static void read_operands(reader *r, ptx_instruction *i)
{
    do {
        if (accept(r, "{")) {
            i->split = i->op == PTX_mov ? i->n + 1 : 0; /* 1: unpacks, 2: packs */
            do
                read_operand(r, &i->x[i->n++], 0);
            while (i->n < 6 && accept(r, ","));
            expect(r, "}");
        } else if (accept(r, "[")) {
            read_operand(r, &i->x[i->n++], 1);
            expect(r, "]");
        } else {
            read_operand(r, &i->x[i->n++], 0);
        }
    } while (!r->failed && i->n < 6 && accept(r, ","));
    expect(r, ";");
}

/* ---- instructions ---- */

static named *add_named(named **list, int *n, const char *name, long first)
{
    if (*n % 64 == 0)
        *list = realloc(*list, sizeof **list * (size_t)(*n + 64));
    named *x = &(*list)[(*n)++];
    snprintf(x->name, sizeof x->name, "%s", name);
    x->first = first;
    x->count = 0;
    return x;
}

/* One word between the dots. False: it is not known, or is known to be inexact. */
static int modifier(ptx_instruction *i, const char *word)
{
    static const struct {
        const char *name;
        ptx_op op; /* of which; 0: any */
        size_t at; /* the member that is set */
        int value;
    } words[] = {
        {"rn", 0, offsetof(ptx_instruction, round), PTX_RN},
        {"rzi", PTX_cvt, offsetof(ptx_instruction, round), PTX_RZI},
        {"global", 0, offsetof(ptx_instruction, space), PTX_GLOBAL},
        {"shared", 0, offsetof(ptx_instruction, space), PTX_SHARED},
        {"local", 0, offsetof(ptx_instruction, space), PTX_LOCAL},
        {"param", 0, offsetof(ptx_instruction, space), PTX_PARAM},
        {"v2", 0, offsetof(ptx_instruction, width), 2},
        {"v4", 0, offsetof(ptx_instruction, width), 4},
        {"lo", 0, offsetof(ptx_instruction, part), PTX_LO},
        {"hi", 0, offsetof(ptx_instruction, part), PTX_HI},
        {"wide", 0, offsetof(ptx_instruction, part), PTX_WIDE},
        {"add", PTX_atom, offsetof(ptx_instruction, atomic), PTX_ATOMIC_ADD},
        {"min", PTX_atom, offsetof(ptx_instruction, atomic), PTX_ATOMIC_MIN},
        {"max", PTX_atom, offsetof(ptx_instruction, atomic), PTX_ATOMIC_MAX},
        {"to", PTX_cvta, offsetof(ptx_instruction, split), 0},
        {"uni", PTX_bra, offsetof(ptx_instruction, split), 0},
        {"sync", PTX_bar, offsetof(ptx_instruction, split), 0},
        {"nc", PTX_ld, offsetof(ptx_instruction, split), 0},
    };
    for (size_t k = 0; k < sizeof words / sizeof words[0]; k++)
        if (strcmp(word, words[k].name) == 0 && (!words[k].op || words[k].op == i->op)) {
            memcpy((char *)i + words[k].at, &words[k].value, sizeof(int));
            return 1;
        }
    for (int k = 0; k < PTX_COMPARE_COUNT && i->op == PTX_setp; k++)
        if (strcmp(word, compares[k]) == 0) {
            i->compare = (ptx_compare)k;
            return 1;
        }
    return 0;
}

static void read_modifiers(reader *r, ptx_instruction *i, char *word, const char *whole)
{
    int seen = 0;
    for (char *save = NULL, *part = strtok_r(word, ".", &save); part;
         part = strtok_r(NULL, ".", &save)) {
        const ptx_type type = type_of(part);
        if (i->op == PTX_no_op) {
            for (size_t k = 1; k < sizeof ops / sizeof ops[0]; k++)
                if (strcmp(part, ops[k]) == 0)
                    i->op = (ptx_op)k;
            if (i->op == PTX_no_op)
                fail(r, "unknown instruction", whole);
        } else if (type && seen++) {
            i->from = type;
        } else if (type) {
            i->type = type;
        } else if (!modifier(i, part)) {
            fail(r, "not executed exactly, so not at all:", whole);
        }
        if (r->failed)
            return;
    }
    const int real = i->type == PTX_F32 || i->type == PTX_F64;
    if (i->op == PTX_fma)
        r->module->fma = r->line;
    if (real && i->round != PTX_RN &&
        (i->op == PTX_div || i->op == PTX_sqrt || i->op == PTX_rcp || i->op == PTX_add ||
         i->op == PTX_sub || i->op == PTX_mul || i->op == PTX_fma))
        fail(r, "may be contracted, or is not exact, without .rn:", whole);
}

static void read_instruction(reader *r)
{
    char word[WORD], whole[WORD];
    ptx_instruction i = {.guard = -1, .target = -1, .width = 1};
    read_word(r, word);
    i.line = r->line;
    if (word[0] == '@') {
        i.unless = word[1] == '!';
        i.guard = find_register(r, word + 1 + i.unless);
        if (i.guard < 0)
            fail(r, "unknown predicate", word);
        read_word(r, word);
    }
    if (accept(r, ":")) {
        add_named(&r->labels, &r->n_labels, word, r->kernel->n);
        return;
    }
    snprintf(whole, sizeof whole, "%s", word);
    read_modifiers(r, &i, word, whole);
    if (r->failed)
        return;
    if (i.op == PTX_bra) {
        read_word(r, word);
        add_named(&r->jumps, &r->n_jumps, word, r->kernel->n);
        expect(r, ";");
    } else if (i.op == PTX_ret) {
        expect(r, ";");
    } else {
        read_operands(r, &i);
    }
    ptx_kernel *k = r->kernel;
    if (k->n == k->room) {
        k->room = k->room ? 2 * k->room : 256;
        k->code = realloc(k->code, sizeof *k->code * (size_t)k->room);
    }
    k->code[k->n++] = i;
}

/* ---- kernels ---- */

static void read_registers(reader *r)
{
    char word[WORD];
    read_word(r, word);
    do {
        if (r->n_registers == MOST_REGISTERS) {
            fail(r, "too many registers at", word);
            return;
        }
        named *x = &r->registers[r->n_registers++];
        read_word(r, x->name);
        x->first = r->kernel->registers;
        x->count = 0;
        if (accept(r, "<")) {
            x->count = read_number(r);
            expect(r, ">");
        }
        r->kernel->registers += x->count ? (int)x->count : 1;
    } while (accept(r, ","));
    expect(r, ";");
}

static void read_memory(reader *r, uint32_t *used)
{
    expect(r, ".align");
    const uint32_t align = (uint32_t)read_number(r);
    expect(r, ".b8");
    if (r->failed || r->n_symbols == MOST_SYMBOLS || align == 0) {
        fail(r, "cannot place", "memory");
        return;
    }
    named *x = &r->symbols[r->n_symbols++];
    read_word(r, x->name);
    expect(r, "[");
    const uint32_t bytes = (uint32_t)read_number(r);
    expect(r, "]");
    expect(r, ";");
    *used = (*used + align - 1) / align * align;
    x->first = *used;
    *used += bytes;
}

static void read_parameters(reader *r)
{
    char word[WORD];
    ptx_kernel *k = r->kernel;
    expect(r, "(");
    while (!r->failed && !accept(r, ")")) {
        expect(r, ".param");
        read_word(r, word);
        if (k->n_parameters == sizeof k->parameters / sizeof k->parameters[0]) {
            fail(r, "too many parameters of", k->name);
            return;
        }
        k->parameters[k->n_parameters].type = type_of(word + 1);
        if (accept(r, ".ptr")) {
            accept(r, ".global");
            if (accept(r, ".align"))
                read_number(r);
        }
        read_word(r, word);
        snprintf(k->parameters[k->n_parameters++].name, sizeof k->parameters[0].name, "%.79s",
                 word);
        accept(r, ",");
    }
}

static void read_body(reader *r)
{
    while (!r->failed) {
        if (accept(r, "}")) {
            if (r->depth == 0)
                return;
            r->n_registers = r->scopes[--r->depth];
        } else if (accept(r, "{")) {
            if (r->depth == 16)
                fail(r, "too many", "scopes");
            else
                r->scopes[r->depth++] = r->n_registers;
        } else if (accept(r, ".reg")) {
            read_registers(r);
        } else if (accept(r, ".shared")) {
            read_memory(r, &r->kernel->shared);
        } else if (accept(r, ".local")) {
            read_memory(r, &r->kernel->local);
        } else if (accept(r, ".pragma")) {
            if (accept(r, "\"used_bytes_mask") && r->version < 8.3) /* as ptxas does */
                fail(r, "version 8.3 is needed for", "used_bytes_mask");
            while (*r->p && *r->p != ';')
                r->p++;
            expect(r, ";");
        } else {
            read_instruction(r);
        }
    }
}

static void read_kernel(reader *r)
{
    char word[WORD];
    ptx_kernel *k = calloc(1, sizeof *k);
    k->next = r->module->kernels;
    r->module->kernels = r->kernel = k;
    r->n_registers = r->n_symbols = r->n_labels = r->n_jumps = r->depth = 0;
    read_word(r, word);
    snprintf(k->name, sizeof k->name, "%.63s", word);
    read_parameters(r);
    while (!r->failed && !accept(r, "{")) { /* .maxntid and the like */
        read_word(r, word);
        do
            read_number(r);
        while (accept(r, ","));
    }
    read_body(r);
    for (int j = 0; j < r->n_jumps && !r->failed; j++) {
        ptx_instruction *jump = &k->code[r->jumps[j].first];
        for (int l = 0; l < r->n_labels; l++)
            if (strcmp(r->jumps[j].name, r->labels[l].name) == 0)
                jump->target = (int)r->labels[l].first;
        if (jump->target < 0)
            fail(r, "no label", r->jumps[j].name);
    }
}

ptx_module *ptx_load(const char *text, ptx_error error)
{
    reader *r = calloc(1, sizeof *r);
    char word[WORD];
    r->p = text;
    r->line = 1;
    r->error = error;
    r->module = calloc(1, sizeof *r->module);
    for (;;) {
        skip_space(r);
        if (!*r->p || r->failed)
            break;
        if (accept(r, ".version")) {
            r->version = strtod(r->p, NULL);
            while (*r->p && *r->p != '\n')
                r->p++;
        } else if (accept(r, ".target") || accept(r, ".address_size")) {
            while (*r->p && *r->p != '\n')
                r->p++;
        } else if (accept(r, ".visible")) {
        } else if (accept(r, ".entry")) {
            read_kernel(r);
        } else {
            read_word(r, word);
            fail(r, "unknown", word);
        }
    }
    ptx_module *module = r->module;
    if (!r->failed && !module->kernels)
        fail(r, "there is", "no kernel");
    if (r->failed) {
        ptx_free(module);
        module = NULL;
    }
    free(r->labels);
    free(r->jumps);
    free(r);
    return module;
}

void ptx_free(ptx_module *module)
{
    while (module && module->kernels) {
        ptx_kernel *k = module->kernels;
        module->kernels = k->next;
        free(k->code);
        free(k);
    }
    free(module);
}

const ptx_kernel *ptx_find(const ptx_module *module, const char *name)
{
    const ptx_kernel *k = module->kernels;
    while (k && strcmp(k->name, name) != 0)
        k = k->next;
    return k;
}

size_t ptx_parameters(const ptx_kernel *kernel) { return kernel->n_parameters; }
size_t ptx_parameter_bytes(const ptx_kernel *kernel, size_t i)
{
    return ptx_sizes[kernel->parameters[i].type];
}
