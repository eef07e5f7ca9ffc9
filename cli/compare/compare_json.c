/* A comparison as JSON. Schema: doc/json-compare.md. */
#include "cli/compare/compare.h"
#include "cli/core/json.h"

#include "gradscale/base.h"

#include <math.h>
#include <stdlib.h>

static const char *const endings[] = {[COMPARE_WAITING] = "not begun",
                                      [COMPARE_DONE] = "done",
                                      [COMPARE_FAILED] = "failed",
                                      [COMPARE_STOPPED] = "interrupted"};

static const char *const fates[] = {
    [REPORT_FINE] = "fine", [REPORT_STUCK] = "stuck", [REPORT_DIVERGED] = "diverged"};

static void write_layers(json_writer *j, const report_run *run)
{
    put_array(j, "layers");
    for (size_t i = 0; i < run->layer_count; i++) {
        const report_layer *l = &run->layers[i];
        put_object(j, NULL);
        put_string(j, "name", l->name);
        put_double(j, "flushed", l->underflow / l->samples);
        put_end(j);
    }
    put_end(j);
}

static void write_trial(json_writer *j, const compare_trial *t)
{
    put_object(j, NULL);
    put_u64(j, "seed", t->seed);
    put_string(j, "ending", endings[t->ending]);
    put_string(j, "reason", t->reason[0] ? t->reason : NULL);
    put_string(j, "log", t->is_read ? t->log : NULL);
    if (t->is_read) {
        put_string(j, "fate", fates[t->has.fate]);
        put_u64(j, "steps", t->has.n);
        put_double(j, "train_loss", report_train_loss(&t->has));
        put_double(j, "valid_loss", t->has.is_validated ? t->has.loss : (double)NAN);
        put_double(j, "accuracy", t->has.accuracy);
        put_u64(j, "skipped", t->has.skipped);
        put_u64(j, "retried", t->has.retried);
        put_double(j, "flushed", t->has.underflow);
        put_double(j, "items_per_s", t->has.rate);
        put_double(j, "bytes", t->has.bytes);
        put_double(j, "seconds", t->seconds);
        write_layers(j, &t->has);
    }
    put_end(j);
}

static void write_mean(json_writer *j, const compare_mean *m)
{
    put_object(j, "mean");
    put_u64(j, "trials", m->done);
    put_double(j, "train_loss", m->train);
    put_double(j, "valid_loss", m->valid);
    put_double(j, "valid_loss_least", m->least);
    put_double(j, "valid_loss_most", m->most);
    put_double(j, "accuracy", m->accuracy);
    put_double(j, "flushed", m->underflow);
    put_double(j, "items_per_s", m->rate);
    put_double(j, "bytes", m->bytes);
    put_double(j, "ratio", m->ratio);
    put_double(j, "ratio_least", m->ratio_least);
    put_double(j, "ratio_most", m->ratio_most);
    put_end(j);
}

static void write_run(json_writer *j, const compare_all *c, const compare_run *run)
{
    const compare_mean mean = compare_mean_of(c, run);
    put_object(j, NULL);
    put_string(j, "name", run->name);
    put_string(j, "precision", run->precision);
    put_string(j, "scaler", run->scaler);
    put_string(j, "mode", run->mode[0] ? run->mode : NULL);
    put_string(j, "quantize", run->quantize[0] ? run->quantize : NULL);
    put_string(j, "on_overflow", run->how[0] ? run->how : NULL);
    write_mean(j, &mean);
    put_array(j, "trials");
    for (size_t i = 0; i < c->n * c->seeds; i++)
        if (c->trials[i].run == run)
            write_trial(j, &c->trials[i]);
    put_end(j);
    put_end(j);
}

void compare_json(const compare_all *c, FILE *to)
{
    static const char *const keys[WORDS_COUNT] = {"headline", "lost", "cost", "use", "command"};
    json_writer j;
    put_begin(&j, to, true);
    put_object(&j, NULL);
    put_string(&j, "version", gs_version());
    put_string(&j, "config", c->config);
    put_string(&j, "report", c->report[0] ? c->report : NULL);
    put_string(&j, "reference", compare_reference(c)->name);
    put_array(&j, "runs");
    for (size_t i = 0; i < c->n; i++)
        write_run(&j, c, &c->runs[i]);
    put_end(&j);
    report_words words;
    if (compare_words(c, &words)) {
        put_object(&j, "words");
        for (int i = 0; i < WORDS_COUNT; i++) {
            put_string(&j, keys[i], words.text[i]);
            free(words.text[i]);
        }
        put_end(&j);
    } else {
        put_null(&j, "words");
    }
    put_end(&j);
}
