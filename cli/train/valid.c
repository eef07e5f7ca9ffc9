/* Validation: the loss, and what is right, over the items held out. */
#include "cli/train/ranks.h"
#include "cli/train/train.h"

#include <math.h>

static uint64_t items_of(const train_job *j)
{
    const uint64_t there = j->info->items[GS_SPLIT_VALID];
    return there < j->o.valid_items ? there : j->o.valid_items;
}

bool train_valid_possible(const train_job *j) { return items_of(j) > 0; }

/* Each rank looks at its span of the items; what they add up to is the same on all. */
int train_validate(train_job *j, double *loss, double *accuracy)
{
    const bool counted = j->info->task != GS_TASK_TOKENS; /* of words the loss says more */
    const uint64_t items = items_of(j);
    const size_t targets = j->info->task == GS_TASK_PIXELS ? j->info->height * j->info->width : 1;
    const gs_loader_config order = {.size = sizeof order,
                                    .split = GS_SPLIT_VALID,
                                    .batch = (size_t)(items < j->o.batch ? items : j->o.batch)};
    gs_loader *loader;
    gs_error error = {0};
    gs_status status = gs_loader_create(&loader, j->data, &order, NULL, &error);
    const uint64_t rank = (uint64_t)j->comm.rank, ranks = (uint64_t)j->comm.size;
    const uint64_t first = items / ranks * rank + items % ranks * rank / ranks;
    const uint64_t last = items / ranks * (rank + 1) + items % ranks * (rank + 1) / ranks;
    double sums[2] = {0}; /* of losses, of what is right */
    if (status == GS_OK)
        status = gs_loader_seek(loader, first, NULL);
    for (uint64_t seen = first; status == GS_OK && seen < last;) {
        const gs_batch *micro;
        size_t n;
        status = gs_loader_next(&micro, &n, loader, &error);
        if (status != GS_OK)
            break;
        gs_batch batch = micro[0];
        batch.n = batch.n < last - seen ? batch.n : (size_t)(last - seen);
        double mean;
        size_t hits = 0;
        status = gs_trainer_evaluate(&mean, counted ? &hits : NULL, j->trainer, &batch);
        if (status != GS_OK)
            error = *gs_context_error(j->ctx);
        sums[0] += mean * (double)batch.n;
        sums[1] += (double)hits;
        seen += batch.n;
    }
    gs_loader_free(loader);
    /* a part of the items says nothing of all of them */
    const int code =
        ranks_first_error(status == GS_OK ? CLI_GO : cli_fail_status(status, &error), NULL);
    if (code != CLI_GO)
        return code;
    if (gs_comm_sum(&j->comm, j->ctx, sums, 2) != GS_OK)
        return cli_fail_status(GS_ERANK, gs_context_error(j->ctx));
    *loss = sums[0] / (double)items;
    *accuracy = counted ? sums[1] / ((double)items * (double)targets) : (double)NAN;
    return CLI_GO;
}
