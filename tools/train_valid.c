/* Validation: the loss, and what is right, over the items held out. */
#include "train.h"

#include <math.h>

static uint64_t items_of(const train_job *j)
{
    const uint64_t there = j->info->items[GS_SPLIT_VALID];
    return there < j->o.valid_items ? there : j->o.valid_items;
}

bool train_valid_possible(const train_job *j) { return items_of(j) > 0; }

int train_validate(train_job *j, double *loss, double *accuracy)
{
    const bool counted = j->info->task != GS_TASK_TOKENS; /* of words the loss says more */
    const uint64_t items = items_of(j);
    const size_t targets = j->info->task == GS_TASK_PIXELS ? j->info->height * j->info->width : 1;
    const gs_loader_config order = {.split = GS_SPLIT_VALID,
                                    .batch = (size_t)(items < j->o.batch ? items : j->o.batch)};
    gs_loader *loader;
    gs_error error = {0};
    gs_status status = gs_loader_create(&loader, j->data, &order, NULL, &error);
    double sum = 0, right = 0;
    for (uint64_t seen = 0; status == GS_OK && seen < items;) {
        const gs_batch *micro;
        size_t n;
        status = gs_loader_next(loader, &micro, &n, &error);
        if (status != GS_OK)
            break;
        gs_batch batch = micro[0];
        batch.n = batch.n < items - seen ? batch.n : (size_t)(items - seen);
        double mean;
        size_t hits = 0;
        status = gs_trainer_evaluate(j->trainer, &batch, &mean, counted ? &hits : NULL);
        if (status != GS_OK)
            error = *gs_context_error(j->ctx);
        sum += mean * (double)batch.n;
        right += (double)hits;
        seen += batch.n;
    }
    gs_loader_free(loader);
    if (status != GS_OK)
        return cli_failed("validation: %s", error.text);
    *loss = sum / (double)items;
    *accuracy = counted ? right / ((double)items * (double)targets) : (double)NAN;
    return CLI_GO;
}
