/* `gradscale advise --json`. Schema: doc/json-advise.md. */
#include "cli/advise/advise.h"
#include "cli/core/json.h"

#include <inttypes.h>
#include <math.h>

static const char *const verdicts[] = {
    [ADVISE_EMPTY] = "empty",         [ADVISE_NO_NEED] = "no_need",
    [ADVISE_SCALE] = "scale",         [ADVISE_TOO_WIDE] = "too_wide",
    [ADVISE_TOO_SMALL] = "too_small", [ADVISE_TOO_LARGE] = "too_large",
};

static void format_object(json_writer *j, const char *key, const gs_rounded *r)
{
    put_object(j, key);
    put_array(j, "flushed");
    for (int k = 0; k < SCALES; k++)
        put_u64(j, NULL, r[k].underflow);
    put_end(j);
    put_array(j, "subnormal");
    for (int k = 0; k < SCALES; k++)
        put_u64(j, NULL, r[k].subnormal);
    put_end(j);
    put_array(j, "overflow");
    for (int k = 0; k < SCALES; k++)
        put_u64(j, NULL, r[k].overflow);
    put_end(j);
    put_end(j);
}

static void survey_members(json_writer *j, const survey *s)
{
    put_u64(j, "elements", s->elements);
    put_u64(j, "zero", s->zero);
    put_u64(j, "inf", s->inf);
    put_u64(j, "nan", s->nan);
    put_double(j, "amax", (double)s->amax);
    if (survey_has_safe(s))
        put_i64(j, "largest_safe_log2_scale", s->safe);
    else
        put_null(j, "largest_safe_log2_scale");
    put_object(j, "histogram");
    put_i64(j, "first_exponent", s->low);
    put_array(j, "counts");
    for (int e = s->low; s->counts && e <= s->high; e++)
        put_u64(j, NULL, s->counts[e - s->low]);
    put_end(j);
    put_end(j);
    format_object(j, "fp16", s->f16);
    format_object(j, "bf16", s->bf16);
}

static void tensor_object(json_writer *j, const advise_tensor *t)
{
    const gs_entry *e = t->entry;
    put_object(j, NULL);
    put_string(j, "name", e->name);
    put_string(j, "type", e->type);
    put_array(j, "shape");
    for (int d = 0; d < e->rank; d++)
        put_u64(j, NULL, e->shape[d]);
    put_end(j);
    put_bool(j, "skipped", !gs_entry_readable(e));
    if (gs_entry_readable(e)) {
        if (t->s.first_bad != GS_NONE)
            put_u64(j, "first_nonfinite", t->s.first_bad);
        else
            put_null(j, "first_nonfinite");
        survey_members(j, &t->s);
    }
    put_end(j);
}

void advise_json(const advise *a)
{
    json_writer j;
    put_begin(&j, stdout, true);
    put_object(&j, NULL);
    put_string(&j, "version", gs_version());
    put_i64(&j, "margin_bits", a->margin);
    put_double(&j, "dump_scale", a->scale);
    put_object(&j, "advice");
    put_string(&j, "verdict", verdicts[a->advice.verdict]);
    if (!survey_has_safe(&a->total))
        put_null(&j, "log2_scale");
    else
        put_i64(&j, "log2_scale", a->advice.log2_scale);
    put_bool(&j, "bf16_needs_scale", a->advice.bf16_needed);
    put_string(&j, "fp16_sentence", a->advice.f16);
    put_string(&j, "bf16_sentence", a->advice.bf16);
    put_string(&j, "nonfinite_sentence", a->advice.bad[0] ? a->advice.bad : NULL);
    put_string(&j, "zero_sentence", a->advice.zeros[0] ? a->advice.zeros : NULL);
    put_end(&j);
    if (a->bad_entry) {
        put_object(&j, "first_nonfinite");
        put_string(&j, "file", a->bad_file->path);
        put_string(&j, "tensor", a->bad_entry->name);
        put_u64(&j, "index", a->bad_index);
        put_end(&j);
    } else {
        put_null(&j, "first_nonfinite");
    }
    put_object(&j, "total");
    survey_members(&j, &a->total);
    put_end(&j);
    put_array(&j, "files");
    for (size_t f = 0; f < a->count; f++) {
        const advise_file *file = &a->files[f];
        put_object(&j, NULL);
        put_string(&j, "path", file->path);
        put_string(&j, "format", gs_source_format(file->source));
        put_u64(&j, "bytes", gs_source_size(file->source));
        put_array(&j, "tensors");
        for (size_t t = 0; t < file->count; t++)
            tensor_object(&j, &file->tensors[t]);
        put_end(&j);
        put_end(&j);
    }
    put_end(&j);
    put_end(&j);
}
