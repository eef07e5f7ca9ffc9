/* The presets: what differs from the defaults, in the words of gs_params_set. Sorted by name. Each
 * is defined by recordings of the framework's own code, tests/traces. */
#include "scaler/scaler.h"

#include <string.h>

static const struct {
    const char *name, *differs;
} presets[] = {
    {"apex", "state=f64 backoff=0x1p+1 back_op=div max=0x1p+24"},
    {"apex-contrib", "state=f64 backoff=0x1p+1 back_op=div interval=1000 compare=mod "
                     "floor=0x1p+0"},
    {"apex-fp16-utils", "init=0x1p+32 state=f64 backoff=0x1p+1 back_op=div interval=1000 "
                        "compare=mod floor=0x1p+0"},
    {"apex-hysteresis", "hyst=2 refill=clean keep_nonfinite=yes"},
    {"chainer", "init=0x1p+0 state=f64 growth=0x1.002d711c79a96p+0 interval=1 "
                "floor=0x1p+0 max=0x1.ffcp+15 warm_growth=0x1p+1"},
    {"colossalai", "grow_op=state back_op=state interval=1000 hyst=2 refill=growth"},
    {"composer", "keep_nonfinite=yes"},
    {"deepspeed", "state=f64 backoff=0x1p+1 back_op=div interval=1000 extra=1 compare=mod "
                  "hyst=2 refill=growth floor=0x1p+0 err=eq-before err_min=0x1p+0"},
    {"deepspeed-0.17.0", "state=f64 backoff=0x1p+1 back_op=div interval=1000 compare=mod hyst=2 "
                         "refill=growth floor=0x1p+0 err=eq-before err_min=0x1p+0"},
    {"deepspeed-fused", "init=0x1p+32 state=f64 backoff=0x1p+1 back_op=div interval=1000 extra=1 "
                        "compare=mod floor=0x1p+0"},
    {"deepspeed-unfused", "state=f64 backoff=0x1p+1 back_op=div interval=1000 extra=1 compare=mod "
                          "floor=0x1p-2"},
    {"fairscale", "init=0x1p+15 state=f64 backoff=0x1p+1 back_op=div compare=mod "
                  "track_rescale=yes err=le-after err_min=0x1.a36e2eb1c432dp-14"},
    {"fairseq", "init=0x1p+15 state=f64 backoff=0x1p+1 back_op=div compare=mod "
                "track_rescale=yes err=le-after err_min=0x1.a36e2eb1c432dp-14"},
    {"flax", "grow_op=state back_op=state interval=2001 floor=0x1p-126 "
             "max=0x1.fffffep+127"},
    {"jmp", "init=0x1p+15 grow_op=state backoff=0x1p+1 back_op=div compare=wrap "
            "floor=0x1p+0 keep_nonfinite=yes"},
    {"keras", "init=0x1p+15 grow_op=state back_op=state"},
    {"megatron", "init=0x1p+32 grow_op=state back_op=state interval=1000 hyst=2 "
                 "refill=growth floor=0x1p+0"},
    {"metaseq", "init=0x1p+2 state=f64 backoff=0x1p+1 back_op=div interval=256 "
                "compare=mod track_rescale=yes err=restore-lt err_min=0x1p-5 "
                "window_follows=0x1p+1"},
    {"mindspore", "init=0x1p+24 grow_op=state backoff=0x1p+1 back_op=div compare=wrap "
                  "floor=0x1p+0 keep_nonfinite=yes"},
    {"mindspore-cell", "init=0x1p+24 grow_op=state backoff=0x1p+1 back_op=recip compare=ge "
                       "floor=0x1p+0"},
    {"mindspore-manager", "init=0x1p+24 state=f64 backoff=0x1p+1 back_op=recip compare=mod "
                          "floor=0x1p+0 bad_limit=1000"},
    {"mxnet", "state=f64 backoff=0x1p+1 back_op=div max=0x1p+24 lag=1"},
    {"nnabla", "init=0x1p+3 state=f64 backoff=0x1p+1 back_op=div interval=2001 extra=1 "
               "compare=ge"},
    {"oneflow", "grow_op=state backoff=0x1p+1 back_op=div compare=ge floor=0x1p+0 "
                "max=0x1.fffffep+127"},
    {"openseq2seq", "init=0x1p+14 grow_op=state backoff=0x1p+1 back_op=div compare=mod "
                    "floor=0x1p+0 max=0x1p+14"},
    {"openseq2seq-late", "init=0x1p+14 grow_op=state backoff=0x1p+1 back_op=div credit=1 "
                         "compare=mod floor=0x1p+0 max=0x1p+14"},
    {"paddle", "grow_op=state back_op=state refill=clean+backoff"},
    {"paddle-static", "init=0x1p+15 grow_op=state backoff=0x1.999999999999ap-1 back_op=state "
                      "interval=1000 hyst=2 refill=clean+backoff floor=0x1p+0 "
                      "keep_nonfinite=yes"},
    {"pytorch", "keep_nonfinite=yes"},
    {"pytorch-fsdp-cpu", "grow_op=state back_op=state"},
    {"pytorch-mps", "grow_op=state back_op=state compare=ge"},
    {"tensorflow", "init=0x1p+15 grow_op=state backoff=0x1p+1 back_op=div compare=ge "
                   "floor=0x1p+0 keep_nonfinite=yes"},
    {"tensorflow-1.15-cap", "init=0x1p+15 grow_op=state backoff=0x1p+1 back_op=div compare=ge "
                            "floor=0x1p+0 max=0x1p+32"},
    {"tf-keras", "init=0x1p+15 grow_op=state backoff=0x1p+1 back_op=div compare=ge "
                 "floor=0x1p+0 keep_nonfinite=yes"},
    {"tf1-exponential", "init=0x1p+15 grow_op=state backoff=0x1.999999999999ap-1 back_op=state "
                        "compare=ge hyst=2 refill=growth+backoff floor=0x1p+0 keep_nonfinite=yes"},
};

static void params_default_in_mode(gs_params *params)
{
    *params = (gs_params){.init = 0x1p+16,
                          .growth = 2,
                          .backoff = 0.5,
                          .floor = (double)NAN,
                          .max = (double)NAN,
                          .err_min = (double)NAN,
                          .window_follows = (double)NAN,
                          .warm_growth = (double)NAN,
                          .interval = 2000,
                          .hyst = 1,
                          .bad_limit = GS_NO_LIMIT,
                          .state = GS_STATE_F32,
                          .grow_op = GS_ARITH_WIDE,
                          .back_op = GS_ARITH_WIDE,
                          .compare = GS_COMPARE_EQ};
}

void gs_params_default(gs_params *params) { GSI_IN_MODE(params_default_in_mode(params)); }

static gs_status params_preset_in_mode(gs_params *params, const char *preset, gs_error *error)
{
    for (size_t i = 0; preset && i < GSI_COUNT(presets); i++)
        if (strcmp(preset, presets[i].name) == 0) {
            gs_params_default(params);
            return gs_params_set(params, presets[i].differs, error);
        }
    return gsi_fail(error, GS_ENAME, "unknown preset '%.60s'", preset ? preset : "");
}

gs_status gs_params_preset(gs_params *params, const char *preset, gs_error *error)
{
    GSI_RETURN_IN_MODE(gs_status, params_preset_in_mode(params, preset, error));
}

const char *gs_preset_name(size_t i) { return i < GSI_COUNT(presets) ? presets[i].name : NULL; }
