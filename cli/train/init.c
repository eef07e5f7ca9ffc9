/* What --init's weights were trained as, where their shapes do not tell: with other heads they
 * would load, and mean something else. A checkpoint says it in its line of the model, Hugging Face
 * in the config.json of the folder; of a file alone nobody knows. */
#include "cli/train/train.h"

#include "gradscale/io.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_BYTES = 1 << 20 }; /* of a config.json */

/* Each NaN if it is not said. */
static int compare(const char *file, double heads, double theta, const train_options *o)
{
    if (!isnan(heads) && heads != (double)o->heads)
        return cli_fail("--init: %.120s: its model has %.17g heads, and --heads is %llu", file,
                        heads, (unsigned long long)o->heads);
    if (!isnan(theta) && isnan(o->rope_theta) && theta != 10000) /* what is given is meant */
        return cli_fail("--init: %.120s: its rotary positions have the base %.17g: give "
                        "--rope-theta %.17g",
                        file, theta, theta);
    return CLI_GO;
}

static double in_line(const char *line, const char *key)
{
    const char *at = strstr(line, key);
    return at ? strtod(at + strlen(key), NULL) : (double)NAN;
}

/* A line such as "gpt layers=2 heads=4". */
static int of_line(const char *file, const char *line, const train_options *o)
{
    return compare(file, in_line(line, " heads="), in_line(line, " rope-theta="), o);
}

/* The first of two names that the object has: GPT-2's and Llama's, or those of two versions. */
static const json_t *either(const json_t *object, const char *a, const char *b)
{
    const json_t *x = json_object_get(object, a);
    return x ? x : json_object_get(object, b);
}

static double number(const json_t *x)
{
    return json_is_number(x) ? json_number_value(x) : (double)NAN;
}

static int of_config(const char *path, const json_t *root, const train_options *o)
{
    const json_t *rope = either(root, "rope_parameters", "rope_scaling"),
                 *theta = json_object_get(rope, "rope_theta"),
                 *act = either(root, "hidden_act", "activation_function");
    const char *type = json_string_value(either(rope, "rope_type", "type")),
               *unit = json_string_value(act);
    const char *line = json_string_value(json_object_get(root, "model")); /* of our own export */
    const char *model = json_string_value(json_object_get(root, "model_type"));
    const double eps = number(either(root, "rms_norm_eps", "layer_norm_epsilon"));
    if (line)
        return of_line(path, line, o);
    if (model && strcmp(model, "gpt2") != 0 && strcmp(model, "llama") != 0)
        return cli_fail("--init: %.120s: its model is %.40s, which is not computed", path, model);
    if (json_is_true(json_object_get(root, "scale_attn_by_inverse_layer_idx")))
        return cli_fail("--init: %.120s: its scores are scaled by layers, which is not computed",
                        path);
    if (json_is_false(json_object_get(root, "scale_attn_weights")))
        return cli_fail("--init: %.120s: its scores are not scaled, which is not computed", path);
    if (type && strcmp(type, "default") != 0)
        return cli_fail("--init: %.120s: its rotary positions are scaled (%.40s), which is not "
                        "computed",
                        path, type);
    if (!isnan(eps) && eps != 1e-5)
        return cli_fail("--init: %.120s: its norms add %g before the root, and 1e-05 is computed",
                        path, eps);
    if (unit && (train_is_llama(o)
                     ? strcmp(unit, "silu") != 0
                     : strcmp(unit, "gelu_new") != 0 && strcmp(unit, "gelu_pytorch_tanh") != 0))
        return cli_fail("--init: %.120s: its activation is %.40s, which is not computed", path,
                        unit);
    return compare(path, number(either(root, "num_attention_heads", "n_head")),
                   number(theta ? theta : json_object_get(root, "rope_theta")), o);
}

static int of_folder(const char *folder, const train_options *o)
{
    char path[4096];
    struct stat about;
    json_error_t error;
    const int n = snprintf(path, sizeof path, "%s/config.json", folder);
    if (n <= 0 || n >= (int)sizeof path || stat(path, &about) != 0 || !S_ISREG(about.st_mode))
        return CLI_GO;
    if (about.st_size > MOST_BYTES)
        return cli_fail("--init: %.120s: is larger than %d bytes", path, MOST_BYTES);
    FILE *from = cli_read_begin(path);
    if (!from)
        return cli_fail("--init: %.120s: cannot be opened: %s", path, strerror(errno));
    json_t *root = json_loadf(from, JSON_DECODE_INT_AS_REAL, &error);
    const int code = root           ? of_config(path, root, o)
                     : ferror(from) ? cli_failed("--init: %.120s: cannot be read", path)
                                    : cli_fail("--init: %.120s: is no JSON: %s", path, error.text);
    fclose(from);
    json_decref(root);
    return code;
}

int train_init_check(const char *path, const train_options *o)
{
    struct stat about;
    gs_source *file = NULL;
    gs_error error = {0};
    if (!strstr(train_models[o->model - 1].options, "|heads|"))
        return CLI_GO;
    const gs_status status = gs_source_open(&file, path, NULL, &error);
    if (status != GS_OK)
        return cli_fail_status(status, &error);
    const char *line =
        gs_source_metadata(file, "gradscale_checkpoint") ? gs_source_metadata(file, "model") : NULL;
    int code = CLI_GO;
    if (line)
        code = of_line(path, line, o);
    else if (stat(o->init, &about) == 0 && S_ISDIR(about.st_mode))
        code = of_folder(o->init, o);
    gs_source_close(file);
    return code;
}
