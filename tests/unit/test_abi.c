/* What a program of another version sees: sizes of the public structs, the version, and configs of
 * another size.
 *
 * A size that changes here changes the ABI: `make abi` then, and a soname of its own. */
#include "gradscale/checkpoint.h"
#include "gradscale/data.h"
#include "gradscale/device.h"
#include "gradscale/gradscale.h"
#include "gradscale/io.h"
#include "gradscale/log.h"
#include "gradscale/infer.h"
#include "gradscale/mpi.h"
#include "gradscale/trace.h"
#include "test.h"

#include <string.h>

/* Where pointers and size_t have 8 bytes. */
#define SIZES(X)                 \
    X(gs_error, 244)             \
    X(gs_alloc, 16)              \
    X(gs_parallel, 16)           \
    X(gs_checkpoint, 72)         \
    X(gs_checkpoint_text, 17992) \
    X(gs_saver_times, 32)        \
    X(gs_saver_state, 32)        \
    X(gs_comm, 48)               \
    X(gs_reducer_config, 24)     \
    X(gs_piece, 16)              \
    X(gs_config, 48)             \
    X(gs_data_config, 104)       \
    X(gs_data_info, 104)         \
    X(gs_loader_config, 88)      \
    X(gs_device_config, 80)      \
    X(gs_device_info, 248)       \
    X(gs_device_ptr, 16)         \
    X(gs_device_weight, 104)     \
    X(gs_device_plan_config, 56) \
    X(gs_device_report, 160)     \
    X(gs_tape_config, 48)        \
    X(gs_layer, 96)              \
    X(gs_memory, 24)             \
    X(gs_op_seconds, 16)         \
    X(gs_running, 24)            \
    X(gs_value, 80)              \
    X(gs_exponents, 7704)        \
    X(gs_rounded, 32)            \
    X(gs_im2col, 80)             \
    X(gs_matrix, 64)             \
    X(gs_matrix_out, 32)         \
    X(gs_gemm, 224)              \
    X(gs_gemm_int8, 96)          \
    X(gs_unit_use, 16)           \
    X(gs_entry, 120)             \
    X(gs_log_step, 112)          \
    X(gs_log_pair, 24)           \
    X(gs_log_pairs, 16)          \
    X(gs_log_run, 96)            \
    X(gs_log_resume, 16)         \
    X(gs_log_valid, 32)          \
    X(gs_log_layer, 48)          \
    X(gs_log_layer_list, 16)     \
    X(gs_log_layers, 24)         \
    X(gs_log_counts, 16)         \
    X(gs_log_histogram, 48)      \
    X(gs_log_histogram_list, 16) \
    X(gs_log_exponents, 40)      \
    X(gs_log_checkpoint, 24)     \
    X(gs_log_end, 80)            \
    X(gs_logger_config, 56)      \
    X(gs_log_line, 128)          \
    X(gs_mpi_config, 40)         \
    X(gs_format, 64)             \
    X(gs_weight, 72)             \
    X(gs_store_types, 12)        \
    X(gs_store_entry, 32)        \
    X(gs_schedule, 48)           \
    X(gs_optim_config, 208)      \
    X(gs_optim_report, 56)       \
    X(gs_optim_state, 64)        \
    X(gs_params, 128)            \
    X(gs_machine, 88)            \
    X(gs_rules, 32)              \
    X(gs_counters, 80)           \
    X(gs_scaler, 512)            \
    X(gs_finding, 40)            \
    X(gs_step, 576)              \
    X(gs_verdict, 24)            \
    X(gs_window, 1176)           \
    X(gs_stats, 80)              \
    X(gs_strided, 16)            \
    X(gs_tensor, 40)             \
    X(gs_trace, 216)             \
    X(gs_batch, 40)              \
    X(gs_init, 8)                \
    X(gs_state_entry, 16)        \
    X(gs_model, 152)             \
    X(gs_augment, 32)            \
    X(gs_layout, 24)             \
    X(gs_infer_config, 32)       \
    X(gs_infer_result, 16)       \
    X(gs_sampling_config, 40)    \
    X(gs_kv, 40)                 \
    X(gs_mlp_config, 24)         \
    X(gs_cnn_config, 56)         \
    X(gs_fcn_config, 56)         \
    X(gs_gpt_config, 96)         \
    X(gs_resnet_config, 48)      \
    X(gs_vit_config, 88)         \
    X(gs_ranks, 24)              \
    X(gs_trainer_config, 824)    \
    X(gs_held, 24)               \
    X(gs_train_row, 280)

