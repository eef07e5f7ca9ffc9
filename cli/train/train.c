#include "cli/core/commands.h"
#include "cli/train/ranks.h"
#include "cli/report/report.h"
#include "cli/train/train.h"

#include <string.h>
#include <unistd.h>

/* A rank opens and closes files while the others wait for it. */

typedef struct storage {
    train_job *j;
    const char *checkpoint;
} storage;

static int open_job(void *user)
{
    const storage *s = user;
    return train_job_open(s->j, s->checkpoint);
}

static int begin_to_write(void *user)
{
    const storage *s = user;
    return train_job_write(s->j, s->checkpoint);
}

static int write_report(void *user)
{
    const storage *s = user;
    return report_write(s->j->o.report, &s->j->o.log, 1, &(report_options){.option = "--report"});
}

/* Every rank makes its part of the job; only rank 0 writes. */
static int prepare(train_job *j, char *checkpoint, size_t room)
{
    storage files = {.j = j, .checkpoint = checkpoint};
    int code = ranks_busy(open_job, &files);
    if (code == CLI_GO && !j->o.print_config && j->comm.rank == 0)
        code = train_check_paths(&j->o);
    if (code == CLI_GO) /* what is in it is new: another run may have its first name meanwhile */
        code = train_folder_name(j);
    code = ranks_first_error(code, NULL);
    if (code == CLI_GO)
        code = train_agree(j, checkpoint);
    if (code == CLI_GO && !j->o.print_config)
        code = ranks_first_error(train_job_make(j, checkpoint, room), NULL);
    if (code == CLI_GO && !j->o.print_config && !j->o.dry_run)
        code = ranks_first_error(ranks_busy(begin_to_write, &files), NULL);
    return code;
}

/* What is to be read again is printed as it is, but for a terminal: a checkpoint's options may hold
 * anything. */
static void print_config(char *text)
{
    if (!isatty(STDOUT_FILENO)) {
        printf("%s", text);
        return;
    }
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        cli_print("%s\n", line);
}

static int run(train_job *j, char *checkpoint, size_t room)
{
    int code = prepare(j, checkpoint, room);
    if (code != CLI_GO)
        return code;
    if (j->o.print_config) {
        print_config(j->config);
        return CLI_DONE;
    }
    if (j->o.dry_run)
        return train_dry_run(j);
    train_result result;
    if (!j->o.quiet)
        train_show_heading(j);
    code = train_loop(j, &result);
    if (j->o.report && j->comm.rank == 0) {
        const int written = ranks_busy(write_report, &(storage){.j = j});
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
    ranks_begin();
    int code = train_parse(argc, argv, checkpoint, sizeof checkpoint);
    if (code != CLI_GO)
        return ranks_end(code);
    train_job job = {.o = train_given};
    code = ranks_open(&job.comm, job.o.timeout);
    if (code == CLI_GO)
        code = run(&job, checkpoint, sizeof checkpoint);
    train_job_close(&job);
    return ranks_end(code);
}
