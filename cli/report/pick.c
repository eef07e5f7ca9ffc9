/* Which of the runs to use: by elimination.
 *
 * (1) The rules are applied in order. Each looks at the groups that are left, finds the best of
 *     them and rules out those that are worse by more than its tolerance; so at least one is left.
 * (2) What a group does not tell (NaN) cannot rule it out.
 * (3) A later rule never outweighs an earlier one: speed, the measure with the most noise, decides
 *     only between runs that are equal in all that matters more. */
#include "cli/report/groups.h"

#include <math.h>
#include <string.h>

/* Costs: less is better. */

static double loss_of(const group *g) { return g->ratio; }

/* fp32 has no underflow and sets no bar: half precision is measured by half precision. */
static double underflow_of(const group *g) { return g->is_half ? g->underflow : (double)NAN; }

/* A scale that follows the gradients, or a format that needs none, before a fixed scale, before no
 * check at all: with a fixed scale the next jump of the gradients is the end of the run. */
static double fragility_of(const group *g)
{
    const char *scaler = report_value(&g->first->config, "scaler");
    const char *precision = report_value(&g->first->config, "precision");
    if (!scaler || !precision)
        return (double)NAN;
    if (strcmp(precision, "fp32") == 0)
        return 0;
    if (strcmp(scaler, "none") == 0)
        return 2;
    return strcmp(precision, "fp16") == 0 && report_has_fixed_scale(g->first);
}

static double bytes_of(const group *g) { return g->bytes; }
static double seconds_of(const group *g) { return group_is_timed(g) ? 1 / g->rate : (double)NAN; }

static void rule_out(const verdict *v, pick_rule *out, pick_rule rule,
                     double (*cost)(const group *), double tolerance, double factor)
{
    double least = (double)INFINITY;
    for (size_t i = 0; i < v->n; i++)
        if (out[i] == PICK_LEFT)
            least = fmin(least, cost(&v->at[i]));
    for (size_t i = 0; i < v->n; i++)
        if (out[i] == PICK_LEFT && cost(&v->at[i]) > least * (1 + factor) + tolerance)
            out[i] = rule;
}

const group *pick_group(const verdict *v, pick_rule *out)
{
    size_t left = 0;
    for (size_t i = 0; i < v->n; i++) {
        const group *g = &v->at[i];
        const bool can = g->steps > 0 && !group_failed(g) && isfinite(g->ratio);
        out[i] = can ? PICK_LEFT : group_failed(g) || g->has_loss ? PICK_FAILED : PICK_UNTOLD;
        left += can;
    }
    if (left == 0)
        return NULL;
    rule_out(v, out, PICK_LOSS, loss_of, 0, v->noise);
    rule_out(v, out, PICK_UNDERFLOW, underflow_of, verdict_much, 0);
    rule_out(v, out, PICK_ROBUST, fragility_of, 0, 0);
    rule_out(v, out, PICK_MEMORY, bytes_of, 0, 0.05);
    rule_out(v, out, PICK_SPEED, seconds_of, 0, verdict_faster);
    rule_out(v, out, PICK_WASTE, group_wasted, 0.01, 0);
    rule_out(v, out, PICK_LEAST, loss_of, 0, 0);
    size_t i = 0;
    while (out[i] != PICK_LEFT)
        i++;
    for (size_t k = i + 1; k < v->n; k++) /* equal to the last bit: the first */
        if (out[k] == PICK_LEFT)
            out[k] = PICK_LEAST;
    return &v->at[i];
}