#if UINTPTR_MAX == UINT64_MAX
#define X(type, bytes) _Static_assert(sizeof(type) == (bytes), #type);
SIZES(X)
#undef X
#endif
_Static_assert(sizeof(gs_scaler) <= 512, "a scaler is plain data of at most 512 bytes");
_Static_assert(sizeof(gs_status) == 4 && sizeof(gs_dtype) == 4, "enums are ints");

static void test_version(void)
{
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", GS_VERSION_NUMBER / 10000,
             GS_VERSION_NUMBER / 100 % 100, GS_VERSION_NUMBER % 100);
    CHECK(strcmp(text, gs_version()) == 0 && gs_version_number() == GS_VERSION_NUMBER);
}

/* ---- configs ---- */

static gs_context *ctx;
static gs_error error;

/* Every call that takes a config. */
static gs_status make_context(const void *config)
{
    gs_context *one;
    const gs_status status = gs_context_create(&one, config, &error);
    gs_context_free(one);
    return status;
}

static gs_status make_tape(const void *config)
{
    gs_tape *one;
    const gs_status status = gs_tape_create(&one, ctx, config);
    gs_tape_free(one);
    return status;
}

static gs_status make_optim(const void *config)
{
    gs_optim *one;
    const gs_status status = gs_optim_create(&one, ctx, NULL, 0, config);
    gs_optim_free(one);
    return status;
}

static gs_status make_reducer(const void *config)
{
    gs_reducer *one;
    const gs_comm comm = gs_comm_single();
    const gs_status status = gs_reducer_create(&one, ctx, &comm, NULL, 0, config);
    gs_reducer_free(one);
    return status;
}

static gs_status make_mlp(const void *config)
{
    gs_model *one;
    const gs_status status = gs_mlp_create(&one, ctx, config);
    gs_model_free(one);
    return status;
}

static gs_status make_cnn(const void *config)
{
    gs_model *one;
    const gs_status status = gs_cnn_create(&one, ctx, config);
    gs_model_free(one);
    return status;
}

static gs_status make_fcn(const void *config)
{
    gs_model *one;
    const gs_status status = gs_fcn_create(&one, ctx, config);
    gs_model_free(one);
    return status;
}

static gs_status make_gpt(const void *config)
{
    gs_model *one;
    const gs_status status = gs_gpt_create(&one, ctx, config);
    gs_model_free(one);
    return status;
}

static gs_status make_trainer(const void *config)
{
    gs_model *model;
    gs_trainer *one;
    const size_t sizes[] = {2, 2};
    const gs_mlp_config mlp = {.size = sizeof mlp, .sizes = sizes, .count = 2};
    if (gs_mlp_create(&model, ctx, &mlp) != GS_OK)
        return GS_ENOMEM;
    const gs_status status = gs_trainer_create(&one, ctx, model, config);
    gs_trainer_free(one);
    gs_model_free(model);
    return status;
}

static gs_status make_data(const void *config)
{
    gs_data *one;
    const gs_status status = gs_data_open(&one, config, NULL, &error);
    gs_data_close(one);
    return status;
}

static gs_status make_loader(const void *config)
{
    gs_data *data;
    gs_loader *one = NULL;
    const gs_data_config shapes = {.size = sizeof shapes, .name = "shapes"};
    if (gs_data_open(&data, &shapes, NULL, &error) != GS_OK)
        return error.status;
    const gs_status status = gs_loader_create(&one, data, config, NULL, &error);
    gs_loader_free(one);
    gs_data_close(data);
    return status;
}

static gs_status make_logger(const void *config)
{
    gs_logger *one;
    const gs_status status = gs_logger_open(&one, config, NULL, &error);
    gs_logger_close(one);
    return status;
}

/* `size` behind a config of today's bytes: 0, none of ours, and one of a newer header are
 * refused with a message; today's is taken, and so is that of a header without the last member,
 * which counts as zero whatever lies there. */
