#include "commands.h"
#include "report.h"
#include "train.h"

static int run(train_job *j, const char *checkpoint)
{
    int code = train_job_open(j);
    if (code != CLI_GO)
        return code;
    if (j->o.print_config) {
        printf("%s", j->config);
        return CLI_DONE;
    }
    code = train_job_make(j, checkpoint);
    if (code != CLI_GO)
        return code;
    if (j->o.dry_run)
        return train_dry_run(j);
    code = train_job_write(j, checkpoint);
    if (code != CLI_GO)
        return code;
    train_result result;
    if (!j->o.quiet)
        train_show_heading(j);
    code = train_loop(j, &result);
    if (j->o.report) {
        const int written =
            report_write(j->o.report, &j->o.log, 1, &(report_options){.option = "--report"});
        result.reported = written == CLI_DONE;
        code = code == CLI_GO && written != CLI_DONE ? written : code;
    }
    if (!j->o.quiet)
        train_show_summary(j, &result);
    return code == CLI_GO ? CLI_DONE : code;
}

int cmd_train(int argc, char **argv)
{
    char checkpoint[4096];
    const int code = train_parse(argc, argv, checkpoint, sizeof checkpoint);
    if (code != CLI_GO)
        return code;
    train_job job = {.o = train_given};
    const int result = run(&job, checkpoint);
    train_job_close(&job);
    return result;
}
