/* Whether all ranks have the same job: asked before they begin to communicate about anything else,
 * because ranks with different jobs do not even make the same calls.
 *
 * Compared are the program's version, every option in effect that decides what is computed or when
 * ranks meet, the checkpoint that they go on from, and the content of the data; not threads,
 * kernels and names of files. A difference names the option, the values and the ranks, the same on
 * all. */
#include "cli/train/ranks.h"
#include "cli/train/train.h"

#include <stdlib.h>
#include <string.h>

/* What each rank may have of its own. The data are compared by their content. */
static const char own[] = "|data|labels|threads|cpu|recompute|log|csv|tensorboard|report|"
                          "checkpoint|keep|name|telemetry-every|timeout|";

enum { ITEMS_MOST = 200, VALUE = 48, DATA_BYTES = 1 << 28 };

typedef struct item {
    const char *key;
    char value[VALUE]; /* as it is shown */
    uint64_t hash;
} item;

typedef struct list {
    item at[ITEMS_MOST];
    size_t n;
} list;

static uint64_t hash(uint64_t h, const void *data, size_t n)
{
    const unsigned char *p = data;
    uint64_t word;
    for (; n >= sizeof word; n -= sizeof word, p += sizeof word) {
        memcpy(&word, p, sizeof word);
        h = (h ^ word) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    for (; n > 0; n--)
        h = (h ^ *p++) * 0x100000001B3u;
    return h ^ h >> 32;
}

static void add(list *l, const char *key, const char *value)
{
    if (l->n == ITEMS_MOST)
        return;
    item *i = &l->at[l->n++];
    *i = (item){.key = key, .hash = hash(1, value, strlen(value))};
    snprintf(i->value, sizeof i->value, "%s", *value ? value : "not given");
}

/* Every row, with a value or not: all ranks of a version have the same list. The rows point to
 * train_given, which holds what is in effect. */
static void add_rows(list *l, const cli_option *rows)
{
    for (; rows->name; rows++) {
        char name[64], text[4096] = "";
        snprintf(name, sizeof name, "|%s|", rows->name);
        if (rows->kind == CLI_KIND_SECTION) {
            add_rows(l, rows->to.section);
            continue;
        }
        if (rows->now || strstr(own, name))
            continue;
        if (rows->kind != CLI_KIND_LIST)
            cli_value_text(text, sizeof text, rows);
        for (size_t i = 0; rows->kind == CLI_KIND_LIST && i < rows->to.list->count; i++) {
            const size_t used = strlen(text);
            snprintf(text + used, sizeof text - used, "%s%s", i ? " " : "",
                     rows->to.list->items[i]);
        }
        add(l, rows->name, text);
    }
}

/* ---- the data ---- */

/* All items, or of a large set as many as DATA_BYTES hold, from everywhere in it. */
static void hash_split(uint64_t *h, const train_job *j, gs_split split, float *x, int32_t *ids,
                       int32_t *targets)
{
    const gs_data_info *d = j->info;
    const size_t pixels = d->height * d->width * d->channels;
    const size_t labels = d->task == GS_TASK_PIXELS ? d->height * d->width : 1;
    const size_t bytes = d->time ? 8 * d->time : 4 * (pixels + labels);
    const uint64_t items = d->items[split], most = DATA_BYTES / bytes + 1;
    const uint64_t n = items < most ? items : items == UINT64_MAX ? 64 : most;
    const uint64_t stride = items == UINT64_MAX ? 1 : n > 0 ? items / n : 0;
    for (uint64_t i = 0; i < n; i++) {
        /* an item that cannot be read is a difference to one that can, and no error yet */
        if (gs_data_read(x, ids, targets, j->data, split, i * stride, NULL) != GS_OK) {
            *h = hash(*h, "unreadable", 10);
        } else if (d->time) {
            *h = hash(*h, ids, d->time * sizeof *ids);
            *h = hash(*h, targets, d->time * sizeof *targets);
        } else {
            *h = hash(*h, x, pixels * sizeof *x);
            *h = hash(*h, targets, labels * sizeof *targets);
        }
    }
    *h = hash(*h, &items, sizeof items);
}

typedef struct reading {
    list *l;
    const train_job *j;
} reading;

static int add_data(void *user)
{
    const reading *r = user;
    const train_job *j = r->j;
    const gs_data_info *d = j->info;
    const size_t pixels = d->height * d->width * d->channels, targets = d->height * d->width;
    float *x = cli_resize(NULL, (pixels + 1) * sizeof *x);
    int32_t *ids = cli_resize(NULL, (d->time + 1) * sizeof *ids);
    int32_t *labels = cli_resize(NULL, (d->time + targets + 1) * sizeof *labels);
    char text[VALUE];
    uint64_t h = hash(1, (const uint64_t[]){d->height, d->width, d->channels, d->time, d->classes},
                      5 * sizeof(uint64_t));
    for (int split = 0; split < GS_SPLIT_COUNT; split++)
        hash_split(&h, j, (gs_split)split, x, ids, labels);
    free(x);
    free(ids);
    free(labels);
    snprintf(text, sizeof text, "content %016llx", (unsigned long long)h);
    add(r->l, "content of the data", text);
    return CLI_GO;
}

/* ---- comparing ---- */

/* "rank 2", "ranks 1, 3 and 5 more" */
static void name_ranks(char *text, size_t room, const unsigned char *differs, int size)
{
    enum { NAMED = 8 };
    int all = 0, said = 0;
    for (int r = 0; r < size; r++)
        all += differs[r];
    size_t used = (size_t)snprintf(text, room, all > 1 ? "ranks" : "rank");
    for (int r = 0; r < size && said < NAMED; r++)
        if (differs[r])
            used += (size_t)snprintf(text + used, room - used, said++ ? ", %d" : " %d", r);
    if (all > said)
        snprintf(text + used, room - used, " and %d more", all - said);
}

/* CLI_GO if the hash is that of all ranks. */
static int compare(const train_job *j, const char *what, const char *value, uint64_t mine)
{
    typedef struct said {
        uint64_t hash;
        char value[VALUE];
    } said;
    const int size = j->comm.size;
    gs_error error = {0};
    said *all = cli_resize(NULL, (size_t)size * sizeof *all);
    unsigned char *differs = cli_resize(NULL, (size_t)size);
    memset(all, 0, (size_t)size * sizeof *all);
    all[j->comm.rank].hash = mine;
    snprintf(all[j->comm.rank].value, VALUE, "%s", value);
    int code = CLI_GO, first = 0;
    if (gs_comm_allgather(&j->comm, all, sizeof *all, &error) != GS_OK) {
        code = cli_fail_status(GS_ERANK, &error);
    } else {
        for (int r = size - 1; r > 0; r--) {
            differs[r] = all[r].hash != all[0].hash;
            first = differs[r] ? r : first;
        }
        differs[0] = 0;
        if (first > 0) {
            char names[128];
            name_ranks(names, sizeof names, differs, size);
            all[0].value[VALUE - 1] = all[first].value[VALUE - 1] = 0;
            code = cli_failed("the ranks have different jobs: %s is %s on rank 0 and %s on %s",
                              what, all[0].value, all[first].value, names);
        }
    }
    free(all);
    free(differs);
    return code;
}

static uint64_t hash_all(const list *l)
{
    uint64_t h = l->n;
    for (size_t i = 0; i < l->n; i++)
        h = hash(hash(h, l->at[i].key, strlen(l->at[i].key)), &l->at[i].hash, sizeof(uint64_t));
    return h;
}

/* One gather where all is well; only then, where it is not, one per option. */
static int compare_list(const train_job *j, const list *l)
{
    uint64_t *all = cli_resize(NULL, (size_t)j->comm.size * sizeof *all);
    gs_error error = {0};
    bool same = true;
    all[j->comm.rank] = hash_all(l);
    const gs_status status = gs_comm_allgather(&j->comm, all, sizeof *all, &error);
    for (int r = 1; r < j->comm.size; r++)
        same &= all[r] == all[0];
    free(all);
    if (status != GS_OK)
        return cli_fail_status(GS_ERANK, &error);
    if (same)
        return CLI_GO;
    int code = CLI_GO;
    for (size_t i = 0; i < l->n && code == CLI_GO; i++) {
        char what[64];
        const bool option = !strchr(l->at[i].key, ' ');
        snprintf(what, sizeof what, "%s%s", option ? "--" : "the ", l->at[i].key);
        code = compare(j, what, l->at[i].value, l->at[i].hash);
    }
    return code == CLI_GO ? cli_failed("the ranks have different jobs") : code;
}

int train_agree(const train_job *j, const char *checkpoint)
{
    static list l;
    if (j->comm.size == 1)
        return CLI_GO;
    const char *version = gs_version(), *from = strrchr(checkpoint, '/');
    int code = compare(j, "the version of gradscale", version, hash(1, version, strlen(version)));
    if (code != CLI_GO)
        return code;
    l.n = 0;
    add_rows(&l, train_rows);
    add(&l, "dry-run", j->o.dry_run ? "yes" : "no"); /* these end before the others meet again */
    add(&l, "print-config", j->o.print_config ? "yes" : "no");
    add(&l, "folder of checkpoints", j->o.checkpoint ? "given" : "not given");
    add(&l, "checkpoint to go on from", from ? from + 1 : "none");
    ranks_busy(add_data, &(reading){.l = &l, .j = j}); /* which may be slow to read */
    return compare_list(j, &l);
}