static void try_sizes(const char *type, gs_status make(const void *config), const void *config,
                      size_t size, int has_context)
{
    unsigned char bytes[1024];
    const size_t wrong[] = {0, 3, sizeof(size_t), size + 8, SIZE_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        memset(bytes, 0xAA, sizeof bytes);
        memcpy(bytes, config, size);
        memcpy(bytes, &wrong[i], sizeof wrong[i]);
        memset(&error, 0, sizeof error);
        const gs_status status = make(bytes);
        const gs_error *said = has_context ? gs_context_error(ctx) : &error;
        CHECK_MSG(status == GS_EVERSION, "%s of %zu bytes: %s", type, wrong[i],
                  gs_status_name(status));
        CHECK_MSG(said->status == GS_EVERSION && strstr(said->text, type), "%s: %s", type,
                  said->text);
    }
    CHECK_MSG(make(config) == GS_OK, "%s as it is", type);
    const size_t older = size - 8;
    memset(bytes, 0xAA, sizeof bytes);
    memcpy(bytes, config, older);
    memcpy(bytes, &older, sizeof older);
    CHECK_MSG(make(bytes) == GS_OK, "%s of an older header", type);
}

static void test_configs(void)
{
    const size_t sizes[] = {2, 2};
    const gs_config context = {.size = sizeof context, .threads = 1};
    const gs_tape_config tape = {.size = sizeof tape, .mode = GS_O2, .half = GS_F16};
    const gs_reducer_config reducer = {.size = sizeof reducer};
    const gs_cnn_config cnn = {sizeof cnn, 8, 8, 1, 2, 2, 0};
    const gs_gpt_config gpt = {.size = sizeof gpt, 8, 8, 1, 1, 8, 0};
    const gs_data_config data = {.size = sizeof data, .name = "shapes"};
    const gs_loader_config loader = {.size = sizeof loader, .batch = 1};
    const gs_logger_config logger = {.size = sizeof logger};
    gs_optim_config optim = {.size = sizeof optim};
    gs_trainer_config trainer = {.size = sizeof trainer,
                                 .tape.size = sizeof trainer.tape,
                                 .optim.size = sizeof trainer.optim};
    CHECK(gs_context_create(&ctx, &context, NULL) == GS_OK);
    CHECK(gs_optim_config_init(&optim, "sgd", NULL) == GS_OK);
    CHECK(gs_optim_config_init(&trainer.optim, "sgd", NULL) == GS_OK);
    CHECK(gs_scaler_init(&trainer.scaler, "none", NULL) == GS_OK);

    try_sizes("gs_config", make_context, &context, sizeof context, 0);
    try_sizes("gs_tape_config", make_tape, &tape, sizeof tape, 1);
    try_sizes("gs_optim_config", make_optim, &optim, sizeof optim, 1);
    try_sizes("gs_reducer_config", make_reducer, &reducer, sizeof reducer, 1);
    try_sizes("gs_cnn_config", make_cnn, &cnn, sizeof cnn, 1);
    try_sizes("gs_gpt_config", make_gpt, &gpt, sizeof gpt, 1);
    try_sizes("gs_trainer_config", make_trainer, &trainer, sizeof trainer, 1);
    try_sizes("gs_data_config", make_data, &data, sizeof data, 0);
    try_sizes("gs_loader_config", make_loader, &loader, sizeof loader, 0);
    try_sizes("gs_logger_config", make_logger, &logger, sizeof logger, 0);

    /* Of these no older header is imaginable: all of their members must be set. */
    CHECK(make_mlp(&(gs_mlp_config){sizeof(gs_mlp_config), sizes, 2}) == GS_OK);
    CHECK(make_mlp(&(gs_mlp_config){0, sizes, 2}) == GS_EVERSION);
    CHECK(make_fcn(&(gs_fcn_config){sizeof(gs_fcn_config), 8, 8, 1, 2, 2, 1}) == GS_OK);
    CHECK(make_fcn(&(gs_fcn_config){0, 8, 8, 1, 2, 2, 1}) == GS_EVERSION);

    /* A config inside of a config must be today's: what follows would lie elsewhere. */
    trainer.tape.size -= 8;
    CHECK(make_trainer(&trainer) == GS_EVERSION &&
          strstr(gs_context_error(ctx)->text, "tape.size"));
    trainer.tape.size += 8;
    trainer.optim.size -= 8;
    CHECK(make_trainer(&trainer) == GS_EVERSION &&
          strstr(gs_context_error(ctx)->text, "optim.size"));
    trainer.optim.size += 8;
    trainer.scaler.size -= 8;
    CHECK(make_trainer(&trainer) == GS_EVERSION &&
          strstr(gs_context_error(ctx)->text, "gs_scaler"));
    gs_context_free(ctx);
}

