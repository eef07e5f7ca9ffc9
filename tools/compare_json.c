/* A comparison as JSON. Schema: doc/json-compare.md. */
#include "compare.h"
#include "json.h"

#include "gradscale/base.h"

#include <math.h>
#include <stdlib.h>

static const char *const endings[] = {[COMPARE_WAITING] = "not begun",
                                      [COMPARE_DONE] = "done",
                                      [COMPARE_FAILED] = "failed",
                                      [COMPARE_STOPPED] = "interrupted"};

static void write_layers(json_writer *j, const report_run *run)
{
    json_array(j, "layers");
    for (size_t i = 0; i < run->layer_count; i++) {
        const report_layer *l = &run->layers[i];
        json_object(j, NULL);
        json_string(j, "name", l->name);
        json_double(j, "flushed", l->lost / l->samples);
        json_end(j);
    }
    json_end(j);
}

static void write_trial(json_writer *j, const compare_trial *t)
{
    json_object(j, NULL);
    json_u64(j, "seed", t->seed);
    json_string(j, "ending", endings[t->ending]);
    json_string(j, "reason", t->reason[0] ? t->reason : NULL);
    json_string(j, "log", t->is_read ? t->log : NULL);
    if (t->is_read) {
        json_u64(j, "steps", t->has.n);
        json_double(j, "train_loss", report_train_loss(&t->has));
        json_double(j, "valid_loss", t->has.is_validated ? t->has.loss : (double)NAN);
        json_double(j, "accuracy", t->has.accuracy);
        json_u64(j, "skipped", t->has.skipped);
        json_u64(j, "retried", t->has.retried);
        json_double(j, "flushed", t->has.lost);
        json_double(j, "items_per_s", t->has.rate);
        json_double(j, "bytes", t->has.bytes);
        json_double(j, "seconds", t->seconds);
        write_layers(j, &t->has);
    }
    json_end(j);
}

static void write_mean(json_writer *j, const compare_mean *m)
{
    json_object(j, "mean");
    json_u64(j, "trials", m->done);
    json_double(j, "train_loss", m->train);
    json_double(j, "valid_loss", m->valid);
    json_double(j, "valid_loss_least", m->least);
    json_double(j, "valid_loss_most", m->most);
    json_double(j, "accuracy", m->accuracy);
    json_double(j, "flushed", m->flushed);
    json_double(j, "items_per_s", m->rate);
    json_double(j, "bytes", m->bytes);
    json_double(j, "ratio", m->ratio);
    json_double(j, "ratio_least", m->ratio_least);
    json_double(j, "ratio_most", m->ratio_most);
    json_end(j);
}

static void write_run(json_writer *j, const compare_all *c, const compare_run *run)
{
    const compare_mean mean = compare_mean_of(c, run);
    json_object(j, NULL);
    json_string(j, "name", run->name);
    json_string(j, "precision", run->precision);
    json_string(j, "scaler", run->scaler);
    json_string(j, "mode", run->mode[0] ? run->mode : NULL);
    json_string(j, "on_overflow", run->how[0] ? run->how : NULL);
    write_mean(j, &mean);
    json_array(j, "trials");
    for (size_t i = 0; i < c->n * c->seeds; i++)
        if (c->trials[i].run == run)
            write_trial(j, &c->trials[i]);
    json_end(j);
    json_end(j);
}

void compare_json(const compare_all *c, FILE *to)
{
    static const char *const keys[WORDS_COUNT] = {"headline", "lost", "cost", "use"};
    json_writer j;
    json_begin(&j, to, true);
    json_object(&j, NULL);
    json_string(&j, "version", gs_version());
    json_string(&j, "config", c->config);
    json_string(&j, "report", c->report[0] ? c->report : NULL);
    json_string(&j, "reference", compare_reference(c)->name);
    json_array(&j, "runs");
    for (size_t i = 0; i < c->n; i++)
        write_run(&j, c, &c->runs[i]);
    json_end(&j);
    report_words words;
    if (compare_words(c, &words)) {
        json_object(&j, "words");
        for (int i = 0; i < WORDS_COUNT; i++) {
            json_string(&j, keys[i], words.text[i]);
            free(words.text[i]);
        }
        json_end(&j);
    } else {
        json_null(&j, "words");
    }
    json_end(&j);
}
