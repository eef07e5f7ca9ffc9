/* `gradscale advise --json`. Schema: doc/json-advise.md. */
#include "advise.h"
#include "json.h"

#include <inttypes.h>
#include <math.h>

static const char *const verdicts[] = {
    [ADVISE_EMPTY] = "empty",         [ADVISE_NO_NEED] = "no_need",
    [ADVISE_SCALE] = "scale",         [ADVISE_TOO_WIDE] = "too_wide",
    [ADVISE_TOO_SMALL] = "too_small", [ADVISE_TOO_LARGE] = "too_large",
};

static void format_object(json_writer *j, const char *key, const gs_rounded *r)
{
    json_object(j, key);
    json_array(j, "flushed");
    for (int k = 0; k < SCALES; k++)
        json_u64(j, NULL, r[k].flushed);
    json_end(j);
    json_array(j, "subnormal");
    for (int k = 0; k < SCALES; k++)
        json_u64(j, NULL, r[k].subnormal);
    json_end(j);
    json_array(j, "overflow");
    for (int k = 0; k < SCALES; k++)
        json_u64(j, NULL, r[k].overflow);
    json_end(j);
    json_end(j);
}

static void survey_members(json_writer *j, const survey *s)
{
    json_u64(j, "elements", s->elements);
    json_u64(j, "zero", s->zero);
    json_u64(j, "inf", s->inf);
    json_u64(j, "nan", s->nan);
    json_double(j, "amax", (double)s->amax);
    if (survey_has_safe(s))
        json_i64(j, "largest_safe_log2_scale", s->safe);
    else
        json_null(j, "largest_safe_log2_scale");
    json_object(j, "histogram");
    json_i64(j, "first_exponent", s->low);
    json_array(j, "counts");
    for (int e = s->low; s->counts && e <= s->high; e++)
        json_u64(j, NULL, s->counts[e - s->low]);
    json_end(j);
    json_end(j);
    format_object(j, "fp16", s->f16);
    format_object(j, "bf16", s->bf16);
}

static void tensor_object(json_writer *j, const advise_tensor *t)
{
    const gs_entry *e = t->entry;
    json_object(j, NULL);
    json_string(j, "name", e->name);
    json_string(j, "type", e->type);
    json_array(j, "shape");
    for (int d = 0; d < e->rank; d++)
        json_u64(j, NULL, e->shape[d]);
    json_end(j);
    json_bool(j, "skipped", !gs_entry_readable(e));
    if (gs_entry_readable(e)) {
        if (t->s.first_bad != GS_NONE)
            json_u64(j, "first_nonfinite", t->s.first_bad);
        else
            json_null(j, "first_nonfinite");
        survey_members(j, &t->s);
    }
    json_end(j);
}

void advise_json(const advise *a)
{
    json_writer j;
    json_begin(&j, stdout, true);
    json_object(&j, NULL);
    json_string(&j, "version", gs_version());
    json_i64(&j, "margin_bits", a->margin);
    json_object(&j, "advice");
    json_string(&j, "verdict", verdicts[a->advice.verdict]);
    if (!survey_has_safe(&a->total))
        json_null(&j, "log2_scale");
    else
        json_i64(&j, "log2_scale", a->advice.log2_scale);
    json_bool(&j, "bf16_needs_scale", a->advice.bf16_needed);
    json_string(&j, "fp16_sentence", a->advice.f16);
    json_string(&j, "bf16_sentence", a->advice.bf16);
    json_string(&j, "nonfinite_sentence", a->advice.bad[0] ? a->advice.bad : NULL);
    json_end(&j);
    if (a->bad_entry) {
        json_object(&j, "first_nonfinite");
        json_string(&j, "file", a->bad_file->path);
        json_string(&j, "tensor", a->bad_entry->name);
        json_u64(&j, "index", a->bad_index);
        json_end(&j);
    } else {
        json_null(&j, "first_nonfinite");
    }
    json_object(&j, "total");
    survey_members(&j, &a->total);
    json_end(&j);
    json_array(&j, "files");
    for (size_t f = 0; f < a->count; f++) {
        const advise_file *file = &a->files[f];
        json_object(&j, NULL);
        json_string(&j, "path", file->path);
        json_string(&j, "format", gs_source_format(file->source));
        json_u64(&j, "bytes", gs_source_size(file->source));
        json_array(&j, "tensors");
        for (size_t t = 0; t < file->count; t++)
            tensor_object(&j, &file->tensors[t]);
        json_end(&j);
        json_end(&j);
    }
    json_end(&j);
    json_end(&j);
}