/* What the library writes into a config of an older header stays inside of it. */
static void test_older_optim_config(void)
{
    gs_optim_config config, today = {.size = sizeof today};
    memset(&config, 0xAA, sizeof config);
    CHECK(gs_optim_config_init(&config, "adamw", &error) == GS_EVERSION);
    config.size = sizeof config - 8; /* without clear_grads */
    CHECK(gs_optim_config_init(&config, "adamw", &error) == GS_OK);
    CHECK(gs_optim_config_set(&config, "lr=0.5", &error) == GS_OK && config.lr == 0.5);
    CHECK(gs_optim_config_check(&config, &error) == GS_OK);
    unsigned char behind[8];
    memset(behind, 0xAA, sizeof behind);
    CHECK(memcmp((char *)&config + sizeof config - 8, behind, 8) == 0);
    CHECK(gs_optim_config_init(&today, "adamw", &error) == GS_OK);
    today.lr = 0.5;
    CHECK(memcmp(&config.kind, &today.kind, sizeof config - 8 - sizeof config.size) == 0);
}

/* ---- errors ---- */

static void test_context_error(void)
{
    gs_context *one;
    const gs_config many = {.size = sizeof many, .threads = 1u << 20};
    CHECK(gs_context_create(&one, &many, &error) == GS_ERANGE && !one);
    CHECK_MSG(error.status == GS_ERANGE && strstr(error.text, "1048576 threads"), "%s", error.text);
    CHECK(gs_context_create(NULL, NULL, &error) == GS_ENULL && error.status == GS_ENULL);
    CHECK(gs_context_create(&one, &many, NULL) == GS_ERANGE);
}

/* Objects made from a context report in it, a missing pointer too: an older message would mislead.
 */
static void test_missing_pointers(void)
{
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    gs_model *model = NULL;
    gs_tape *tape;
    gs_reducer *reducer;
    gs_trainer *trainer;
    gs_infer *infer;
    const gs_sampling_config sampling = {.size = sizeof sampling};
    const gs_optim_config optim = {.size = sizeof optim};
    const float logits[2] = {0};
#define CALLS(X)                                                                       \
    X(gs_optim_create, (NULL, ctx, NULL, 0, &optim))                                   \
    X(gs_store_create, (NULL, ctx, NULL, 0, (gs_store_types){GS_F32, GS_F32, GS_F32})) \
    X(gs_tape_create, (&tape, ctx, NULL))                                              \
    X(gs_reducer_create, (&reducer, ctx, NULL, NULL, 0, NULL))                         \
    X(gs_mlp_create, (&model, ctx, NULL))                                              \
    X(gs_cnn_create, (&model, ctx, NULL))                                              \
    X(gs_fcn_create, (&model, ctx, NULL))                                              \
    X(gs_gpt_create, (&model, ctx, NULL))                                              \
    X(gs_resnet_create, (&model, ctx, NULL))                                           \
    X(gs_vit_create, (&model, ctx, NULL))                                              \
    X(gs_model_quantize, (NULL, ctx))                                                  \
    X(gs_trainer_create, (&trainer, ctx, NULL, NULL))                                  \
    X(gs_infer_create, (&infer, ctx, NULL, NULL))                                      \
    X(gs_sample, (NULL, ctx, logits, 2, &sampling, 0))
#define X(call, arguments)                                                                    \
    {                                                                                         \
        const gs_tensor bad = {NULL, 0, (gs_dtype)99, NULL, NULL};                            \
        CHECK(gs_tensors_check(ctx, &bad, 1, NULL) == GS_EDTYPE); /* something else before */ \
        CHECK(call arguments == GS_ENULL);                                                    \
        const gs_error *e = gs_context_error(ctx);                                            \
        CHECK_MSG(e->status == GS_ENULL && strstr(e->text, #call), "%s: %s", #call, e->text); \
    }
    CALLS(X)
#undef X
    gs_context_free(ctx);
}

TESTS({"version", test_version}, {"configs", test_configs},
      {"older_optim_config", test_older_optim_config}, {"context_error", test_context_error},
      {"missing_pointers", test_missing_pointers})
